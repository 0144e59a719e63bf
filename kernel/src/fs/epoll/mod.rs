//! epoll: a set of files, and the list of those that may be ready.
//!
//! A file's [`Notifier`] puts its item on the ready list. A wait takes the item off and looks at
//! the file itself, because the list is only a hint. A level-triggered item that is still ready
//! goes back to the end of the list.

mod item;
mod wait;

pub use item::Event;

use super::file::{File, OpenFile};
use super::poll::{Notifier, PollMask, Watcher};
use super::timerfd::Due;
use super::timerfd::TimerFile;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use item::{Item, Key, State};
use linux_raw_sys::general::EPOLLEXCLUSIVE;
use logic::errno::Errno;
use logic::nests::Nests;
use machine::arch::clock::Nanos;
use machine::sched;
use machine::sync::SpinLock;

/// The most files in a set.
const MAX_ITEMS: usize = 1 << 20;

/// An epoll set: the files that one epoll descriptor watches.
pub struct Epoll {
    this: Weak<Epoll>,
    state: SpinLock<State>,
    notifier: Arc<Notifier>,
    /// The number of the set, which no other set has.
    number: u64,
    /// The number of timers in this set, and of sets in it that may contain some.
    timers: AtomicUsize,
    /// The number of waits that hold items. Incremented under the lock.
    takers: AtomicUsize,
}

/// The number of the newest set.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The sets that each set contains. They limit the depth of nested sets and exclude cycles.
static NESTS: SpinLock<Nests> = SpinLock::new(Nests::new());

impl core::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Epoll")
    }
}

impl Epoll {
    /// Returns an empty set.
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            state: SpinLock::new(State::default()),
            notifier: Arc::new(Notifier::new()),
            // Relaxed: the number orders no other access.
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            timers: AtomicUsize::new(0),
            takers: AtomicUsize::new(0),
        })
    }

    fn key(fd: i32, file: &Arc<OpenFile>) -> Key {
        (fd, Arc::as_ptr(file) as usize)
    }

    /// Puts an item on the ready list and wakes the waiters. Returns whether there were any.
    fn mark_ready(&self, item: &Item) -> bool {
        let mut state = self.state.lock();
        // Relaxed (both): under the lock.
        if item.removed.load(Ordering::Relaxed) {
            return false;
        }
        if !item.queued.load(Ordering::Relaxed)
            && let Some(item) = item.this.upgrade()
        {
            state.queue(item);
        }
        drop(state);
        self.notifier.notify(PollMask::READABLE)
    }

    /// Adds `file`, the open file of the descriptor `fd`, to the set. `interest` has the events to
    /// report.
    ///
    /// # Errors
    /// Fails with `EPERM` if the file has no notifier, with `EINVAL` for the set itself, and with
    /// `EEXIST` if the file is in the set. Fails with `ELOOP` if sets would be nested too deeply or
    /// in a cycle, with `ENOSPC` if the set is full, and with `ENOMEM`.
    pub fn add(&self, fd: i32, file: &Arc<OpenFile>, mut interest: Event) -> Result<(), Errno> {
        let Some(notifier) = file.file().notifier() else {
            // Regular files and directories are always ready; Linux refuses them.
            return Err(Errno::EPERM);
        };
        let inner = file.file().downcast::<EpollFile>().map(|file| &*file.0);
        let key = Self::key(fd, file);
        if let Some(inner) = inner {
            if core::ptr::eq(inner, self) {
                return Err(Errno::EINVAL);
            }
            if self.has(key) {
                return Err(Errno::EEXIST);
            }
            let entered = NESTS.lock().enter(self.number, inner.number);
            entered.map_err(|_| Errno::ELOOP)?;
        }
        interest.events |= PollMask::ALWAYS.bits();
        let item = Arc::new_cyclic(|this| Item {
            this: this.clone(),
            key,
            file: Arc::downgrade(file),
            epoll: self.this.clone(),
            notifier: SpinLock::new(Some(notifier.clone())),
            interest: SpinLock::new(interest),
            queued: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            inner: inner.map(|inner| inner.number),
            exclusive: interest.events & EPOLLEXCLUSIVE != 0,
            is_timer: file.file().downcast::<TimerFile>().is_some(),
            seen_expiry: AtomicU64::new(0),
        });
        if item.may_expire() {
            self.timers.fetch_add(1, Ordering::Relaxed);
        }
        let entered = self.enter(key, item.clone());
        if entered.is_err() {
            self.uncount(&item);
        }
        entered?;
        let noted = file.note_set(&notifier);
        if let Err(error) = noted.and_then(|()| notifier.watch(item.clone())) {
            self.remove_item(&item);
            return Err(error);
        }
        // The file may be ready already, or have become ready before it was watched.
        if item.wants_now(file) {
            self.mark_ready(&item);
        }
        Ok(())
    }

    fn has(&self, key: Key) -> bool {
        self.state.lock().items.contains_key(&key)
    }

    fn enter(&self, key: Key, item: Arc<Item>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        // An item keeps the address of its file, even of a closed one, from being another file's.
        if state.items.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        if state.items.len() >= MAX_ITEMS {
            return Err(Errno::ENOSPC);
        }
        // Each item needs one entry, even after it has left the set.
        let needed = (state.items.len() + 1 + state.removed).saturating_sub(state.ready.len());
        state.ready.try_reserve(needed).map_err(|_| Errno::ENOMEM)?;
        if item.may_expire() {
            state.expiring.insert(key, item.clone());
        }
        state.items.insert(key, item);
        Ok(())
    }

    /// Stops watching for an item that has left the set.
    fn forget(&self, item: &Arc<Item>) {
        // The item gives up the notifier, so that a reference from the ready list keeps only the
        // item.
        let notifier = item.notifier.lock().take();
        if let Some(notifier) = notifier {
            let watcher: Arc<dyn Watcher> = item.clone();
            notifier.unwatch(&watcher);
        }
        self.uncount(item);
    }

    fn uncount(&self, item: &Item) {
        if let Some(inner) = item.inner {
            NESTS.lock().leave(self.number, inner);
        }
        if item.may_expire() {
            self.timers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes the item with this key. Returns `false` if there is none.
    fn remove_key(&self, key: Key) -> bool {
        let mut state = self.state.lock();
        let Some(item) = state.items.remove(&key) else {
            return false;
        };
        state.remove(&item);
        drop(state);
        self.forget(&item);
        true
    }

    /// Removes an item unless it has been removed.
    fn remove_item(&self, item: &Arc<Item>) {
        let mut state = self.state.lock();
        // Relaxed: under the lock. Another item may have the key of a removed one.
        if item.removed.load(Ordering::Relaxed) {
            return;
        }
        state.items.remove(&item.key);
        state.remove(item);
        drop(state);
        self.forget(item);
    }

    /// Removes `file`, the open file of the descriptor `fd`, from the set.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the file is not in the set.
    pub fn remove(&self, fd: i32, file: &Arc<OpenFile>) -> Result<(), Errno> {
        if self.remove_key(Self::key(fd, file)) {
            Ok(())
        } else {
            Err(Errno::ENOENT)
        }
    }

    /// Sets the events to report for `file`, the open file of the descriptor `fd`, to those in
    /// `interest`.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the file is not in the set, and with `EINVAL` for an `EPOLLEXCLUSIVE`
    /// item.
    pub fn modify(&self, fd: i32, file: &Arc<OpenFile>, mut interest: Event) -> Result<(), Errno> {
        interest.events |= PollMask::ALWAYS.bits();
        let key = Self::key(fd, file);
        let item = self
            .state
            .lock()
            .items
            .get(&key)
            .cloned()
            .ok_or(Errno::ENOENT)?;
        if item.exclusive {
            return Err(Errno::EINVAL);
        }
        *item.interest.lock() = interest;
        if item.wants_now(file) {
            self.mark_ready(&item);
        }
        Ok(())
    }

    /// Returns the earliest future expiry of a timer in the set or in a nested set, or `None` if no
    /// timer will expire. Marks the timers that have expired as ready.
    pub(super) fn next_timer(&self) -> Option<Nanos> {
        if self.timers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut next = None;
        let mut due = Vec::new();
        let mut waiting = Vec::new();
        {
            let state = self.state.lock();
            for item in state.expiring.values() {
                // If memory is short, some timers are found late, when another event happens.
                if waiting.try_reserve(1).is_err() {
                    break;
                }
                waiting.push(item.clone());
            }
        }
        for item in waiting {
            let Some(file) = item.file.upgrade() else {
                continue;
            };
            // A nested set notifies this one of its expired timers.
            if let Some(inner) = file.file().downcast::<EpollFile>()
                && let Some(at) = inner.0.next_timer()
            {
                next = Some(next.map_or(at, |n: Nanos| n.min(at)));
            }
            if let Some(timer) = file.file().downcast::<TimerFile>() {
                match timer.due_at() {
                    Due::Now(expiry) => {
                        // Each expiry is one edge.
                        if item.seen_expiry.swap(expiry.0, Ordering::Relaxed) != expiry.0 {
                            due.push(item);
                        }
                    }
                    Due::At(at) => next = Some(next.map_or(at, |n: Nanos| n.min(at))),
                    Due::Never => {}
                }
            }
        }
        for item in due {
            self.mark_ready(&item);
        }
        next
    }
}

/// The file of an epoll descriptor.
#[derive(Debug)]
pub struct EpollFile(pub Arc<Epoll>);

impl File for EpollFile {
    fn poll(&self) -> PollMask {
        if self.0.any_ready() {
            PollMask::READABLE
        } else {
            PollMask::empty()
        }
    }
    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.0.notifier.clone())
    }
}

impl EpollFile {
    /// Returns the earliest future expiry of a timer in the set or in a nested set, or `None` if no
    /// timer will expire. Marks the timers that have expired as ready.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.0.next_timer()
    }
}

impl Drop for EpollFile {
    /// Ends the set with its descriptor and not with its last reference. A notifier may hold that
    /// one, and `forget` takes the lock of the notifier.
    fn drop(&mut self) {
        let first = || self.0.state.lock().items.values().next().cloned();
        while let Some(item) = first() {
            // The item's file may be closed just now, which removes the item too.
            self.0.remove_item(&item);
            sched::cond_resched();
        }
        NESTS.lock().forget(self.0.number);
    }
}
