//! Scheduling.

use super::Args;
use crate::process::task::{Process, Scheduled, limits, table};
use crate::process::{self, caller};
use linux_raw_sys::general as raw;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::arch::{self, cpu_id};
use machine::sched::{self, work};
use machine::uaccess::{self, UserPtr};

/// `sched_yield(2)`.
pub fn sched_yield(_a: &Args) -> SysResult {
    sched::yield_to_equals();
    Ok(0)
}

/// Returns the thread with the number `tid`, or the current thread if `tid` is 0. A main thread
/// that has ended is found until its process is reaped.
///
/// # Errors
/// Fails with `EINVAL` if `tid` is negative, and with `ESRCH` if there is no such thread.
pub(super) fn scheduled_or_current(tid: i32) -> Result<Scheduled, Errno> {
    match tid {
        0 => Ok(Scheduled::Live(process::current().to_arc())),
        tid => {
            let tid = u32::try_from(tid).map_err(|_| Errno::EINVAL)?;
            Scheduled::find(tid).ok_or(Errno::ESRCH)
        }
    }
}

/// Returns the thread with the number `tid` for calls on masks of CPUs: as
/// [`scheduled_or_current`], but fails with `ESRCH` for a negative number.
fn scheduled_of_mask(tid: i32) -> Result<Scheduled, Errno> {
    if tid < 0 {
        return Err(Errno::ESRCH);
    }
    scheduled_or_current(tid)
}

/// `sched_setaffinity(2)`.
pub fn sched_setaffinity(a: &Args) -> SysResult {
    let mut bytes = [0; 8];
    let len = a.size(1).min(bytes.len());
    uaccess::copy_in(&mut bytes[..len], a.addr(2))?;
    let to = scheduled_of_mask(a.int(0))?;
    let kernel = to.task().is_some_and(|task| task.is_kernel());
    if kernel {
        return Err(Errno::EPERM);
    }
    let mask = u64::from_ne_bytes(bytes) & arch::online_cpus().mask();
    to.change(|scheduling| {
        may_schedule(&to)?;
        if mask == 0 {
            return Err(Errno::EINVAL);
        }
        scheduling.cpus = mask;
        Ok(())
    })?;
    if let Some(task) = to.task() {
        if process::current().is(task) {
            sched::migrate_current();
        } else {
            // The thread moves when it is next picked. If it runs now, it is preempted.
            sched::notify(task, work::RESCHED);
        }
    }
    Ok(0)
}

/// `sched_getaffinity(2)`.
pub fn sched_getaffinity(a: &Args) -> SysResult {
    let size = a.size(1);
    if size < size_of::<u64>() || !size.is_multiple_of(size_of::<u64>()) {
        return Err(Errno::EINVAL);
    }
    let mask = scheduled_of_mask(a.int(0))?.get().cpus & arch::online_cpus().mask();
    uaccess::copy_out(a.addr(2), &mask.to_ne_bytes())?;
    Ok(size_of::<u64>())
}

/// Checks that the calling thread may set the scheduling of `to`.
///
/// # Errors
/// Fails with `EPERM` if `to` belongs to another user, or has capabilities that the caller lacks.
pub(super) fn may_schedule(to: &Scheduled) -> Result<(), Errno> {
    if caller::with_credentials(|own| own.may_schedule(&to.credentials())) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// The threads to which `which` and `who` of `getpriority(2)` and related calls refer.
pub(super) enum Subjects {
    Thread(Scheduled),
    Group(u32),
    User(u32),
}

impl Subjects {
    /// Returns the threads that `which` (`PRIO_PROCESS`, `PRIO_PGRP` or `PRIO_USER`) and `who`
    /// select. `who` 0 is the current thread, its process group, or its real user.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `which` is unknown. Fails with `ESRCH` if there is no thread `who`,
    /// or if the number of a group or user is negative.
    pub(super) fn of(which: i32, who: i32) -> Result<Self, Errno> {
        let own = process::current().process().clone();
        let who_or = |own: u32| match who {
            0 => Ok(own),
            who => u32::try_from(who).map_err(|_| Errno::ESRCH),
        };
        Ok(match which {
            0 => Self::Thread(scheduled_or_current(who).map_err(|_| Errno::ESRCH)?),
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

/// Calls `each` for every thread of `subjects`. A main thread that has ended counts until its
/// process is reaped. The order approximates Linux's by process numbers: the processes of a user in
/// ascending order, those of a group in descending order.
///
/// # Errors
/// Fails with `ESRCH` if `subjects` is a group or user without processes, and with `ENOMEM`.
pub(super) fn for_each_of(
    subjects: &Subjects,
    mut each: impl FnMut(&Scheduled),
) -> Result<(), Errno> {
    if let Subjects::Thread(thread) = subjects {
        each(thread);
        return Ok(());
    }
    let mut found = table::lock().collect(|process| subjects.has(process))?;
    if matches!(subjects, Subjects::Group(_)) {
        found.reverse();
    }
    if found.is_empty() {
        return Err(Errno::ESRCH);
    }
    for process in found {
        let mut main = false;
        for task in &process.group.lock().tasks {
            main |= task.tid() == process.pid();
            each(&Scheduled::Live(task.clone()));
        }
        if !main {
            each(&Scheduled::Ended(process));
        }
    }
    Ok(())
}

/// Returns the least value of `RLIMIT_NICE` with which a thread may lower its nice value to `nice`:
/// 20 minus `nice`.
pub(super) fn niceness(nice: i32) -> u64 {
    u64::try_from(20 - nice).unwrap_or(0)
}

/// `getpriority(2)`. Returns 20 minus the lowest nice value of the threads, so that no result is
/// negative.
pub fn getpriority(a: &Args) -> SysResult {
    let mut least = 20;
    for_each_of(&Subjects::of(a.int(0), a.int(1))?, |thread| {
        least = least.min(thread.get().nice);
    })?;
    usize::try_from(20 - least).map_err(|_| Errno::EINVAL)
}

/// `setpriority(2)`.
pub fn setpriority(a: &Args) -> SysResult {
    let nice = a.int(2).clamp(-20, 19);
    let credentials = process::current().credentials();
    let mut result = Ok(0);
    for_each_of(&Subjects::of(a.int(0), a.int(1))?, |thread| {
        let changed = thread.change(|scheduling| {
            let within = niceness(nice) <= thread.process().limit(limits::index::NICE);
            if !credentials.is_owner_of(&thread.credentials()) {
                return Err(Errno::EPERM);
            }
            if nice < scheduling.nice && !within && !credentials.can(Capabilities::SYS_NICE) {
                return Err(Errno::EACCES);
            }
            may_schedule(thread)?;
            scheduling.nice = nice;
            Ok(())
        });
        if let Err(error) = changed {
            result = Err(error);
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

// The numbers of `which` in `Subjects::of`.
const _: () = assert!(raw::PRIO_PROCESS == 0 && raw::PRIO_PGRP == 1 && raw::PRIO_USER == 2);
