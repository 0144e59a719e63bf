//! A front-end's socket. Messages are put together piece by piece and answers leave as there is
//! room for them, so nothing here ever waits for the front-end.

use super::inbox::{Code, Inbox, Message, Severed, VERSION};
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

/// A front-end that leaves a message unfinished, or an answer unread, is given up after this.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
const REPLY: u32 = 1 << 2;

/// An answer to the front-end, sent as far as `sent` bytes.
#[derive(Debug)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    file: Option<File>,
    sent: usize,
}

impl Answer {
    /// The answer to a message.
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

/// The socket, with the answer that is on its way out.
#[derive(Debug)]
pub(crate) struct Channel {
    reading: Reading,
    answer: Option<Answer>,
    /// Whether a part of a message is there.
    unfinished: bool,
    /// Since when a message waits for its end, or an answer to be taken.
    since: Option<Micros>,
}

impl Channel {
    /// Makes a channel of `stream`. `reader` reads it while the calling thread does not, and wakes
    /// that by `waker`.
    ///
    /// # Errors
    /// If the system has no memory for it.
    pub(crate) fn new(
        stream: UnixStream,
        reader: &Arc<Reader>,
        waker: Option<Waker>,
    ) -> io::Result<Self> {
        // Answers bring descriptors, too. Unread ones count against the user of this process.
        narrow(&stream)?;
        Ok(Self {
            reading: reader.add(Arc::new(Inbox::new(stream, waker)))?,
            answer: None,
            unfinished: false,
            since: None,
        })
    }

    /// Whether the front-end is to take an answer before it is listened to again.
    pub(crate) fn is_answering(&self) -> bool {
        self.answer.is_some()
    }

    /// Returns whether another thread received something for [`Self::receive`], so that the socket
    /// need not be readable.
    pub(crate) fn has_news(&self) -> bool {
        !self.is_answering() && self.reading.inbox().has_news()
    }

    /// When the front-end is given up, unless it goes on.
    pub(crate) fn deadline(&self) -> Option<Micros> {
        self.since.map(|since| since + TIMEOUT)
    }

    /// The next message, if all of it is there and the answers before it are taken.
    pub(crate) fn receive(&mut self, now: Micros) -> Result<Option<Message>, Severed> {
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
            return Err(Severed::Broken(format!("it left {what} for {TIMEOUT:?}")));
        }
        Ok(message)
    }

    /// Sends `answer` as far as there is room. All answers before it were sent completely.
    pub(crate) fn answer(&mut self, answer: Answer, now: Micros) -> Result<(), Severed> {
        self.answer = Some(answer);
        self.send()?;
        self.since = self.is_answering().then_some(now);
        Ok(())
    }

    /// Sends what there is room for.
    fn send(&mut self) -> Result<(), Severed> {
        while let Some(answer) = &mut self.answer {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut files = SendAncillaryBuffer::new(&mut room);
            // It goes with the first byte, and once.
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

/// Bounds what this end of `stream` may have sent and the other end not received yet to the
/// system's least: some 7 messages.
///
/// # Errors
/// If the system refuses.
pub(crate) fn narrow(stream: &UnixStream) -> io::Result<()> {
    // The kernel raises this to its least.
    Ok(set_socket_send_buffer_size(stream, 1)?)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reading.inbox().as_fd()
    }
}
