//! The bytes behind an area: zeros or a file.

use super::entry::{PAGE, REGION};
use super::hugetlb::Ended;
use super::source::MappedFile;
use alloc::sync::Arc;
use logic::vma;
use machine::memory::hugetlb::PageSize;

/// The source of the bytes of an area's pages.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    /// Zeros: private anonymous memory.
    Zero,
    /// A file. The number is the offset in the file of the area's first byte.
    File(Arc<MappedFile>, u64),
}

impl vma::Backing for Bytes {
    fn advanced(&self, bytes: u64) -> Self {
        match self {
            Self::Zero => Self::Zero,
            Self::File(file, offset) => Self::File(file.clone(), offset + bytes),
        }
    }

    fn continues(&self, bytes: u64, next: &Self) -> bool {
        match (self, next) {
            (Self::Zero, Self::Zero) => true,
            (Self::File(file, offset), Self::File(other, start)) => {
                Arc::ptr_eq(file, other) && offset + bytes == *start
            }
            _ => false,
        }
    }
}

impl Bytes {
    /// Returns the size of the huge pages that the file consists of. Returns `None` for zeros and
    /// for ordinary files.
    pub(super) fn huge_size(&self) -> Option<PageSize> {
        Some(self.file()?.source.as_huge()?.page_size())
    }

    /// Returns the size in bytes of the pages behind the area. The area begins and ends at
    /// multiples of this size.
    pub(super) fn page_bytes(&self) -> u64 {
        self.huge_size().map_or(PAGE, PageSize::bytes)
    }

    /// Returns the distance from a multiple of 2 MiB at which a mapping of the first `bytes` bytes
    /// should begin, so that huge pages can map them. Returns `None` if huge pages cannot map the
    /// bytes.
    pub(super) fn huge_phase(&self, bytes: u64) -> Option<u64> {
        let Self::File(file, offset) = self else {
            return None;
        };
        let phase = offset % REGION;
        // From the first whole region on.
        let before = (REGION - phase) % REGION;
        (bytes >= before + REGION && file.source.has_blocks()).then_some(phase)
    }

    /// Returns the mapped file, or `None` for private anonymous memory.
    pub(super) fn file(&self) -> Option<&Arc<MappedFile>> {
        match self {
            Self::Zero => None,
            Self::File(file, _) => Some(file),
        }
    }
}

/// Collects the files of removed areas, up to 16, so that they are dropped without a lock: the last
/// reference to a file frees the file's pages. The drop of this value also returns the areas'
/// reservations of huge pages to the pool.
pub(super) struct Graveyard {
    /// The number of the space that the areas were in.
    space: u64,
    /// The files, each with the reservations of huge pages that ended with its area.
    files: [Option<(Arc<MappedFile>, Ended)>; 16],
    len: usize,
    /// Whether the areas move to another address, so that their reservations stay.
    moves: bool,
}

impl Graveyard {
    /// Returns an empty graveyard for areas that are removed from the space number `space`.
    pub(super) fn of(space: u64) -> Self {
        Self {
            space,
            files: [const { None }; 16],
            len: 0,
            moves: false,
        }
    }

    /// Returns an empty graveyard for areas of the space number `space` that move to another
    /// address in it. Their reservations of huge pages stay.
    pub(super) fn of_moved(space: u64) -> Self {
        let mut graveyard = Self::of(space);
        graveyard.moves = true;
        graveyard
    }

    /// Returns whether there is no room for another file.
    pub(super) fn is_full(&self) -> bool {
        self.len == self.files.len()
    }

    /// Takes the file of the removed area `area`, and ends the area's reservation of huge pages
    /// unless the area moves. The graveyard must not be full.
    pub(super) fn bury<F: Copy + PartialEq>(&mut self, area: vma::Vma<F, Bytes>) {
        let bytes = area.bytes();
        if let Bytes::File(file, offset) = area.backing {
            let ended = match file.promises() {
                Some(promises) if !self.moves => {
                    promises.end(self.space, &(offset..offset + bytes))
                }
                _ => Ended::default(),
            };
            self.files[self.len] = Some((file, ended));
            self.len += 1;
        }
    }
}

impl Drop for Graveyard {
    fn drop(&mut self) {
        for (file, ended) in self.files.iter().flatten() {
            if let Some(promises) = file.promises() {
                promises.discharge(*ended);
            }
        }
    }
}
