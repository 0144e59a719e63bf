//! Futexes: user words that tasks wait on.
//!
//! A private futex is identified by its address space and address. A shared futex is identified by
//! the memory behind it, so that processes that map the same page meet.
//!
//! A waiter enters its bucket first and reads the word afterwards. A task that changes the word and
//! then wakes therefore finds the waiter. The read may fault and block, so no lock is held. A
//! wake-up that arrives during the read counts.

use super::futex_pi;
use crate::process;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use logic::errno::{Errno, SysResult};
use logic::list::Sift;
use machine::arch::clock::Nanos;
use machine::sched::wait_table::WaitTable;
use machine::uaccess::atomic;

const BUCKETS: usize = 1024;

/// The identity of a futex.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A futex of one address space: the identity of the space, and the address.
    Private(usize, u64),
    /// A futex in shared memory: the identity of the memory object, and the offset in it.
    Shared(usize, u64),
}

impl Key {
    /// Returns the identity of the futex with the word at `address` of the current process. With
    /// `shared`, memory that processes share is identified by its object. Private memory is always
    /// identified by its address.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `address` is no multiple of 4. Fails with `EFAULT` if `address` is
    /// not in user memory or, with `shared`, cannot be read.
    pub(super) fn of(address: u64, shared: bool) -> Result<Self, Errno> {
        if !address.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if address >= machine::arch::USER_END {
            return Err(Errno::EFAULT);
        }
        let task = process::current();
        task.with_vm(|vm| {
            let vm = vm.ok_or(Errno::EFAULT)?;
            if shared {
                // Private memory is identified by its address even if the caller asks for a shared
                // futex.
                if let Some((object, offset)) = vm.futex_key(address)? {
                    // The access fails if the address is beyond the file's end.
                    atomic::load_u32(address)?;
                    return Ok(Self::Shared(object, offset));
                }
            }
            Ok(Self::Private(Arc::as_ptr(vm) as usize, address))
        })
    }

    /// Returns the index of the bucket that holds the waiters of this futex.
    pub(super) fn bucket(self) -> usize {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        match self {
            Self::Private(space, address) => (space, address).hash(&mut hash),
            Self::Shared(object, offset) => (object, offset).hash(&mut hash),
        }
        usize::try_from(hash.finish() % BUCKETS as u64).unwrap_or(0)
    }
}

/// A hash of a few words. Users gain nothing from collisions but delays for each other.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// What a waiting task waits for.
struct Waiter {
    /// The futex. Requeue changes it.
    key: Key,
    bits: u32,
    /// The lock that the waiter takes next (`FUTEX_WAIT_REQUEUE_PI`), or `None`. Ordinary wakers
    /// skip waiters that take a lock.
    lock: Option<Key>,
}

static TABLE: WaitTable<Waiter, BUCKETS> = WaitTable::new();

/// The waiters that a waker chooses: those of the futex `key` whose bits meet `bits`.
struct Choice {
    key: Key,
    limit: usize,
    bits: u32,
    /// The lock to which all these waiters must be on their way; `None`: to no lock.
    lock: Option<Key>,
    /// The number of waiters that were chosen.
    count: usize,
    /// Whether a waiter with another lock was met. The choice has ended there.
    mixed: bool,
}

impl Choice {
    fn new(key: Key, limit: usize, bits: u32, lock: Option<Key>) -> Self {
        Self {
            key,
            limit,
            bits,
            lock,
            count: 0,
            mixed: false,
        }
    }

    fn look(&mut self, waiter: &Waiter) -> Sift {
        if self.count == self.limit {
            return Sift::Stop;
        }
        if waiter.key != self.key {
            return Sift::Keep;
        }
        if waiter.lock != self.lock {
            self.mixed = true;
            return Sift::Stop;
        }
        if waiter.bits & self.bits == 0 {
            return Sift::Keep;
        }
        self.count += 1;
        Sift::Take
    }

    /// Returns the number of waiters that were chosen. Fails with `EINVAL` if a waiter with another
    /// lock was met.
    fn end(self) -> SysResult {
        if self.mixed {
            Err(Errno::EINVAL)
        } else {
            Ok(self.count)
        }
    }
}

/// Wakes up to `limit` waiters of `key` whose bits meet `bits`, oldest first, and returns their
/// number.
///
/// All these waiters must be on their way to `lock` (`None`: to no lock). Stops at the first waiter
/// with another lock and fails with `EINVAL`.
fn wake_key(key: Key, limit: usize, bits: u32, lock: Option<Key>) -> SysResult {
    let mut choice = Choice::new(key, limit, bits, lock);
    TABLE.lock(key.bucket()).wake(|waiter| choice.look(waiter));
    choice.end()
}

/// Wakes up to `limit` waiters of the futex at `address` whose bits meet `bits`. Returns the number
/// of woken waiters. `shared` says whether other processes may use the futex, too.
///
/// # Errors
/// Fails with `EINVAL` if `address` is no multiple of 4, if `bits` is 0, or if a waiter is to take
/// a lock after its wait ([`wait_then_lock`]). Fails with `EFAULT` if `address` is not in user
/// memory or, with `shared`, cannot be read.
pub(crate) fn wake(address: u64, shared: bool, limit: usize, bits: u32) -> SysResult {
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    let key = Key::of(address, shared)?;
    wake_key(key, limit, bits, None)
}

/// Waits at the futex at `address` if its word is `expected`. A wake-up whose bits meet `bits` ends
/// the wait. Returns 0 after a wake-up. `shared` says whether other processes may use the futex,
/// too. `deadline` is a time on the monotonic clock; `None` means no time limit.
///
/// # Errors
/// Fails with `EAGAIN` if the word differs, with `ERESTARTSYS` at a signal, and with `ETIMEDOUT` at
/// `deadline`. Fails with `EINVAL` if `address` is no multiple of 4 or `bits` is 0, and with
/// `EFAULT` if the word cannot be read.
pub(crate) fn wait(
    address: u64,
    shared: bool,
    expected: u32,
    deadline: Option<Nanos>,
    bits: u32,
) -> SysResult {
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    let key = Key::of(address, shared)?;
    wait_for(address, key, expected, deadline, bits, None)
}

/// Waits at the futex at `address` if its word is `expected`, until [`send_to_lock`] sends the task
/// on to the lock at `lock`. Then takes the lock and returns 0 (`FUTEX_WAIT_REQUEUE_PI`). `shared`
/// says whether other processes may use the futexes, too. `deadline` is a time on the monotonic
/// clock and holds for both waits together. `None` means no time limit.
///
/// # Errors
/// Fails with `EAGAIN` if the word differs, or if a signal arrived after the task was sent on.
/// Fails with `ERESTARTNOINTR` at an earlier signal, and with `ETIMEDOUT` at `deadline`. Fails with
/// `EINVAL` if `lock` and `address` are the same futex. Fails with the errors of
/// [`futex_pi::lock`].
pub(crate) fn wait_then_lock(
    address: u64,
    lock: u64,
    shared: bool,
    expected: u32,
    deadline: Option<Nanos>,
) -> SysResult {
    if address == lock {
        return Err(Errno::EINVAL);
    }
    let to = Key::of(lock, shared)?;
    let key = Key::of(address, shared)?;
    if key == to {
        return Err(Errno::EINVAL);
    }
    match wait_for(address, key, expected, deadline, u32::MAX, Some(to)) {
        // No wake-up has arrived, so the whole call may start again.
        Err(Errno::ERESTARTSYS) => return Err(Errno::ERESTARTNOINTR),
        result => result?,
    };
    match futex_pi::lock(lock, shared, deadline, false) {
        Err(Errno::ERESTARTNOINTR) => Err(Errno::EAGAIN),
        result => result,
    }
}

/// Sends up to `limit` waiters of the futex at `from` on to the lock at `lock`, if the word at
/// `from` is `expected` (`FUTEX_CMP_REQUEUE_PI`). They are woken, and take the lock or wait for it
/// themselves. Returns the number of these waiters. `shared` says whether other processes may use
/// the futexes, too.
///
/// # Errors
/// Fails with `EAGAIN` if the word differs. Fails with `EINVAL` if an address is no multiple of 4,
/// if both addresses are the same futex, or if a waiter does not wait for `lock`. Fails with
/// `EFAULT` if the word cannot be read.
pub(crate) fn send_to_lock(
    from: u64,
    lock: u64,
    shared: bool,
    limit: usize,
    expected: u32,
) -> SysResult {
    let key = Key::of(from, shared)?;
    let to = Key::of(lock, shared)?;
    if key == to {
        return Err(Errno::EINVAL);
    }
    if atomic::load_u32(from)? != expected {
        return Err(Errno::EAGAIN);
    }
    wake_key(key, limit, u32::MAX, Some(to))
}

/// Waits like [`wait`] for a wake-up of the key `key`. `lock` is the lock that the task takes
/// afterwards, if any. Fails as [`wait`] does.
fn wait_for(
    address: u64,
    key: Key,
    expected: u32,
    deadline: Option<Nanos>,
    bits: u32,
    lock: Option<Key>,
) -> SysResult {
    // Faults the page in, and returns early if the word has changed already.
    if atomic::load_u32(address)? != expected {
        return Err(Errno::EAGAIN);
    }
    let waiter = Waiter { key, bits, lock };
    let left = TABLE
        .lock(key.bucket())
        .wait(waiter, |waiting| match atomic::load_u32(address) {
            Ok(word) if word == expected => Ok(waiting.sleep(deadline)?),
            Ok(_) => Err(Errno::EAGAIN),
            Err(error) => Err(error),
        });
    match left.result {
        // Woken at the same moment. The wake-up counts, because it must not be lost.
        Err(Errno::ETIMEDOUT | Errno::ERESTARTSYS) if left.woken => Ok(0),
        Err(error) => {
            if left.woken {
                // The wake-up was meant for a task that really waits, so pass it on.
                let _ = wake_key(left.value.key, 1, bits, lock);
            }
            Err(error)
        }
        Ok(()) => Ok(0),
    }
}

/// The most words that one task may wait on (`FUTEX_WAITV_MAX`).
pub(crate) const MOST_WORDS: usize = 128;

/// One of several futex words that a task waits on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Word {
    /// The address of the word.
    pub(crate) address: u64,
    /// Whether other processes may wake the waiter.
    pub(crate) shared: bool,
    /// The task waits while the word has this value.
    pub(crate) expected: u32,
}

/// Waits on `words` until a waker wakes one of them, or until `deadline` on the monotonic clock.
/// `None` means no time limit. Returns the index of the woken word, or the highest such index if
/// several were woken. A wake-up counts even if another word differs or the wait has failed. The
/// caller has checked that there are at most [`MOST_WORDS`] words.
///
/// # Errors
/// Fails with `EAGAIN` if a word differs from its `expected`, with `ERESTARTSYS` at a signal, and
/// with `ETIMEDOUT` at `deadline`. Fails with `EINVAL` if an address is no multiple of 4, with
/// `EFAULT` if a word cannot be read, and with `ENOMEM`.
pub(crate) fn wait_for_any(words: &[Word], deadline: Option<Nanos>) -> SysResult {
    let mut places = Vec::new();
    places
        .try_reserve_exact(words.len())
        .map_err(|_| Errno::ENOMEM)?;
    for word in words {
        let key = Key::of(word.address, word.shared)?;
        let waiter = Waiter {
            key,
            bits: u32::MAX,
            lock: None,
        };
        places.push((key.bucket(), waiter));
    }
    let (result, last) = TABLE.wait_at_each(places, |several| {
        for word in words {
            several.enter();
            if atomic::load_u32(word.address)? != word.expected {
                return Err(Errno::EAGAIN);
            }
        }
        Ok(several.sleep(deadline)?)
    })?;
    // As on Linux a wake-up counts before any error, and the last of several wake-ups wins.
    match last {
        Some(n) => Ok(n),
        None => result.map(|()| 0),
    }
}

/// Wakes up to `wake_limit` waiters of the futex at `from` and moves up to `move_limit` of the
/// others to the futex at `to`. With `expected`, does so only if the word at `from` has that value.
/// Returns the number of woken waiters and the number of moved ones. `shared` says whether other
/// processes may use the futexes, too.
///
/// # Errors
/// Fails with `EAGAIN` if the word differs. Fails with `EINVAL` if an address is no multiple of 4,
/// or if a waiter is to take a lock after its wait ([`wait_then_lock`]). Fails with `EFAULT` if an
/// address is not in user memory, or if a word that the call reads cannot be read.
pub(crate) fn requeue(
    from: u64,
    to: u64,
    shared: bool,
    wake_limit: usize,
    move_limit: usize,
    expected: Option<u32>,
) -> Result<(usize, usize), Errno> {
    let source = Key::of(from, shared)?;
    let target = Key::of(to, shared)?;
    if let Some(expected) = expected
        && atomic::load_u32(from)? != expected
    {
        return Err(Errno::EAGAIN);
    }
    let mut buckets = TABLE.lock_both(source.bucket(), target.bucket());
    let mut choice = Choice::new(source, wake_limit, u32::MAX, None);
    buckets.wake(|waiter| choice.look(waiter));
    let woken = choice.end()?;
    let mut count = 0;
    let mut mixed = false;
    buckets.send(|waiter| {
        if count == move_limit {
            return Sift::Stop;
        }
        if waiter.key != source {
            return Sift::Keep;
        }
        if waiter.lock.is_some() {
            mixed = true;
            return Sift::Stop;
        }
        count += 1;
        // A waiter that would move to its own futex stays there but counts, as on Linux.
        if source == target {
            return Sift::Keep;
        }
        waiter.key = target;
        Sift::Take
    });
    if mixed {
        return Err(Errno::EINVAL);
    }
    Ok((woken, count))
}

/// Changes the word at `second` by `operation` and wakes up to `first_limit` waiters of the futex
/// at `first` (`FUTEX_WAKE_OP`). Also wakes up to `second_limit` waiters of the futex at `second`,
/// if the old value of its word passes the test in `operation`. Returns the number of woken
/// waiters. `shared` says whether other processes may use the futexes, too.
///
/// # Errors
/// Fails with `ENOSYS` for an unknown operation or test. With an unknown test the word changes all
/// the same, as on Linux, but no waiter is woken. Fails with `EAGAIN` if other tasks keep changing
/// the word. Fails with the errors of [`wake`].
pub(crate) fn wake_op(
    first: u64,
    second: u64,
    shared: bool,
    first_limit: usize,
    second_limit: usize,
    operation: u32,
) -> SysResult {
    // An invalid address must fail before the word changes.
    Key::of(first, shared)?;
    Key::of(second, shared)?;
    let old = change(second, operation)?;
    let passes = test(operation, old)?;
    let mut woken = wake(first, shared, first_limit, u32::MAX)?;
    if passes {
        woken += wake(second, shared, second_limit, u32::MAX)?;
    }
    Ok(woken)
}

/// Returns a 12-bit argument of the operation, sign-extended.
fn argument(operation: u32, shift: u32) -> i32 {
    (operation << (20 - shift)).cast_signed() >> 20
}

/// The number of attempts to change a word that other tasks keep changing. Then the call fails with
/// `EAGAIN`.
const MAX_TURNS: usize = 1 << 16;

fn change(address: u64, operation: u32) -> Result<u32, Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let mut value = argument(operation, 12).cast_unsigned();
    if operation >> 28 & 8 != 0 {
        value = 1u32.wrapping_shl(value);
    }
    let mut old = atomic::load_u32(address)?;
    for _ in 0..MAX_TURNS {
        let new = match operation >> 28 & 7 {
            0 => value,
            1 => old.wrapping_add(value),
            2 => old | value,
            3 => old & !value,
            4 => old ^ value,
            _ => return Err(Errno::ENOSYS),
        };
        let seen = atomic::compare_exchange_u32(address, old, new)?;
        if seen == old {
            return Ok(old);
        }
        old = seen;
    }
    Err(Errno::EAGAIN)
}

fn test(operation: u32, old: u32) -> Result<bool, Errno> {
    let old = old.cast_signed();
    let value = argument(operation, 0);
    Ok(match operation >> 24 & 15 {
        0 => old == value,
        1 => old != value,
        2 => old < value,
        3 => old <= value,
        4 => old > value,
        5 => old >= value,
        _ => return Err(Errno::ENOSYS),
    })
}
