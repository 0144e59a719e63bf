//! A table of waiting threads, each with a value: what futexes wait in.
//!
//! A thread waits in a bucket that its caller chooses, such as by a hash of what it waits for. A
//! waker locks the bucket, looks at the values of the waiting threads, and chooses the threads that
//! it wakes. The lock of the bucket guards the values.
//!
//! An entry lies on the stack of its thread or in the thread's heap. Only this file sees entries:
//! a thread waits inside a closure, and its entry has left the table when the closure has returned.
//! The closure is `Send`, so it has no token with which it could end the thread.

use super::thread::Thread;
use crate::arch::clock::Nanos;
use crate::arch::spin::{SpinGuard, SpinLock};
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use logic::errno::Errno;
use logic::list::{Linked, Links, List, Sift};

/// A thread's entry in a bucket.
struct Entry<T> {
    /// The thread. It is alive while the entry exists, which lies on its stack or in its heap.
    thread: NonNull<Thread>,
    /// Set when the entry has left the table.
    woken: AtomicBool,
    /// The index of the entry's bucket. It changes with the locks of the old and the new bucket
    /// held.
    bucket: AtomicUsize,
    /// Guarded by the bucket's lock while the entry is in the table.
    value: UnsafeCell<T>,
    /// Guarded by the bucket's lock.
    links: Links<Self>,
    _pinned: PhantomPinned,
}

// SAFETY: CPUs may share threads. The bucket's lock guards the value, so only one CPU uses it at a
// time, and `T: Send` allows that.
unsafe impl<T: Send> Sync for Entry<T> {}

// SAFETY: always returns the same field, which only lists use.
unsafe impl<T> Linked for Entry<T> {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl<T> Entry<T> {
    /// Returns an entry of the current thread for the bucket `bucket`, in no bucket yet.
    fn new(bucket: usize, value: T) -> Self {
        Self {
            thread: super::current().as_non_null(),
            woken: AtomicBool::new(false),
            bucket: AtomicUsize::new(bucket),
            value: UnsafeCell::new(value),
            links: Links::new(),
            _pinned: PhantomPinned,
        }
    }

    fn is_woken(&self) -> bool {
        // Acquire: pairs with the Release of `Bucket::wake`.
        self.woken.load(Ordering::Acquire)
    }
}

/// Waiting threads in `N` buckets, each with a value of type `T`.
pub struct WaitTable<T, const N: usize> {
    buckets: [SpinLock<List<Entry<T>>>; N],
}

/// How a wait in a [`WaitTable`] ended.
#[derive(Debug)]
pub struct Left<R, T> {
    /// What the closure returned.
    pub result: R,
    /// Whether a waker chose the thread.
    pub woken: bool,
    /// The thread's value, as wakers have left it.
    pub value: T,
}

impl<T: Send, const N: usize> WaitTable<T, N> {
    /// Returns a table in which no thread waits.
    pub const fn new() -> Self {
        Self {
            buckets: [const { SpinLock::new(List::new()) }; N],
        }
    }

    /// Locks the bucket `index` modulo `N`.
    #[inline]
    pub fn lock(&self, index: usize) -> Bucket<'_, T, N> {
        let index = index % N;
        Bucket {
            table: self,
            index,
            list: self.buckets[index].lock(),
        }
    }

    /// Locks the buckets `from` and `to`, both modulo `N`. They may be the same.
    pub fn lock_both(&self, from: usize, to: usize) -> Both<'_, T, N> {
        let (from, to) = (from % N, to % N);
        // Locked in the order of their indices, so two threads cannot deadlock.
        if from > to {
            let to = self.lock(to);
            let from = self.lock(from);
            return Both { from, to: Some(to) };
        }
        let low = self.lock(from);
        let to = (from != to).then(|| self.lock(to));
        Both { from: low, to }
    }

    /// Calls `body` while the current thread can wait in several buckets. `places` has for each
    /// wait the index of the bucket, modulo `N`, and the value. `body` enters them one by one with
    /// [`Several::enter`]. Returns the result of `body`, and the index in `places` of the last
    /// wait that a waker chose, or `None` if none was chosen.
    ///
    /// # Errors
    /// Fails with `ENOMEM`. `body` has not run then.
    pub fn wait_at_each<R>(
        &self,
        places: Vec<(usize, T)>,
        body: impl FnOnce(&mut Several<'_, T, N>) -> R + Send,
    ) -> Result<(R, Option<usize>), Errno> {
        let mut entries = Vec::new();
        entries
            .try_reserve_exact(places.len())
            .map_err(|_| Errno::ENOMEM)?;
        entries.extend((places.into_iter()).map(|(bucket, value)| Entry::new(bucket % N, value)));
        let mut several = Several {
            table: self,
            entries: &entries,
            entered: 0,
        };
        let result = body(&mut several);
        let entered = several.entered;
        let mut last = None;
        // All that have entered leave before the vector goes.
        for (n, entry) in entries.iter().enumerate().take(entered) {
            if self.leave(entry) {
                last = Some(n);
            }
        }
        Ok((result, last))
    }

    /// Takes an entry that has entered the table out of it. Returns `true` if a waker had done so
    /// already.
    fn leave(&self, entry: &Entry<T>) -> bool {
        // Ends: each turn means that another CPU has moved the entry in between.
        loop {
            // Acquire: pairs with the Release of `Both::send`.
            let index = entry.bucket.load(Ordering::Acquire);
            let mut list = self.buckets[index].lock();
            if entry.is_woken() {
                return true;
            }
            if entry.bucket.load(Ordering::Acquire) == index {
                // SAFETY: the entry has entered the table and no waker has taken it out, so it is
                // in the bucket that it names.
                unsafe { list.remove(NonNull::from(entry)) };
                return false;
            }
        }
    }
}

impl<T: Send, const N: usize> Default for WaitTable<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> fmt::Debug for WaitTable<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitTable").finish_non_exhaustive()
    }
}

/// A locked bucket of a [`WaitTable`]. Dropping it unlocks the bucket.
pub struct Bucket<'a, T, const N: usize> {
    table: &'a WaitTable<T, N>,
    index: usize,
    list: SpinGuard<'a, List<Entry<T>>>,
}

impl<T, const N: usize> fmt::Debug for Bucket<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl<T: Send, const N: usize> Bucket<'_, T, N> {
    /// Visits the waiting threads, the longest-waiting first, and calls `choose` with the value of
    /// each. Wakes those for which `choose` returns [`Sift::Take`]. [`Sift::Stop`] ends the visit.
    /// A woken thread sees what the caller did before.
    #[inline]
    pub fn wake(&mut self, mut choose: impl FnMut(&mut T) -> Sift) {
        self.list.sift(
            // SAFETY: the bucket's lock is held, which guards the value.
            |entry| choose(unsafe { &mut *entry.value.get() }),
            // SAFETY: the entry and its thread are valid: a thread leaves its wait only after it
            // has taken the lock that is held here.
            |entry| unsafe {
                // Release: the woken thread may read `woken` without the lock.
                entry.as_ref().woken.store(true, Ordering::Release);
                super::wake(entry.as_ref().thread.as_ref());
            },
        );
    }

    /// Calls `look` with the value of each waiting thread, the longest-waiting first.
    pub fn for_each(&mut self, mut look: impl FnMut(&mut T)) {
        self.wake(|value| {
            look(value);
            Sift::Keep
        });
    }

    /// Enters the current thread with `value` as the last of the bucket, unlocks the bucket, and
    /// calls `body`. When `body` has returned, the thread leaves the table. Returns how the wait
    /// ended.
    #[inline]
    pub fn wait<R>(self, value: T, body: impl FnOnce(&Waiting<'_, T>) -> R + Send) -> Left<R, T> {
        let Self {
            table,
            index,
            mut list,
        } = self;
        let entry = Entry::new(index, value);
        // SAFETY: the entry is in no list. It stays in place until `leave` below has taken it out.
        unsafe { list.push_back(NonNull::from(&entry)) };
        drop(list);
        let result = body(&Waiting { entry: &entry });
        let woken = table.leave(&entry);
        Left {
            result,
            woken,
            value: entry.value.into_inner(),
        }
    }
}

/// Two locked buckets of a [`WaitTable`], or one that stands for both.
#[derive(Debug)]
pub struct Both<'a, T, const N: usize> {
    from: Bucket<'a, T, N>,
    /// `None` if it is the same bucket as `from`.
    to: Option<Bucket<'a, T, N>>,
}

impl<T: Send, const N: usize> Both<'_, T, N> {
    /// Wakes threads that wait in the first bucket, as [`Bucket::wake`] does.
    pub fn wake(&mut self, choose: impl FnMut(&mut T) -> Sift) {
        self.from.wake(choose);
    }

    /// Visits the threads that wait in the first bucket, the longest-waiting first, and calls
    /// `choose` with the value of each. Those for which `choose` returns [`Sift::Take`] wait on in
    /// the second bucket, behind the others. [`Sift::Stop`] ends the visit.
    pub fn send(&mut self, mut choose: impl FnMut(&mut T) -> Sift) {
        let index = self.to.as_ref().map_or(self.from.index, |to| to.index);
        let mut moved = List::new();
        self.from.list.sift(
            // SAFETY: the bucket's lock is held, which guards the value.
            |entry| choose(unsafe { &mut *entry.value.get() }),
            // SAFETY: both buckets are locked, so the entry is valid and stays in place. It is in
            // no list now.
            |entry| unsafe {
                // Release: pairs with the Acquire in `leave`.
                entry.as_ref().bucket.store(index, Ordering::Release);
                moved.push_back(entry);
            },
        );
        self.to
            .as_mut()
            .unwrap_or(&mut self.from)
            .list
            .append(&mut moved);
    }
}

/// The current thread's entry in a bucket, while it waits.
pub struct Waiting<'a, T> {
    entry: &'a Entry<T>,
}

impl<T> Waiting<'_, T> {
    /// Blocks the thread until a waker chooses it.
    ///
    /// # Errors
    /// [`Stop::Signal`] if a signal arrives first, and [`Stop::Deadline`] if `deadline` on the
    /// monotonic clock passes first. `None` means no time limit.
    pub fn sleep(&self, deadline: Option<Nanos>) -> Result<(), Stop> {
        sleep(|| self.entry.is_woken(), deadline)
    }
}

impl<T> fmt::Debug for Waiting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

/// The current thread's entries in several buckets.
pub struct Several<'a, T, const N: usize> {
    table: &'a WaitTable<T, N>,
    entries: &'a [Entry<T>],
    /// The first of the entries that have entered the table.
    entered: usize,
}

impl<T: Send, const N: usize> Several<'_, T, N> {
    /// Enters the next place. Does nothing if all have entered.
    pub fn enter(&mut self) {
        let Some(entry) = self.entries.get(self.entered) else {
            return;
        };
        // Relaxed: the entry moves only after it has entered.
        let index = entry.bucket.load(Ordering::Relaxed);
        // SAFETY: the entry is in no list. It stays in place until `wait_at_each`, which owns it,
        // has taken it out.
        unsafe {
            self.table.buckets[index]
                .lock()
                .push_back(NonNull::from(entry))
        };
        self.entered += 1;
    }

    /// Blocks the thread until a waker chooses one of its entries. Fails as [`Waiting::sleep`].
    ///
    /// # Errors
    /// See [`Waiting::sleep`].
    pub fn sleep(&self, deadline: Option<Nanos>) -> Result<(), Stop> {
        sleep(|| self.entries.iter().any(Entry::is_woken), deadline)
    }
}

impl<T, const N: usize> fmt::Debug for Several<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Several")
            .field("entered", &self.entered)
            .finish_non_exhaustive()
    }
}

/// What ended a wait before a waker did.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A signal.
    Signal,
    /// The deadline.
    Deadline,
}

impl From<Stop> for Errno {
    /// Returns `ERESTARTSYS` for a signal, and `ETIMEDOUT` for a deadline.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Signal => Self::ERESTARTSYS,
            Stop::Deadline => Self::ETIMEDOUT,
        }
    }
}

/// Blocks the current thread until `woken` returns `true`. A waker makes it true before it wakes
/// the thread. Fails as [`Waiting::sleep`].
fn sleep(woken: impl Fn() -> bool, deadline: Option<Nanos>) -> Result<(), Stop> {
    loop {
        super::prepare_to_block();
        if woken() {
            super::cancel_block();
            return Ok(());
        }
        if super::current().signal_pending() {
            super::cancel_block();
            return Err(Stop::Signal);
        }
        if super::block_until(deadline) {
            super::cancel_block();
            return Err(Stop::Deadline);
        }
    }
}
