//! Reads the names in a folder one after the other.

use rustix::fs::{Dir, DirEntry};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// A cursor over the names in a folder, in the host's order and without `.` and `..`. Its memory is
/// one buffer, however many names there are. As with readdir(3), a name that is created or removed
/// during the iteration may be missing. Every other name appears once.
#[derive(Debug)]
pub(crate) struct FolderNames {
    dir: Dir,
    /// The name at the current position, if it has been read.
    next: Option<DirEntry>,
    /// The number of names before the current position.
    position: u64,
}

impl FolderNames {
    /// Starts at the first name of `folder`, which is open for reading. Reads no name yet.
    ///
    /// # Errors
    /// If `folder` is no folder that is open for reading.
    pub(crate) fn new(folder: OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            dir: Dir::new(folder)?,
            next: None,
            position: 0,
        })
    }

    /// Returns the number of names that [`Self::advance`] and [`Self::skip_to`] have passed since
    /// the start or the last [`Self::rewind`].
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the name at the current position without passing it, so the next call returns it
    /// again. Returns `None` at the end of the folder.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(crate) fn peek(&mut self) -> Result<Option<&DirEntry>, Errno> {
        // The loop ends at the latest at the end of the folder.
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

    /// Passes the name that [`Self::peek`] returned. Does nothing if no name was peeked.
    pub(crate) fn advance(&mut self) {
        self.position += u64::from(self.next.take().is_some());
    }

    /// Passes names until `position` names in all are passed or the folder ends. Does nothing if
    /// they are passed already; it never goes back.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(crate) fn skip_to(&mut self, position: u64) -> Result<(), Errno> {
        while self.position < position && self.peek()?.is_some() {
            self.advance();
        }
        Ok(())
    }

    /// Goes back to the first name.
    pub(crate) fn rewind(&mut self) {
        self.dir.rewind();
        self.next = None;
        self.position = 0;
    }
}
