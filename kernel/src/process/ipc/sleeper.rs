//! A caller that waits for what another one tells it.
//!
//! Whoever tells does so under the lock of the object that the caller waits at, after it has taken the
//! caller out. A caller whose wait is broken off takes itself out under that lock: either it was there
//! still, or it has been told.

use super::BrokenOff;
use alloc::sync::Arc;
use machine::arch::clock::Nanos;
use machine::sync::{SpinLock, WaitEnd, WaitQueue};

/// Who waits to be told a `T`.
#[derive(Debug)]
pub(super) struct Sleeper<T> {
    queue: WaitQueue,
    told: SpinLock<Option<T>>,
}

impl<T> Sleeper<T> {
    /// One that was told nothing yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: WaitQueue::new(),
            told: SpinLock::new(None),
        })
    }

    /// Tells and wakes it, once.
    pub(super) fn tell(&self, what: T) {
        *self.told.lock() = Some(what);
        self.queue.wake_all();
    }

    /// What it was told.
    pub(super) fn take(&self) -> Option<T> {
        self.told.lock().take()
    }

    /// Waits until it is told, at most until `deadline`; says what broke the wait off.
    pub(super) fn sleep(&self, deadline: Option<Nanos>) -> Option<BrokenOff> {
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
