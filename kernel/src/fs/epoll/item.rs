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

/// Bits of an interest that are not readiness.
pub(super) const CONTROL: u32 = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;
/// The number of removed items that the ready list may keep in addition to the number of items in
/// the set.
const MOST_REMOVED: usize = 64;

/// An event in the program's format (`struct epoll_event`), which is packed on x86-64.
#[derive(Copy, Clone, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct Event {
    /// The readiness, or the readiness of interest.
    pub events: u32,
    /// The value that the program chose.
    pub data: u64,
}

/// A descriptor, and the address of its open file when it was added.
pub(super) type Key = (i32, usize);

/// A file that is watched by an epoll set.
pub(super) struct Item {
    pub(super) this: Weak<Item>,
    pub(super) key: Key,
    pub(super) file: Weak<OpenFile>,
    pub(super) epoll: Weak<Epoll>,
    /// The notifier of the file. `None` once the item has left the set.
    pub(super) notifier: SpinLock<Option<Arc<Notifier>>>,
    /// The interest. Its readiness bits are clear while a one-shot item is disabled.
    pub(super) interest: SpinLock<Event>,
    /// Whether the item is on the ready list. Changed under the set's lock.
    pub(super) queued: AtomicBool,
    /// Whether the item has left the set. Changed under the set's lock.
    pub(super) removed: AtomicBool,
    /// The number of the epoll set that the file is, if the file is one.
    pub(super) inner: Option<u64>,
    /// Whether only one of several exclusive sets with this file gets an event (`EPOLLEXCLUSIVE`).
    pub(super) exclusive: bool,
    /// Whether the file is a timer, which notifies no set when it expires.
    pub(super) is_timer: bool,
    /// The last expiry of the timer that was put on the ready list.
    pub(super) seen_expiry: AtomicU64,
}

impl Item {
    /// Returns whether the item becomes ready by the passage of time alone.
    pub(super) fn may_expire(&self) -> bool {
        self.is_timer || self.inner.is_some()
    }

    /// Returns the event to report, and the item's interest, if `file` is ready. `file` is the
    /// item's file. Returns `None` if it is not ready. Disables a one-shot item whose event is
    /// returned.
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
                // Another waiter has spent the item.
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

    /// Returns whether `file`, the item's file, is ready for something of interest.
    pub(super) fn wants_now(&self, file: &OpenFile) -> bool {
        let mask = file.file().poll();
        !mask.is_empty() && self.wants(mask)
    }

    /// Returns whether a change to the readiness `mask` matches the item's interest.
    fn wants(&self, mask: PollMask) -> bool {
        let events = self.interest.lock().events & !CONTROL;
        // An empty mask stands for any change.
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
    fn leaves_with(&self, file: usize) -> bool {
        self.key.1 == file
    }
    fn left(&self) {
        if let (Some(epoll), Some(item)) = (self.epoll.upgrade(), self.this.upgrade()) {
            epoll.remove_item(&item);
        }
    }
}

#[derive(Default)]
/// The data that the lock of a set protects.
pub(super) struct State {
    pub(super) items: BTreeMap<Key, Arc<Item>>,
    /// The items that may expire, which are in `items` too.
    pub(super) expiring: BTreeMap<Key, Arc<Item>>,
    /// The ready list. It has room for every item, so marking one ready never allocates.
    pub(super) ready: VecDeque<Arc<Item>>,
    /// The number of entries of `ready` whose items have left the set.
    pub(super) removed: usize,
    /// Whether a waiter found the list empty while another wait held items.
    pub(super) missed: bool,
}

impl State {
    /// Appends `item` to the ready list. Does nothing if the item is in the list already or has
    /// left the set.
    pub(super) fn queue(&mut self, item: Arc<Item>) {
        // Relaxed (both): under the lock.
        let removed = item.removed.load(Ordering::Relaxed);
        if !removed && !item.queued.swap(true, Ordering::Relaxed) {
            self.ready.push_back(item);
        }
    }

    /// Takes the first item from the ready list that has not left the set. Examines at most `left`
    /// entries, and subtracts the examined ones from `left`. Returns `None` if there is no such
    /// item.
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

    /// Marks `item` as removed. The caller has taken it out of `items`. If the ready list has too
    /// many removed items, drops them from the list.
    pub(super) fn remove(&mut self, item: &Item) {
        // Relaxed (all): under the lock.
        item.removed.store(true, Ordering::Relaxed);
        if item.may_expire() {
            self.expiring.remove(&item.key);
        }
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
