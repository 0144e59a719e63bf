//! Stores in four bytes where a file's bytes begin: the number of a 512-byte block over all
//! archives.

use super::section::Section;
use std::fs::File;
use std::io;
use std::sync::Arc;

const BLOCK: u64 = 512;
/// The most bytes of all archives of an image together, 2 TiB. The number of a 512-byte block has
/// 32 bits.
pub(super) const ARCHIVES_MAX: u64 = BLOCK << 32;

/// The archive files of an image. Their 512-byte blocks are numbered one archive after the other.
#[derive(Debug, Default)]
pub(super) struct Archives {
    all: Vec<Archive>,
    /// The index of the archive that was added last.
    last: usize,
}

#[derive(Debug)]
struct Archive {
    file: Arc<File>,
    /// The number of its first block.
    first: u32,
    /// The number of the first block after it.
    end: u32,
}

impl Archives {
    /// Adds the file of `section`, unless it was added before, and makes it the newest one for
    /// [`Self::block_of`]. Returns `false`, and adds nothing, if all archives would have more than
    /// [`ARCHIVES_MAX`] bytes.
    ///
    /// # Errors
    /// Fails if the host cannot tell the file's size.
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

    /// Returns the number of the block at which `section` begins. Returns `None` if it does not
    /// begin at a multiple of 512 bytes, or if it is not in the newest file of [`Self::add`].
    pub(super) fn block_of(&self, section: &Section) -> Option<u32> {
        let archive = self.all.get(self.last)?;
        if !Arc::ptr_eq(&archive.file, section.file()) || !section.start().is_multiple_of(BLOCK) {
            return None;
        }
        let block = u32::try_from(section.start() / BLOCK).ok()?;
        archive.first.checked_add(block)
    }

    /// Returns the section of `len` bytes that begins at the block with the number `block`, which
    /// [`Self::block_of`] has returned.
    pub(super) fn section(&self, block: u32, len: u64) -> Section {
        let archive = self.all.partition_point(|archive| archive.first <= block);
        // Block 0 is the first archive's. An empty file at the end of an archive may have the block
        // behind it.
        let archive = &self.all[archive.saturating_sub(1)];
        let from = u64::from(block - archive.first) * BLOCK;
        Section::within(&archive.file, from, len)
    }

    /// Returns the number of bytes of memory that are reserved for this list.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Archive>() * self.all.capacity()
    }
}
