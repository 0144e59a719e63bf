//! `/sys/kernel/mm/transparent_hugepage/khugepaged`.

use super::QUEUE;
use crate::vm::trial::SPARE;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::errno::Errno;
use machine::memory::huge::FRAMES;

/// A knob: a file with a number.
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

    /// Returns the value.
    pub(crate) fn get(&self) -> u64 {
        // Relaxed (all accesses): a number of its own.
        self.value.load(Ordering::Relaxed)
    }

    /// Sets the value, which takes effect at once.
    ///
    /// # Errors
    /// Fails with `EINVAL` for a value beyond its bounds.
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

/// The time in milliseconds between two searches.
pub(crate) static SCAN_SLEEP: Knob = Knob::new(10_000, 0, NUMBERS);
/// The time in milliseconds after a search that found no free huge page.
pub(crate) static ALLOC_SLEEP: Knob = Knob::new(60_000, 0, NUMBERS);
/// The number of pages that one search examines.
pub(crate) static PAGES_TO_SCAN: Knob = Knob::new(1 << 17, 1, NUMBERS);
/// The most pages of a region of 2 MiB that may be missing.
pub(crate) static MAX_NONE: Knob = Knob::new(SPARE, 0, FRAMES - 1);
/// The most pages of a region of 2 MiB that other processes may share.
pub(crate) static MAX_SHARED: Knob = Knob::new(0, 0, FRAMES - 1);
/// The most pages of a region of 2 MiB that may be in swap. It has no effect, since there is no
/// swap.
pub(crate) static MAX_SWAP: Knob = Knob::new(FRAMES / 8, 0, FRAMES - 1);
/// Whether a block is emptied if there is no free one.
pub(crate) static DEFRAG: Knob = Knob::new(1, 0, 1);

/// The number of passes over all spaces.
pub(super) static FULL_SCANS: AtomicU64 = AtomicU64::new(0);
/// The number of huge pages made.
pub(super) static COLLAPSED: AtomicU64 = AtomicU64::new(0);

/// Whether a knob was set since the last poll.
static SET: AtomicBool = AtomicBool::new(false);

/// Returns whether a knob was set since the last poll.
pub(super) fn are_set() -> bool {
    SET.load(Ordering::Relaxed)
}

/// Returns whether a knob was set since the last call.
pub(super) fn take_set() -> bool {
    SET.swap(false, Ordering::Relaxed)
}

/// Returns the number of passes over all spaces.
pub(crate) fn full_scans() -> u64 {
    FULL_SCANS.load(Ordering::Relaxed)
}

/// Returns the number of huge pages made.
pub(crate) fn pages_collapsed() -> u64 {
    COLLAPSED.load(Ordering::Relaxed)
}
