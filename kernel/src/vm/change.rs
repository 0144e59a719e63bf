//! The lock under which an address space's areas change.
//!
//! Page faults take the space's spin lock alone. Calls that change areas take this one around all
//! of their steps, between which the spin lock is free: a large unmapping neither keeps interrupts
//! off for long nor lets another mapping into its half-emptied range.

use crate::sync::WaitQueue;
use core::sync::atomic::{AtomicBool, Ordering};

/// Mutual exclusion of tasks; waiting sleeps.
#[derive(Debug)]
pub(super) struct ChangeLock {
    held: AtomicBool,
    queue: WaitQueue,
}

/// Holds a [`ChangeLock`].
pub(super) struct ChangeGuard<'a>(&'a ChangeLock);

impl ChangeLock {
    pub(super) const fn new() -> Self {
        Self { held: AtomicBool::new(false), queue: WaitQueue::new() }
    }

    pub(super) fn lock(&self) -> ChangeGuard<'_> {
        // Acquire: pairs with the Release of the guard's drop.
        if self.held.swap(true, Ordering::Acquire) {
            self.queue.wait_uninterruptible(|| !self.held.swap(true, Ordering::Acquire));
        }
        ChangeGuard(self)
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.0.held.store(false, Ordering::Release);
        self.0.queue.wake_one();
    }
}
