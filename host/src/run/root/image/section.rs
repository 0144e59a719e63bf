//! A range of bytes of a file: an archive, or an archive in one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A range of bytes of a file whose content does not change.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The file that has the bytes.
    pub(super) file: Arc<File>,
    from: u64,
    len: u64,
}

impl Section {
    /// Returns the section of the whole file.
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

    /// Returns the section of `len` bytes at the offset `from`. The file must have these bytes.
    pub(super) fn within(file: &Arc<File>, from: u64, len: u64) -> Self {
        let file = Arc::clone(file);
        Self { file, from, len }
    }

    /// Returns the file that has the bytes.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns the offset in the file at which the section begins.
    pub(super) fn start(&self) -> u64 {
        self.from
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the section of `len` bytes at the offset `from` of this one. Returns `None` if this
    /// one ends before.
    pub(super) fn piece(&self, from: u64, len: u64) -> Option<Self> {
        let end = from.checked_add(len)?;
        (end <= self.len).then(|| Self {
            file: Arc::clone(&self.file),
            from: self.from + from,
            len,
        })
    }

    /// Reads bytes into `to` from the offset `at` of the section. Returns their number, which is
    /// smaller than asked for only at the section's end.
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

    /// Returns a [`Read`] of the section's bytes from the first one on.
    pub(super) fn reader(&self) -> Reader {
        Reader {
            section: self.clone(),
            at: 0,
        }
    }
}

/// Reads a section once, from its beginning to its end.
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
