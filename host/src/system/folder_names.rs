//! The names in a folder, which the host is asked for as they are needed.

use rustix::fs::{Dir, DirEntry};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Goes through the names in a folder, in the host's order and without `.` and `..`. It holds one
/// buffer of the host's answers, however many names there are. As with `readdir`, a name that is
/// made or removed meanwhile may come or not; any other comes once.
#[derive(Debug)]
pub(crate) struct FolderNames {
    dir: Dir,
    /// The name that is next, if the host was asked for it.
    next: Option<DirEntry>,
    /// How many names are behind.
    position: u64,
}

impl FolderNames {
    /// Begins with the first name of a folder that is open for reading.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn new(folder: OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            dir: Dir::new(folder)?,
            next: None,
            position: 0,
        })
    }

    /// Returns how many names [`Self::advance`] has passed.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next name; `None` at the end.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn peek(&mut self) -> Result<Option<&DirEntry>, Errno> {
        // Ends with the folder.
        while self.next.is_none() {
            let Some(entry) = self.dir.next().transpose()? else {
                return Ok(None);
            };
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                self.next = Some(entry);
            }
        }
        Ok(self.next.as_ref())
    }

    /// Passes the name that [`Self::peek`] returned.
    pub(crate) fn advance(&mut self) {
        self.position += u64::from(self.next.take().is_some());
    }

    /// Passes names until `position` are behind, or none is left.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn skip_to(&mut self, position: u64) -> Result<(), Errno> {
        while self.position < position && self.peek()?.is_some() {
            self.advance();
        }
        Ok(())
    }

    /// Begins again with the first name.
    pub(crate) fn rewind(&mut self) {
        self.dir.rewind();
        self.next = None;
        self.position = 0;
    }
}
