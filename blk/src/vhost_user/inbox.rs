//! Receives the messages of a front-end, in the parts in which they arrive, with their descriptors.
//!
//! A descriptor that was sent and not received yet counts against the limit of the sender's user.
//! So a socket that is not read can keep all other front-ends of that user from sending
//! descriptors. Therefore two threads read each socket: its disk's, which takes one message at a
//! time, and [`super::reader`]'s, which takes the messages that the disk's thread leaves in the
//! socket. They wait here for the disk. A front-end that sends too much before its disk takes it is
//! cut off.

use crate::pressure::registry::Waker;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg,
    shutdown,
};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vhost::vhost_user::message::{FrontendReq, MAX_MSG_SIZE};

/// Maximum number of descriptors in one message. A memory table has the most, one for each region.
/// A front-end that did not negotiate more slots has 8 regions.
pub(super) const MESSAGE_FILES: usize = 8;
/// Maximum number of messages in an inbox that the disk has not taken. A front-end that sends more
/// is cut off. One that starts 16 rings sends about a hundred without waiting for an answer.
pub(super) const AHEAD_MESSAGES: usize = 256;
/// Maximum number of descriptors in all messages of an inbox together: more than twice the three
/// for each of 16 rings. A front-end that sends more before the disk takes them is cut off.
pub(super) const AHEAD_FILES: usize = 128;
/// Maximum number of bytes in the bodies of all messages of an inbox together. A front-end that
/// sends more before the disk takes them is cut off.
pub(super) const AHEAD_BYTES: usize = 64 << 10;
/// Size of a message's header in bytes: the code, flags, and the length of the body, 32 bits each.
pub(super) const HEADER_BYTES: usize = 12;
/// Maximum number of parts that are received in one call.
const MAX_PIECES: usize = 64;
/// The only version of the vhost-user protocol, in the lowest bits of a message's flags.
pub(super) const VERSION: u32 = 1;
/// The flag by which a front-end asks for an acknowledgement.
const NEED_REPLY: u32 = 1 << 3;
/// Size of the buffer for the descriptors of one message. The kernel closes descriptors that do not
/// fit.
const FILES_ROOM: usize = rustix::cmsg_space!(ScmRights(MESSAGE_FILES));

/// The number of a type of vhost-user messages. It comes from the front-end and may be unknown.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    /// Returns the message type of this number. Returns `None` if the protocol has no such type.
    pub(crate) fn known(self) -> Option<FrontendReq> {
        FrontendReq::try_from(self.0).ok()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(name) => write!(f, "{name:?}"),
            None => write!(f, "message {}", self.0),
        }
    }
}

/// A complete message of a front-end.
#[derive(Debug)]
pub(crate) struct Message {
    /// The type of the message.
    pub(crate) code: Code,
    /// Whether the front-end wants an acknowledgement.
    pub(crate) need_reply: bool,
    /// The body, without the header.
    pub(crate) body: Vec<u8>,
    /// The descriptors that came with the message's first byte.
    pub(crate) files: Vec<File>,
}

/// The reason why the connection to a front-end has ended.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionEnd {
    /// The front-end has closed it.
    Gone,
    /// The front-end broke the protocol in the way described.
    Broken(String),
}

impl From<Errno> for ConnectionEnd {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Gone,
            other => Self::Broken(format!("its socket: {}", io::Error::from(other))),
        }
    }
}

/// A front-end's socket, and the messages received from it. The disk's thread and the reader's
/// share it.
#[derive(Debug)]
pub(crate) struct Inbox {
    stream: UnixStream,
    received: Mutex<Received>,
    /// Whether the reader's thread has received something that the disk's thread has not seen.
    news: AtomicBool,
    waker: Option<Waker>,
}

/// The result of [`Inbox::find`]: a message, if one is complete.
#[derive(Debug)]
pub(crate) struct Found {
    /// The next message, or `None` if it is not complete yet.
    pub(crate) message: Option<Message>,
    /// Whether a part of the following message has arrived.
    pub(crate) unfinished: bool,
}

/// The messages received, guarded by a lock.
#[derive(Debug, Default)]
struct Received {
    /// The first bytes of an incomplete message.
    bytes: Vec<u8>,
    /// The descriptors that came with these bytes.
    files: Vec<File>,
    /// Complete messages, the oldest first.
    messages: VecDeque<Message>,
    /// Number of descriptors in all `messages`.
    ahead_files: usize,
    /// Number of bytes in the bodies of all `messages`.
    ahead_bytes: usize,
    /// The reason why nothing more is received. `None` while the connection lasts.
    end: Option<ConnectionEnd>,
}

impl Inbox {
    /// Makes an empty inbox for the messages that arrive at `stream`. [`Self::take_ahead`] wakes
    /// the disk's thread by `waker`, if there is one.
    pub(crate) fn new(stream: UnixStream, waker: Option<Waker>) -> Self {
        Self {
            stream,
            received: Mutex::default(),
            news: AtomicBool::new(false),
            waker,
        }
    }

    /// Returns whether the reader's thread has received a message, a part of one or the end of the
    /// connection, for [`Self::find`] to return. The socket itself may be empty then.
    pub(crate) fn has_news(&self) -> bool {
        // Acquire: pairs with the Release in `take_ahead`.
        self.news.load(Ordering::Acquire)
    }

    /// Fails with [`ConnectionEnd::Broken`] if the front-end broke the protocol or its socket
    /// failed. Does not fail if the front-end has closed the connection.
    pub(super) fn check(&self) -> Result<(), ConnectionEnd> {
        match &self.received().end {
            Some(ConnectionEnd::Broken(why)) => Err(ConnectionEnd::Broken(why.clone())),
            _ => Ok(()),
        }
    }

    /// Takes the next message from the inbox, or from the socket if the inbox is empty. Only the
    /// disk's thread calls this. Does not block. The result has no message if none is complete.
    ///
    /// Fails if the front-end broke the protocol, or if it closed the connection and no message is
    /// left.
    pub(super) fn find(&self) -> Result<Found, ConnectionEnd> {
        let mut received = self.received();
        if received.messages.is_empty() {
            received.receive(&self.stream, false);
        }
        let broken = matches!(received.end, Some(ConnectionEnd::Broken(_)));
        let message = if broken { None } else { received.pop() };
        // Relaxed: every thread that changes it holds the lock.
        let more = !received.messages.is_empty() || received.end.is_some();
        self.news.store(more, Ordering::Relaxed);
        match &received.end {
            Some(end) if message.is_none() => Err(end.clone()),
            _ => Ok(Found {
                message,
                unfinished: !received.bytes.is_empty(),
            }),
        }
    }

    /// Receives the messages that are in the socket and wakes the disk's thread if there are any.
    /// Does not block. Only the reader's thread calls this. Returns `false` if the connection has
    /// ended.
    pub(super) fn take_ahead(&self) -> bool {
        let mut received = self.received();
        if received.receive(&self.stream, true) {
            // Release: pairs with the Acquire in `has_news`.
            self.news.store(true, Ordering::Release);
            if let Some(waker) = &self.waker {
                waker.wake();
            }
        }
        received.end.is_none()
    }

    /// Drops all messages and closes their descriptors, on the calling thread. The inbox receives
    /// nothing more.
    pub(super) fn clear(&self) {
        let mut received = self.received();
        received.end.get_or_insert(ConnectionEnd::Gone);
        received.files.clear();
        received.messages.clear();
    }

    /// Locks the messages.
    fn received(&self) -> MutexGuard<'_, Received> {
        // No code that holds the lock can panic halfway through a change.
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Received {
    /// Receives up to [`MAX_PIECES`] parts; stops at the first complete message unless `all` is
    /// set. Returns whether anything was received, including the end of the connection.
    fn receive(&mut self, stream: &UnixStream, all: bool) -> bool {
        let mut any = false;
        for _ in 0..MAX_PIECES {
            if self.end.is_some() || !all && !self.messages.is_empty() {
                break;
            }
            match self.advance(stream) {
                Ok(false) => break,
                Ok(true) => {}
                Err(end) => self.finish(stream, end),
            }
            any = true;
        }
        any
    }

    /// Receives one part. Returns whether there was one. Fails if the connection has ended or is
    /// broken.
    fn advance(&mut self, stream: &UnixStream) -> Result<bool, ConnectionEnd> {
        let wanted = HEADER_BYTES + self.header()?.map_or(0, |(_, _, length)| length);
        if !self.receive_piece(stream, wanted)? {
            return Ok(false);
        }
        if let Some((code, flags, length)) = self.header()?
            && self.bytes.len() == HEADER_BYTES + length
        {
            let body = self.bytes.split_off(HEADER_BYTES);
            self.bytes.clear();
            let files = std::mem::take(&mut self.files);
            self.ahead_files += files.len();
            self.ahead_bytes += body.len();
            self.messages.push_back(Message {
                code,
                need_reply: flags & NEED_REPLY != 0,
                body,
                files,
            });
            self.check_ahead()?;
        }
        Ok(true)
    }

    /// Fails if the messages in the inbox exceed a limit.
    fn check_ahead(&self) -> Result<(), ConnectionEnd> {
        let messages = self.messages.len();
        let (files, bytes) = (self.ahead_files, self.ahead_bytes);
        if messages <= AHEAD_MESSAGES && files <= AHEAD_FILES && bytes <= AHEAD_BYTES {
            return Ok(());
        }
        Err(ConnectionEnd::Broken(format!(
            "{messages} messages of {bytes} bytes with {files} descriptors wait for answers; \
             at most {AHEAD_MESSAGES} of {AHEAD_BYTES} bytes with {AHEAD_FILES} descriptors may"
        )))
    }

    /// Takes the oldest message. Returns `None` if there is none.
    fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.ahead_files -= message.files.len();
        self.ahead_bytes -= message.body.len();
        Some(message)
    }

    /// Stops receiving, for the reason `end`. If the front-end broke the protocol, the socket
    /// is shut down and emptied. Its descriptors are closed, and the kernel refuses more.
    fn finish(&mut self, stream: &UnixStream, end: ConnectionEnd) {
        if matches!(end, ConnectionEnd::Broken(_)) {
            // This fails only for a socket that is not connected any more.
            let _ = shutdown(stream, Shutdown::Both);
            // Nothing can be sent any more, so the loop ends. `recv` has no buffer for descriptors,
            // so none is opened here.
            let mut nowhere = [0; 1024];
            while recv(stream, &mut nowhere, RecvFlags::DONTWAIT).is_ok_and(|(got, _)| got > 0) {}
        }
        self.end = Some(end);
    }

    /// Returns the code, the flags and the length of the body, or `None` if the header is
    /// incomplete. Fails if the header is malformed.
    fn header(&self) -> Result<Option<(Code, u32, usize)>, ConnectionEnd> {
        let Some(header) = self.bytes.get(..HEADER_BYTES) else {
            return Ok(None);
        };
        let word = |at| u32::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
        let (code, flags) = (Code(word(0)), word(4));
        let length = word(8) as usize;
        if flags & !NEED_REPLY != VERSION {
            return Err(ConnectionEnd::Broken(format!(
                "{code} with flags {flags:#x}"
            )));
        }
        if length > MAX_MSG_SIZE {
            return Err(ConnectionEnd::Broken(format!(
                "{code} of {length} bytes; {MAX_MSG_SIZE} it may have"
            )));
        }
        Ok(Some((code, flags, length)))
    }

    /// Receives bytes until `self.bytes` has `wanted`, as far as they have arrived. Returns whether
    /// there were any. Fails if the connection has ended or is broken.
    fn receive_piece(&mut self, stream: &UnixStream, wanted: usize) -> Result<bool, ConnectionEnd> {
        let there = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let mut room = [MaybeUninit::uninit(); FILES_ROOM];
        let mut files = RecvAncillaryBuffer::new(&mut room);
        let received = recvmsg(
            stream,
            &mut [IoSliceMut::new(&mut self.bytes[there..])],
            &mut files,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        );
        let got = received.as_ref().map_or(0, |received| received.bytes);
        self.bytes.truncate(there + got);
        let received = match received {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
            Ok(received) if received.bytes == 0 => return Err(ConnectionEnd::Gone),
            Ok(received) => received,
        };
        let files = files.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let before = self.files.len();
        // All descriptors are stored, so that the disk's thread closes them: closing a file may
        // take long.
        self.files.extend(files.flatten().map(File::from));
        // The kernel closed those that did not fit. The buffer may hold a few more than allowed.
        let came = self.files.len() - before;
        if received.flags.contains(ReturnFlags::CTRUNC) || came > MESSAGE_FILES {
            return Err(ConnectionEnd::Broken(format!(
                "more than {MESSAGE_FILES} descriptors in a message, or more than this process \
                 has room for"
            )));
        }
        if there > 0 && came > 0 {
            return Err(ConnectionEnd::Broken(
                "descriptors in the middle of a message".into(),
            ));
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
