//! Waits until a time of the wall clock, which may be set during the wait.
//!
//! A waiting thread notes the number of clock settings at which it computed its deadline. A task
//! that sets the clock first increases that number, then wakes the threads that have a note. The
//! thread compares the two numbers after it has announced that it blocks. So one of the two sees
//! the other.

use super::running::current;
use super::thread::Thread;
use crate::arch::clock::{self, Nanos};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;

/// The number of times that the wall clock was set, plus one.
static SETTINGS: AtomicU64 = AtomicU64::new(1);

/// Whether a thread waits until a time of the wall clock, and the deadline that it has computed for
/// that. Only the thread writes it.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// [`SETTINGS`] when the deadline was computed; 0 if the thread has no such wait.
    seen: AtomicU64,
    /// The deadline, on the monotonic clock.
    deadline_ns: AtomicU64,
}

impl Note {
    /// Makes the note of a thread that does not wait until a time of the wall clock.
    pub(super) const fn new() -> Self {
        Self {
            seen: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(0),
        }
    }

    /// Returns whether the wall clock was set since the thread computed `deadline` for a wait until
    /// a time of the wall clock. Returns `false` if the thread's present wait has another deadline.
    #[inline]
    pub(super) fn is_stale(&self, deadline: Nanos) -> bool {
        // Relaxed: only this thread writes it.
        let seen = self.seen.load(Ordering::Relaxed);
        // SeqCst: pairs with `was_set`, after `prepare_to_block`.
        seen != 0
            && self.deadline_ns.load(Ordering::Relaxed) == deadline.0
            && SETTINGS.load(Ordering::SeqCst) != seen
    }
}

/// Returns the number of times that the wall clock was set, plus one.
pub fn settings() -> u64 {
    // SeqCst: pairs with `was_set`.
    SETTINGS.load(Ordering::SeqCst)
}

/// Increases the number that [`settings`] returns, because the wall clock was set. The caller then
/// wakes the threads for which [`waits`] returns `true`.
pub fn was_set() {
    // SeqCst: either this precedes a waiter's check, or the waiter's note precedes the check in
    // `waits`.
    SETTINGS.fetch_add(1, Ordering::SeqCst);
}

/// Returns whether `thread` waits until a time of the wall clock.
pub fn waits(thread: &Thread) -> bool {
    thread.wall.seen.load(Ordering::SeqCst) != 0
}

/// Calls `wait` with the monotonic time at which the wall clock shows `at`, as the deadline, and
/// returns its result. If `wait` fails with `ETIMEDOUT` before the wall clock shows `at`, for
/// example because the clock was set, calls `wait` again with a new deadline.
///
/// # Errors
/// Those of `wait`.
pub fn wait_until<R>(
    at: Nanos,
    mut wait: impl FnMut(Nanos) -> Result<R, Errno>,
) -> Result<R, Errno> {
    // Each turn but the last follows a setting of the clock, or a deadline that was rounded.
    loop {
        let seen = settings();
        let note = &current().wall;
        // SeqCst: the note is visible before the offset is read.
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
