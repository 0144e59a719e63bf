//! An image as `ebb` sees it: a confined process reads the archive and answers questions.

use super::Config;
use super::messages::{
    CONTENT, FAILED, FrameOffsets, HAS, LINK, MEMORY, OPEN, OPENED, PROGRAM, PROGRESS, QUESTION,
    SCRATCH, Unpacked, YES,
};
use super::reader::serve;
use super::scratch::{Progress, folder, nameless};
use crate::confine::frames::Frame;
use crate::confine::{LIMITS, Reader};
use crate::run::root::server::status;
use crate::run::root::source::Answers;
use ebb_wire::root::{Answer, Question};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most messages of a reader before the image is open. It sends at most one for each 16 MiB of
/// 64 GiB.
const MESSAGES_MAX: u32 = 1 << 13;
/// The most bytes of these messages.
const MESSAGES_BYTES_MAX: usize = 64 << 20;
/// The most time until the image is open. The slowest compression takes less than an hour for 64
/// GiB.
const OPENING_MAX: Duration = Duration::from_secs(4 * 3600);

/// Why an image of `--root` cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error(transparent)]
    Open(#[from] io::Error),
    #[error("{0}")]
    Image(String),
    #[error("the process that reads it ended: {0}")]
    Ended(io::Error),
}

/// An image whose archive a confined process (the reader) reads. That process ends when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct RemoteImage {
    /// The reader takes one question at a time. `None` after a failure, since a later answer could
    /// belong to an earlier question.
    reader: Mutex<Option<Reader>>,
    pid: i32,
    config: Config,
}

impl RemoteImage {
    /// Starts the confined process that reads the image (the reader) and has it open the archive
    /// `file`, which the user has named `path`. Blocks until the image is open. Shows progress on
    /// the terminal unless `quiet`.
    ///
    /// # Errors
    /// Fails with [`RemoteError::Open`] if the reader cannot be started, with
    /// [`RemoteError::Image`] if the archive cannot be a root, and with [`RemoteError::Ended`] if
    /// the reader ends, or is given up because it takes more than 4 hours or does not follow the
    /// protocol.
    pub(crate) fn open(file: &File, path: &Path, quiet: bool) -> Result<Self, RemoteError> {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy();
        let reader = Reader::start(c"ebb-image", LIMITS, serve)?;
        Self::opened_by(reader, file, &name, quiet)
    }

    /// Has `reader` open the archive `file`. `name` is for messages.
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
                // Only once, because one file may already have all bytes that an image may have.
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
                        // Checked again, since a reader that the image has taken over may send
                        // anything.
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

    /// Returns the image's program with its arguments, environment, working directory and user.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Asks the confined process that reads the image whether `path` exists in the image. Symbolic
    /// links are followed. Returns `false` also if that process has failed. If it fails now, it is
    /// ended.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.ask(HAS, path).is_some()
    }

    /// Asks the confined process that reads the image whether `path` is a regular file of the image
    /// that may be executed. Symbolic links are followed. Returns `false` also if that process has
    /// failed. If it fails now, it is ended.
    pub(crate) fn has_program(&self, path: &[u8]) -> bool {
        self.ask(PROGRAM, path).is_some()
    }

    /// Asks the confined process that reads the image for the bytes of the regular file at `path`.
    /// Symbolic links are followed. Returns `None` if there is no such file, if it has more than 16
    /// MiB or cannot be read, or if that process has failed. If it fails now, it is ended.
    pub(crate) fn content(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.ask(CONTENT, path)
    }

    /// Asks the confined process that reads the image for the target of the symbolic link at
    /// `path`. Returns `None` if there is no such link, or if that process has failed. If it fails
    /// now, it is ended.
    pub(crate) fn link_at(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.ask(LINK, path)
    }

    /// Returns the process number of the confined process that reads the image, also after it has
    /// ended.
    pub(crate) fn reader(&self) -> i32 {
        self.pid
    }

    /// Sends the descriptor of the guest's memory to the reader, which writes bytes of files there.
    ///
    /// # Errors
    /// Fails if the reader has ended.
    fn lend_memory(&self, ram: &File) -> io::Result<()> {
        let reader = self.lock();
        let reader = reader.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        reader.send(MEMORY, &[], &[ram.as_fd()])
    }

    /// Returns the reader's answer to a question of the guest, whose bytes are `asked`.
    ///
    /// # Errors
    /// Fails with [`ReplyError::Memory`] if a frame is outside of the guest's memory, and with
    /// [`ReplyError::Reader`] if the reader fails now or has failed before.
    fn reply(
        &self,
        question: &Question<'_>,
        asked: &[u8],
        frame_offset: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<Vec<u8>, ReplyError> {
        let offsets =
            FrameOffsets::of(question.frames.iter(), frame_offset).ok_or(ReplyError::Memory)?;
        let answer = self.exchange(QUESTION, &offsets.write(asked), &[]);
        answer.map(|frame| frame.bytes).map_err(ReplyError::Reader)
    }

    /// Asks a question of this `kind` about `path`. Returns `None` if the answer is no, or if the
    /// reader has failed.
    fn ask(&self, kind: u8, path: &[u8]) -> Option<Vec<u8>> {
        let answer = self.exchange(kind, path, &[]).ok()?;
        (answer.kind == YES).then_some(answer.bytes)
    }

    /// Sends a message and receives its answer. Ends the reader if that fails.
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
            // Dropping the reader ends its process.
            drop(slot.take());
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no answer of the reader.
#[derive(Debug)]
enum ReplyError {
    /// The question names a frame outside of the guest's memory.
    Memory,
    /// The reader has ended, or was ended.
    Reader(io::Error),
}

/// A function that prints a message to the user. It can be called once.
pub(in crate::run) type Tell = Box<dyn FnOnce(&str) + Send>;

/// Passes one guest's questions about an image to the confined process that reads it, and returns
/// its answers.
pub(in crate::run::root) struct ImageAnswers {
    image: Arc<RemoteImage>,
    /// Whether the reader has the guest's memory.
    has_memory: bool,
    /// Prints that the reader has ended. `None` after it was called.
    tell: Option<Tell>,
}

impl ImageAnswers {
    /// Creates the object that answers one guest's questions about `image`. `tell` is called with a
    /// message at the first question that gets no answer because the reader has failed.
    pub(in crate::run::root) fn new(image: &Arc<RemoteImage>, tell: Tell) -> Self {
        Self {
            image: Arc::clone(image),
            has_memory: false,
            tell: Some(tell),
        }
    }
}

impl Answers for ImageAnswers {
    fn reply<'a>(
        &mut self,
        question: &Question<'_>,
        asked: &[u8],
        ram: &File,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
        buffer: &'a mut [u8],
    ) -> &'a [u8] {
        if !self.has_memory {
            self.has_memory = self.image.lend_memory(ram).is_ok();
        }
        match self.image.reply(question, asked, frame_offset) {
            Ok(bytes) if bytes.len() <= buffer.len() => {
                let answer = &mut buffer[..bytes.len()];
                answer.copy_from_slice(&bytes);
                answer
            }
            // A reader that follows the protocol sends no longer answer.
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

/// Sends the reader a file for decompressed bytes, or the reason why there is none.
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

    /// Opens an image whose reader behaves like `serve`.
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
            // Without this, the other end may find that this process has ended before it asks.
            let _ = crate::confine::frames::receive(socket);
            let config = serde_json::to_vec(&Config::default()).unwrap_or_default();
            let _ = send(socket, OPENED, &config, &[]);
            // The question gets no answer, because this process ends.
        });
        let image = image.unwrap();
        assert!(!image.has(b"/x") && !image.has(b"/x"));
        assert!(image.lock().is_none());
    }
}
