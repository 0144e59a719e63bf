//! A range of bytes of a file: an archive, or an archive in one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A range of bytes of an open file whose content does not change, such as an archive or a file in
/// it.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The file that has the bytes.
    pub(super) file: Arc<File>,
    from: u64,
    len: u64,
}

impl Section {
    /// Returns the section of all bytes of `file`, by its present size.
    ///
    /// # Errors
    /// Fails if the host cannot tell the file's size.
    pub(super) fn whole(file: File) -> io::Result<Self> {
        let len = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        Ok(Self {
            file: Arc::new(file),
            from: 0,
            len,
        })
    }

    /// Returns the section of `len` bytes of `file` from its byte offset `from` on. The caller
    /// guarantees that the file has these bytes. A section beyond the file's end reads fewer.
    pub(super) fn within(file: &Arc<File>, from: u64, len: u64) -> Self {
        let file = Arc::clone(file);
        Self { file, from, len }
    }

    /// Returns the file whose bytes the section covers.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns the byte offset in the file at which the section begins.
    pub(super) fn start(&self) -> u64 {
        self.from
    }

    /// Returns the length of the section in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the section of `len` bytes from the byte offset `from` of this section on. Returns
    /// `None` if this section has fewer bytes.
    pub(super) fn piece(&self, from: u64, len: u64) -> Option<Self> {
        let end = from.checked_add(len)?;
        (end <= self.len).then(|| Self {
            file: Arc::clone(&self.file),
            from: self.from + from,
            len,
        })
    }

    /// Reads bytes into `to` from the byte offset `at` of the section on. Returns their number. It
    /// is smaller than `to` only at the end of the section or of its file.
    ///
    /// # Errors
    /// Fails if the host cannot read the file.
    pub(super) fn read_at(&self, mut to: &mut [u8], at: u64) -> io::Result<usize> {
        let room = self.len.saturating_sub(at).min(to.len() as u64);
        to = &mut to[..usize::try_from(room).unwrap_or(usize::MAX)];
        let mut done = 0;
        // Each iteration reads something or is the last one.
        while done < to.len() {
            match self
                .file
                .read_at(&mut to[done..], self.from + at + done as u64)
            {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Returns a [`Read`] that reads the section's bytes once, from the first one on. It has its
    /// own position.
    pub(super) fn reader(&self) -> Reader {
        Reader {
            section: self.clone(),
            at: 0,
        }
    }
}

/// A [`Read`] of a section's bytes, from its beginning to its end.
#[derive(Debug)]
pub(super) struct Reader {
    section: Section,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.section.read_at(to, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
