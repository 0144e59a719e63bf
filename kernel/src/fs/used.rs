//! When the pages of a file of the host's were used last, in ticks of the thread of [`super::cold`].
//!
//! A file is as old as its pages: a read, or a fault on one of its pages, renews all of them. A stamp is one load
//! where the file was used in the same tick already.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use machine::arch::clock::{self, Nanos};
use machine::memory::stats;
use machine::sync::WaitQueue;

/// Clean pages of host files that stay, even if no program uses them: 16 MiB.
pub(super) const KEPT_PAGES: u64 = 4096;
/// Ticks without use after which a file's pages go.
pub(super) const TICKS: u32 = 4;
/// The longest time that can be asked for, in seconds: a day.
const MOST_SECONDS: u64 = 86_400;

/// How long pages stay without use, in seconds; 0: until memory is short.
static SECONDS: AtomicU64 = AtomicU64::new(60);
static TICK: AtomicU32 = AtomicU32::new(0);
/// The thread counts ticks, or is about to.
static TICKING: AtomicBool = AtomicBool::new(false);
/// The time between two ticks has changed.
static RETIMED: AtomicBool = AtomicBool::new(false);
static QUEUE: WaitQueue = WaitQueue::new();

/// The tick in which a file was used last.
#[derive(Debug)]
pub(super) struct Used(AtomicU32);

impl Used {
    /// Used now.
    pub(super) fn now() -> Self {
        // Relaxed (all): each is a value of its own, and a tick more or less does not matter.
        Self(AtomicU32::new(TICK.load(Ordering::Relaxed)))
    }

    /// Notes a use.
    #[inline]
    pub(super) fn renew(&self) {
        let tick = TICK.load(Ordering::Relaxed);
        if self.0.load(Ordering::Relaxed) != tick {
            self.0.store(tick, Ordering::Relaxed);
        }
    }

    /// Ticks since the last use.
    pub(super) fn age(&self) -> u32 {
        TICK.load(Ordering::Relaxed)
            .wrapping_sub(self.0.load(Ordering::Relaxed))
    }
}

/// Notes that pages of files of the host's came: the thread begins to count ticks once there are more than stay anyway.
pub(super) fn pages_came() {
    if !TICKING.load(Ordering::Relaxed)
        && stats::host_pages() > KEPT_PAGES
        && !TICKING.swap(true, Ordering::Relaxed)
    {
        QUEUE.wake_one();
    }
}

/// Waits for the next tick, and counts it.
pub(super) fn wait_for_tick() {
    loop {
        let ready = || TICKING.load(Ordering::Relaxed) && SECONDS.load(Ordering::Relaxed) != 0;
        QUEUE.wait_uninterruptible(ready);
        RETIMED.store(false, Ordering::Relaxed);
        let ticks = u64::from(TICKS);
        let between = SECONDS.load(Ordering::Relaxed) * 1_000_000_000 / ticks;
        let deadline = clock::now().saturating_add(Nanos(between));
        QUEUE.wait_uninterruptible_deadline(|| RETIMED.load(Ordering::Relaxed), deadline);
        // It begins anew where another time is wanted.
        if !RETIMED.load(Ordering::Relaxed) {
            TICK.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// Counts no more ticks, if no more pages are here than stay anyway.
pub(super) fn rest() {
    if stats::host_pages() > KEPT_PAGES {
        return;
    }
    TICKING.store(false, Ordering::Relaxed);
    // Those who brought pages meanwhile took it for counting.
    pages_came();
}

/// How long pages stay without use, in seconds; 0: until memory is short.
pub fn seconds() -> u64 {
    SECONDS.load(Ordering::Relaxed)
}

/// Sets how long pages stay without use.
///
/// # Errors
/// `EINVAL` for more than a day.
pub fn set_seconds(seconds: u64) -> Result<(), logic::errno::Errno> {
    if seconds > MOST_SECONDS {
        return Err(logic::errno::Errno::EINVAL);
    }
    SECONDS.store(seconds, Ordering::Relaxed);
    RETIMED.store(true, Ordering::Relaxed);
    QUEUE.wake_one();
    Ok(())
}

/// A file whose clean pages may go.
pub(super) trait Cold {
    /// Ticks since it was used last.
    fn age(&self) -> u32;
    /// Takes its pages out of all page tables, but for locked memory and private copies, if it may. No spin lock is held.
    fn unmap(&self);
    /// Drops its clean pages that have no other reference. Returns their number.
    fn drop_unused(&self) -> usize;
}
