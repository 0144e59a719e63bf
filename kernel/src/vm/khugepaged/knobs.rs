//! `/sys/kernel/mm/transparent_hugepage/khugepaged`.

use super::QUEUE;
use crate::vm::trial::SPARE;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::errno::Errno;
use machine::memory::huge::FRAMES;

/// A file with a number.
#[derive(Debug)]
pub(crate) struct Knob {
    value: AtomicU64,
    least: u64,
    most: u64,
}

impl Knob {
    const fn new(value: u64, least: u64, most: u64) -> Self {
        Self {
            value: AtomicU64::new(value),
            least,
            most,
        }
    }

    /// Its value.
    pub(crate) fn get(&self) -> u64 {
        // Relaxed (all accesses): a number of its own.
        self.value.load(Ordering::Relaxed)
    }

    /// Sets it; takes effect at once.
    ///
    /// # Errors
    /// `EINVAL` for a value beyond its bounds.
    pub(crate) fn set(&self, value: u64) -> Result<(), Errno> {
        if !(self.least..=self.most).contains(&value) {
            return Err(Errno::EINVAL);
        }
        self.value.store(value, Ordering::Relaxed);
        SET.store(true, Ordering::Relaxed);
        QUEUE.wake_one();
        Ok(())
    }
}

const NUMBERS: u64 = u32::MAX as u64;

/// Milliseconds between two looks at pages.
pub(crate) static SCAN_SLEEP: Knob = Knob::new(10_000, 0, NUMBERS);
/// Milliseconds after a look that found no huge page to join others to.
pub(crate) static ALLOC_SLEEP: Knob = Knob::new(60_000, 0, NUMBERS);
/// Pages that are looked at in a row.
pub(crate) static PAGES_TO_SCAN: Knob = Knob::new(1 << 17, 1, NUMBERS);
/// Pages of 2 MiB that may be missing.
pub(crate) static MAX_NONE: Knob = Knob::new(SPARE, 0, FRAMES - 1);
/// Pages of 2 MiB that others may have, too.
pub(crate) static MAX_SHARED: Knob = Knob::new(0, 0, FRAMES - 1);
/// The most pages of 2 MiB that may be in swap. There is no swap.
pub(crate) static MAX_SWAP: Knob = Knob::new(FRAMES / 8, 0, FRAMES - 1);
/// Whether a block is emptied where there is none.
pub(crate) static DEFRAG: Knob = Knob::new(1, 0, 1);

/// Times that all was looked at.
pub(super) static FULL_SCANS: AtomicU64 = AtomicU64::new(0);
/// Huge pages that were made.
pub(super) static COLLAPSED: AtomicU64 = AtomicU64::new(0);

/// One was set, and was not looked at since.
static SET: AtomicBool = AtomicBool::new(false);

pub(super) fn are_set() -> bool {
    SET.load(Ordering::Relaxed)
}

pub(super) fn take_set() -> bool {
    SET.swap(false, Ordering::Relaxed)
}

/// Times that all was looked at.
pub(crate) fn full_scans() -> u64 {
    FULL_SCANS.load(Ordering::Relaxed)
}

/// Huge pages that were made.
pub(crate) fn pages_collapsed() -> u64 {
    COLLAPSED.load(Ordering::Relaxed)
}
