//! The time of the last use of a host file's pages, in ticks of the thread of [`super::cold`].
//!
//! The pages of a file have one age: a read, or a fault on one of the pages, renews all of them. If
//! the file was used in the same tick, a use costs one load.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use machine::arch::clock::{self, Nanos};
use machine::memory::stats;
use machine::sync::WaitQueue;

/// The number of clean pages of host files that are kept even if no program uses them: 16 MiB.
pub(super) const KEPT_PAGES: u64 = 4096;
/// The number of ticks without use after which a file's pages are dropped.
pub(super) const TICKS: u32 = 4;
/// The longest time that can be set, in seconds: a day.
const MOST_SECONDS: u64 = 86_400;

/// How long unused pages are kept, in seconds. 0 keeps them until memory is short.
static SECONDS: AtomicU64 = AtomicU64::new(60);
static TICK: AtomicU32 = AtomicU32::new(0);
/// Whether the thread counts ticks or is about to.
static TICKING: AtomicBool = AtomicBool::new(false);
/// Whether the time between two ticks has changed.
static RETIMED: AtomicBool = AtomicBool::new(false);
static QUEUE: WaitQueue = WaitQueue::new();

/// The tick in which a file was last used.
#[derive(Debug)]
pub(super) struct Used(AtomicU32);

impl Used {
    /// Returns the record of a file that is used now.
    pub(super) fn now() -> Self {
        // Relaxed, in all accesses: the values are independent, and a tick more or less does not
        // matter.
        Self(AtomicU32::new(TICK.load(Ordering::Relaxed)))
    }

    /// Records that the file is used now.
    #[inline]
    pub(super) fn renew(&self) {
        let tick = TICK.load(Ordering::Relaxed);
        if self.0.load(Ordering::Relaxed) != tick {
            self.0.store(tick, Ordering::Relaxed);
        }
    }

    /// Returns the number of ticks since the last use.
    pub(super) fn age(&self) -> u32 {
        TICK.load(Ordering::Relaxed)
            .wrapping_sub(self.0.load(Ordering::Relaxed))
    }
}

/// Wakes `kfilecold`, which then counts ticks, if more than [`KEPT_PAGES`] clean pages of host
/// files are in memory. Call this after pages of host files were read.
pub(super) fn pages_came() {
    if !TICKING.load(Ordering::Relaxed)
        && stats::host_pages() > KEPT_PAGES
        && !TICKING.swap(true, Ordering::Relaxed)
    {
        QUEUE.wake_one();
    }
}

/// Waits until the next tick, and counts it. Only `kfilecold` calls this.
pub(super) fn wait_for_tick() {
    loop {
        let ready = || TICKING.load(Ordering::Relaxed) && SECONDS.load(Ordering::Relaxed) != 0;
        QUEUE.wait_uninterruptible(ready);
        RETIMED.store(false, Ordering::Relaxed);
        let ticks = u64::from(TICKS);
        let between = SECONDS.load(Ordering::Relaxed) * 1_000_000_000 / ticks;
        let deadline = clock::now().saturating_add(Nanos(between));
        QUEUE.wait_uninterruptible_deadline(|| RETIMED.load(Ordering::Relaxed), deadline);
        // The wait starts again if the time between ticks was changed.
        if !RETIMED.load(Ordering::Relaxed) {
            TICK.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// Ends the counting of ticks if at most [`KEPT_PAGES`] clean pages of host files are left in
/// memory. [`pages_came`] begins it again.
pub(super) fn rest() {
    if stats::host_pages() > KEPT_PAGES {
        return;
    }
    TICKING.store(false, Ordering::Relaxed);
    // Tasks that read pages since the check took the thread to be counting.
    pages_came();
}

/// Returns the seconds for which unused pages of host files stay in memory. 0 means until memory is
/// short.
pub fn seconds() -> u64 {
    SECONDS.load(Ordering::Relaxed)
}

/// Sets the seconds for which unused pages of host files stay in memory. 0 means until memory is
/// short.
///
/// # Errors
/// Fails with `EINVAL` for more than a day.
pub fn set_seconds(seconds: u64) -> Result<(), logic::errno::Errno> {
    if seconds > MOST_SECONDS {
        return Err(logic::errno::Errno::EINVAL);
    }
    SECONDS.store(seconds, Ordering::Relaxed);
    RETIMED.store(true, Ordering::Relaxed);
    QUEUE.wake_one();
    Ok(())
}

/// A file whose clean pages may be dropped.
pub(super) trait Cold {
    /// Returns the number of ticks since the file was last used.
    fn age(&self) -> u32;
    /// Unmaps the file's pages from all page tables if the file allows it, except in locked memory
    /// and private copies. The caller holds no spin lock.
    fn unmap(&self);
    /// Drops the file's clean pages that have no other reference. Returns the number of dropped
    /// pages.
    fn drop_unused(&self) -> usize;
}
