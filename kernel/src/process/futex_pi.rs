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

use super::futex::Key;
use crate::process;
use crate::process::task::{Marks, Task, find_task};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};
use logic::list::Sift;
use machine::arch::clock::Nanos;
use machine::sched;
use machine::sched::wait_table::{self, Stop, WaitTable};
use machine::sync::SpinLock;
use machine::uaccess::atomic;

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

/// How a waker ended a wait.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Outcome {
    /// The task is the owner, and the word says so.
    Owner,
    /// The owner died, and the task is the first that may take the lock over.
    Orphan,
}

/// A waiting task.
struct Waiter {
    /// The task, whose marks hold the owner that it waits for.
    task: Arc<Task>,
    /// The task's thread number when the wait began.
    tid: u32,
    /// The lock.
    key: Key,
    /// The thread number of the lock's owner.
    owner: u32,
    /// How a waker ended the wait, or `None` as long as it goes on.
    outcome: Option<Outcome>,
}

type Bucket<'a> = wait_table::Bucket<'a, Waiter, BUCKETS>;

static TABLE: WaitTable<Waiter, BUCKETS> = WaitTable::new();

/// Returns the bit of the key's bucket in [`Marks::waited_in`].
fn bit(key: Key) -> u64 {
    1 << (key.bucket() % BUCKETS)
}

/// Returns the indices of the buckets in which tasks may wait for the owner with these marks.
fn waited_in(marks: &Marks) -> impl Iterator<Item = usize> + use<> {
    // SeqCst: see `release_all`.
    let mut left = marks.waited_in.load(Ordering::SeqCst);
    core::iter::from_fn(move || {
        let at = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        // There is no bucket for the 64 of an empty set.
        (at < BUCKETS).then_some(at)
    })
}

/// The waiter that is first in turn: its lock, and its thread number.
#[derive(Copy, Clone)]
struct First {
    key: Key,
    tid: u32,
}

/// Returns the waiter of the bucket that is first in turn among those for which `wanted` returns
/// `true`. Returns `None` if there is none.
fn first(bucket: &mut Bucket<'_>, wanted: impl Fn(&Waiter) -> bool) -> Option<First> {
    let mut found: Option<(First, u32)> = None;
    bucket.for_each(|waiter| {
        let priority = waiter.task.priority();
        if wanted(waiter) && found.is_none_or(|(_, best)| priority > best) {
            let (key, tid) = (waiter.key, waiter.tid);
            found = Some((First { key, tid }, priority));
        }
    });
    found.map(|(first, _)| first)
}

/// Wakes the waiter `first` of the bucket with `outcome`, and clears the owner that its task waits
/// for. Notes that task as the owner in the other waiters for the same lock.
fn hand_to(bucket: &mut Bucket<'_>, first: First, outcome: Outcome) {
    let mut others = false;
    bucket.for_each(|waiter| {
        if waiter.key == first.key && waiter.tid != first.tid {
            others = true;
            waiter.set_owner(first.tid);
        }
    });
    bucket.wake(|waiter| {
        if waiter.key != first.key || waiter.tid != first.tid {
            return Sift::Keep;
        }
        waiter.outcome = Some(outcome);
        let marks = waiter.task.marks();
        marks.waits_for.store(0, Ordering::Relaxed);
        if others {
            // SeqCst: as in `wait`. The new owner hands the lock on if it ends.
            marks.waited_in.fetch_or(bit(first.key), Ordering::SeqCst);
        }
        Sift::Take
    });
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
        for index in waited_in(owner.marks()) {
            let mut bucket = TABLE.lock(index);
            let mut any = false;
            bucket.for_each(|waiter| {
                if waiter.owner == tid {
                    any = true;
                    best = best.max(waiter.task.priority());
                }
            });
            if !any {
                // The bit of a waiter that comes later is set under the bucket's lock, too.
                (owner.marks().waited_in).fetch_and(!(1 << index), Ordering::SeqCst);
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
    /// Notes `tid` as the lock's owner in the waiter and in its task.
    fn set_owner(&mut self, tid: u32) {
        self.owner = tid;
        // Relaxed: only a hint for the search for circles.
        self.task.marks().waits_for.store(tid, Ordering::Relaxed);
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
        task: task.to_arc(),
        tid: task.tid(),
        key,
        owner: owner_tid,
        outcome: None,
    };
    let bucket = TABLE.lock(key.bucket());
    // SeqCst: set before `is_gone` and the owner's number are read below. `release_all` sets
    // `is_gone`, and exec the number, and then they read this.
    (owner.marks().waited_in).fetch_or(bit(key), Ordering::SeqCst);
    (task.marks().waits_for).store(owner_tid, Ordering::Relaxed);
    let inherits = task.priority() != 0;
    let tid = task.tid();
    let left = bucket.wait(waiter, |waiting| {
        let is_gone = owner.marks().is_gone.load(Ordering::SeqCst) != 0;
        if is_gone || owner.tid() != owner_tid {
            return Err(Errno::ESRCH);
        }
        if atomic::load_u32(address)? != word {
            return Err(Errno::EAGAIN);
        }
        if closes_circle(&owner, tid) {
            return Err(Errno::EDEADLK);
        }
        if inherits {
            inherit_from_waiters(&owner);
        }
        waiting.sleep(deadline).map_err(|stop| match stop {
            Stop::Signal => Errno::ERESTARTNOINTR,
            Stop::Deadline => Errno::ETIMEDOUT,
        })
    });
    let (result, waiter) = (left.result, left.value);
    task.marks().waits_for.store(0, Ordering::Relaxed);
    if inherits || task.priority() != 0 {
        // The owner when the wait began, and the owner that this waiter saw last.
        inherit_from_waiters(&owner);
        if waiter.owner != owner_tid
            && let Some(last) = find_task(waiter.owner)
        {
            inherit_from_waiters(&last);
        }
    }
    drop(owner);
    match waiter.outcome {
        // Handed over at the same moment. That counts.
        Some(Outcome::Owner) => Ok(Some(Ok(0))),
        // The owner that has ended may be another one than at the beginning.
        Some(Outcome::Orphan) => inherit(address, waiter.owner, task.tid()),
        None => match result {
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
        let mut bucket = TABLE.lock(key.bucket());
        let first = first(&mut bucket, |waiter| waiter.key == key);
        let new = first.map_or(0, |first| WAITERS | first.tid);
        match atomic::compare_exchange_u32_nofault(address, word, new) {
            Ok(seen) if seen == word => {
                if let Some(first) = first {
                    hand_to(&mut bucket, first, Outcome::Owner);
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
    for index in waited_in(task.marks()) {
        // Each turn takes one waiter out.
        loop {
            let mut bucket = TABLE.lock(index);
            let Some(first) = first(&mut bucket, |waiter| waiter.owner == tid) else {
                break;
            };
            hand_to(&mut bucket, first, Outcome::Orphan);
        }
    }
}
