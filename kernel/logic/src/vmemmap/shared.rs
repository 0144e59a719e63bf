//! The page and the table that all huge pages share.

use super::machine::{Machine, take};
use core::sync::atomic::Ordering;
use ebb_mm::{AllocError, Frame, FrameRange};

/// The page of descriptors and the page table that all huge pages share. They are allocated for the
/// first huge page, and kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The page of descriptors.
    pub(super) page: Frame,
    /// The table whose entries all map the page.
    pub(super) table: Frame,
}

impl Shared {
    /// Allocates two frames from `machine`: the page of descriptors that all huge pages share, and
    /// the page table whose entries all map that page. Fills both. Fails with [`AllocError`] if no
    /// frames are free; no frame is allocated then.
    pub(super) fn new<M: Machine>(machine: M) -> Result<Self, AllocError> {
        let page = machine.allocate()?;
        let table = match machine.allocate() {
            Ok(table) => table,
            Err(error) => {
                machine.free(FrameRange::new(page, 1));
                return Err(error);
            }
        };
        take(machine, &[page, table]);
        machine.clear(FrameRange::new(page, 1));
        machine.describe_huge_page(page);
        let shared = Self { page, table };
        shared.fill(machine, table);
        Ok(shared)
    }

    /// Makes all entries of the page table `table` map the shared page of descriptors.
    pub(super) fn fill<M: Machine>(&self, machine: M, table: Frame) {
        for index in 0..M::ENTRIES {
            // Relaxed: the caller installs the table with Release.
            machine
                .entry(table, index)
                .store(self.entry::<M>(), Ordering::Relaxed);
        }
    }

    /// Returns the page-table entry that maps the shared page of descriptors, which is read-only.
    #[inline]
    pub(super) const fn entry<M: Machine>(&self) -> u64 {
        self.page.address() | M::BITS.page
    }
}
