//! The bytes behind an area, as the area knows them.

use super::source::MappedFile;
use alloc::sync::Arc;
use logic::vma;

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
#[derive(Default)]
pub(super) struct Graveyard {
    files: [Option<Arc<MappedFile>>; 16],
    len: usize,
}

impl Graveyard {
    pub(super) fn is_full(&self) -> bool {
        self.len == self.files.len()
    }

    pub(super) fn bury(&mut self, bytes: Bytes) {
        if let Bytes::File(file, _) = bytes {
            self.files[self.len] = Some(file);
            self.len += 1;
        }
    }
}
