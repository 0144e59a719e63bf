//! A piece of a file: an archive, or an archive in one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a file that does not change.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(super) file: Arc<File>,
    from: u64,
    len: u64,
}

impl Section {
    /// All of a file.
    ///
    /// # Errors
    /// Its size cannot be had.
    pub(super) fn whole(file: File) -> io::Result<Self> {
        let len = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        Ok(Self {
            file: Arc::new(file),
            from: 0,
            len,
        })
    }

    /// Bytes of a file that has them.
    pub(super) fn within(file: &Arc<File>, from: u64, len: u64) -> Self {
        let file = Arc::clone(file);
        Self { file, from, len }
    }

    /// The file that has them.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where in the file they begin.
    pub(super) fn start(&self) -> u64 {
        self.from
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// A piece of this one; `None` if it is cut off.
    pub(super) fn piece(&self, from: u64, len: u64) -> Option<Self> {
        let end = from.checked_add(len)?;
        (end <= self.len).then(|| Self {
            file: Arc::clone(&self.file),
            from: self.from + from,
            len,
        })
    }

    /// Reads at a place; fewer bytes only at the end.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn read_at(&self, mut to: &mut [u8], at: u64) -> io::Result<usize> {
        let room = self.len.saturating_sub(at).min(to.len() as u64);
        to = &mut to[..usize::try_from(room).unwrap_or(usize::MAX)];
        let mut done = 0;
        // Each turn reads something, or is the last.
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

    /// All of it, from the first byte on.
    pub(super) fn reader(&self) -> Reader {
        Reader {
            section: self.clone(),
            at: 0,
        }
    }
}

/// Reads a section once.
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
