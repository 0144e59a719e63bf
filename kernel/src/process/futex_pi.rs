//! Futexes that are locks, whose word names the owner (`FUTEX_LOCK_PI` and its kin).
//!
//! The kernel hands such a lock from its owner to the waiter of the highest real-time priority.
//! Among equal priorities the longest-waiting task gets it. An owner inherits the highest priority
//! of the tasks that wait for its locks, and passes it on to the owner that it waits for itself
//! ([`inherit_from_waiters`]). As on Linux weights are not inherited.
//!
//! A locker first sets the waiters bit in the word, so that the owner enters the kernel to unlock.
//! Then it enters the queue, and then it reads the word again. An owner that unlocked in between
//! has changed the word.

#![expect(unsafe_code, reason = "a list goes through waiters on their stacks")]

use super::futex::Key;
use crate::process;
use crate::process::task::{Marks, Task, find_task};
use crate::vm::uaccess::atomic;
use alloc::sync::Arc;
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use logic::errno::{Errno, SysResult};
use logic::list::{Linked, Links, List, Sift};
use machine::arch::clock::Nanos;
use machine::sched::{self, Thread};
use machine::sync::SpinLock;

/// One for each bit of [`Marks::waited_in`].
const BUCKETS: usize = u64::BITS as usize;
/// Tasks wait, so the owner must enter the kernel to unlock.
const WAITERS: u32 = 0x8000_0000;
/// The owner died, and the new one must repair what the dead owner left.
const OWNER_DIED: u32 = 0x4000_0000;
/// The owner's thread number.
const TID_MASK: u32 = 0x3fff_ffff;
/// The longest chain of owners that is searched for a circle; Linux's `max_lock_depth`.
const MAX_CHAIN: usize = 1024;

/// States of a waiter.
mod outcome {
    /// The task waits.
    pub(super) const NONE: u32 = 0;
    /// The task is the owner, and the word says so.
    pub(super) const OWNER: u32 = 1;
    /// The owner died, and the task is the first that may take the lock over.
    pub(super) const ORPHAN: u32 = 2;
    /// The task has left the queue by itself.
    pub(super) const LEFT: u32 = 3;
}

/// A waiting task's entry in a bucket. It lies on the task's stack.
struct Waiter {
    thread: NonNull<Thread>,
    /// The task's marks, which hold the owner that it waits for.
    marks: NonNull<Marks>,
    tid: u32,
    key: Key,
    /// The thread number of the lock's owner; guarded by the bucket's lock.
    owner: AtomicU32,
    /// A state of [`outcome`]; changed under the bucket's lock.
    outcome: AtomicU32,
    links: Links<Self>,
    _pinned: PhantomPinned,
}

// SAFETY: the objects behind the pointers live while the waiter does, and CPUs may share them.
unsafe impl Sync for Waiter {}

// SAFETY: always returns the same field, which only lists use.
unsafe impl Linked for Waiter {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

type Bucket = List<Waiter>;

static TABLE: [SpinLock<Bucket>; BUCKETS] = [const { SpinLock::new(Bucket::new()) }; BUCKETS];

fn bucket(key: Key) -> &'static SpinLock<Bucket> {
    &TABLE[key.bucket() % BUCKETS]
}

/// Returns the bit of the key's bucket in [`Marks::waited_in`].
fn bit(key: Key) -> u64 {
    1 << (key.bucket() % BUCKETS)
}

/// Returns the buckets in which tasks may wait for the owner with these marks, with their bits.
fn waited_in(marks: &Marks) -> impl Iterator<Item = (u64, &'static SpinLock<Bucket>)> + use<> {
    // SeqCst: see `release_all`.
    let mut left = marks.waited_in.load(Ordering::SeqCst);
    core::iter::from_fn(move || {
        let at = left.trailing_zeros();
        // There is no bucket for the 64 of an empty set.
        let bucket = TABLE.get(at as usize)?;
        left &= left - 1;
        Some((1u64 << at, bucket))
    })
}

/// Returns the waiter of a locked bucket that is first in turn among those for which `wanted`
/// returns `true`. Returns `None` if there is none.
fn first(bucket: &mut Bucket, wanted: impl Fn(&Waiter) -> bool) -> Option<NonNull<Waiter>> {
    let mut found: Option<(NonNull<Waiter>, u32)> = None;
    bucket.sift(
        |waiter| {
            let priority = waiter.priority();
            if wanted(waiter) && found.is_none_or(|(_, best)| priority > best) {
                found = Some((NonNull::from(waiter), priority));
            }
            Sift::Keep
        },
        |_| {},
    );
    found.map(|(waiter, _)| waiter)
}

/// Takes the waiter `first` out of its locked bucket and clears the owner that its task waits for.
/// Notes that task as the owner in the other waiters for the same lock.
fn take_first(bucket: &mut Bucket, first: NonNull<Waiter>) {
    // SAFETY: a waiter leaves its bucket only under the bucket's lock, which the caller holds. So
    // waiters and their tasks' marks are valid.
    let (key, tid) = unsafe { (first.as_ref().key, first.as_ref().tid) };
    let mut others = false;
    bucket.sift(
        |waiter| {
            if NonNull::from(waiter) == first {
                return Sift::Take;
            }
            if waiter.key == key {
                others = true;
                // SAFETY: the bucket's lock is held.
                unsafe { waiter.set_owner(tid) };
            }
            Sift::Keep
        },
        // SAFETY: the waiter leaves only under the bucket's lock, which is held, so its task's
        // marks are valid.
        |waiter| unsafe {
            let marks = waiter.as_ref().marks;
            marks.as_ref().waits_for.store(0, Ordering::Relaxed);
        },
    );
    if others {
        // SAFETY: the bucket's lock is held, and the task waits for it before it leaves.
        let marks = unsafe { first.as_ref().marks.as_ref() };
        // SeqCst: as in `wait`. The new owner hands the lock on if it ends.
        marks.waited_in.fetch_or(bit(key), Ordering::SeqCst);
    }
}

/// Held while a thread's inherited priority is computed and set.
static INHERITANCE: SpinLock<()> = SpinLock::new(());

/// Gives `owner` the highest priority of the threads that wait for its locks, then does so for each
/// further owner in the chain of waits. Call this after a waiter with a priority has come, and
/// after the departure of a waiter that `owner` may have inherited from. Looks only into buckets
/// with waiters for that owner. Tasks that wait for others count only if they share a bucket.
fn inherit_from_waiters(owner: &Arc<Task>) {
    let mut owner = owner.clone();
    for _ in 0..MAX_CHAIN {
        let inheritance = INHERITANCE.lock();
        let tid = owner.tid();
        let mut best = 0;
        for (bit, bucket) in waited_in(owner.marks()) {
            let mut bucket = bucket.lock();
            let mut any = false;
            bucket.sift(
                |waiter| {
                    // Relaxed: the bucket's lock guards it.
                    if waiter.owner.load(Ordering::Relaxed) == tid {
                        any = true;
                        best = best.max(waiter.priority());
                    }
                    Sift::Keep
                },
                |_| {},
            );
            if !any {
                // The bit of a waiter that comes later is set under the bucket's lock, too.
                owner.marks().waited_in.fetch_and(!bit, Ordering::SeqCst);
            }
        }
        owner.inherit_priority(best);
        let next = owner.marks().waits_for.load(Ordering::Relaxed);
        drop(inheritance);
        sched::cond_resched();
        match find_task(next).filter(|_| next != 0) {
            Some(task) if !task.is_kernel() => owner = task,
            _ => return,
        }
    }
}

impl Waiter {
    /// Returns the real-time priority of the waiter's thread, or 0 if it has none.
    fn priority(&self) -> u32 {
        // SAFETY: the thread lives while it waits.
        unsafe { self.thread.as_ref() }.priority()
    }

    /// Notes `tid` as the lock's owner in the waiter and in its task.
    ///
    /// # Safety
    /// The caller holds the bucket's lock.
    unsafe fn set_owner(&self, tid: u32) {
        // Relaxed (both): under the lock, and only a hint for the search for circles.
        self.owner.store(tid, Ordering::Relaxed);
        // SAFETY: the task lives while it waits.
        unsafe { self.marks.as_ref() }
            .waits_for
            .store(tid, Ordering::Relaxed);
    }

    /// Ends the wait with `outcome` and wakes the thread.
    ///
    /// # Safety
    /// The waiter was just taken out of its bucket, whose lock the caller still holds.
    unsafe fn settle(&self, outcome: u32) {
        // Release: the woken task may read the outcome without the lock. It then sees all that the
        // waker did before.
        self.outcome.store(outcome, Ordering::Release);
        // SAFETY: the waiter's task leaves only after it has taken the bucket's lock, so the thread
        // is valid.
        sched::wake(unsafe { self.thread.as_ref() });
    }
}

/// Writes `tid` to the word if it still is `word`, which names no owner. Returns `false` if it has
/// changed. Fails with `EFAULT` if the word cannot be written.
fn take(address: u64, word: u32, tid: u32) -> Result<bool, Errno> {
    let new = word & (WAITERS | OWNER_DIED) | tid;
    Ok(atomic::compare_exchange_u32(address, word, new)? == word)
}

/// Takes the lock at `address` (`FUTEX_LOCK_PI`). Waits for the lock at most until `deadline` on
/// the monotonic clock; `None` means no time limit. With `try_only`, does not wait at all
/// (`FUTEX_TRYLOCK_PI`). Returns 0. `shared` says whether other processes may use the lock, too.
///
/// # Errors
/// Fails with `EDEADLK` if the caller owns the lock, or if its owner waits for the caller. Fails
/// with `ESRCH` if the word names no task, and with `EPERM` if it names a kernel thread. Fails with
/// `EAGAIN` if `try_only` is set and the lock is taken, and with `ETIMEDOUT` at `deadline`. Fails
/// with `ERESTARTNOINTR` at a signal. Fails with `EINVAL` if `address` is no multiple of 4, and
/// with `EFAULT` if the word cannot be accessed.
pub(crate) fn lock(
    address: u64,
    shared: bool,
    deadline: Option<Nanos>,
    try_only: bool,
) -> SysResult {
    let key = Key::of(address, shared)?;
    let task = process::current();
    let tid = task.tid();
    // Ends: each turn means that another task has changed the word. A signal or the deadline ends
    // it too.
    loop {
        if task.signal_pending() {
            return Err(Errno::ERESTARTNOINTR);
        }
        let word = atomic::load_u32(address)?;
        match word & TID_MASK {
            0 => {
                if take(address, word, tid)? {
                    return Ok(0);
                }
                continue;
            }
            owner if owner == tid => return Err(Errno::EDEADLK),
            _ if try_only => return Err(Errno::EAGAIN),
            _ => {}
        }
        if word & WAITERS == 0
            && atomic::compare_exchange_u32(address, word, word | WAITERS)? != word
        {
            continue;
        }
        match wait(address, key, word | WAITERS, deadline)? {
            Some(result) => return result,
            None => sched::cond_resched(),
        }
    }
}

/// Waits for a lock whose word is `word`, at most until `deadline` on the monotonic clock. Returns
/// 0 once the task has the lock, and `None` if the caller must read the word again. Fails with
/// `ESRCH` if the owner does not exist, with `EPERM` if it is a kernel thread, and with `EDEADLK`
/// if it waits for this task. Fails with `ERESTARTNOINTR` at a signal, with `ETIMEDOUT` at
/// `deadline`, and with `EFAULT` for a bad address.
fn wait(
    address: u64,
    key: Key,
    word: u32,
    deadline: Option<Nanos>,
) -> Result<Option<SysResult>, Errno> {
    let task = process::current();
    let owner_tid = word & TID_MASK;
    let Some(owner) = find_task(owner_tid) else {
        let same = atomic::load_u32(address)? == word;
        return if same { Err(Errno::ESRCH) } else { Ok(None) };
    };
    if owner.is_kernel() {
        return Err(Errno::EPERM);
    }
    let waiter = Waiter {
        thread: sched::current().as_non_null(),
        marks: NonNull::from(task.marks()),
        tid: task.tid(),
        key,
        owner: AtomicU32::new(owner_tid),
        outcome: AtomicU32::new(outcome::NONE),
        links: Links::new(),
        _pinned: PhantomPinned,
    };
    {
        let mut bucket = bucket(key).lock();
        // SeqCst: set before `is_gone` and the owner's number are read below. `release_all` sets
        // `is_gone`, and exec the number, and then they read this.
        owner.marks().waited_in.fetch_or(bit(key), Ordering::SeqCst);
        // SAFETY: the waiter stays on this stack until `leave` below has taken it out.
        unsafe {
            bucket.push_back(NonNull::from(&waiter));
            waiter.set_owner(owner_tid);
        }
    }
    let inherits = task.priority() != 0;
    let is_gone = owner.marks().is_gone.load(Ordering::SeqCst) != 0;
    let result = if is_gone || owner.tid() != owner_tid {
        Err(Errno::ESRCH)
    } else {
        match atomic::load_u32(address) {
            Ok(now) if now != word => Err(Errno::EAGAIN),
            Ok(_) if closes_circle(&owner, task.tid()) => Err(Errno::EDEADLK),
            Ok(_) => {
                if inherits {
                    inherit_from_waiters(&owner);
                }
                sleep(&waiter, deadline)
            }
            Err(error) => Err(error),
        }
    };
    let outcome = leave(&waiter);
    task.marks().waits_for.store(0, Ordering::Relaxed);
    if inherits || task.priority() != 0 {
        // The owner when the wait began, and the owner that this waiter saw last.
        inherit_from_waiters(&owner);
        let last = waiter.owner.load(Ordering::Relaxed);
        if last != owner_tid
            && let Some(last) = find_task(last)
        {
            inherit_from_waiters(&last);
        }
    }
    drop(owner);
    match outcome {
        // Handed over at the same moment. That counts.
        outcome::OWNER => Ok(Some(Ok(0))),
        // The owner that has ended may be another one than at the beginning.
        outcome::ORPHAN => inherit(address, waiter.owner.load(Ordering::Relaxed), task.tid()),
        _ => match result {
            Ok(()) | Err(Errno::EAGAIN) => Ok(None),
            // The owner is gone. The word may be about to say that it died.
            Err(Errno::ESRCH) => {
                let same = atomic::load_u32(address)? == word;
                if same { Err(Errno::ESRCH) } else { Ok(None) }
            }
            Err(error) => Err(error),
        },
    }
}

/// Takes over a lock whose owner `dead` has died. Returns 0, or `None` if another task was quicker.
/// Fails with `EFAULT` for a bad address.
fn inherit(address: u64, dead: u32, tid: u32) -> Result<Option<SysResult>, Errno> {
    // Ends: each turn means that another task has changed the word.
    loop {
        let word = atomic::load_u32(address)?;
        if ![0, dead].contains(&(word & TID_MASK)) {
            return Ok(None);
        }
        let new = WAITERS | OWNER_DIED | tid;
        if atomic::compare_exchange_u32(address, word, new)? == word {
            return Ok(Some(Ok(0)));
        }
    }
}

/// Returns whether `owner` waits for `tid`, directly or through other owners.
fn closes_circle(owner: &Task, tid: u32) -> bool {
    let mut next = owner.marks().waits_for.load(Ordering::Relaxed);
    for _ in 0..MAX_CHAIN {
        if next == 0 || next == tid {
            return next == tid;
        }
        let Some(task) = find_task(next) else {
            return false;
        };
        next = task.marks().waits_for.load(Ordering::Relaxed);
    }
    false
}

fn sleep(waiter: &Waiter, deadline: Option<Nanos>) -> Result<(), Errno> {
    let task = process::current();
    loop {
        sched::prepare_to_block();
        if waiter.outcome.load(Ordering::Acquire) != outcome::NONE {
            sched::cancel_block();
            return Ok(());
        }
        if task.signal_pending() {
            sched::cancel_block();
            return Err(Errno::ERESTARTNOINTR);
        }
        if sched::block_until(deadline) {
            sched::cancel_block();
            return Err(Errno::ETIMEDOUT);
        }
    }
}

/// Takes a waiter out of its bucket if it is still there. Returns its outcome.
fn leave(waiter: &Waiter) -> u32 {
    let mut bucket = bucket(waiter.key).lock();
    let outcome = waiter.outcome.load(Ordering::Acquire);
    if outcome == outcome::NONE {
        // SAFETY: no waker has taken the waiter out, so it is in its bucket.
        unsafe { bucket.remove(NonNull::from(waiter)) };
        waiter.outcome.store(outcome::LEFT, Ordering::Relaxed);
    }
    outcome
}

/// Hands the lock at `address`, which the caller owns, to the waiter that is first in turn
/// (`FUTEX_UNLOCK_PI`). Without waiters the lock becomes free. Returns 0. `shared` says whether
/// other processes may use the lock, too.
///
/// # Errors
/// Fails with `EPERM` if the caller does not own the lock. Fails with `EINVAL` if `address` is no
/// multiple of 4, and with `EFAULT` if the word cannot be accessed.
pub(crate) fn unlock(address: u64, shared: bool) -> SysResult {
    let tid = process::current().tid();
    // Ends: each turn means that another task has changed the word, or that its page was not
    // mapped.
    loop {
        let word = atomic::load_u32(address)?;
        if word & TID_MASK != tid {
            return Err(Errno::EPERM);
        }
        let key = Key::of(address, shared)?;
        let mut bucket = bucket(key).lock();
        let first = first(&mut bucket, |waiter| waiter.key == key);
        // SAFETY: the waiter is valid while the bucket's lock is held.
        let new = first.map_or(0, |first| WAITERS | unsafe { first.as_ref() }.tid);
        match atomic::compare_exchange_u32_nofault(address, word, new) {
            Ok(seen) if seen == word => {
                if let Some(first) = first {
                    take_first(&mut bucket, first);
                    // SAFETY: the waiter was just taken out, and the bucket's lock is still held.
                    unsafe { first.as_ref().settle(outcome::OWNER) };
                }
                drop(bucket);
                let task = process::current();
                if first.is_some() && task.has_inherited() {
                    inherit_from_waiters(&task.to_arc());
                }
                return Ok(0);
            }
            Ok(_) => {}
            Err(_) => {
                drop(bucket);
                // Faults the page in without changing the word.
                atomic::compare_exchange_u32(address, word, word)?;
            }
        }
    }
}

/// Hands over the locks of `task` that other tasks wait for, because `task` ends. The first waiter
/// for each of these locks may take the lock over. Tasks that want such a lock later learn that its
/// owner is gone.
pub(crate) fn release_all(task: &Task) {
    // SeqCst: set before `waited_in` is read. `wait` sets that first and then reads this.
    task.marks().is_gone.store(1, Ordering::SeqCst);
    hand_over(task, task.tid());
}

/// Hands over the locks of `task` that other tasks wait for and whose words have the number `tid`,
/// because `task` ends, continues with another program, or has another number now. The first waiter
/// for each of these locks may take the lock over.
pub(crate) fn hand_over(task: &Task, tid: u32) {
    for (_, bucket) in waited_in(task.marks()) {
        // Each turn takes one waiter out.
        loop {
            let mut bucket = bucket.lock();
            let of_us = |waiter: &Waiter| waiter.owner.load(Ordering::Relaxed) == tid;
            let Some(first) = first(&mut bucket, of_us) else {
                break;
            };
            take_first(&mut bucket, first);
            // SAFETY: the waiter was just taken out, and the bucket's lock is still held.
            unsafe { first.as_ref().settle(outcome::ORPHAN) };
        }
    }
}
