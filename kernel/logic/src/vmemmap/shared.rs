//! What all huge pages share.

use super::machine::{Machine, take};
use core::sync::atomic::Ordering;
use ebb_mm::{AllocError, Frame, FrameRange};

/// What all huge pages share. Made for the first of them, and kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The page of descriptors.
    pub(super) page: Frame,
    /// The table that leads to nothing else.
    pub(super) table: Frame,
}

impl Shared {
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

    /// Has all entries of a table lead to the page.
    pub(super) fn fill<M: Machine>(&self, machine: M, table: Frame) {
        for index in 0..M::ENTRIES {
            // Relaxed: who puts the table in does so with Release.
            machine
                .entry(table, index)
                .store(self.entry::<M>(), Ordering::Relaxed);
        }
    }

    /// The entry of the page: nobody writes by it.
    #[inline]
    pub(super) const fn entry<M: Machine>(&self) -> u64 {
        self.page.address() | M::BITS.page
    }
}
