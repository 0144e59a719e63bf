//! The bytes behind an area, as the area knows them.

use super::entry::{PAGE, REGION};
use super::hugetlb::Ended;
use super::source::MappedFile;
use alloc::sync::Arc;
use logic::vma;
use machine::memory::hugetlb::PageSize;

/// Where an area's bytes come from.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    /// Zeros.
    Zero,
    /// A file, from this byte on.
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
    /// The size of huge pages that it consists of, if it does.
    pub(super) fn huge_size(&self) -> Option<PageSize> {
        Some(self.file()?.source.as_huge()?.page_size())
    }

    /// Bytes of the pages that it consists of: areas of it begin and end with such.
    pub(super) fn page_bytes(&self) -> u64 {
        self.huge_size().map_or(PAGE, PageSize::bytes)
    }

    /// Returns the best offset in a region of 2 MiB for a mapping of `bytes` bytes of it, or `None`
    /// if huge pages cannot map them.
    pub(super) fn huge_phase(&self, bytes: u64) -> Option<u64> {
        let Self::File(file, offset) = self else {
            return None;
        };
        let phase = offset % REGION;
        // From the first whole region on.
        let before = (REGION - phase) % REGION;
        (bytes >= before + REGION && file.source.has_blocks()).then_some(phase)
    }

    /// The file, where there is one.
    pub(super) fn file(&self) -> Option<&Arc<MappedFile>> {
        match self {
            Self::Zero => None,
            Self::File(file, _) => Some(file),
        }
    }
}

/// Files of areas that were taken out. Dropped without a lock held: the last reference to a file
/// frees its pages.
pub(super) struct Graveyard {
    /// The space that the areas were of.
    space: u64,
    /// With the huge pages that were kept for the area and are not needed any more.
    files: [Option<(Arc<MappedFile>, Ended)>; 16],
    len: usize,
    /// The areas move to another place and keep their reservations.
    moves: bool,
}

impl Graveyard {
    pub(super) fn of(space: u64) -> Self {
        Self {
            space,
            files: [const { None }; 16],
            len: 0,
            moves: false,
        }
    }

    /// For areas that come again elsewhere in their space.
    pub(super) fn of_moved(space: u64) -> Self {
        let mut graveyard = Self::of(space);
        graveyard.moves = true;
        graveyard
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.files.len()
    }

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
