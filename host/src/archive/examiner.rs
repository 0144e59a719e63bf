//! Has a confined process determine what kind of program a file is.

use super::format::{FormatError, Program, read};
use crate::confine::{LIMITS, Reader, frames};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

const NAME: &std::ffi::CStr = c"ebb-examiner";

/// The message kind of the only request, which carries a file to examine. The answer has the same
/// kind.
const EXAMINE: u8 = 1;

/// Examines programs and libraries in a confined process, because a file may be hostile. The
/// process starts with the first file, or earlier in [`Self::begin`].
#[derive(Debug, Default)]
pub(crate) struct Examiner(Option<Reader>);

impl Examiner {
    /// Starts the confined process now, so that it is ready for the first file. If that fails,
    /// [`Self::examine`] tries again and returns the error.
    pub(crate) fn begin() -> Self {
        Self(Reader::start(NAME, LIMITS, serve).ok())
    }

    /// Has the confined process read the ELF headers or the first line of an open file. Returns the
    /// format and the libraries. Waits for the answer.
    ///
    /// # Errors
    /// If `file` is no x86-64 program, library or script, or cannot be read. If the process cannot
    /// be started, or ends before it answers; the next call then starts another process.
    pub(crate) fn examine(&mut self, file: &File) -> Result<Program, FormatError> {
        let reader = match self.0.take() {
            Some(reader) => reader,
            None => Reader::start(NAME, LIMITS, serve)?,
        };
        reader.send(EXAMINE, &[], &[file.as_fd()])?;
        let answer = reader.receive()?;
        // A process that has ended is not asked again.
        self.0 = Some(reader);
        let answer: Result<Result<Program, FormatError>, _> = serde_json::from_slice(&answer.bytes);
        answer.unwrap_or_else(|error| Err(FormatError::Read(error.to_string())))
    }
}

/// Answers requests until the socket closes.
fn serve(socket: &UnixStream) {
    while let Ok(mut frame) = frames::receive(socket) {
        let Some(file) = frame.descriptors.pop() else {
            return;
        };
        let answer = examined(file);
        let Ok(bytes) = serde_json::to_vec(&answer) else {
            return;
        };
        if frames::send(socket, EXAMINE, &bytes, &[]).is_err() {
            return;
        }
    }
}

fn examined(file: OwnedFd) -> Result<Program, FormatError> {
    read(&mut File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::format::Format;

    #[test]
    fn files_are_examined_one_after_the_other() {
        let mut examiner = Examiner::default();
        for _ in 0..3 {
            let file = File::open("/bin/true").unwrap();
            let program = examiner.examine(&file).unwrap();
            assert!(matches!(program.format, Format::Dynamic { .. }));
            assert!(program.links.needed.iter().any(|name| name == "libc.so.6"));
            let file = File::open("/etc/passwd").unwrap();
            assert!(matches!(examiner.examine(&file), Err(FormatError::Unknown)));
        }
    }
}
