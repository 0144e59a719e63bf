//! Scheduling policies and real-time priorities.

use super::Args;
use super::sched::{may_schedule, niceness, scheduled_or_current};
use crate::process::caller;
use crate::process::task::{Scheduled, Scheduling, limits};
use crate::process::time::values::Timespec;
use core::ops::RangeInclusive;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::sched::{policy, realtime as arithmetic};
use machine::sched::realtime;
use machine::uaccess::UserPtr;

/// The scheduling policies, with Linux's numbers.
pub(super) mod policies {
    /// `SCHED_OTHER`, the policy of usual threads.
    pub(in super::super) const OTHER: u32 = 0;
    /// `SCHED_FIFO`, real-time without time slices.
    pub(in super::super) const FIFO: u32 = 1;
    /// `SCHED_RR`, real-time with time slices.
    pub(in super::super) const RR: u32 = 2;
    /// `SCHED_BATCH`, for threads that compute.
    pub(in super::super) const BATCH: u32 = 3;
    /// `SCHED_IDLE`, for threads of least importance.
    pub(in super::super) const IDLE: u32 = 5;
    /// `SCHED_DEADLINE`, which no thread may have.
    pub(in super::super) const DEADLINE: u32 = 6;
}

/// Returns the range of priorities that threads of `policy` may have.
///
/// # Errors
/// Fails with `EINVAL` if there is no such policy.
pub(super) fn priorities(policy: u32) -> Result<RangeInclusive<u32>, Errno> {
    match policy {
        policies::FIFO | policies::RR => Ok(1..=arithmetic::HIGHEST),
        policies::OTHER | policies::BATCH | policies::IDLE | policies::DEADLINE => Ok(0..=0),
        _ => Err(Errno::EINVAL),
    }
}

/// The scheduling that a call requests for a thread.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wanted {
    pub(super) policy: u32,
    pub(super) priority: u32,
    pub(super) nice: i32,
    pub(super) resets_on_fork: bool,
}

impl Wanted {
    /// Returns the policy, priority and nice value of `has`.
    pub(super) fn of(has: &Scheduling) -> Self {
        Self {
            policy: has.policy,
            priority: has.priority,
            nice: has.nice,
            resets_on_fork: has.resets_on_fork,
        }
    }

    /// Checks that the caller may give this scheduling to `to`, which has `has` now, by the
    /// caller's rights and the limits of the process of `to`.
    ///
    /// # Errors
    /// Fails with `EPERM`.
    pub(super) fn check(&self, has: &Scheduling, to: &Scheduled) -> Result<(), Errno> {
        let limit = |index| to.process().limit(index);
        let may_be_nice = |nice: i32| niceness(nice) <= limit(limits::index::NICE);
        let granted = match self.policy {
            policies::FIFO | policies::RR => {
                let most = limit(limits::index::RTPRIO);
                let priority = u64::from(self.priority);
                (self.policy == has.policy || most != 0)
                    && (self.priority <= has.priority || priority <= most)
            }
            policies::DEADLINE => false,
            _ => self.nice >= has.nice || may_be_nice(self.nice),
        };
        let wakes = has.policy == policies::IDLE && self.policy != policies::IDLE;
        let granted = granted
            && (!wakes || may_be_nice(has.nice))
            && (!has.resets_on_fork || self.resets_on_fork);
        if !granted && !caller::can(Capabilities::SYS_NICE) {
            return Err(Errno::EPERM);
        }
        may_schedule(to)
    }

    /// Stores this scheduling in `scheduling`. A real-time thread keeps its nice value.
    pub(super) fn put(&self, scheduling: &mut Scheduling) {
        scheduling.policy = self.policy;
        scheduling.priority = self.priority;
        scheduling.resets_on_fork = self.resets_on_fork;
        // A real-time thread keeps its nice value.
        if !scheduling.is_realtime() {
            scheduling.nice = self.nice;
        }
    }
}

/// Returns the thread in argument 0 of a call on policies. Fails with `EINVAL` if the number is
/// negative or `place` is a null pointer, and with `ESRCH`.
fn subject(a: &Args, place: u64) -> Result<Scheduled, Errno> {
    if place == 0 || a.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    scheduled_or_current(a.int(0))
}

/// `SCHED_RESET_ON_FORK`: a child of the thread starts with the usual policy, and with no negative
/// nice value.
const RESET_ON_FORK: u32 = 0x4000_0000;

/// `sched_getscheduler(2)`.
pub fn sched_getscheduler(a: &Args) -> SysResult {
    let has = scheduled_or_current(a.int(0))?.get();
    let reset = if has.resets_on_fork { RESET_ON_FORK } else { 0 };
    Ok((has.policy | reset) as usize)
}

/// Changes the policy and priority of the thread `to`. `wanted` gets the present ones and returns
/// the new ones. Returns 0. Fails with `EINVAL` for a policy or priority that does not exist, and
/// with `EPERM` if the caller may not make the change.
fn set(to: &Scheduled, wanted: impl FnOnce(Wanted) -> Wanted) -> SysResult {
    to.change(|scheduling| {
        let wanted = wanted(Wanted::of(scheduling));
        let possible = priorities(wanted.policy)?;
        if wanted.policy == policies::DEADLINE || !possible.contains(&wanted.priority) {
            return Err(Errno::EINVAL);
        }
        wanted.check(scheduling, to)?;
        wanted.put(scheduling);
        Ok(())
    })?;
    Ok(0)
}

/// `sched_setscheduler(2)`.
pub fn sched_setscheduler(a: &Args) -> SysResult {
    if a.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    let place = a.addr(2);
    if place == 0 || a.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = UserPtr::<u32>::new(place).read()?;
    let to = subject(a, place)?;
    set(&to, |has| Wanted {
        policy: a.uint(1) & !RESET_ON_FORK,
        priority,
        resets_on_fork: a.uint(1) & RESET_ON_FORK != 0,
        ..has
    })
}

/// `sched_setparam(2)`.
pub fn sched_setparam(a: &Args) -> SysResult {
    let place = a.addr(1);
    if place == 0 || a.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = UserPtr::<u32>::new(place).read()?;
    let to = subject(a, place)?;
    set(&to, |has| Wanted { priority, ..has })
}

/// `sched_getparam(2)`.
pub fn sched_getparam(a: &Args) -> SysResult {
    let has = subject(a, a.addr(1))?.get();
    UserPtr::<u32>::new(a.addr(1)).write(&has.priority)?;
    Ok(0)
}

/// `sched_get_priority_max(2)`.
pub fn sched_get_priority_max(a: &Args) -> SysResult {
    Ok(*priorities(a.uint(0))?.end() as usize)
}

/// `sched_get_priority_min(2)`.
pub fn sched_get_priority_min(a: &Args) -> SysResult {
    Ok(*priorities(a.uint(0))?.start() as usize)
}

/// `sched_rr_get_interval(2)`. Writes 0 for a `SCHED_FIFO` thread, which has no time slice.
pub fn sched_rr_get_interval(a: &Args) -> SysResult {
    if a.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let nanos = match scheduled_or_current(a.int(0))?.get().policy {
        policies::FIFO => 0,
        policies::RR => realtime::rr_slice_ns(),
        _ => policy::SLICE_NS,
    };
    const SECOND: u64 = 1_000_000_000;
    Timespec {
        sec: i64::try_from(nanos / SECOND).unwrap_or(i64::MAX),
        nsec: i64::try_from(nanos % SECOND).unwrap_or(0),
    }
    .write(a.addr(1))?;
    Ok(0)
}
