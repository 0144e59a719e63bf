//! Readiness: what a file is ready for, and who is told when that changes.
//!
//! A file that is not always ready owns a [`Notifier`]. It changes its state first and calls
//! [`Notifier::notify`] then; a waiter registers first and looks at the state then. So one of the
//! two always sees the other, and no event is lost.

use super::owner::{Band, Owners};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bitflags::bitflags;
use linux_raw_sys::general as raw;
use logic::errno::Errno;
use machine::sync::{SpinLock, WaitQueue};

bitflags! {
    /// What a file is ready for, with Linux's numbers (`POLL*`).
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct PollMask: u32 {
        /// Reading does not block.
        const IN = raw::POLLIN;
        /// There is something urgent.
        const PRI = raw::POLLPRI;
        /// Writing does not block.
        const OUT = raw::POLLOUT;
        /// An error: on a pipe's writing end, that nobody reads.
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
    /// What is told whether it was asked for or not.
    pub const ALWAYS: Self = Self::ERR.union(Self::HUP);
}

/// What a watcher made of an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Others want to know, too.
    Shared,
    /// It woke somebody who wants to be the only one: others of this kind need not know.
    Alone,
}

/// Is told of events; must be quick and take no lock that is held around `notify`.
pub trait Watcher: Send + Sync {
    /// Something in `mask` may have come true.
    fn event(&self, mask: PollMask) -> Taken;
    /// Whether it is told only of what no other of its kind has taken.
    fn is_exclusive(&self) -> bool;
}

/// Where a file tells that its readiness changed.
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
    /// One that nobody watches yet.
    pub const fn new() -> Self {
        Self {
            queue: WaitQueue::new(),
            watchers: SpinLock::new(Vec::new()),
            owners: Owners::new(),
        }
    }

    /// Where tasks wait for a change.
    pub fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    /// Whom signals tell.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Tells by signals, where somebody has asked for them. Call it without a spin lock.
    #[inline]
    pub fn signal(&self, band: Band) {
        self.owners.tell(band);
    }

    /// Tells everybody that something in `mask` may have come true; says whether anybody waited.
    pub fn notify(&self, mask: PollMask) -> bool {
        let waited = self.queue.wake_all() != 0;
        self.notify_watchers(mask) || waited
    }

    /// Tells the watchers alone, of an event that nobody in the queue waits for.
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

    /// Tells `watcher` of every event from now on.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        let mut watchers = self.watchers.lock();
        if watchers.try_reserve(1).is_err() {
            // The lock goes before the watcher does.
            drop(watchers);
            return Err(Errno::ENOMEM);
        }
        watchers.push(watcher);
        Ok(())
    }

    /// Stops telling it.
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
}
