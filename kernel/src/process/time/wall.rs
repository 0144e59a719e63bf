//! The setting of the guest's wall clock, and the adjustment of waits and timers to it.

use super::steering;
use super::values::Timeval;
use crate::fs::timerfd;
use crate::process::task::{Process, table, vdso};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sched::wall;
use machine::sync::SpinLock;

/// Held by a task that sets the clock.
static SETTING: SpinLock<()> = SpinLock::new(());

/// The last second to which the clock can be set. As on Linux it is 30 years before the end of
/// signed 64-bit nanoseconds.
const LAST_SECOND: u64 = i64::MAX as u64 / 1_000_000_000 - 30 * 365 * 24 * 3600;

/// The number of threads that are checked under one hold of their process's lock.
const TASKS_AT_ONCE: usize = 32;

/// The time at which a wait ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The wait ends at this time on the monotonic clock.
    Monotonic(Nanos),
    /// The wait ends at this time on the wall clock, which may be set during the wait.
    Wall(Nanos),
}

impl Deadline {
    /// Calls `wait` with `deadline` as a time on the monotonic clock, or with `None` if there is no
    /// deadline. Calls `wait` again if it times out early because the wall clock was set. Returns
    /// the result of `wait`.
    ///
    /// # Errors
    /// Fails with the errors of `wait`. `ETIMEDOUT` means that the deadline has passed.
    pub fn hold<R>(
        deadline: Option<Self>,
        mut wait: impl FnMut(Option<Nanos>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match deadline {
            None => wait(None),
            Some(Self::Monotonic(at)) => wait(Some(at)),
            Some(Self::Wall(at)) => wall::wait_until(at, |at| wait(Some(at))),
        }
    }

    /// Returns the deadline as two words, for a system call that continues after a signal.
    /// [`Self::of_words`] is the inverse.
    pub fn words(self) -> [u64; 2] {
        match self {
            Self::Monotonic(at) => [at.0, 0],
            Self::Wall(at) => [at.0, 1],
        }
    }

    /// Returns the deadline that [`Self::words`] has encoded as two words.
    pub fn of_words([at, wall]: [u64; 2]) -> Self {
        match wall {
            0 => Self::Monotonic(Nanos(at)),
            _ => Self::Wall(Nanos(at)),
        }
    }
}

/// Returns the time on the wall clock.
pub fn now() -> Nanos {
    clock::wall_now()
}

/// Sets the wall clock to `time`.
///
/// # Errors
/// Fails with `EINVAL` for a time later than Linux accepts, or earlier than 1970 plus the time
/// since the guest's start.
pub fn set(time: Nanos) -> Result<(), Errno> {
    change(|_| Ok(time), steering::forget)?;
    steering::resume();
    Ok(())
}

/// Moves the wall clock forward by `by` nanoseconds, or back if `by` is negative.
///
/// # Errors
/// Fails with the errors of [`set`].
pub fn step(by: i128) -> Result<(), Errno> {
    change(|now| moved(now, by), steering::forget)?;
    steering::resume();
    Ok(())
}

/// Returns the time `by` nanoseconds after `time`.
///
/// # Errors
/// Fails with `EINVAL` for a time that does not fit 64 bits.
pub(super) fn moved(time: Nanos, by: i128) -> Result<Nanos, Errno> {
    let time = i128::from(time.0) + by;
    u64::try_from(time).map(Nanos).map_err(|_| Errno::EINVAL)
}

/// Sets the wall clock to the result of `new` for its present time. Then calls `done` with the new
/// time. Both functions are called under one hold of the clock's lock.
///
/// # Errors
/// Fails with the errors of `new` and of [`set`].
pub(super) fn change(
    new: impl FnOnce(Nanos) -> Result<Nanos, Errno>,
    done: impl FnOnce(Nanos),
) -> Result<(), Errno> {
    {
        let _setting = SETTING.lock();
        let running = clock::now();
        let time = new(running.saturating_add(clock::realtime_offset()))?;
        if time < running || time.0 / 1_000_000_000 >= LAST_SECOND {
            return Err(Errno::EINVAL);
        }
        clock::set_realtime_offset(time.saturating_sub(running));
        done(time);
        vdso::follow_clock();
        wall::was_set();
    }
    timerfd::clock_was_stepped();
    tell();
    Ok(())
}

/// Makes the wall clock gain a number of nanoseconds in each 2^32 of the monotonic clock, which
/// `rate` returns. Returns whether the rate has changed.
pub(super) fn run_at(rate: impl FnOnce() -> i64) -> bool {
    {
        let _setting = SETTING.lock();
        // `rate` is called with the lock held, so that the last of several callers sets the final
        // value.
        let rate = rate();
        if rate == clock::wall_rate() {
            return false;
        }
        vdso::ask_for_clock();
        clock::set_wall_rate(rate);
        vdso::follow_clock();
        wall::was_set();
    }
    tell();
    true
}

/// Wakes tasks that wait for a time on the wall clock, and adjusts timers that are set by it.
/// Yields the CPU now and then: other tasks already see the new time.
fn tell() {
    timerfd::clock_was_set();
    let mut next = 0;
    // Ends: each turn has a higher number, and numbers are bounded.
    while let Some(process) = table::next_process(next) {
        next = process.pid() + 1;
        process.timers.posix.clock_was_set();
        wake_waiting(&process);
        sched::give_way();
    }
}

/// Wakes the threads of a process that wait for a time on the wall clock.
fn wake_waiting(process: &Process) {
    let mut left = process.group.lock().tasks.len();
    // Downwards: if a thread ends, the last one takes its place, so no thread is missed. A new
    // thread already sees the new time.
    while left > 0 {
        let from = left.saturating_sub(TASKS_AT_ONCE);
        {
            let group = process.group.lock();
            let tasks = group.tasks.iter().take(left).skip(from);
            tasks
                .filter(|task| wall::waits(task))
                .for_each(|task| sched::wake(task));
        }
        left = from;
        sched::give_way();
    }
}

/// Minutes west of Greenwich, and the kind of daylight saving time; set by `settimeofday`.
static ZONE: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
/// Whether the zone has been set.
static HAS_ZONE: AtomicBool = AtomicBool::new(false);
/// The largest distance of a zone from Greenwich, in minutes.
const MOST_WEST: i32 = 15 * 60;

/// Returns the time zone that was set last: the minutes west of Greenwich, and the kind of daylight
/// saving time. Both are 0 at first.
pub fn zone() -> [i32; 2] {
    // Relaxed: no other data depends on the values.
    ZONE.each_ref().map(|part| part.load(Ordering::Relaxed))
}

/// Sets the wall clock to `time`, the time zone to `zone`, or both (`settimeofday(2)`). `zone` has
/// the minutes west of Greenwich and the kind of daylight saving time. The caller has checked the
/// permission. As on Linux, a first zone without a time means that the clock shows local time. The
/// clock is then corrected to UTC. Returns 0.
///
/// # Errors
/// Fails with `EINVAL` for an invalid time or zone.
pub fn set_with_zone(time: Option<Timeval>, zone: Option<[i32; 2]>) -> SysResult {
    if let Some([west, saving]) = zone {
        if !(-MOST_WEST..=MOST_WEST).contains(&west) {
            return Err(Errno::EINVAL);
        }
        ZONE[0].store(west, Ordering::Relaxed);
        ZONE[1].store(saving, Ordering::Relaxed);
        let first = !HAS_ZONE.swap(true, Ordering::Relaxed);
        if first && time.is_none() && west != 0 {
            step(i128::from(west) * 60 * 1_000_000_000)?;
        }
    }
    if let Some(time) = time {
        set(time.to_nanos()?)?;
    }
    Ok(0)
}
