//! Requests that a task waits for together.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use logic::disk::request::IoError;
use machine::arch::clock::Nanos;
use machine::sched::pressure;
use machine::sync::{Interrupted, WaitEnd, WaitQueue};

const FINE: u8 = 0;
const FAILED: u8 = 1;
const UNSUPPORTED: u8 = 2;
const GONE: u8 = 3;

/// A number of requests whose end a task waits for. Records the first failure.
#[derive(Debug)]
pub struct Batch {
    pending: AtomicU32,
    failure: AtomicU8,
    waiters: WaitQueue,
}

impl Batch {
    /// Returns a batch of `requests` requests that have not ended.
    pub const fn new(requests: u32) -> Self {
        Self {
            pending: AtomicU32::new(requests),
            failure: AtomicU8::new(FINE),
            waiters: WaitQueue::new(),
        }
    }

    /// Counts the end of one request with `result`. Wakes the waiting tasks if it was the last.
    pub(super) fn done(&self, result: Result<(), IoError>) {
        let failure = match result {
            Ok(()) => FINE,
            Err(IoError::Failed) => FAILED,
            Err(IoError::Unsupported) => UNSUPPORTED,
            Err(IoError::Gone) => GONE,
        };
        if failure != FINE {
            // Relaxed: the Release below publishes it. The first failure stays.
            let _ =
                self.failure
                    .compare_exchange(FINE, failure, Ordering::Relaxed, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `wait`, so a task that reads 0 also sees the data.
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiters.wake_all();
        }
    }

    /// Waits until all requests have ended. Returns `Ok(Ok(()))` if all succeeded, and otherwise
    /// the first failure of a request as the inner result.
    ///
    /// # Errors
    /// Fails with [`Interrupted`] if the task is being killed. The requests go on then.
    pub fn wait(&self) -> Result<Result<(), IoError>, Interrupted> {
        let _waits = pressure::io_wait();
        // Acquire: pairs with the Release in `done`.
        self.waiters
            .wait_killable(|| self.pending.load(Ordering::Acquire) == 0)?;
        Ok(self.result())
    }

    /// Waits until all requests have ended, at most until `deadline`, even if the task is being
    /// killed. Returns their result as [`Self::wait`] does. Returns `None` if `deadline` passes
    /// first; the requests go on then.
    pub(super) fn wait_until(&self, deadline: Nanos) -> Option<Result<(), IoError>> {
        let _waits = pressure::io_wait();
        // Acquire, as in `wait`.
        let ended = || self.pending.load(Ordering::Acquire) == 0;
        let end = self.waiters.wait_uninterruptible_deadline(ended, deadline);
        (end == WaitEnd::Ready).then(|| self.result())
    }

    /// Succeeds if all requests have succeeded, and otherwise fails with the error of one that
    /// failed. Called once all requests have ended.
    fn result(&self) -> Result<(), IoError> {
        match self.failure.load(Ordering::Relaxed) {
            FINE => Ok(()),
            UNSUPPORTED => Err(IoError::Unsupported),
            GONE => Err(IoError::Gone),
            _ => Err(IoError::Failed),
        }
    }
}
