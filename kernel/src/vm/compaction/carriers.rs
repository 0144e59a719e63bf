//! Blocks that left the pool of huge pages and carry their part of the memmap: `kcompactd` empties
//! the rest of them, and tries again from time to time until they are whole.

use super::{empty_aside, now};
use crate::vm::moving::Mover;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use ebb_mm::PROACTIVE_INTERVAL;
use machine::memory::hugetlb;

/// The longest time between two attempts that free nothing.
const LONGEST_WAIT: Duration = Duration::from_secs(32);

/// Whether a block was added since the last poll.
static NEW: AtomicBool = AtomicBool::new(false);

/// Notes that a block has left the pool of huge pages and carries its part of the memmap. The next
/// [`Carriers::poll`] plans an attempt to empty it.
pub(super) fn note() {
    NEW.store(true, Ordering::Relaxed);
}

/// Returns whether [`note`] was called since the last [`Carriers::poll`].
pub(super) fn is_noted() -> bool {
    NEW.load(Ordering::Relaxed)
}

/// The schedule of `kcompactd`'s attempts to empty the blocks that carry their part of the memmap.
pub(super) struct Carriers {
    due: Option<Duration>,
    wait: Duration,
}

impl Carriers {
    /// Returns a schedule without a planned attempt.
    pub(super) const fn new() -> Self {
        Self {
            due: None,
            wait: PROACTIVE_INTERVAL,
        }
    }

    /// Brings the next attempt forward to [`PROACTIVE_INTERVAL`] from now, if it is planned for
    /// later. Call this when memory was freed, since an attempt that failed before may succeed now.
    pub(super) fn memory_freed(&mut self) {
        self.wait = PROACTIVE_INTERVAL;
        self.due = self.due.map(|due| due.min(now() + self.wait));
    }

    /// Tries to empty the blocks if an attempt is due. Frames in use move only if `moves` is set.
    /// Returns the time of the next attempt, or `None` if none is planned because no such block is
    /// left.
    pub(super) fn poll(&mut self, mover: &mut Mover, moves: bool) -> Option<Duration> {
        if NEW.swap(false, Ordering::Relaxed) {
            // Memory that was short at that time may be free in a moment.
            self.wait = PROACTIVE_INTERVAL;
            self.due = Some(now() + self.wait);
        }
        if now() >= self.due? {
            // All but what carries the memmap.
            hugetlb::relieve(|block| {
                if moves {
                    empty_aside(block, mover, u32::MAX);
                }
            });
            let (_, carriers) = hugetlb::optimized();
            self.wait = LONGEST_WAIT.min(2 * self.wait);
            self.due = (carriers != 0).then(|| now() + self.wait);
        }
        self.due
    }
}
