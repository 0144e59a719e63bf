//! epoll: a set of files, and the list of those of them that may be ready.
//!
//! An item is put on the ready list by its file's [`Notifier`] and taken off by a wait, which looks
//! at the file itself: the list is a hint, the file's `poll` the truth. A level-triggered item that
//! is still ready goes back to the list's end.

use super::file::{File, OpenFile};
use super::poll::{Notifier, PollMask, Taken, Watcher};
use super::timerfd::Due;
use super::timerfd::TimerFile;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use linux_raw_sys::general::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP};
use logic::errno::Errno;
use logic::nests::Nests;
use machine::arch::clock::Nanos;
use machine::sync::{SpinLock, WaitEnd};

/// Bits of an interest that are no readiness.
const CONTROL: u32 = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;
/// Most files in one set.
const MAX_ITEMS: usize = 1 << 20;

/// An event as the program gets it.
#[derive(Copy, Clone, Debug)]
pub struct Event {
    /// Readiness, or what is of interest.
    pub events: u32,
    /// The program's own.
    pub data: u64,
}

/// A descriptor and the open file behind it when it was added.
type Key = (i32, usize);

struct Item {
    key: Key,
    file: Weak<OpenFile>,
    epoll: Weak<Epoll>,
    notifier: Option<Arc<Notifier>>,
    /// What is of interest; no readiness bits while a one-shot item is spent.
    interest: SpinLock<Event>,
    /// Whether it is on the ready list; changed under the set's lock.
    queued: AtomicBool,
    /// The number of the epoll set that the file is, if it is one.
    inner: Option<u64>,
    /// Of several sets with this file, one is told of an event.
    exclusive: bool,
    /// The file is a timer, which nobody notifies of when it goes off.
    is_timer: bool,
    /// The expiry of the timer that was last put on the ready list.
    seen_expiry: AtomicU64,
}

impl Item {
    /// Whether it becomes ready by the time alone.
    fn may_expire(&self) -> bool {
        self.is_timer || self.inner.is_some()
    }

    fn wants(&self, mask: PollMask) -> bool {
        let events = self.interest.lock().events & !CONTROL;
        // A change without a name is any change.
        events != 0 && (mask.is_empty() || mask.bits() & (events | PollMask::ALWAYS.bits()) != 0)
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
            .is_some_and(|epoll| epoll.mark_ready(self.key));
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
struct State {
    items: BTreeMap<Key, Arc<Item>>,
    /// Has room for every item, so that marking one ready never allocates.
    ready: VecDeque<Key>,
}

/// An epoll set.
pub struct Epoll {
    this: Weak<Epoll>,
    state: SpinLock<State>,
    notifier: Arc<Notifier>,
    /// Tells it from all others.
    number: u64,
    /// Timers in this set, and sets in which there may be some.
    timers: AtomicUsize,
}

/// The number of the set that was made last.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Which sets are in which, so that events travel bounded ways and never in a circle.
static NESTS: SpinLock<Nests> = SpinLock::new(Nests::new());

impl core::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Epoll")
    }
}

impl Epoll {
    /// An empty set.
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            state: SpinLock::new(State::default()),
            notifier: Arc::new(Notifier::new()),
            // Relaxed: a number of its own.
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            timers: AtomicUsize::new(0),
        })
    }

    fn key(fd: i32, file: &Arc<OpenFile>) -> Key {
        (fd, Arc::as_ptr(file) as usize)
    }

    /// Puts an item on the ready list and tells those who wait; says whether anybody does.
    fn mark_ready(&self, key: Key) -> bool {
        let mut state = self.state.lock();
        let Some(item) = state.items.get(&key) else {
            return false;
        };
        // Relaxed: under the lock.
        if !item.queued.swap(true, Ordering::Relaxed) {
            state.ready.push_back(key);
        }
        drop(state);
        self.notifier.notify(PollMask::READABLE)
    }

    /// Adds the open file behind `fd`.
    pub fn add(&self, fd: i32, file: &Arc<OpenFile>, interest: Event) -> Result<(), Errno> {
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
        let item = Arc::new(Item {
            key,
            file: Arc::downgrade(file),
            epoll: self.this.clone(),
            notifier: Some(notifier.clone()),
            interest: SpinLock::new(interest),
            queued: AtomicBool::new(false),
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
        let replaced = entered?;
        if let Some(replaced) = replaced {
            // An entry of a closed file whose memory this one got.
            self.forget(&replaced);
        }
        if let Err(error) = notifier.watch(item.clone()) {
            self.remove_key(key);
            return Err(error);
        }
        // It may be ready already, or have become so before it was watched.
        if item.wants(file.file().poll()) {
            self.mark_ready(key);
        }
        Ok(())
    }

    fn has(&self, key: Key) -> bool {
        let state = self.state.lock();
        state
            .items
            .get(&key)
            .is_some_and(|item| item.file.strong_count() > 0)
    }

    fn enter(&self, key: Key, item: Arc<Item>) -> Result<Option<Arc<Item>>, Errno> {
        let mut state = self.state.lock();
        let stale = match state.items.get(&key) {
            Some(old) if old.file.strong_count() > 0 => return Err(Errno::EEXIST),
            Some(_) => true,
            None => false,
        };
        if state.items.len() >= MAX_ITEMS {
            return Err(Errno::ENOSPC);
        }
        // A stale key may still be on the list, so there is room for one more than the items.
        let needed = (state.items.len() + 2).saturating_sub(state.ready.len());
        state.ready.try_reserve(needed).map_err(|_| Errno::ENOMEM)?;
        if stale {
            state.ready.retain(|&other| other != key);
        }
        Ok(state.items.insert(key, item))
    }

    /// Stops watching for an item that is out of the set.
    fn forget(&self, item: &Arc<Item>) {
        if let Some(notifier) = &item.notifier {
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

    fn remove_key(&self, key: Key) -> bool {
        let mut state = self.state.lock();
        let Some(item) = state.items.remove(&key) else {
            return false;
        };
        state.ready.retain(|&other| other != key);
        drop(state);
        self.forget(&item);
        true
    }

    /// Takes the file out.
    pub fn remove(&self, fd: i32, file: &Arc<OpenFile>) -> Result<(), Errno> {
        if self.remove_key(Self::key(fd, file)) {
            Ok(())
        } else {
            Err(Errno::ENOENT)
        }
    }

    /// Changes what is of interest.
    pub fn modify(&self, fd: i32, file: &Arc<OpenFile>, interest: Event) -> Result<(), Errno> {
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
        if item.wants(file.file().poll()) {
            self.mark_ready(key);
        }
        Ok(())
    }

    /// When the first timer in the set goes off, or in a set in it; marks those ready that have.
    pub(super) fn next_timer(&self) -> Option<Nanos> {
        if self.timers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut next = None;
        let mut due = Vec::new();
        let mut waiting = Vec::new();
        {
            let state = self.state.lock();
            for item in state.items.values().filter(|item| item.may_expire()) {
                // Without memory for all, some are found late: when something else happens.
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
            // A set in this one tells by itself what is due in it.
            if let Some(inner) = file.file().downcast::<EpollFile>()
                && let Some(at) = inner.0.next_timer()
            {
                next = Some(next.map_or(at, |n: Nanos| n.min(at)));
            }
            if let Some(timer) = file.file().downcast::<TimerFile>() {
                match timer.due_at() {
                    Due::Now(expiry) => {
                        // An edge is one expiry.
                        if item.seen_expiry.swap(expiry.0, Ordering::Relaxed) != expiry.0 {
                            due.push(item.key);
                        }
                    }
                    Due::At(at) => next = Some(next.map_or(at, |n: Nanos| n.min(at))),
                    Due::Never => {}
                }
            }
        }
        for key in due {
            self.mark_ready(key);
        }
        next
    }

    /// Collects up to `most` events without waiting.
    fn collect(&self, most: usize, events: &mut Vec<Event>) {
        let rounds = self.state.lock().ready.len();
        for _ in 0..rounds {
            if events.len() == most {
                break;
            }
            let mut state = self.state.lock();
            let Some(key) = state.ready.pop_front() else {
                break;
            };
            let Some(item) = state.items.get(&key).cloned() else {
                continue;
            };
            item.queued.store(false, Ordering::Relaxed);
            drop(state);
            let Some(file) = item.file.upgrade() else {
                // Closed without being taken out: it leaves the set, as on Linux.
                self.remove_key(key);
                continue;
            };
            let Event {
                events: asked,
                data,
            } = *item.interest.lock();
            if asked & !CONTROL == 0 {
                continue;
            }
            let ready = file.file().poll().bits() & (asked & !CONTROL | PollMask::ALWAYS.bits());
            if ready == 0 {
                continue;
            }
            if asked & EPOLLONESHOT != 0 {
                let mut interest = item.interest.lock();
                if interest.events & !CONTROL == 0 {
                    // Another waiter was first.
                    continue;
                }
                interest.events &= CONTROL;
            } else if asked & EPOLLET == 0 {
                let mut state = self.state.lock();
                if state.items.contains_key(&key) && !item.queued.swap(true, Ordering::Relaxed) {
                    state.ready.push_back(key);
                }
            }
            events.push(Event {
                events: ready,
                data,
            });
        }
    }

    /// Whether any item is ready; drops those from the list that are not.
    fn any_ready(&self) -> bool {
        let rounds = self.state.lock().ready.len();
        for _ in 0..rounds {
            let mut state = self.state.lock();
            let Some(key) = state.ready.pop_front() else {
                return false;
            };
            let Some(item) = state.items.get(&key).cloned() else {
                continue;
            };
            item.queued.store(false, Ordering::Relaxed);
            drop(state);
            let asked = item.interest.lock().events;
            let Some(file) = item.file.upgrade() else {
                // Its last event is taken here: nothing else would find it.
                self.remove_key(key);
                continue;
            };
            let wanted = asked & !CONTROL | PollMask::ALWAYS.bits();
            if asked & !CONTROL != 0 && file.file().poll().bits() & wanted != 0 {
                let mut state = self.state.lock();
                if state.items.contains_key(&key) && !item.queued.swap(true, Ordering::Relaxed) {
                    state.ready.push_front(key);
                }
                return true;
            }
        }
        false
    }

    /// Waits for events, at most until `deadline` (`None`: however long), and gives up to `most`.
    pub fn wait(&self, most: usize, deadline: Option<Nanos>) -> Result<Vec<Event>, Errno> {
        let mut events = Vec::new();
        let known = self.state.lock().items.len().max(1);
        events
            .try_reserve(most.min(known))
            .map_err(|_| Errno::ENOMEM)?;
        let most = events.capacity().min(most);
        loop {
            let timer = self.next_timer();
            self.collect(most, &mut events);
            let over = deadline.is_some_and(|deadline| deadline <= machine::arch::clock::now());
            if !events.is_empty() || over {
                return Ok(events);
            }
            let has_ready = || !self.state.lock().ready.is_empty();
            let queue = self.notifier.queue();
            let wake_at = match (deadline, timer) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let ended = match wake_at {
                Some(deadline) => queue.wait_deadline(has_ready, deadline),
                None => queue.wait(has_ready).map(|()| WaitEnd::Ready),
            };
            // At the deadline the loop looks once more and leaves.
            let _: WaitEnd = ended.map_err(|_| Errno::EINTR)?;
        }
    }
}

/// An epoll descriptor's file.
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
    /// When a timer in it goes off that makes it ready.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.0.next_timer()
    }
}

impl Drop for EpollFile {
    /// The set ends with its descriptor, not with its last reference: that may be a notifier's,
    /// whose lock `forget` takes.
    fn drop(&mut self) {
        let items = core::mem::take(&mut self.0.state.lock().items);
        for item in items.into_values() {
            self.0.forget(&item);
        }
        NESTS.lock().forget(self.0.number);
    }
}
