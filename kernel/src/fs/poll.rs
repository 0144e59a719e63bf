//! Readiness of files, and notification of its changes.
//!
//! A file that is not always ready owns a [`Notifier`]. It changes its state first and then calls
//! [`Notifier::notify`]. A waiter registers first and then looks at the state. So one of the two
//! always sees the other, and no event is lost.

use super::owner::{Band, Owners};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bitflags::bitflags;
use linux_raw_sys::general as raw;
use logic::errno::Errno;
use machine::sched;
use machine::sync::{SpinLock, WaitQueue};

bitflags! {
    /// The readiness of a file, with Linux's numbers (`POLL*`).
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct PollMask: u32 {
        /// Reading does not block.
        const IN = raw::POLLIN;
        /// Urgent data waits.
        const PRI = raw::POLLPRI;
        /// Writing does not block.
        const OUT = raw::POLLOUT;
        /// An error. On a pipe's writing end: no reader is left.
        const ERR = raw::POLLERR;
        /// The other side is gone.
        const HUP = raw::POLLHUP;
        /// The descriptor is not open.
        const NVAL = raw::POLLNVAL;
        /// Same as `IN`.
        const RDNORM = raw::POLLRDNORM;
        /// Never set here.
        const RDBAND = raw::POLLRDBAND;
        /// Same as `OUT`.
        const WRNORM = raw::POLLWRNORM;
        /// Never set here.
        const WRBAND = raw::POLLWRBAND;
        /// The other side of a stream has stopped writing.
        const RDHUP = raw::POLLRDHUP;
    }
}

impl PollMask {
    /// Ready for reading.
    pub const READABLE: Self = Self::IN.union(Self::RDNORM);
    /// Ready for writing.
    pub const WRITABLE: Self = Self::OUT.union(Self::WRNORM);
    /// The bits that are reported even if they were not asked for.
    pub const ALWAYS: Self = Self::ERR.union(Self::HUP);
}

/// The answer of a [`Watcher`] to an event, which decides whether exclusive watchers get the event
/// too.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The watcher has woken no task. All other watchers get the event too.
    Shared,
    /// The watcher woke a task, so other exclusive watchers do not get the event.
    Alone,
}

/// An object that is called when the readiness of a file may have changed. Its methods must be
/// quick, and take no lock that is held around `notify`.
pub trait Watcher: Send + Sync {
    /// Handles a change after which the file may be ready for the events in `mask`. An empty `mask`
    /// stands for any change. Returns whether the watcher woke a task.
    fn event(&self, mask: PollMask) -> Taken;
    /// Returns whether the watcher skips events that another exclusive watcher has taken.
    fn is_exclusive(&self) -> bool;
    /// Returns whether the watcher leaves with the open file at the address `file`.
    fn leaves_with(&self, _file: usize) -> bool {
        false
    }
    /// Handles the end of the open file for which [`Self::leaves_with`] is true. The notifier has
    /// forgotten the watcher, and holds no lock.
    fn left(&self) {}
}

/// The waiters, watchers and owners that learn of changes of a file's readiness.
#[derive(Default)]
pub struct Notifier {
    queue: WaitQueue,
    watchers: SpinLock<Vec<Arc<dyn Watcher>>>,
    owners: Owners,
}

impl core::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Notifier")
    }
}

impl Notifier {
    /// Returns a notifier without watchers.
    pub const fn new() -> Self {
        Self {
            queue: WaitQueue::new(),
            watchers: SpinLock::new(Vec::new()),
            owners: Owners::new(),
        }
    }

    /// Returns the queue of tasks that wait for a change.
    pub fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    /// Returns the owners that get signals.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Sends the signal for the event `band` to the owners that asked for such signals. Call this
    /// without a spin lock.
    #[inline]
    pub fn signal(&self, band: Band) {
        self.owners.tell(band);
    }

    /// Wakes all waiters and calls all watchers, because the file may have become ready for the
    /// events in `mask`. Returns whether there was a waiter or a watcher.
    pub fn notify(&self, mask: PollMask) -> bool {
        let waited = self.queue.wake_all() != 0;
        self.notify_watchers(mask) || waited
    }

    /// Calls only the watchers, for an event that no task in the queue waits for. Returns whether
    /// there was a watcher.
    pub fn notify_watchers(&self, mask: PollMask) -> bool {
        let mut taken = false;
        let watchers = self.watchers.lock();
        for watcher in watchers.iter() {
            if !(taken && watcher.is_exclusive()) {
                taken |= watcher.event(mask) == Taken::Alone;
            }
        }
        !watchers.is_empty()
    }

    /// Calls `watcher` for every event from now on.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        let mut watchers = self.watchers.lock();
        if watchers.try_reserve(1).is_err() {
            // The lock is released before the watcher is dropped.
            drop(watchers);
            return Err(Errno::ENOMEM);
        }
        watchers.push(watcher);
        Ok(())
    }

    /// Stops calling `watcher`.
    pub fn unwatch(&self, watcher: &Arc<dyn Watcher>) {
        let mut watchers = self.watchers.lock();
        let same = |w: &Arc<dyn Watcher>| {
            core::ptr::eq(
                Arc::as_ptr(w).cast::<()>(),
                Arc::as_ptr(watcher).cast::<()>(),
            )
        };
        let removed = watchers
            .iter()
            .rposition(same)
            .map(|at| watchers.swap_remove(at));
        drop(watchers);
        drop(removed);
    }

    /// Removes the watchers that belong to the open file at the address `file`, which ends, and
    /// calls [`Watcher::left`] of each.
    pub fn release(&self, file: usize) {
        let mut from = 0;
        loop {
            let mut watchers = self.watchers.lock();
            let mut rest = watchers.iter().skip(from);
            let found = rest.position(|watcher| watcher.leaves_with(file));
            let released = found.map(|behind| {
                from += behind;
                watchers.swap_remove(from)
            });
            drop(watchers);
            match released {
                Some(watcher) => watcher.left(),
                // Other removals may have moved a watcher to a place before.
                None if from > 0 => from = 0,
                None => return,
            }
            sched::cond_resched();
        }
    }
}
