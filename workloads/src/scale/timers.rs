//! Part `timers`: timers that are set.

use super::call::{checked, raise_limit};
use super::{Figures, Part, time};
use crate::Failure;

/// The part `timers` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "timers",
    counts: "timers",
    usual: [100, 1_000],
    most: 60_000,
    run,
};

/// A timer of this process that sends no notification when it expires.
struct Timer(libc::timer_t);

impl Timer {
    fn new() -> Result<Self, Failure> {
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_NONE;
        let mut timer = std::ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let answer =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        checked("timer_create", answer.into())?;
        Ok(Self(timer))
    }

    /// Sets the timer to expire in `seconds` seconds.
    fn set(&self, seconds: i64) -> Result<(), Failure> {
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = libc::itimerspec {
            it_interval: none,
            it_value: libc::timespec {
                tv_sec: seconds,
                tv_nsec: 0,
            },
        };
        // SAFETY: this value owns the timer, and `value` is a structure that the call only reads.
        let answer =
            unsafe { libc::timer_settime(self.0, 0, &raw const value, std::ptr::null_mut()) };
        checked("timer_settime", answer.into())?;
        Ok(())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: this value owns the timer.
        unsafe { libc::timer_delete(self.0) };
    }
}

fn run(number: u64) -> Result<Figures, Failure> {
    raise_limit(libc::RLIMIT_SIGPENDING, number + 1_000)?;
    let mut timers = Vec::new();
    for index in 0..number {
        let timer = Timer::new()?;
        // In the far future, each at a different time, in no order.
        timer.set(i64::try_from(10_000 + index * 7_919 % number).expect("it is small"))?;
        timers.push(timer);
    }
    let set = time(|index| timers[index * 31 % timers.len()].set(20_000))?;
    let make = time(|_| Timer::new().map(drop))?;
    Ok(vec![
        ("timer_settime_ns", set),
        ("timer_create_delete_ns", make),
    ])
}
