//! The service that the reader of an image needs of `ebb`, since it cannot open files and has no
//! terminal.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// The requests of the reader of an image to `ebb`: a file for decompressed bytes, and progress on
/// the terminal. The reader is a confined process.
pub(super) trait ReaderService {
    /// Returns a writable file without a name, which is made at the first call. Later calls return
    /// the same file, to which all decompressed bytes are appended.
    ///
    /// # Errors
    /// Fails if `ebb` cannot make the file, or cannot be reached.
    fn scratch(&mut self) -> io::Result<Arc<File>>;

    /// Reports that `done` bytes of the layer or archive `what` are decompressed so far. Errors are
    /// ignored.
    fn progress(&mut self, what: &str, done: u64);
}
