//! The word of a lock that blocks: on which CPU its holder took it, and whether threads wait.
//!
//! A thread that must wait enters the lock's queue and then calls [`Holder::take_waiting`], which
//! takes the lock or marks it as waited for. A holder whose [`Holder::release`] returns `true`
//! wakes one thread of the queue. That thread calls `take_waiting` again, so a lock with threads in
//! its queue is marked, or one of them has been woken and comes to mark it. A lock that no thread
//! waits for costs no look at the queue.
//!
//! Acquire and Release order the data that the lock protects. The queue's own lock orders the mark:
//! a release that finds the queue without a thread comes before that thread's look at the word.

#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU32, Ordering};

/// No thread holds the lock.
const OPEN: u32 = 0;
/// Threads may wait for the lock.
const WAITED: u32 = 1 << 31;

/// The word of a lock that blocks: the CPU on which the holder took the lock, and whether threads
/// wait for it.
#[derive(Debug)]
pub struct Holder(AtomicU32);

impl Holder {
    /// Returns the word of an open lock, for tests that try all interleavings.
    #[cfg(ebb_model)]
    #[expect(clippy::new_without_default, reason = "as without a model")]
    pub fn new() -> Self {
        Self(AtomicU32::new(OPEN))
    }

    /// Returns the word of an open lock.
    #[cfg(not(ebb_model))]
    #[expect(clippy::new_without_default, reason = "a default is no constant")]
    pub const fn new() -> Self {
        Self(AtomicU32::new(OPEN))
    }

    /// Takes the lock for a thread on the CPU `cpu` and returns `true` if the lock is open. Returns
    /// `false` if it is held.
    #[inline]
    pub fn take(&self, cpu: u32) -> bool {
        self.0
            .compare_exchange(OPEN, cpu + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock for a thread on the CPU `cpu` and returns `true` if the lock is open.
    /// Otherwise returns `false`. In both cases marks the lock as waited for, because other threads
    /// may wait.
    pub fn take_waiting(&self, cpu: u32) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        // Repeats only if other threads change the word.
        loop {
            let next = match seen {
                OPEN => (cpu + 1) | WAITED,
                _ if seen & WAITED != 0 => return false,
                _ => seen | WAITED,
            };
            let made = self
                .0
                .compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed);
            match made {
                Ok(_) => return seen == OPEN,
                Err(now) => seen = now,
            }
        }
    }

    /// Opens the lock. Returns whether threads may wait for it, so that the caller must wake one.
    /// Only the holder calls this.
    #[inline]
    #[must_use]
    pub fn release(&self) -> bool {
        self.0.swap(OPEN, Ordering::Release) & WAITED != 0
    }

    /// Returns the CPU on which the holder took the lock, or `None` if the lock is open. The answer
    /// may be out of date at once.
    #[inline]
    pub fn cpu(&self) -> Option<u32> {
        (self.0.load(Ordering::Relaxed) & !WAITED).checked_sub(1)
    }
}
