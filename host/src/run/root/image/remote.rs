//! An image as `ebb` has it: another process reads it, and answers.

use super::Config;
use super::messages::{
    CONTENT, FAILED, HAS, LINK, MEMORY, OPEN, OPENED, PROGRAM, PROGRESS, Places, QUESTION, SCRATCH,
    Unpacked, YES,
};
use super::reader::serve;
use super::scratch::{Progress, folder, nameless};
use crate::confine::frames::Frame;
use crate::confine::{LIMITS, Reader};
use crate::run::root::desk::status;
use crate::run::root::source::Answers;
use ebb_wire::root::{Answer, Question};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most messages of a reader until the image is open. It tells of each 16 MiB at most that it
/// unpacks, of 64 GiB.
const MESSAGES_MAX: u32 = 1 << 13;
/// The most bytes of these messages.
const MESSAGES_BYTES_MAX: usize = 64 << 20;
/// The most time until the image is open: 64 GiB of the slowest coding take less than an hour.
const OPENING_MAX: Duration = Duration::from_secs(4 * 3600);

/// Why an image cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error(transparent)]
    Open(#[from] io::Error),
    #[error("{0}")]
    Image(String),
    #[error("the process that reads it ended: {0}")]
    Ended(io::Error),
}

/// An image that a confined process reads.
#[derive(Debug)]
pub(crate) struct RemoteImage {
    /// One question at a time. `None` once an answer failed: a later one could be taken for another's.
    reader: Mutex<Option<Reader>>,
    pid: i32,
    config: Config,
}

impl RemoteImage {
    /// Has a process open the archive `file`, which the user named `path`. Says on a terminal how far that is, unless `quiet`.
    ///
    /// # Errors
    /// What is wrong with the archive.
    pub(crate) fn open(file: &File, path: &Path, quiet: bool) -> Result<Self, RemoteError> {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy();
        let reader = Reader::start(c"ebb-image", LIMITS, serve)?;
        Self::opened_by(reader, file, &name, quiet)
    }

    /// Has `reader` open the archive `file`, called `name`.
    fn opened_by(
        reader: Reader,
        file: &File,
        name: &str,
        quiet: bool,
    ) -> Result<Self, RemoteError> {
        let ended = RemoteError::Ended;
        reader
            .send(OPEN, name.as_bytes(), &[file.as_fd()])
            .map_err(ended)?;
        let mut progress = Progress::new(quiet);
        let mut has_scratch = false;
        let (mut bytes, begun) = (0, Instant::now());
        for _ in 0..MESSAGES_MAX {
            let frame = reader.receive().map_err(ended)?;
            bytes += frame.bytes.len();
            if bytes > MESSAGES_BYTES_MAX || begun.elapsed() > OPENING_MAX {
                let why = "it said too much, or for too long, before the image was open";
                return Err(ended(io::Error::other(why)));
            }
            match frame.kind {
                // Once: it is as long as all that may be unpacked.
                SCRATCH if !has_scratch => {
                    has_scratch = true;
                    give_scratch(&reader).map_err(ended)?;
                }
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
                        pid: reader.pid(),
                        reader: Mutex::new(Some(reader)),
                    });
                }
                FAILED => {
                    let why = String::from_utf8_lossy(&frame.bytes).into_owned();
                    return Err(RemoteError::Image(why));
                }
                _ => return Err(ended(io::ErrorKind::InvalidData.into())),
            }
        }
        Err(ended(io::Error::other(format!(
            "it sent {MESSAGES_MAX} messages and did not open the image"
        ))))
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
        self.pid
    }

    /// Hands the guest's memory to the reader, for what the guest reads.
    ///
    /// # Errors
    /// The socket's, once the reader has ended.
    fn lend_memory(&self, ram: &File) -> io::Result<()> {
        let reader = self.lock();
        let reader = reader.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        reader.send(MEMORY, &[], &[ram.as_fd()])
    }

    /// Returns the reader's answer to a question of the guest, which stands in `asked`.
    ///
    /// # Errors
    /// [`ReplyError::Memory`] for a frame that is no memory; [`ReplyError::Reader`] if there is no answer,
    /// now and from then on.
    fn reply(
        &self,
        question: &Question<'_>,
        asked: &[u8],
        place: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Vec<u8>, ReplyError> {
        let places = Places::of(question.frames.iter(), place).ok_or(ReplyError::Memory)?;
        let answer = self.exchange(QUESTION, &places.write(asked), &[]);
        answer.map(|frame| frame.bytes).map_err(ReplyError::Reader)
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
        let mut slot = self.lock();
        let reader = slot.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let answer = reader
            .send(kind, bytes, descriptors)
            .and_then(|()| reader.receive());
        if answer.is_err() {
            // Ends the process.
            drop(slot.take());
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the reader has no answer.
#[derive(Debug)]
enum ReplyError {
    /// The question names a frame that is no memory.
    Memory,
    /// The reader has ended, or was ended.
    Reader(io::Error),
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
            Err(ReplyError::Memory) => Answer::new(buffer).finish(status(Errno::FAULT)),
            Err(ReplyError::Reader(why)) => {
                if let Some(tell) = self.tell.take() {
                    tell(&format!(
                        "the process that reads the image is gone, and the guest gets errors: {why}"
                    ));
                }
                Answer::new(buffer).finish(status(Errno::IO))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::frames::send;
    use std::os::unix::net::UnixStream;

    /// What becomes of an image whose reader does as `serve` says.
    fn opened(serve: fn(&UnixStream)) -> Result<RemoteImage, RemoteError> {
        let reader = Reader::start(c"ebb-test", LIMITS, serve).unwrap();
        RemoteImage::opened_by(reader, &File::open("/dev/null").unwrap(), "x", true)
    }

    fn end_of(serve: fn(&UnixStream)) -> String {
        match opened(serve) {
            Err(RemoteError::Ended(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reader_that_never_opens_the_image_is_given_up() {
        let said = end_of(|socket| while send(socket, PROGRESS, b"{}", &[]).is_ok() {});
        assert!(said.contains("8192 messages"), "{said}");
        let said = end_of(|socket| {
            let long = vec![b' '; 1 << 20];
            while send(socket, PROGRESS, &long, &[]).is_ok() {}
        });
        assert!(said.contains("too much"), "{said}");
    }

    #[test]
    fn a_reader_gets_one_file_to_write() {
        let said = end_of(|socket| {
            for _ in 0..2 {
                let _ = send(socket, SCRATCH, &[], &[]);
            }
            let _ = crate::confine::frames::receive(socket);
            let _ = crate::confine::frames::receive(socket);
        });
        assert!(said.contains("invalid data"), "{said}");
    }

    #[test]
    fn a_reader_that_fails_once_is_not_asked_again() {
        let image = opened(|socket| {
            let config = serde_json::to_vec(&Config::default()).unwrap_or_default();
            let _ = send(socket, OPENED, &config, &[]);
            // A question is not answered, for this process ends.
        });
        let image = image.unwrap();
        assert!(!image.has(b"/x") && !image.has(b"/x"));
        assert!(image.lock().is_none());
    }
}
