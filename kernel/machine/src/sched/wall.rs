//! Waits until a point of the wall clock, which may be set meanwhile.
//!
//! A thread that waits so notes how often the clock had been set when it worked out its deadline.
//! Who sets the clock counts up first and wakes those that have such a note then; the thread
//! compares the two numbers after it has announced that it blocks. So one of the two sees the
//! other.

use super::thread::{Thread, current};
use crate::arch::clock::{self, Nanos};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;

/// How often the wall clock was set, and one.
static SETTINGS: AtomicU64 = AtomicU64::new(1);

/// A thread's note of its wait; written by the thread alone.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// [`SETTINGS`] when the deadline was worked out; 0: the thread has no such wait.
    seen: AtomicU64,
    /// The deadline, on the monotonic clock.
    deadline_ns: AtomicU64,
}

impl Note {
    /// No wait.
    pub(super) const fn new() -> Self {
        Self {
            seen: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(0),
        }
    }

    /// Whether the clock was set since the thread worked out `deadline`.
    #[inline]
    pub(super) fn is_stale(&self, deadline: Nanos) -> bool {
        // Relaxed: the thread's own.
        let seen = self.seen.load(Ordering::Relaxed);
        // SeqCst: pairs with `was_set`, after `prepare_to_block`.
        seen != 0
            && self.deadline_ns.load(Ordering::Relaxed) == deadline.0
            && SETTINGS.load(Ordering::SeqCst) != seen
    }
}

/// Returns how often the wall clock was set, and one.
pub fn settings() -> u64 {
    // SeqCst, as in `was_set`.
    SETTINGS.load(Ordering::SeqCst)
}

/// Notes that the wall clock was set. The caller then wakes the threads that [`waits`] is true of.
pub fn was_set() {
    // SeqCst: either this is before a waiter's look, or its note is before the look of `waits`.
    SETTINGS.fetch_add(1, Ordering::SeqCst);
}

/// Whether `thread` waits until a point of the wall clock.
pub fn waits(thread: &Thread) -> bool {
    thread.wall.seen.load(Ordering::SeqCst) != 0
}

/// Calls `wait` with the deadline on the monotonic clock at which the wall clock shows `at`. Calls
/// it again, with another deadline, if it fails with `ETIMEDOUT` only because the clock was set.
///
/// # Errors
/// Those of `wait`.
pub fn wait_until<R>(
    at: Nanos,
    mut wait: impl FnMut(Nanos) -> Result<R, Errno>,
) -> Result<R, Errno> {
    // Each turn but the last one follows a setting of the clock, or ends at a deadline that was
    // rounded.
    loop {
        let seen = settings();
        let note = &current().wall;
        // SeqCst: the note is there before the offset is read.
        note.seen.store(seen, Ordering::SeqCst);
        let deadline = clock::monotonic_at(at);
        note.deadline_ns.store(deadline.0, Ordering::Relaxed);
        let result = wait(deadline);
        note.seen.store(0, Ordering::Relaxed);
        let over = clock::wall_now() >= at;
        match result {
            Err(Errno::ETIMEDOUT) if !over => {}
            result => return result,
        }
    }
}
