//! Where bytes of files stand, in few bytes: the number of a block over all archives.

use super::section::Section;
use std::fs::File;
use std::io;
use std::sync::Arc;

const BLOCK: u64 = 512;
/// Bytes of all archives of an image.
pub(super) const ARCHIVES_MAX: u64 = BLOCK << 32;

/// The archives of an image, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Archives {
    all: Vec<Archive>,
    /// The place of the one that was added last.
    last: usize,
}

#[derive(Debug)]
struct Archive {
    file: Arc<File>,
    first: u32,
    /// The first block behind it.
    end: u32,
}

impl Archives {
    /// Adds the archive of a section, unless it is known. Returns `false` if all archives have more
    /// than [`ARCHIVES_MAX`] bytes together.
    ///
    /// # Errors
    /// Its size cannot be had.
    pub(super) fn add(&mut self, section: &Section) -> io::Result<bool> {
        let file = section.file();
        let mut known = self.all.iter();
        if let Some(place) = known.position(|known| Arc::ptr_eq(&known.file, file)) {
            self.last = place;
            return Ok(true);
        }
        let len = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let first = self.all.last().map_or(0, |last| last.end);
        let Ok(end) = u32::try_from(u64::from(first) + len.div_ceil(BLOCK)) else {
            return Ok(false);
        };
        let file = Arc::clone(file);
        self.last = self.all.len();
        self.all.push(Archive { file, first, end });
        Ok(true)
    }

    /// Returns the number of the block with which a section of the archive begins that was added
    /// last. `None` if it begins within one, or stands in another archive.
    pub(super) fn block_of(&self, section: &Section) -> Option<u32> {
        let archive = self.all.get(self.last)?;
        if !Arc::ptr_eq(&archive.file, section.file()) || !section.start().is_multiple_of(BLOCK) {
            return None;
        }
        let block = u32::try_from(section.start() / BLOCK).ok()?;
        archive.first.checked_add(block)
    }

    /// Returns the bytes that begin with a block.
    pub(super) fn section(&self, block: u32, len: u64) -> Section {
        let archive = self.all.partition_point(|archive| archive.first <= block);
        // The first one begins with block 0. An empty file at the end of one may stand behind it.
        let archive = &self.all[archive.saturating_sub(1)];
        let from = u64::from(block - archive.first) * BLOCK;
        Section::within(&archive.file, from, len)
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Archive>() * self.all.capacity()
    }
}
