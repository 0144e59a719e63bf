//! Futexes.

use super::Args;
use super::record::FutexWaitV;
use crate::process;
use crate::process::futex;
use crate::process::futex_pi;
use crate::process::signal::Restart;
use crate::process::task;
use crate::process::time::clocks::Clock;
use crate::process::time::values::Timespec;
use crate::process::time::wall::Deadline;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::credentials::others::LooksAs;
use logic::errno::{Errno, SysResult};
use machine::arch::clock;
use machine::uaccess::UserPtr;

const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const WAIT_BITSET: u32 = 9;
const LOCK_PI: u32 = 6;
const UNLOCK_PI: u32 = 7;
const TRYLOCK_PI: u32 = 8;
const WAKE_BITSET: u32 = 10;
const WAIT_REQUEUE_PI: u32 = 11;
const CMP_REQUEUE_PI: u32 = 12;
const LOCK_PI2: u32 = 13;
const PRIVATE: u32 = 128;
const CLOCK_REALTIME: u32 = 256;
const ANY_BITS: u32 = u32::MAX;

/// Bytes of `struct robust_list_head`.
const ROBUST_HEAD_BYTES: usize = 24;

/// Returns the most waiters to wake, which a program passes as an `int`. At least one is woken, as
/// under Linux.
fn count(value: u32) -> usize {
    usize::try_from(value.cast_signed()).unwrap_or(0).max(1)
}

/// Returns a limit of a requeue. Fails with `EINVAL` if it is negative.
fn limit(value: u32) -> Result<usize, Errno> {
    usize::try_from(value.cast_signed()).map_err(|_| Errno::EINVAL)
}

/// Returns the deadline in argument 3, on the wall clock if `realtime`, else on the monotonic
/// clock. Returns `None` for a null pointer: the call then waits without a deadline. Fails with
/// `EFAULT` for a bad address, and with `EINVAL` for an invalid time.
fn deadline(a: &Args, realtime: bool) -> Result<Option<Deadline>, Errno> {
    let clock = if realtime {
        Clock::Realtime
    } else {
        Clock::Monotonic
    };
    match a.addr(3) {
        0 => Ok(None),
        time => clock.deadline(Timespec::read(time)?).map(Some),
    }
}

/// `futex(2)`.
pub fn futex(a: &Args) -> SysResult {
    let operation = a.uint(1);
    let shared = operation & PRIVATE == 0;
    let realtime = operation & CLOCK_REALTIME != 0;
    let command = operation & !(PRIVATE | CLOCK_REALTIME);
    if realtime && ![WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2].contains(&command) {
        return Err(Errno::ENOSYS);
    }
    let address = a.addr(0);
    match command {
        WAIT => {
            let deadline = match a.addr(3) {
                0 => None,
                time => Some(Deadline::Monotonic(
                    clock::now().saturating_add(Timespec::read(time)?),
                )),
            };
            wait(address, shared, a.uint(2), deadline, ANY_BITS)
        }
        WAIT_BITSET => {
            let deadline = deadline(a, realtime)?;
            wait(address, shared, a.uint(2), deadline, a.uint(5))
        }
        WAKE => futex::wake(address, shared, count(a.uint(2)), ANY_BITS),
        WAKE_BITSET => futex::wake(address, shared, count(a.uint(2)), a.uint(5)),
        REQUEUE | CMP_REQUEUE => {
            let (wakes, moves) = (limit(a.uint(2))?, limit(a.uint(3))?);
            let expected = (command == CMP_REQUEUE).then(|| a.uint(5));
            let (woken, moved) =
                futex::requeue(address, a.addr(4), shared, wakes, moves, expected)?;
            // Linux counts the moved threads for both, although futex(2) says so only of
            // `FUTEX_CMP_REQUEUE`.
            Ok(woken + moved)
        }
        WAKE_OP => {
            let (first, second) = (count(a.uint(2)), count(a.uint(3)));
            futex::wake_op(address, a.addr(4), shared, first, second, a.uint(5))
        }
        LOCK_PI | LOCK_PI2 => {
            let deadline = deadline(a, realtime || command == LOCK_PI)?;
            Deadline::hold(deadline, |deadline| {
                futex_pi::lock(address, shared, deadline, false)
            })
        }
        TRYLOCK_PI => futex_pi::lock(address, shared, None, true),
        UNLOCK_PI => futex_pi::unlock(address, shared),
        WAIT_REQUEUE_PI => {
            let deadline = deadline(a, realtime)?;
            Deadline::hold(deadline, |deadline| {
                futex::wait_then_lock(address, a.addr(4), shared, a.uint(2), deadline)
            })
        }
        CMP_REQUEUE_PI => {
            let (wakes, moves) = (limit(a.uint(2))?, limit(a.uint(3))?);
            // Only one woken thread can get the lock.
            if wakes != 1 || address == a.addr(4) {
                return Err(Errno::EINVAL);
            }
            futex::send_to_lock(address, a.addr(4), shared, 1 + moves, a.uint(5))
        }
        _ => Err(Errno::ENOSYS),
    }
}

fn wait(
    address: u64,
    shared: bool,
    expected: u32,
    deadline: Option<Deadline>,
    bits: u32,
) -> SysResult {
    let result = Deadline::hold(deadline, |deadline| {
        futex::wait(address, shared, expected, deadline, bits)
    });
    match deadline {
        Some(deadline) if result == Err(Errno::ERESTARTSYS) => {
            let [at, wall] = deadline.words();
            let args = [
                address,
                u64::from(shared),
                u64::from(expected),
                at,
                u64::from(bits),
                wall,
            ];
            let restart = Restart {
                call: wait_again,
                args: Args(args),
            };
            process::current().signals().set_restart(restart);
            Err(Errno::ERESTART_RESTARTBLOCK)
        }
        _ => result,
    }
}

/// Continues a wait with a deadline after a signal has interrupted it. Fails as [`wait`] does.
fn wait_again(a: &Args) -> SysResult {
    wait(
        a.addr(0),
        a.addr(1) != 0,
        a.uint(2),
        Some(Deadline::of_words([a.addr(3), a.addr(5)])),
        a.uint(4),
    )
}

/// `FUTEX_32`: a word of 32 bits, the only supported size.
const SIZE_32: u32 = 2;

/// `futex_waitv(2)`.
pub fn futex_waitv(a: &Args) -> SysResult {
    let count = a.uint(1) as usize;
    if a.uint(2) != 0 || count == 0 || count > futex::MOST_WORDS || a.addr(0) == 0 {
        return Err(Errno::EINVAL);
    }
    let deadline = match a.addr(3) {
        0 => None,
        time => {
            let clock = match a.uint(4) {
                linux_raw_sys::general::CLOCK_REALTIME => Clock::Realtime,
                linux_raw_sys::general::CLOCK_MONOTONIC => Clock::Monotonic,
                _ => return Err(Errno::EINVAL),
            };
            Some(clock.deadline(Timespec::read(time)?)?)
        }
    };
    let mut words = Vec::new();
    words.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    for n in 0..count {
        let address = a.addr(0).wrapping_add((n * size_of::<FutexWaitV>()) as u64);
        let word = UserPtr::<FutexWaitV>::new(address).read()?;
        let unknown = word.flags & !(SIZE_32 | PRIVATE) != 0;
        if unknown || word.reserved != 0 || word.flags & SIZE_32 == 0 {
            return Err(Errno::EINVAL);
        }
        #[expect(clippy::cast_possible_truncation, reason = "as Linux compares them")]
        let expected = word.value as u32;
        words.push(futex::Word {
            address: word.address,
            shared: word.flags & PRIVATE == 0,
            expected,
        });
    }
    Deadline::hold(deadline, |deadline| futex::wait_for_any(&words, deadline))
}

/// `set_robust_list(2)`.
pub fn set_robust_list(a: &Args) -> SysResult {
    if a.size(1) != ROBUST_HEAD_BYTES {
        return Err(Errno::EINVAL);
    }
    process::current()
        .marks()
        .robust_list
        .store(a.addr(0), Ordering::Relaxed);
    Ok(0)
}

/// `get_robust_list(2)`.
pub fn get_robust_list(a: &Args) -> SysResult {
    let head = match a.int(0) {
        0 => process::current()
            .marks()
            .robust_list
            .load(Ordering::Relaxed),
        tid => {
            let tid = u32::try_from(tid).map_err(|_| Errno::ESRCH)?;
            let task = task::find_task(tid).ok_or(Errno::ESRCH)?;
            process::caller::look_into(task.process(), LooksAs::Real)?;
            task.marks().robust_list.load(Ordering::Relaxed)
        }
    };
    UserPtr::<u64>::new(a.addr(2)).write(&(ROBUST_HEAD_BYTES as u64))?;
    UserPtr::<u64>::new(a.addr(1)).write(&head)?;
    Ok(0)
}
