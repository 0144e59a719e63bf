//! Write errors of a file. Each is reported once to every open file or view that existed then.

use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::sync::SpinLock;

/// The write errors of one file.
pub(super) struct Failures(SpinLock<State>);

struct State {
    /// The number of errors.
    count: u64,
    /// The number of errors that have been reported at least once.
    told: u64,
    last: Errno,
}

/// The number of errors that one open file or view has reported.
pub(super) struct Seen(AtomicU64);

impl Failures {
    /// Returns a record without errors.
    pub(super) const fn none() -> Self {
        Self(SpinLock::new(State {
            count: 0,
            told: 0,
            last: Errno::EIO,
        }))
    }

    /// Counts a write error. `error` is what [`Self::check`] reports.
    pub(super) fn note(&self, error: Errno) {
        let mut state = self.0.lock();
        state.count += 1;
        state.last = error;
    }

    /// Returns the number of write errors so far.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Returns the last write error, or `EIO` if there was none.
    pub(super) fn last(&self) -> Errno {
        self.0.lock().last
    }

    /// Returns the record for a new open file or view. With this record, [`Self::check`] also
    /// reports earlier errors that were never reported.
    pub(super) fn begin(&self) -> Seen {
        Seen(AtomicU64::new(self.0.lock().told))
    }

    /// Checks for write errors since the last call with `seen`.
    ///
    /// # Errors
    /// Fails with the last write error if there were any.
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
