//! Scheduling.

use super::Args;
use crate::process;
use crate::process::task::{self, Process, Task, limits, table};
use crate::process::time::values::Timespec;
use crate::vm::uaccess::{self, UserPtr};
use alloc::sync::Arc;
use core::ops::RangeInclusive;
use linux_raw_sys::general as raw;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::sched::policy;
use machine::arch::{self, cpu_id};
use machine::sched::{self, work};

/// `sched_yield(2)`.
pub fn sched_yield(_a: &Args) -> SysResult {
    sched::yield_now();
    Ok(0)
}

/// The thread with this number; 0 is the current one.
pub(super) fn task_or_current(tid: i32) -> Result<Arc<Task>, Errno> {
    match tid {
        0 => Ok(process::current().to_arc()),
        tid => {
            let tid = u32::try_from(tid).map_err(|_| Errno::EINVAL)?;
            task::find_task(tid).ok_or(Errno::ESRCH)
        }
    }
}

/// The same for calls on masks of CPUs, to which a negative number is nobody's.
fn task_of_mask(tid: i32) -> Result<Arc<Task>, Errno> {
    if tid < 0 {
        return Err(Errno::ESRCH);
    }
    task_or_current(tid)
}

/// `sched_setaffinity(2)`.
pub fn sched_setaffinity(a: &Args) -> SysResult {
    let mut bytes = [0; 8];
    let len = a.size(1).min(bytes.len());
    uaccess::copy_in(&mut bytes[..len], a.addr(2))?;
    let task = task_of_mask(a.int(0))?;
    let mask = u64::from_ne_bytes(bytes) & arch::online_cpus().mask();
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    if task.is_kernel() {
        return Err(Errno::EPERM);
    }
    may_schedule(&task)?;
    task.affinity().set_mask(mask);
    if process::current().is(&task) {
        sched::migrate_current();
    } else {
        // It moves when it is next picked; one that runs elsewhere now is made to give way.
        sched::notify(&task, work::RESCHED);
    }
    Ok(0)
}

/// `sched_getaffinity(2)`.
pub fn sched_getaffinity(a: &Args) -> SysResult {
    let size = a.size(1);
    if size < size_of::<u64>() || !size.is_multiple_of(size_of::<u64>()) {
        return Err(Errno::EINVAL);
    }
    let mask = task_of_mask(a.int(0))?.affinity().mask() & arch::online_cpus().mask();
    uaccess::copy_out(a.addr(2), &mask.to_ne_bytes())?;
    Ok(size_of::<u64>())
}

/// Policies of tasks that share a CPU by weight, and those that would have it before all others.
pub(super) mod policies {
    pub(in super::super) const OTHER: u32 = 0;
    pub(in super::super) const FIFO: u32 = 1;
    pub(in super::super) const RR: u32 = 2;
    pub(in super::super) const BATCH: u32 = 3;
    pub(in super::super) const IDLE: u32 = 5;
    pub(in super::super) const DEADLINE: u32 = 6;
}

/// The priorities that tasks of a policy may have.
pub(super) fn priorities(policy: u32) -> Result<RangeInclusive<i32>, Errno> {
    match policy {
        policies::FIFO | policies::RR => Ok(1..=99),
        policies::OTHER | policies::BATCH | policies::IDLE | policies::DEADLINE => Ok(0..=0),
        _ => Err(Errno::EINVAL),
    }
}

/// The task that a call on policies means, which takes no negative number and no null pointer.
fn subject(a: &Args, place: u64) -> Result<Arc<Task>, Errno> {
    if place == 0 || a.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    task_or_current(a.int(0))
}

/// `sched_getscheduler(2)`.
pub fn sched_getscheduler(a: &Args) -> SysResult {
    let task = task_or_current(a.int(0))?;
    let reset = if task.resets_policy() {
        RESET_ON_FORK
    } else {
        0
    };
    Ok((task.policy() | reset) as usize)
}

/// The child of a task that has set this begins with the usual policy and no negative nice value.
const RESET_ON_FORK: u32 = 0x4000_0000;

/// `sched_setscheduler(2)`: nobody may have a CPU before all others for as long as it likes.
pub fn sched_setscheduler(a: &Args) -> SysResult {
    if a.int(1) < 0 {
        return Err(Errno::EINVAL);
    }
    let place = a.addr(2);
    let task = subject(a, place)?;
    let priority = UserPtr::<i32>::new(place).read()?;
    let policy = a.uint(1) & !RESET_ON_FORK;
    if policy == policies::DEADLINE || !priorities(policy)?.contains(&priority) {
        return Err(Errno::EINVAL);
    }
    if matches!(policy, policies::FIFO | policies::RR) {
        return Err(Errno::EPERM);
    }
    let reset = a.uint(1) & RESET_ON_FORK != 0;
    may_take_policy(&task, policy, reset)?;
    task.set_policy(policy, reset);
    Ok(0)
}

/// Whether the calling task may say how another is scheduled.
///
/// # Errors
/// `EPERM`.
pub(super) fn may_schedule(task: &Task) -> Result<(), Errno> {
    let own = process::current();
    if own.is(task)
        || own
            .credentials()
            .may_schedule(&task.credentials_for_others())
    {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Whether the calling task may have another run at this nice value.
pub(super) fn may_be_nice(task: &Task, nice: i32) -> bool {
    let asked = u64::try_from(20 - nice).unwrap_or(0);
    asked <= task.process().limit(limits::index::NICE)
        || process::current().credentials().can(Capabilities::SYS_NICE)
}

/// Whether the calling task may give a task that policy.
///
/// # Errors
/// `EPERM`: the task is another's, leaves `SCHED_IDLE`, or would have its children keep its policy.
pub(super) fn may_take_policy(task: &Task, policy: u32, reset: bool) -> Result<(), Errno> {
    if process::current().credentials().can(Capabilities::SYS_NICE) {
        return Ok(());
    }
    may_schedule(task)?;
    let wakes = task.policy() == policies::IDLE && policy != policies::IDLE;
    if wakes && !may_be_nice(task, task.nice()) || task.resets_policy() && !reset {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// `sched_getparam(2)`: no task has a priority.
pub fn sched_getparam(a: &Args) -> SysResult {
    subject(a, a.addr(1))?;
    UserPtr::<i32>::new(a.addr(1)).write(&0)?;
    Ok(0)
}

/// `sched_setparam(2)`: what all tasks have is accepted.
pub fn sched_setparam(a: &Args) -> SysResult {
    subject(a, a.addr(1))?;
    match UserPtr::<i32>::new(a.addr(1)).read()? {
        0 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_get_priority_max(2)`.
pub fn sched_get_priority_max(a: &Args) -> SysResult {
    let highest = *priorities(a.uint(0))?.end();
    usize::try_from(highest).map_err(|_| Errno::EINVAL)
}

/// `sched_get_priority_min(2)`.
pub fn sched_get_priority_min(a: &Args) -> SysResult {
    let lowest = *priorities(a.uint(0))?.start();
    usize::try_from(lowest).map_err(|_| Errno::EINVAL)
}

/// `sched_rr_get_interval(2)`.
pub fn sched_rr_get_interval(a: &Args) -> SysResult {
    task_or_current(a.int(0))?;
    let slice = i64::try_from(policy::SLICE_NS).unwrap_or(0);
    Timespec {
        sec: 0,
        nsec: slice,
    }
    .write(a.addr(1))?;
    Ok(0)
}

/// Whose threads a call on priorities means.
pub(super) enum Subjects {
    Thread(Arc<Task>),
    Group(u32),
    User(u32),
}

impl Subjects {
    /// From `which` and `who` of `getpriority(2)`.
    pub(super) fn of(which: i32, who: i32) -> Result<Self, Errno> {
        let own = process::current().process().clone();
        let who_or = |own: u32| match who {
            0 => Ok(own),
            who => u32::try_from(who).map_err(|_| Errno::ESRCH),
        };
        Ok(match which {
            0 => Self::Thread(task_or_current(who).map_err(|_| Errno::ESRCH)?),
            1 => Self::Group(who_or(own.pgid())?),
            2 => Self::User(who_or(own.credentials().users.real)?),
            _ => return Err(Errno::EINVAL),
        })
    }

    fn has(&self, process: &Process) -> bool {
        match self {
            Self::Thread(_) => false,
            Self::Group(group) => process.pgid() == *group,
            Self::User(uid) => process.credentials().users.real == *uid,
        }
    }
}

/// Calls `each` for the threads that are meant.
///
/// # Errors
/// `ESRCH`: there is none; `ENOMEM`.
pub(super) fn for_each_meant(
    subjects: &Subjects,
    mut each: impl FnMut(&Task),
) -> Result<(), Errno> {
    if let Subjects::Thread(task) = subjects {
        each(task);
        return Ok(());
    }
    let found = table::lock().collect(|process| process.pid() > 1 && subjects.has(process))?;
    if found.is_empty() {
        return Err(Errno::ESRCH);
    }
    for process in found {
        for task in &process.group.lock().tasks {
            each(task);
        }
    }
    Ok(())
}

/// `getpriority(2)`: 20 less the nice value, so that no result is negative.
pub fn getpriority(a: &Args) -> SysResult {
    let mut least = 20;
    for_each_meant(&Subjects::of(a.int(0), a.int(1))?, |task| {
        least = least.min(task.nice());
    })?;
    usize::try_from(20 - least).map_err(|_| Errno::EINVAL)
}

/// `setpriority(2)`.
pub fn setpriority(a: &Args) -> SysResult {
    let nice = a.int(2).clamp(-20, 19);
    let mut result = Ok(0);
    for_each_meant(&Subjects::of(a.int(0), a.int(1))?, |task| {
        if may_schedule(task).is_err() {
            result = Err(Errno::EPERM);
        } else if nice < task.nice() && !may_be_nice(task, nice) {
            result = Err(Errno::EACCES);
        } else {
            task.set_nice(nice);
        }
    })?;
    result
}

/// `getcpu(2)`.
pub fn getcpu(a: &Args) -> SysResult {
    let cpu = u32::try_from(cpu_id()).unwrap_or(0);
    if a.addr(0) != 0 {
        UserPtr::<u32>::new(a.addr(0)).write(&cpu)?;
    }
    if a.addr(1) != 0 {
        UserPtr::<u32>::new(a.addr(1)).write(&0)?;
    }
    Ok(0)
}

/// `rseq(2)`.
pub fn rseq(a: &Args) -> SysResult {
    let current = process::current();
    process::rseq::register(current, a.addr(0), a.uint(1) as usize, a.uint(2), a.uint(3))
}

/// What `linux_raw_sys` calls the priority of a process; the numbers above are its.
const _: () = assert!(raw::PRIO_PROCESS == 0 && raw::PRIO_PGRP == 1 && raw::PRIO_USER == 2);
