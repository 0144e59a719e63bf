//! Messages between `ebb` and a reader. Each has a kind, bytes, and descriptors.

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send as send_bytes, sendmsg,
};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The largest number of descriptors in one message.
const DESCRIPTORS_MAX: usize = 2;
/// The largest number of bytes in one message. A small file of an image fits.
const BYTES_MAX: u32 = 17 << 20;

/// A message that was received from a socket.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The kind of the message. Each protocol defines its own numbers.
    pub(crate) kind: u8,
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Sends a message with a kind, bytes and descriptors over `socket`, and waits until the socket has
/// taken all bytes.
///
/// # Errors
/// If the socket fails; `EMSGSIZE` for more than 17 MiB or more than two descriptors, without
/// sending anything.
pub(crate) fn send(
    mut socket: &UnixStream,
    kind: u8,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).ok();
    let len = len.filter(|len| *len <= BYTES_MAX && descriptors.len() <= DESCRIPTORS_MAX);
    let [a, b, c, d] = len.ok_or(Errno::MSGSIZE)?.to_le_bytes();
    let head = [a, b, c, d, kind];
    let sent = if descriptors.is_empty() {
        // The filter of a reader allows no other system call for sending.
        rustix::io::retry_on_intr(|| send_bytes(socket, &head, SendFlags::NOSIGNAL))?
    } else {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // The space is large enough for the maximum.
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        rustix::io::retry_on_intr(|| {
            sendmsg(
                socket,
                &[IoSlice::new(&head)],
                &mut ancillary,
                SendFlags::NOSIGNAL,
            )
        })?
    };
    // The descriptors travel with the first byte. The remaining bytes can follow without them.
    socket.write_all(&head[sent..])?;
    socket.write_all(bytes)
}

/// Waits for a message from `socket` and returns it. Waits without a limit, also if the socket has
/// a read timeout.
///
/// # Errors
/// If the socket fails; `UnexpectedEof` if the stream ends before or within the message; `EMSGSIZE`
/// if it announces more than 17 MiB.
pub(crate) fn receive(socket: &UnixStream) -> io::Result<Frame> {
    receive_while(socket, || Ok(()))
}

/// Receives a message from `socket` as [`receive`] does. Calls `check` each time a read of `socket`
/// times out, and after each part of the message. An error of `check` ends the wait.
///
/// # Errors
/// Those of [`receive`] and of `check`.
pub(super) fn receive_while(
    socket: &UnixStream,
    check: impl Fn() -> io::Result<()>,
) -> io::Result<Frame> {
    let mut head = [0; 5];
    let mut descriptors = Vec::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut head)];
        match recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::AGAIN) => check()?,
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    fill(socket, &mut head[received.bytes..], &check)?;
    let [a, b, c, d, kind] = head;
    let len = u32::from_le_bytes([a, b, c, d]);
    if len > BYTES_MAX {
        return Err(Errno::MSGSIZE.into());
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| Errno::MSGSIZE)?];
    fill(socket, &mut bytes, &check)?;
    Ok(Frame {
        kind,
        bytes,
        descriptors,
    })
}

/// Reads from `socket` until `bytes` is full. Fails with `UnexpectedEof` if the stream ends before
/// that, or with an error of `check`.
fn fill(
    mut socket: &UnixStream,
    mut bytes: &mut [u8],
    check: &impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                bytes = &mut bytes[count..];
                if !bytes.is_empty() {
                    check()?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => check()?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let (a, b) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send(&a, 7, b"abc", &[null.as_fd()]).unwrap();
        send(&a, 8, b"", &[]).unwrap();
        let first = receive(&b).unwrap();
        assert_eq!((first.kind, first.bytes.as_slice()), (7, &b"abc"[..]));
        assert_eq!(first.descriptors.len(), 1);
        let second = receive(&b).unwrap();
        assert_eq!((second.kind, second.bytes.len()), (8, 0));
        assert!(second.descriptors.is_empty());
        drop(a);
        assert_eq!(
            receive(&b).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn lengths_are_bounded() {
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(&[255, 255, 255, 255, 0]).unwrap();
        let error = receive(&b).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::MSGSIZE));
        let null = std::fs::File::open("/dev/null").unwrap();
        let many = [null.as_fd(); DESCRIPTORS_MAX + 1];
        assert!(send(&a, 0, b"", &many).is_err());
    }
}
