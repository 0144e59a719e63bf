//! A front-end's socket. Messages are put together piece by piece and answers leave as there is room
//! for them, so nothing here ever waits for the front-end, whatever it sends or leaves out.

use crate::time::Micros;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use vhost::vhost_user::message::{FrontendReq, MAX_ATTACHED_FD_ENTRIES, MAX_MSG_SIZE};

/// A front-end that leaves a message unfinished, or an answer unread, is given up after this.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a header: what is asked, flags, and how many bytes follow.
const HEADER_BYTES: usize = 12;
/// Pieces that are received before everything else is looked at again.
const MAX_PIECES: usize = 64;
/// The only version of the protocol, in the lowest bits of the flags.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// What a front-end asks, by number.
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

/// A message of which everything is there.
#[derive(Debug)]
pub(crate) struct Message {
    /// What is asked.
    pub(crate) code: Code,
    /// Whether it is to be answered even if there is nothing to tell.
    pub(crate) need_reply: bool,
    /// What follows the header.
    pub(crate) body: Vec<u8>,
    /// The descriptors that came with its first byte.
    pub(crate) files: Vec<File>,
}

/// What is sent to the front-end.
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

/// Why there is no more to be said with a front-end.
#[derive(Debug)]
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

/// The socket, with the message that is on its way in and the answer that is on its way out.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    bytes: Vec<u8>,
    files: Vec<File>,
    answer: Option<Answer>,
    /// Since when a message waits for its end, or an answer to be taken.
    since: Option<Micros>,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            files: Vec::new(),
            answer: None,
            since: None,
        }
    }

    /// Whether the front-end is to take an answer before it is listened to again.
    pub(crate) fn is_answering(&self) -> bool {
        self.answer.is_some()
    }

    /// When the front-end is given up, unless it goes on.
    pub(crate) fn deadline(&self) -> Option<Micros> {
        self.since.map(|since| since + TIMEOUT)
    }

    /// The next message, if all of it is there and the answers before it are taken.
    pub(crate) fn receive(&mut self, now: Micros) -> Result<Option<Message>, Severed> {
        self.send()?;
        let message = if self.is_answering() {
            None
        } else {
            self.receive_pieces()?
        };
        if self.bytes.is_empty() && !self.is_answering() {
            self.since = None;
        } else if now >= *self.since.get_or_insert(now) + TIMEOUT {
            return Err(Severed::Broken(format!(
                "it left a message unfinished, or answers unread, for {TIMEOUT:?}"
            )));
        }
        Ok(message)
    }

    /// Sends an answer, or what of it there is room for. All before it were taken.
    pub(crate) fn answer(&mut self, answer: Answer, now: Micros) -> Result<(), Severed> {
        self.answer = Some(answer);
        self.send()?;
        self.since = self.is_answering().then_some(now);
        Ok(())
    }

    fn receive_pieces(&mut self) -> Result<Option<Message>, Severed> {
        for _ in 0..MAX_PIECES {
            let header = self.header()?;
            let wanted = HEADER_BYTES + header.map_or(0, |(_, _, length)| length);
            if let Some((code, flags, _)) = header
                && self.bytes.len() == wanted
            {
                let body = self.bytes.split_off(HEADER_BYTES);
                self.bytes.clear();
                return Ok(Some(Message {
                    code,
                    need_reply: flags & NEED_REPLY != 0,
                    body,
                    files: std::mem::take(&mut self.files),
                }));
            }
            if !self.receive_piece(wanted)? {
                break;
            }
        }
        Ok(None)
    }

    /// What is asked, the flags, and how many bytes follow, if the header is there.
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

    /// Receives towards `wanted` bytes. Says whether there was anything.
    fn receive_piece(&mut self, wanted: usize) -> Result<bool, Severed> {
        let there = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let mut room = [MaybeUninit::uninit(); FILES_ROOM];
        let mut files = RecvAncillaryBuffer::new(&mut room);
        let received = recvmsg(
            &self.stream,
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
        // Those that are not taken over here are closed with the buffer.
        let files = files.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files: Vec<File> = files.flatten().map(File::from).collect();
        // The kernel closed what found no room.
        if received.flags.contains(ReturnFlags::CTRUNC) || files.len() > MAX_ATTACHED_FD_ENTRIES {
            return Err(Severed::Broken(format!(
                "more than {MAX_ATTACHED_FD_ENTRIES} descriptors in a message, or more than this process has room for"
            )));
        }
        if there == 0 {
            self.files = files;
        } else if !files.is_empty() {
            return Err(Severed::Broken(
                "descriptors in the middle of a message".into(),
            ));
        }
        Ok(true)
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
            match sendmsg(&self.stream, &bytes, &mut files, flags) {
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

/// Room for the descriptors of one message.
const FILES_ROOM: usize = rustix::cmsg_space!(ScmRights(MAX_ATTACHED_FD_ENTRIES));

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
