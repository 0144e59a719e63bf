//! What could not be written: told once to each who had the file then.

use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::sync::SpinLock;

/// Failures of one file.
pub(super) struct Failures(SpinLock<State>);

struct State {
    /// How many there were.
    count: u64,
    /// Of how many somebody was told.
    told: u64,
    last: Errno,
}

/// How many of them one has been told of.
pub(super) struct Seen(AtomicU64);

impl Failures {
    pub(super) const fn none() -> Self {
        Self(SpinLock::new(State {
            count: 0,
            told: 0,
            last: Errno::EIO,
        }))
    }

    /// One more.
    pub(super) fn note(&self, error: Errno) {
        let mut state = self.0.lock();
        state.count += 1;
        state.last = error;
    }

    pub(super) fn count(&self) -> u64 {
        self.0.lock().count
    }

    pub(super) fn last(&self) -> Errno {
        self.0.lock().last
    }

    /// For one who has the file from now on. Failures that nobody was told of are told to him.
    pub(super) fn begin(&self) -> Seen {
        Seen(AtomicU64::new(self.0.lock().told))
    }

    /// Tells of what failed since this one was told last.
    pub(super) fn check(&self, seen: &Seen) -> Result<(), Errno> {
        let mut state = self.0.lock();
        state.told = state.count;
        // Relaxed: changed with the lock held.
        if seen.0.swap(state.count, Ordering::Relaxed) == state.count {
            Ok(())
        } else {
            Err(state.last)
        }
    }
}
