//! Futexes that are locks, whose word names the owner (`FUTEX_LOCK_PI` and its kin).
//!
//! The kernel hands such a lock from its owner to the waiter of the highest real-time priority, among
//! equals to the one that waits longest. An owner inherits the highest priority of those that wait for
//! its locks, and hands it on to the owner that it waits for itself ([`inherit_from_waiters`]). As on
//! Linux weights are not inherited.
//!
//! A locker says in the word that somebody waits, so that the owner comes to the kernel to unlock,
//! then enters the queue, then looks at the word again: an owner who came in between has changed it.

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

const BUCKETS: usize = 64;
/// Somebody waits, so that the owner must come to the kernel.
const WAITERS: u32 = 0x8000_0000;
/// The owner died and the new one is to look after what it left.
const OWNER_DIED: u32 = 0x4000_0000;
/// The owner's thread number.
const TID_MASK: u32 = 0x3fff_ffff;
/// Owners of owners that are looked at for a circle; Linux's `max_lock_depth`.
const MAX_CHAIN: usize = 1024;

/// What has become of a waiter.
mod outcome {
    /// It waits.
    pub(super) const NONE: u32 = 0;
    /// It is the owner, and the word says so.
    pub(super) const OWNER: u32 = 1;
    /// The owner died, and it is the first to try.
    pub(super) const ORPHAN: u32 = 2;
    /// It has left by itself.
    pub(super) const LEFT: u32 = 3;
}

/// A task's place in a bucket; on its own stack while it waits.
struct Waiter {
    thread: NonNull<Thread>,
    /// The task's, where it says for whom it waits.
    marks: NonNull<Marks>,
    tid: u32,
    key: Key,
    /// Whose the lock is; guarded by the bucket's lock.
    owner: AtomicU32,
    /// Changed under the bucket's lock.
    outcome: AtomicU32,
    links: Links<Self>,
    _pinned: PhantomPinned,
}

// SAFETY: what the pointers lead to lives while the waiter does and is shared between CPUs.
unsafe impl Sync for Waiter {}

// SAFETY: always the same field, which lists alone use.
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

/// The waiter of a locked bucket that is first in turn of those of which `wanted` is true.
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

/// Takes the waiter `first` out of its locked bucket: its task waits for no owner any more. Notes
/// that task as the owner in the other waiters for the same lock.
fn take_first(bucket: &mut Bucket, first: NonNull<Waiter>) {
    // SAFETY: waiters are valid while their bucket's lock is held: they leave under it. So are their
    // tasks' marks.
    let (key, tid) = unsafe { (first.as_ref().key, first.as_ref().tid) };
    bucket.sift(
        |waiter| {
            if NonNull::from(waiter) == first {
                return Sift::Take;
            }
            if waiter.key == key {
                // SAFETY: the bucket's lock is held.
                unsafe { waiter.set_owner(tid) };
            }
            Sift::Keep
        },
        // SAFETY: as above.
        |waiter| unsafe {
            let marks = waiter.as_ref().marks;
            marks.as_ref().waits_for.store(0, Ordering::Relaxed);
        },
    );
}

/// Held while a thread inherits.
static INHERITANCE: SpinLock<()> = SpinLock::new(());

/// Gives `owner` the highest priority of the threads that wait for its locks, and then each owner that
/// the one before waits for. Call this after a waiter with a priority has come, and after one has gone
/// that `owner` may have inherited from.
fn inherit_from_waiters(owner: &Arc<Task>) {
    let mut owner = owner.clone();
    for _ in 0..MAX_CHAIN {
        let inheritance = INHERITANCE.lock();
        let tid = owner.tid();
        let mut best = 0;
        for bucket in &TABLE {
            bucket.lock().sift(
                |waiter| {
                    // Relaxed: under the lock.
                    if waiter.owner.load(Ordering::Relaxed) == tid {
                        best = best.max(waiter.priority());
                    }
                    Sift::Keep
                },
                |_| {},
            );
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
    /// The real-time priority of its thread, 0 if that has none.
    fn priority(&self) -> u32 {
        // SAFETY: the thread lives while it waits.
        unsafe { self.thread.as_ref() }.priority()
    }

    /// Notes whose the lock is.
    ///
    /// # Safety
    /// The bucket's lock is held.
    unsafe fn set_owner(&self, tid: u32) {
        // Relaxed (both): under the lock, and a hint for who looks for circles.
        self.owner.store(tid, Ordering::Relaxed);
        // SAFETY: the task lives while it waits.
        unsafe { self.marks.as_ref() }
            .waits_for
            .store(tid, Ordering::Relaxed);
    }

    /// Ends the wait.
    ///
    /// # Safety
    /// It was just taken out of its bucket, whose lock is still held.
    unsafe fn settle(&self, outcome: u32) {
        // Release: what the waker did before is seen by the woken, which may look without the lock.
        self.outcome.store(outcome, Ordering::Release);
        // SAFETY: it leaves only after it took the lock.
        sched::wake(unsafe { self.thread.as_ref() });
    }
}

/// Makes the word ours if nobody owns it.
fn take(address: u64, word: u32, tid: u32) -> Result<bool, Errno> {
    let new = word & (WAITERS | OWNER_DIED) | tid;
    Ok(atomic::compare_exchange_u32(address, word, new)? == word)
}

/// `FUTEX_LOCK_PI`: locks, at the latest when `deadline` has passed not; with `try_only` now or not.
///
/// # Errors
/// `EDEADLK`: the caller owns the lock, or who does waits for the caller; `ESRCH`: the word names
/// nobody; `EPERM`: a thread of the kernel; `ETIMEDOUT`, `EAGAIN` (`try_only`), `ERESTARTNOINTR`;
/// `EINVAL` for an unaligned address; `EFAULT`.
pub(crate) fn lock(
    address: u64,
    shared: bool,
    deadline: Option<Nanos>,
    try_only: bool,
) -> SysResult {
    let key = Key::of(address, shared)?;
    let task = process::current();
    let tid = task.tid();
    // Ends: each turn another task has changed the word, and a signal or the deadline ends it too.
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

/// Waits for a lock whose word is `word`. `None`: look again.
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
    // SeqCst: before the look at `is_gone` below; pairs with `release_all`, which sets that first.
    owner.marks().is_waited_for.store(1, Ordering::SeqCst);
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
        // SAFETY: the waiter stays on this stack until `leave` below has taken it out.
        unsafe {
            bucket.push_back(NonNull::from(&waiter));
            waiter.set_owner(owner_tid);
        }
    }
    let inherits = task.priority() != 0;
    let result = if owner.marks().is_gone.load(Ordering::SeqCst) != 0 {
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
        // The owner when the wait began, and the one that this waiter saw last.
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
        // Handed over in the same moment: that counts.
        outcome::OWNER => Ok(Some(Ok(0))),
        outcome::ORPHAN => inherit(address, owner_tid, task.tid()),
        _ => match result {
            Ok(()) | Err(Errno::EAGAIN) => Ok(None),
            // Its word may be about to say that it died.
            Err(Errno::ESRCH) => {
                let same = atomic::load_u32(address)? == word;
                if same { Err(Errno::ESRCH) } else { Ok(None) }
            }
            Err(error) => Err(error),
        },
    }
}

/// Takes a lock over whose owner died; `None`: another was quicker.
fn inherit(address: u64, dead: u32, tid: u32) -> Result<Option<SysResult>, Errno> {
    // Ends: each turn another task has changed the word.
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

/// Whether `owner` waits, directly or not, for `tid`.
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

/// Takes a waiter out; says what has become of it.
fn leave(waiter: &Waiter) -> u32 {
    let mut bucket = bucket(waiter.key).lock();
    let outcome = waiter.outcome.load(Ordering::Acquire);
    if outcome == outcome::NONE {
        // SAFETY: nobody has taken it out, so it is in its bucket.
        unsafe { bucket.remove(NonNull::from(waiter)) };
        waiter.outcome.store(outcome::LEFT, Ordering::Relaxed);
    }
    outcome
}

/// `FUTEX_UNLOCK_PI`: hands the lock to the waiter that is first in turn.
///
/// # Errors
/// `EPERM`: the caller does not own it; as [`lock`].
pub(crate) fn unlock(address: u64, shared: bool) -> SysResult {
    let tid = process::current().tid();
    // Ends: each turn another task has changed the word, or its page was not to be had at once.
    loop {
        let word = atomic::load_u32(address)?;
        if word & TID_MASK != tid {
            return Err(Errno::EPERM);
        }
        let key = Key::of(address, shared)?;
        let mut bucket = bucket(key).lock();
        let first = first(&mut bucket, |waiter| waiter.key == key);
        // SAFETY: it is valid while the bucket's lock is held.
        let new = first.map_or(0, |first| WAITERS | unsafe { first.as_ref() }.tid);
        match atomic::compare_exchange_u32_nofault(address, word, new) {
            Ok(seen) if seen == word => {
                if let Some(first) = first {
                    take_first(&mut bucket, first);
                    // SAFETY: it was just taken out, under the lock.
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
                // Brings the page in; changes nothing.
                atomic::compare_exchange_u32(address, word, word)?;
            }
        }
    }
}

/// The end of a task: what others wait for it to unlock goes to those that are first in turn.
pub(crate) fn release_all(task: &Task) {
    // SeqCst: pairs with `wait`, which sets the other one first and looks at this one afterwards.
    task.marks().is_gone.store(1, Ordering::SeqCst);
    hand_over(task);
}

/// The same for one that goes on with another program.
pub(crate) fn release_for_exec(task: &Task) {
    hand_over(task);
    task.marks().is_waited_for.store(0, Ordering::SeqCst);
}

fn hand_over(task: &Task) {
    if task.marks().is_waited_for.load(Ordering::SeqCst) == 0 {
        return;
    }
    let tid = task.tid();
    for bucket in &TABLE {
        // Each turn takes one waiter out.
        loop {
            let mut bucket = bucket.lock();
            let of_us = |waiter: &Waiter| waiter.owner.load(Ordering::Relaxed) == tid;
            let Some(first) = first(&mut bucket, of_us) else {
                break;
            };
            take_first(&mut bucket, first);
            // SAFETY: it was just taken out, under the lock.
            unsafe { first.as_ref().settle(outcome::ORPHAN) };
        }
    }
}
