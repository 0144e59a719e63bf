//! A front-end's socket. Messages are assembled from the parts that arrive, and answers are sent as
//! the socket takes them, so the thread never blocks on the front-end.

use super::inbox::{Code, ConnectionEnd, Inbox, Message, VERSION};
use super::reader::{Reader, Reading};
use crate::pressure::registry::Waker;
use crate::time::Micros;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Time after which a front-end is cut off that has left a message incomplete or an answer unread.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// The flag in a message's header that marks an answer.
const REPLY: u32 = 1 << 2;

/// An answer to the front-end. Its first `sent` bytes have been sent.
#[derive(Debug)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    file: Option<File>,
    sent: usize,
}

impl Answer {
    /// Makes the answer to the message of the type `code`, with the body `body` and, if there is
    /// one, the descriptor of `file`. Sends nothing.
    pub(crate) fn new(code: Code, body: &[u8], file: Option<File>) -> Self {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let header = [code.0, VERSION | REPLY, length].map(u32::to_ne_bytes);
        Self {
            bytes: [&header.concat(), body].concat(),
            file,
            sent: 0,
        }
    }
}

/// A front-end's socket, with the answer that is being sent to it.
#[derive(Debug)]
pub(crate) struct Channel {
    reading: Reading,
    answer: Option<Answer>,
    /// Whether a message has arrived in part.
    unfinished: bool,
    /// Time since which a message is incomplete or an answer is not sent completely.
    since: Option<Micros>,
}

impl Channel {
    /// Makes a channel of `stream` and sets its send buffer to the minimum. The thread `reader`
    /// reads the socket while the calling thread does not, and then wakes the latter by `waker`.
    ///
    /// # Errors
    /// Fails if the system refuses to set the buffer or to add the socket to an epoll.
    pub(crate) fn new(
        stream: UnixStream,
        reader: &Arc<Reader>,
        waker: Option<Waker>,
    ) -> io::Result<Self> {
        // Answers can carry descriptors, and unread ones count against this process's user.
        narrow(&stream)?;
        Ok(Self {
            reading: reader.add(Arc::new(Inbox::new(stream, waker)))?,
            answer: None,
            unfinished: false,
            since: None,
        })
    }

    /// Returns whether a part of an answer is not sent yet. Until it is, no message is received.
    pub(crate) fn is_answering(&self) -> bool {
        self.answer.is_some()
    }

    /// Returns whether the reader's thread has received something that [`Self::receive`] would
    /// handle now. The socket need not be readable then. `false` while an answer is not sent
    /// completely.
    pub(crate) fn has_news(&self) -> bool {
        !self.is_answering() && self.reading.inbox().has_news()
    }

    /// Returns the time at which the front-end is cut off unless it completes its message or reads
    /// the answer before. Returns `None` if neither is pending.
    pub(crate) fn deadline(&self) -> Option<Micros> {
        self.since.map(|since| since + TIMEOUT)
    }

    /// Sends the rest of an answer, if there is one, and returns the next message. Returns `None`
    /// if the message is not complete yet, or the answer still is not sent completely. Does not
    /// block. Fails if the connection is closed or broken, or if the front-end has left a message
    /// incomplete or an answer unread for [`TIMEOUT`].
    pub(crate) fn receive(&mut self, now: Micros) -> Result<Option<Message>, ConnectionEnd> {
        self.reading.inbox().check()?;
        self.send()?;
        let message = if self.is_answering() {
            None
        } else {
            let found = self.reading.inbox().find()?;
            self.unfinished = found.unfinished;
            found.message
        };
        if !self.unfinished && !self.is_answering() {
            self.since = None;
        } else if now >= *self.since.get_or_insert(now) + TIMEOUT {
            let what = if self.is_answering() {
                "answers unread"
            } else {
                "a message unfinished"
            };
            return Err(ConnectionEnd::Broken(format!(
                "it left {what} for {TIMEOUT:?}"
            )));
        }
        Ok(message)
    }

    /// Starts to send `answer`, without blocking; later calls of [`Self::receive`] send the rest.
    /// All earlier answers must have been sent completely. Fails if the connection is closed or
    /// broken.
    pub(crate) fn answer(&mut self, answer: Answer, now: Micros) -> Result<(), ConnectionEnd> {
        self.answer = Some(answer);
        self.send()?;
        self.since = self.is_answering().then_some(now);
        Ok(())
    }

    /// Sends as much of the answer as the socket takes. Fails if the connection is closed.
    fn send(&mut self) -> Result<(), ConnectionEnd> {
        while let Some(answer) = &mut self.answer {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut files = SendAncillaryBuffer::new(&mut room);
            // The descriptor goes with the first byte only.
            let file: Option<[BorrowedFd<'_>; 1]> = answer
                .file
                .as_ref()
                .filter(|_| answer.sent == 0)
                .map(|file| [file.as_fd()]);
            if let Some(file) = &file {
                files.push(SendAncillaryMessage::ScmRights(file));
            }
            let bytes = [IoSlice::new(&answer.bytes[answer.sent..])];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(self.reading.inbox(), &bytes, &mut files, flags) {
                Ok(sent) => answer.sent += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if answer.sent == answer.bytes.len() {
                self.answer = None;
                self.since = None;
            }
        }
        Ok(())
    }
}

/// Sets the send buffer of `stream` to the system's minimum. It then holds about 7 messages that
/// the other end has not received.
///
/// # Errors
/// Fails if the system refuses.
pub(crate) fn narrow(stream: &UnixStream) -> io::Result<()> {
    // The kernel raises the value to its minimum.
    Ok(set_socket_send_buffer_size(stream, 1)?)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reading.inbox().as_fd()
    }
}
