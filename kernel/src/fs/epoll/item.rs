//! The items of an epoll set, and the list of those that may be ready.

use super::Epoll;
use crate::fs::OpenFile;
use crate::fs::poll::{Notifier, PollMask, Taken, Watcher};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use linux_raw_sys::general::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP};
use machine::sync::SpinLock;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bits of an interest that are no readiness.
pub(super) const CONTROL: u32 = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;
/// Entries of removed items that the ready list keeps besides as many as there are items.
const MOST_REMOVED: usize = 64;

/// An event as the program gets it (`struct epoll_event`), which is packed on x86-64.
#[derive(Copy, Clone, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct Event {
    /// Readiness, or what is of interest.
    pub events: u32,
    /// The program's own.
    pub data: u64,
}

/// A descriptor and the open file behind it when it was added.
pub(super) type Key = (i32, usize);

/// A file in a set.
pub(super) struct Item {
    pub(super) this: Weak<Item>,
    pub(super) key: Key,
    pub(super) file: Weak<OpenFile>,
    pub(super) epoll: Weak<Epoll>,
    /// `None` once the item has left the set.
    pub(super) notifier: SpinLock<Option<Arc<Notifier>>>,
    /// What is of interest; no readiness bits while a one-shot item is spent.
    pub(super) interest: SpinLock<Event>,
    /// Whether it is on the ready list; changed under the set's lock.
    pub(super) queued: AtomicBool,
    /// Whether it has left the set; changed under the set's lock.
    pub(super) removed: AtomicBool,
    /// The number of the epoll set that the file is, if it is one.
    pub(super) inner: Option<u64>,
    /// Of several sets with this file, one is told of an event.
    pub(super) exclusive: bool,
    /// The file is a timer, which notifies no set when it goes off.
    pub(super) is_timer: bool,
    /// The expiry of the timer that was last put on the ready list.
    pub(super) seen_expiry: AtomicU64,
}

impl Item {
    /// Whether it becomes ready by the time alone.
    pub(super) fn may_expire(&self) -> bool {
        self.is_timer || self.inner.is_some()
    }

    /// Returns the event that a wait reports of `file`, the item's, and the item's interest. Returns `None`
    /// if the file is not ready. Spends a one-shot item.
    pub(super) fn report(&self, file: &OpenFile) -> Option<(Event, u32)> {
        let Event { events, data } = *self.interest.lock();
        let asked = events & !CONTROL;
        if asked == 0 {
            return None;
        }
        let ready = file.file().poll().bits() & asked;
        if ready == 0 {
            return None;
        }
        if events & EPOLLONESHOT != 0 {
            let mut interest = self.interest.lock();
            if interest.events & !CONTROL == 0 {
                // Another waiter was first.
                return None;
            }
            interest.events &= CONTROL;
        }
        let event = Event {
            events: ready,
            data,
        };
        Some((event, events))
    }

    /// Whether `file`, the item's, is ready for something that is of interest.
    pub(super) fn wants_now(&self, file: &OpenFile) -> bool {
        let mask = file.file().poll();
        !mask.is_empty() && self.wants(mask)
    }

    /// Whether a change to this readiness is of interest.
    fn wants(&self, mask: PollMask) -> bool {
        let events = self.interest.lock().events & !CONTROL;
        // A change without a name is any change.
        events != 0 && (mask.is_empty() || mask.bits() & events != 0)
    }
}

impl Watcher for Item {
    fn event(&self, mask: PollMask) -> Taken {
        if !self.wants(mask) {
            return Taken::Shared;
        }
        let waited = self
            .epoll
            .upgrade()
            .is_some_and(|epoll| epoll.mark_ready(self));
        if waited && self.exclusive {
            Taken::Alone
        } else {
            Taken::Shared
        }
    }
    fn is_exclusive(&self) -> bool {
        self.exclusive
    }
}

#[derive(Default)]
/// What the lock of a set guards.
pub(super) struct State {
    pub(super) items: BTreeMap<Key, Arc<Item>>,
    /// Has room for every item, so that marking one ready never allocates.
    pub(super) ready: VecDeque<Arc<Item>>,
    /// Entries of `ready` whose items have left the set.
    pub(super) removed: usize,
    /// A waiter found no item while another wait had some in its hands.
    pub(super) missed: bool,
}

impl State {
    /// Puts an item at the end of the ready list unless it is there or has left the set.
    pub(super) fn queue(&mut self, item: Arc<Item>) {
        // Relaxed (both): under the lock.
        let removed = item.removed.load(Ordering::Relaxed);
        if !removed && !item.queued.swap(true, Ordering::Relaxed) {
            self.ready.push_back(item);
        }
    }

    /// Takes the first item from the ready list, of which `left` places are looked at at most.
    pub(super) fn next(&mut self, left: &mut usize) -> Option<Arc<Item>> {
        while *left > 0 {
            let item = self.ready.pop_front()?;
            *left -= 1;
            // Relaxed (both): under the lock.
            item.queued.store(false, Ordering::Relaxed);
            if !item.removed.load(Ordering::Relaxed) {
                return Some(item);
            }
            self.removed -= 1;
        }
        None
    }

    /// Marks an item as removed that is in `items` no more.
    pub(super) fn remove(&mut self, item: &Item) {
        // Relaxed (all): under the lock.
        item.removed.store(true, Ordering::Relaxed);
        if item.queued.load(Ordering::Relaxed) {
            self.removed += 1;
        }
        if self.removed > self.items.len() + MOST_REMOVED {
            self.ready
                .retain(|item| !item.removed.load(Ordering::Relaxed));
            self.removed = 0;
        }
    }
}
