//! The service that the reader of an image needs of `ebb`, since it cannot open files and has no
//! terminal.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// Gives the reader a file for decompressed bytes, and receives its progress.
pub(super) trait ReaderService {
    /// Returns a file without a name. All decompressed bytes are appended to this one file.
    ///
    /// # Errors
    /// Fails if the host cannot make a file.
    fn scratch(&mut self) -> io::Result<Arc<File>>;

    /// Receives the progress: `done` bytes of `what` are decompressed.
    fn progress(&mut self, what: &str, done: u64);
}
