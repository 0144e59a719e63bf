//! Receives messages of a front-end, piece by piece, with their descriptors.
//!
//! A descriptor that was sent and not received yet counts against the limit of the sender's user,
//! so a socket that is not read can keep all other front-ends of that user from sending any. Two
//! threads read each socket for that reason: its disk's, which takes one message at a time, and
//! [`super::reader`]'s, which takes what the disk's thread leaves there. Messages wait here for the
//! disk. A front-end that is too far ahead of it is cut off.

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

/// Descriptors of a message at most. A table of memory has the most: one for each region, and a
/// front-end that was not told otherwise has 8 regions.
pub(super) const MESSAGE_FILES: usize = 8;
/// Messages that a front-end may send before its disk takes them. One that starts 16 rings sends
/// about a hundred without waiting for an answer.
pub(super) const AHEAD_MESSAGES: usize = 256;
/// Descriptors that these messages may bring: three for each of 16 rings, more than twice.
pub(super) const AHEAD_FILES: usize = 128;
/// Bytes that these messages may have, beyond their headers.
pub(super) const AHEAD_BYTES: usize = 64 << 10;
/// Bytes of a header: the code, flags, and the length of the body.
pub(super) const HEADER_BYTES: usize = 12;
/// Pieces that are received before everything else is looked at again.
const MAX_PIECES: usize = 64;
/// The only version of the protocol, in the lowest bits of the flags.
pub(super) const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;
/// Room for the descriptors of one message. The kernel closes those that find none.
const FILES_ROOM: usize = rustix::cmsg_space!(ScmRights(MESSAGE_FILES));

/// The number of a kind of message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    /// By its name in the protocol, if it has one.
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

/// A complete message.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its kind.
    pub(crate) code: Code,
    /// Whether the front-end wants an acknowledgement.
    pub(crate) need_reply: bool,
    /// The bytes behind the header.
    pub(crate) body: Vec<u8>,
    /// The descriptors that came with its first byte.
    pub(crate) files: Vec<File>,
}

/// Why there is no more to be said with a front-end.
#[derive(Clone, Debug)]
pub(crate) enum Severed {
    /// It is gone.
    Gone,
    /// It broke the protocol.
    Broken(String),
}

impl From<Errno> for Severed {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Gone,
            other => Self::Broken(format!("its socket: {}", io::Error::from(other))),
        }
    }
}

/// A socket, and the messages that were received from it. Two threads share it.
#[derive(Debug)]
pub(crate) struct Inbox {
    stream: UnixStream,
    received: Mutex<Received>,
    /// Something was received since the disk's thread last looked.
    news: AtomicBool,
    waker: Option<Waker>,
}

/// What the disk's thread finds in an [`Inbox`].
#[derive(Debug)]
pub(crate) struct Found {
    /// The next message.
    pub(crate) message: Option<Message>,
    /// Whether a part of a further message is there.
    pub(crate) unfinished: bool,
}

#[derive(Debug, Default)]
struct Received {
    /// The beginning of a message that is not complete.
    bytes: Vec<u8>,
    /// The descriptors that came with its first byte.
    files: Vec<File>,
    messages: VecDeque<Message>,
    /// Descriptors of all `messages`.
    ahead_files: usize,
    /// Bytes of the bodies of all `messages`.
    ahead_bytes: usize,
    /// Why nothing more is received.
    end: Option<Severed>,
}

impl Inbox {
    /// Makes an inbox for `stream`. `waker` wakes the disk's thread when another thread received
    /// something.
    pub(crate) fn new(stream: UnixStream, waker: Option<Waker>) -> Self {
        Self {
            stream,
            received: Mutex::default(),
            news: AtomicBool::new(false),
            waker,
        }
    }

    /// Returns whether [`Self::find`] finds a message, a part of one, or the end, although the
    /// socket may be empty.
    pub(crate) fn has_news(&self) -> bool {
        // Acquire: pairs with the Release in `take_ahead`.
        self.news.load(Ordering::Acquire)
    }

    /// Fails if the front-end broke the protocol.
    pub(super) fn check(&self) -> Result<(), Severed> {
        match &self.received().end {
            Some(Severed::Broken(why)) => Err(Severed::Broken(why.clone())),
            _ => Ok(()),
        }
    }

    /// Takes the next message out of the inbox, or out of the socket. For the disk's thread.
    ///
    /// Fails if the front-end broke the protocol, or is gone and left no message.
    pub(super) fn find(&self) -> Result<Found, Severed> {
        let mut received = self.received();
        if received.messages.is_empty() {
            received.receive(&self.stream, false);
        }
        let broken = matches!(received.end, Some(Severed::Broken(_)));
        let message = if broken { None } else { received.pop() };
        // Relaxed: the lock is held by all who change it.
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

    /// Receives messages for the disk's thread to find, and wakes that thread. Returns `false` if
    /// nothing more can come.
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

    /// Closes all descriptors in it, on the calling thread.
    pub(super) fn clear(&self) {
        let mut received = self.received();
        received.end.get_or_insert(Severed::Gone);
        received.files.clear();
        received.messages.clear();
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        // Nothing that holds the lock can panic halfway through a change.
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Received {
    /// Receives one message, or, if `all`, up to [`MAX_PIECES`] pieces. Returns whether anything
    /// was received, the end included.
    fn receive(&mut self, stream: &UnixStream, all: bool) -> bool {
        let mut any = false;
        for _ in 0..MAX_PIECES {
            if self.end.is_some() || !all && !self.messages.is_empty() {
                break;
            }
            match self.advance(stream) {
                Ok(false) => break,
                Ok(true) => {}
                Err(severed) => self.finish(stream, severed),
            }
            any = true;
        }
        any
    }

    /// Receives a piece. Returns whether there was one.
    fn advance(&mut self, stream: &UnixStream) -> Result<bool, Severed> {
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

    fn check_ahead(&self) -> Result<(), Severed> {
        let messages = self.messages.len();
        let (files, bytes) = (self.ahead_files, self.ahead_bytes);
        if messages <= AHEAD_MESSAGES && files <= AHEAD_FILES && bytes <= AHEAD_BYTES {
            return Ok(());
        }
        Err(Severed::Broken(format!(
            "it is {messages} messages of {bytes} bytes with {files} descriptors ahead of the \
             answers; {AHEAD_MESSAGES} of {AHEAD_BYTES} with {AHEAD_FILES} it may be"
        )))
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.ahead_files -= message.files.len();
        self.ahead_bytes -= message.body.len();
        Some(message)
    }

    /// Receives nothing from now on. If the front-end broke the protocol, the kernel discards all
    /// that is in the socket, descriptors included, and refuses more.
    fn finish(&mut self, stream: &UnixStream, severed: Severed) {
        if matches!(severed, Severed::Broken(_)) {
            // This fails only for a socket that is not connected any more.
            let _ = shutdown(stream, Shutdown::Both);
            // Nothing can be sent any more, so this ends. Without room for descriptors none is
            // opened here.
            let mut nowhere = [0; 1024];
            while recv(stream, &mut nowhere, RecvFlags::DONTWAIT).is_ok_and(|(got, _)| got > 0) {}
        }
        self.end = Some(severed);
    }

    /// Returns the code, the flags, and the length of the body, if the header is complete.
    fn header(&self) -> Result<Option<(Code, u32, usize)>, Severed> {
        let Some(header) = self.bytes.get(..HEADER_BYTES) else {
            return Ok(None);
        };
        let word = |at| u32::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
        let (code, flags) = (Code(word(0)), word(4));
        let length = word(8) as usize;
        if flags & !NEED_REPLY != VERSION {
            return Err(Severed::Broken(format!("{code} with flags {flags:#x}")));
        }
        if length > MAX_MSG_SIZE {
            return Err(Severed::Broken(format!(
                "{code} of {length} bytes; {MAX_MSG_SIZE} it may have"
            )));
        }
        Ok(Some((code, flags, length)))
    }

    /// Receives towards `wanted` bytes. Returns whether there was anything.
    fn receive_piece(&mut self, stream: &UnixStream, wanted: usize) -> Result<bool, Severed> {
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
            Ok(received) if received.bytes == 0 => return Err(Severed::Gone),
            Ok(received) => received,
        };
        let files = files.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let before = self.files.len();
        // All are kept, so that the disk's thread closes them: closing a file may take its time.
        self.files.extend(files.flatten().map(File::from));
        // The kernel closed what found no room, which is a little more than was asked for.
        let came = self.files.len() - before;
        if received.flags.contains(ReturnFlags::CTRUNC) || came > MESSAGE_FILES {
            return Err(Severed::Broken(format!(
                "more than {MESSAGE_FILES} descriptors in a message, or more than this process \
                 has room for"
            )));
        }
        if there > 0 && came > 0 {
            return Err(Severed::Broken(
                "descriptors in the middle of a message".into(),
            ));
        }
        Ok(true)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "inbox_tests.rs"]
mod tests;
