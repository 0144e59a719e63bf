//! Pipes and sockets.

use super::Args;
use super::record::MessageHeader;
use crate::fs::io::{MAX_RW_COUNT, NO_LIMIT, Segment, UserSink, UserSource};
use crate::fs::message::Received;
use crate::fs::socket::{self, SocketFile, SocketKind};
use crate::fs::{OpenFile, OpenFlags, pipe as pipes};
use crate::process::caller;
use crate::vm::uaccess::{self, UserPtr};
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};

/// Installs two files and writes their descriptors to the program's memory; all or nothing.
fn install_pair(files: [Arc<OpenFile>; 2], close_on_exec: bool, address: u64) -> SysResult {
    let table = caller::files();
    let [first, second] = files;
    let first = caller::install(first, close_on_exec)?;
    let numbers = caller::install(second, close_on_exec).and_then(|second| {
        let numbers = [first, second].map(|fd| i32::try_from(fd).unwrap_or(-1));
        let [a, b] = numbers.map(i32::to_le_bytes);
        let written = uaccess::copy_out(address, &[a, b].concat());
        if written.is_err() {
            let _ = table.close(numbers[1]);
        }
        written
    });
    if let Err(error) = numbers {
        let _ = table.close(i32::try_from(first).unwrap_or(-1));
        return Err(error);
    }
    Ok(0)
}

fn make_pipe(address: u64, flags: u32) -> SysResult {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NONBLOCK | OpenFlags::DIRECT;
    let flags = OpenFlags::from_bits(flags).filter(|flags| known.contains(*flags));
    let flags = flags.ok_or(Errno::EINVAL)?;
    let (reader, writer) = pipes::pair(flags)?;
    install_pair(
        [reader, writer],
        flags.contains(OpenFlags::CLOSE_ON_EXEC),
        address,
    )
}

/// `pipe(2)`.
pub fn pipe(a: &Args) -> SysResult {
    make_pipe(a.addr(0), 0)
}

/// `pipe2(2)`.
pub fn pipe2(a: &Args) -> SysResult {
    make_pipe(a.addr(0), a.uint(1))
}

const AF_UNIX: u32 = 1;
const SOCK_TYPE: u32 = 0xf;
const SOL_SOCKET: u32 = 1;

/// The type and flags of a new socket.
fn socket_flags(kind: u32) -> Result<(u32, OpenFlags), Errno> {
    let flags = OpenFlags::from_bits(kind & !SOCK_TYPE).ok_or(Errno::EINVAL)?;
    if !(OpenFlags::NONBLOCK | OpenFlags::CLOSE_ON_EXEC).contains(flags) {
        return Err(Errno::EINVAL);
    }
    Ok((kind & SOCK_TYPE, flags))
}

/// `socketpair(2)`: a connected pair of `AF_UNIX`.
pub fn socketpair(a: &Args) -> SysResult {
    let (kind, flags) = socket_flags(a.uint(1))?;
    if a.uint(0) != AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if a.uint(2) > 1 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let kind = match kind {
        1 => SocketKind::Stream,
        // Linux makes a raw socket of this family (3) a datagram one.
        2 | 3 => SocketKind::Datagram,
        5 => SocketKind::SequencedPacket,
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let (first, second) = socket::pair(kind, flags)?;
    install_pair(
        [first, second],
        flags.contains(OpenFlags::CLOSE_ON_EXEC),
        a.addr(3),
    )
}

/// `socket(2)`: there is no network, and no name that a socket could be bound to.
pub fn socket(a: &Args) -> SysResult {
    socket_flags(a.uint(1))?;
    Err(Errno::EAFNOSUPPORT)
}

/// The socket behind argument 0, with its open file.
fn with_socket<R>(
    a: &Args,
    call: impl FnOnce(&SocketFile, &OpenFile) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let file = caller::file(a.int(0))?;
    let socket = file
        .file()
        .downcast::<SocketFile>()
        .ok_or(Errno::ENOTSOCK)?;
    call(socket, &file)
}

/// `connect(2)`: every socket is connected already.
pub fn connect(a: &Args) -> SysResult {
    with_socket(a, |_, _| Err(Errno::EISCONN))
}

/// `accept(2)`: no socket listens.
pub fn accept(a: &Args) -> SysResult {
    with_socket(a, |_, _| Err(Errno::EINVAL))
}

/// `accept4(2)`: as [`accept`].
pub fn accept4(a: &Args) -> SysResult {
    accept(a)
}

/// `bind(2)`.
pub fn bind(a: &Args) -> SysResult {
    with_socket(a, |_, _| Err(Errno::EINVAL))
}

/// `listen(2)`.
pub fn listen(a: &Args) -> SysResult {
    with_socket(a, |_, _| Err(Errno::EINVAL))
}

/// Asked of a receiver: give the message's whole length. Told to it: some of it is lost.
const MSG_TRUNC: u32 = 0x20;
const MSG_DONTWAIT: u32 = 0x40;
/// Ends a record, which each message does anyway.
const MSG_EOR: u32 = 0x80;
const MSG_NOSIGNAL: u32 = 0x4000;
/// Flags that need nothing done.
const MSG_HARMLESS: u32 = MSG_NOSIGNAL | MSG_DONTWAIT | MSG_EOR | 0x4000_0000 | 0x8000;

fn message_flags(flags: u32, file: &OpenFile) -> Result<OpenFlags, Errno> {
    if flags & !MSG_HARMLESS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut open = file.flags();
    if flags & MSG_DONTWAIT != 0 {
        open |= OpenFlags::NONBLOCK;
    }
    Ok(open)
}

/// Sends these pieces; with `MSG_NOSIGNAL` without a signal if nobody reads.
fn send(
    socket: &SocketFile,
    segments: &[Segment],
    flags: OpenFlags,
    message_flags: u32,
) -> SysResult {
    let result = socket.send(&mut UserSource::new(segments, NO_LIMIT), flags);
    if message_flags & MSG_NOSIGNAL != 0 && result == Err(Errno::BROKEN_PIPE) {
        return Err(Errno::EPIPE);
    }
    result
}

/// `sendto(2)`.
pub fn sendto(a: &Args) -> SysResult {
    with_socket(a, |socket, file| {
        if a.addr(4) != 0 {
            return Err(Errno::EISCONN);
        }
        let flags = message_flags(a.uint(3), file)?;
        let segments = [Segment {
            address: a.addr(1),
            length: a.size(2).min(MAX_RW_COUNT),
        }];
        send(socket, &segments, flags, a.uint(3))
    })
}

/// What a receiving call returns: what it took, or with `MSG_TRUNC` what there was.
fn received(received: Received, flags: u32) -> usize {
    if flags & MSG_TRUNC != 0 {
        received.length
    } else {
        received.count
    }
}

/// `recvfrom(2)`.
pub fn recvfrom(a: &Args) -> SysResult {
    with_socket(a, |socket, file| {
        let flags = message_flags(a.uint(3) & !MSG_TRUNC, file)?;
        let segments = [Segment {
            address: a.addr(1),
            length: a.size(2).min(MAX_RW_COUNT),
        }];
        let got = socket.receive(&mut UserSink::new(&segments), flags)?;
        if a.addr(5) != 0 {
            uaccess::copy_out(a.addr(5), &0_u32.to_le_bytes())?;
        }
        Ok(received(got, a.uint(3)))
    })
}

/// The parts of a `struct msghdr` that pairs use: the data's pieces. Control data is not carried.
fn message(address: u64) -> Result<alloc::vec::Vec<Segment>, Errno> {
    let header = UserPtr::<MessageHeader>::new(address).read()?;
    if header.control_length != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    crate::fs::io::read_segments(header.segments, header.segment_count)
}

/// `sendmsg(2)`, without control data.
pub fn sendmsg(a: &Args) -> SysResult {
    with_socket(a, |socket, file| {
        let flags = message_flags(a.uint(2), file)?;
        let segments = message(a.addr(1))?;
        send(socket, &segments, flags, a.uint(2))
    })
}

/// `recvmsg(2)`, without control data.
pub fn recvmsg(a: &Args) -> SysResult {
    with_socket(a, |socket, file| {
        let flags = message_flags(a.uint(2) & !MSG_TRUNC, file)?;
        let place = UserPtr::<MessageHeader>::new(a.addr(1));
        let mut header = place.read()?;
        let segments = crate::fs::io::read_segments(header.segments, header.segment_count)?;
        let got = socket.receive(&mut UserSink::new(&segments), flags)?;
        let lost = got.count < got.length;
        // No name and no control data.
        header.name_length = 0;
        header.control_length = 0;
        header.flags = if lost { MSG_TRUNC } else { 0 };
        place.write(&header)?;
        Ok(received(got, a.uint(2)))
    })
}

/// `sendmmsg(2)`.
pub fn sendmmsg(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `recvmmsg(2)`.
pub fn recvmmsg(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `shutdown(2)`.
pub fn shutdown(a: &Args) -> SysResult {
    with_socket(a, |socket, _| {
        match a.uint(1) {
            0 => socket.shut_down(true, false),
            1 => socket.shut_down(false, true),
            2 => socket.shut_down(true, true),
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    })
}

/// Writes the name of a socket without one: its family alone.
fn write_no_name(a: &Args) -> SysResult {
    with_socket(a, |_, _| {
        let mut room = [0; 4];
        uaccess::copy_in(&mut room, a.addr(2))?;
        let room = u32::from_le_bytes(room) as usize;
        let name = [1_u8, 0];
        uaccess::copy_out(a.addr(1), &name[..room.min(name.len())])?;
        uaccess::copy_out(a.addr(2), &2_u32.to_le_bytes())?;
        Ok(0)
    })
}

/// `getsockname(2)`.
pub fn getsockname(a: &Args) -> SysResult {
    write_no_name(a)
}

/// `getpeername(2)`.
pub fn getpeername(a: &Args) -> SysResult {
    write_no_name(a)
}

/// `setsockopt(2)`: a pair has no option that could be set.
pub fn setsockopt(a: &Args) -> SysResult {
    with_socket(a, |_, _| {
        if a.uint(1) == SOL_SOCKET {
            Err(Errno::ENOPROTOOPT)
        } else {
            Err(Errno::EOPNOTSUPP)
        }
    })
}

/// `getsockopt(2)`: type, domain and error.
pub fn getsockopt(a: &Args) -> SysResult {
    const SO_TYPE: u32 = 3;
    const SO_ERROR: u32 = 4;
    const SO_PROTOCOL: u32 = 38;
    const SO_DOMAIN: u32 = 39;
    with_socket(a, |socket, _| {
        if a.uint(1) != SOL_SOCKET {
            return Err(Errno::EOPNOTSUPP);
        }
        let value = match a.uint(2) {
            SO_TYPE => socket.kind() as u32,
            SO_DOMAIN => AF_UNIX,
            SO_ERROR | SO_PROTOCOL => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        let mut room = [0; 4];
        uaccess::copy_in(&mut room, a.addr(4))?;
        let room = (u32::from_le_bytes(room) as usize).min(4);
        uaccess::copy_out(a.addr(3), &value.to_le_bytes()[..room])?;
        // At most 4.
        uaccess::copy_out(a.addr(4), &u32::try_from(room).unwrap_or(4).to_le_bytes())?;
        Ok(0)
    })
}
