//! What reading an image needs of the process that asked for it: the reader opens no files, and has no
//! terminal.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// Gives a reader room for what it unpacks, and learns how far it is.
pub(super) trait Workshop {
    /// Returns the file without a name that everything unpacked is written to, one behind the other.
    ///
    /// # Errors
    /// If the host has no room for one.
    fn scratch(&mut self) -> io::Result<Arc<File>>;

    /// Notes that `done` bytes of `what` are unpacked.
    fn progress(&mut self, what: &str, done: u64);
}
