//! An image as `ebb` has it: another process reads it, and answers.

use super::Config;
use super::messages::{
    CONTENT, FAILED, HAS, LINK, MEMORY, OPEN, OPENED, PROGRAM, PROGRESS, Places, QUESTION, SCRATCH,
    Unpacked, YES,
};
use super::reader::serve;
use super::scratch::{Progress, folder, nameless};
use crate::confine::Reader;
use crate::confine::frames::Frame;
use crate::run::root::desk::status;
use crate::run::root::source::Answers;
use crate::system::open_regular;
use ebb_wire::root::{Answer, Question};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why an image cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error(transparent)]
    Open(#[from] io::Error),
    #[error("neither a directory nor a tar archive")]
    NoFile,
    #[error("{0}")]
    Image(String),
    #[error("the process that reads it ended: {0}")]
    Ended(io::Error),
}

/// An image that a confined process reads.
#[derive(Debug)]
pub(crate) struct RemoteImage {
    /// One question at a time.
    reader: Mutex<Reader>,
    config: Config,
}

impl RemoteImage {
    /// Has a process open the archive at `path`. Says on a terminal how far that is, unless `quiet`.
    ///
    /// # Errors
    /// What is wrong with the archive.
    pub(crate) fn open(path: &Path, quiet: bool) -> Result<Self, RemoteError> {
        let file = open_regular(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => RemoteError::NoFile,
            _ => RemoteError::Open(error),
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy();
        let reader = Reader::start(c"ebb-image", serve)?;
        let ended = RemoteError::Ended;
        reader
            .send(OPEN, name.as_bytes(), &[file.as_fd()])
            .map_err(ended)?;
        let mut progress = Progress::new(quiet);
        // Ends: an image has a bounded number of layers, and of bytes.
        loop {
            let frame = reader.receive().map_err(ended)?;
            match frame.kind {
                SCRATCH => give_scratch(&reader).map_err(ended)?,
                PROGRESS => {
                    if let Ok(unpacked) = serde_json::from_slice::<Unpacked>(&frame.bytes) {
                        progress.show(&unpacked.what, unpacked.done);
                    }
                }
                OPENED => {
                    let config: Result<Config, _> = serde_json::from_slice(&frame.bytes);
                    let config = config.map_err(|error| RemoteError::Image(error.to_string()))?;
                    return Ok(Self {
                        // Again: a reader that the image has taken over says what it likes.
                        config: config.checked(),
                        reader: Mutex::new(reader),
                    });
                }
                FAILED => {
                    let why = String::from_utf8_lossy(&frame.bytes).into_owned();
                    return Err(RemoteError::Image(why));
                }
                _ => return Err(ended(io::ErrorKind::InvalidData.into())),
            }
        }
    }

    /// What it says of its program.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether something stands at a path.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.ask(HAS, path).is_some()
    }

    /// Returns whether a program stands at a path.
    pub(crate) fn has_program(&self, path: &[u8]) -> bool {
        self.ask(PROGRAM, path).is_some()
    }

    /// Returns the bytes of a file at a path. `None` if there is none, or a large one.
    pub(crate) fn content(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.ask(CONTENT, path)
    }

    /// Returns where a link leads that stands at a path. `None` if there is none.
    pub(crate) fn link_at(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.ask(LINK, path)
    }

    /// The number of the process that reads it.
    pub(crate) fn reader(&self) -> i32 {
        self.lock().pid()
    }

    /// Hands the guest's memory to the reader, for what the guest reads.
    ///
    /// # Errors
    /// The socket's, once the reader has ended.
    fn lend_memory(&self, ram: &File) -> io::Result<()> {
        self.lock().send(MEMORY, &[], &[ram.as_fd()])
    }

    /// Returns the reader's answer to a question of the guest, which stands in `asked`.
    ///
    /// # Errors
    /// `EFAULT` for a frame that is no memory; `EIO` once the reader has ended.
    fn reply(
        &self,
        question: &Question<'_>,
        asked: &[u8],
        place: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Vec<u8>, Errno> {
        let places = Places::of(question.frames.iter(), place).ok_or(Errno::FAULT)?;
        let answer = self.exchange(QUESTION, &places.write(asked), &[]);
        answer.map(|frame| frame.bytes).map_err(|_| Errno::IO)
    }

    /// The answer to a question; `None` if there is none, or no reader any more.
    fn ask(&self, kind: u8, path: &[u8]) -> Option<Vec<u8>> {
        let answer = self.exchange(kind, path, &[]).ok()?;
        (answer.kind == YES).then_some(answer.bytes)
    }

    fn exchange(
        &self,
        kind: u8,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<Frame> {
        let reader = self.lock();
        reader.send(kind, bytes, descriptors)?;
        reader.receive()
    }

    fn lock(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says something to the user.
pub(in crate::run) type Tell = Box<dyn FnOnce(&str) + Send>;

/// Answers one guest out of an image.
pub(in crate::run::root) struct Lending {
    image: Arc<RemoteImage>,
    /// The reader has the guest's memory.
    has_memory: bool,
    /// Tells the user that the reader has ended; taken when it is called.
    tell: Option<Tell>,
}

impl Lending {
    pub(in crate::run::root) fn new(image: &Arc<RemoteImage>, tell: Tell) -> Self {
        Self {
            image: Arc::clone(image),
            has_memory: false,
            tell: Some(tell),
        }
    }
}

impl Answers for Lending {
    fn reply<'a>(
        &mut self,
        question: &Question<'_>,
        asked: &[u8],
        ram: &File,
        place: &dyn Fn(u64) -> Option<u64>,
        buffer: &'a mut [u8],
    ) -> &'a [u8] {
        if !self.has_memory {
            self.has_memory = self.image.lend_memory(ram).is_ok();
        }
        match self.image.reply(question, asked, place) {
            Ok(bytes) if bytes.len() <= buffer.len() => {
                let answer = &mut buffer[..bytes.len()];
                answer.copy_from_slice(&bytes);
                answer
            }
            // No reader of ours makes a longer one.
            Ok(_) => Answer::new(buffer).finish(status(Errno::IO)),
            Err(error) => {
                if error == Errno::IO
                    && let Some(tell) = self.tell.take()
                {
                    tell("the process that reads the image has ended; the guest gets errors");
                }
                Answer::new(buffer).finish(status(error))
            }
        }
    }
}

/// Gives the reader room for what it unpacks, or says why there is none.
fn give_scratch(reader: &Reader) -> io::Result<()> {
    let folder = folder();
    match nameless(&folder) {
        Ok(file) => reader.send(SCRATCH, &[], &[file.as_fd()]),
        Err(error) => {
            let why = format!("{}: {error}", folder.display());
            reader.send(SCRATCH, why.as_bytes(), &[])
        }
    }
}
