//! A task that waits for a result from another task.
//!
//! The other task takes the sleeper out of the object that it waits at, then gives it the result,
//! both under the object's lock. If the wait is broken off, the sleeper takes itself out under that
//! lock. Either it was still there, or it has the result.

use super::BrokenOff;
use alloc::sync::Arc;
use machine::arch::clock::Nanos;
use machine::sync::{SpinLock, WaitEnd, WaitQueue};

/// A task that waits for a result of the type `T` from another task.
#[derive(Debug)]
pub(super) struct Sleeper<T> {
    queue: WaitQueue,
    told: SpinLock<Option<T>>,
}

impl<T> Sleeper<T> {
    /// Returns a sleeper without a result.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: WaitQueue::new(),
            told: SpinLock::new(None),
        })
    }

    /// Gives the sleeper the result `what` and wakes it. Called once.
    pub(super) fn tell(&self, what: T) {
        *self.told.lock() = Some(what);
        self.queue.wake_all();
    }

    /// Removes the result and returns it. Returns `None` if no result has arrived.
    pub(super) fn take(&self) -> Option<T> {
        self.told.lock().take()
    }

    /// Waits for the result, at most until `deadline` on the monotonic clock; `None` means no time
    /// limit. Returns `None` if the result has arrived, else the reason why the wait ended early.
    pub(super) fn sleep(&self, deadline: Option<Nanos>) -> Option<BrokenOff>
    where
        T: Send,
    {
        let ready = || self.told.lock().is_some();
        let end = match deadline {
            Some(deadline) => self.queue.wait_deadline(ready, deadline),
            None => self.queue.wait(ready).map(|()| WaitEnd::Ready),
        };
        match end {
            Ok(WaitEnd::Ready) => None,
            Ok(WaitEnd::TimedOut) => Some(BrokenOff::TimedOut),
            Err(_) => Some(BrokenOff::Interrupted),
        }
    }
}
