//! Scheduling.

use super::Args;
use super::process::process_or_current;
use crate::process;
use crate::process::task::{self, Task, table};
use crate::process::time::values::Timespec;
use crate::vm::uaccess::{self, UserPtr};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use logic::errno::{Errno, SysResult};
use logic::sched::policy;
use machine::arch::ipi::{self, FlushRequest};
use machine::arch::{self, CpuSet, cpu_id};
use machine::sched::{self, work};

/// `sched_yield(2)`.
pub fn sched_yield(_a: &Args) -> SysResult {
    sched::yield_now();
    Ok(0)
}

/// The thread with this number; 0 is the current one.
fn task_or_current(tid: i32) -> Result<Arc<Task>, Errno> {
    match tid {
        0 => Ok(process::current().to_arc()),
        tid => {
            let tid = u32::try_from(tid).map_err(|_| Errno::EINVAL)?;
            task::find_task(tid).ok_or(Errno::ESRCH)
        }
    }
}

/// `sched_setaffinity(2)`.
pub fn sched_setaffinity(a: &Args) -> SysResult {
    let mut bytes = [0; 8];
    let len = a.size(1).min(bytes.len());
    uaccess::copy_in(&mut bytes[..len], a.addr(2))?;
    let task = task_or_current(a.int(0))?;
    let mask = u64::from_ne_bytes(bytes) & arch::online_cpus().mask();
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    if task.is_kernel() {
        return Err(Errno::EPERM);
    }
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
    let mask = task_or_current(a.int(0))?.affinity().mask() & arch::online_cpus().mask();
    uaccess::copy_out(a.addr(2), &mask.to_ne_bytes())?;
    Ok(size_of::<u64>())
}

/// Whether Linux has such a policy; all are run alike here.
fn is_policy(policy: u32) -> bool {
    matches!(policy, 0 | 1 | 2 | 3 | 5)
}

fn is_realtime(policy: u32) -> bool {
    matches!(policy, 1 | 2)
}

/// `sched_getscheduler(2)`.
pub fn sched_getscheduler(a: &Args) -> SysResult {
    Ok(task_or_current(a.int(0))?.policy() as usize)
}

/// `sched_setscheduler(2)`: the policy is kept and reported, and makes no difference.
pub fn sched_setscheduler(a: &Args) -> SysResult {
    const RESET_ON_FORK: u32 = 0x4000_0000;
    let policy = a.uint(1) & !RESET_ON_FORK;
    let priority = UserPtr::<i32>::new(a.addr(2)).read()?;
    let task = task_or_current(a.int(0))?;
    let highest = if is_realtime(policy) { 1..=99 } else { 0..=0 };
    if !is_policy(policy) || !highest.contains(&priority) {
        return Err(Errno::EINVAL);
    }
    task.set_policy(policy);
    Ok(0)
}

/// `sched_getparam(2)`.
pub fn sched_getparam(a: &Args) -> SysResult {
    let task = task_or_current(a.int(0))?;
    let realtime = is_realtime(task.policy());
    UserPtr::<i32>::new(a.addr(1)).write(&i32::from(realtime))?;
    Ok(0)
}

/// `sched_setparam(2)`.
pub fn sched_setparam(a: &Args) -> SysResult {
    let priority = UserPtr::<i32>::new(a.addr(1)).read()?;
    let task = task_or_current(a.int(0))?;
    let realtime = is_realtime(task.policy());
    let allowed = if realtime { 1..=99 } else { 0..=0 };
    if !allowed.contains(&priority) {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// `sched_get_priority_max(2)`.
pub fn sched_get_priority_max(a: &Args) -> SysResult {
    match a.uint(0) {
        policy if is_realtime(policy) => Ok(99),
        policy if is_policy(policy) => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_get_priority_min(2)`.
pub fn sched_get_priority_min(a: &Args) -> SysResult {
    match a.uint(0) {
        policy if is_realtime(policy) => Ok(1),
        policy if is_policy(policy) => Ok(0),
        _ => Err(Errno::EINVAL),
    }
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

/// `sched_setattr(2)`: programs have `sched_setscheduler`.
pub fn sched_setattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_getattr(2)`: programs have `sched_getscheduler`.
pub fn sched_getattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// Calls `each` for the threads that `which` and `who` mean; says whether there was any.
fn for_each_meant(which: i32, who: i32, mut each: impl FnMut(&Task)) -> Result<(), Errno> {
    let own = process::current().process().clone();
    let who_or = |own: u32| match who {
        0 => Ok(own),
        who => u32::try_from(who).map_err(|_| Errno::ESRCH),
    };
    match which {
        0 => each(&*task_or_current(who).map_err(|_| Errno::ESRCH)?),
        1 | 2 => {
            let number = who_or(if which == 1 {
                own.pgid()
            } else {
                own.credentials().uid[0]
            })?;
            let found = table::lock().collect(|process| {
                process.pid() > 1
                    && if which == 1 {
                        process.pgid() == number
                    } else {
                        process.credentials().uid[0] == number
                    }
            })?;
            if found.is_empty() {
                return Err(Errno::ESRCH);
            }
            for process in found {
                for task in &process.group.lock().tasks {
                    each(task);
                }
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// `getpriority(2)`: 20 less the nice value, so that no result is negative.
pub fn getpriority(a: &Args) -> SysResult {
    let mut least = 20;
    for_each_meant(a.int(0), a.int(1), |task| least = least.min(task.nice()))?;
    usize::try_from(20 - least).map_err(|_| Errno::EINVAL)
}

/// `setpriority(2)`.
pub fn setpriority(a: &Args) -> SysResult {
    for_each_meant(a.int(0), a.int(1), |task| task.set_nice(a.int(2)))?;
    Ok(0)
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

/// `membarrier(2)`.
pub fn membarrier(a: &Args) -> SysResult {
    const QUERY: u32 = 0;
    const GLOBAL: u32 = 1;
    const GLOBAL_EXPEDITED: u32 = 1 << 1;
    const REGISTER_GLOBAL_EXPEDITED: u32 = 1 << 2;
    const PRIVATE_EXPEDITED: u32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;
    if a.uint(1) != 0 {
        return Err(Errno::EINVAL);
    }
    match a.uint(0) {
        QUERY => Ok((GLOBAL
            | GLOBAL_EXPEDITED
            | REGISTER_GLOBAL_EXPEDITED
            | PRIVATE_EXPEDITED
            | REGISTER_PRIVATE_EXPEDITED) as usize),
        GLOBAL | GLOBAL_EXPEDITED | PRIVATE_EXPEDITED => {
            let others = CpuSet::from_mask(arch::online_cpus().mask());
            others.remove(cpu_id());
            ipi::flush_tlb(&others, FlushRequest::Barrier);
            Ok(0)
        }
        REGISTER_GLOBAL_EXPEDITED | REGISTER_PRIVATE_EXPEDITED => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `rseq(2)`: libraries have another way.
pub fn rseq(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `ioprio_get(2)`.
pub fn ioprio_get(a: &Args) -> SysResult {
    /// Best effort, level 4: Linux's value for nice 0.
    const DEFAULT: usize = 2 << 13 | 4;
    process_or_current(a.int(1))?;
    Ok(DEFAULT)
}

/// `ioprio_set(2)`: there is no I/O to order.
pub fn ioprio_set(a: &Args) -> SysResult {
    process_or_current(a.int(1))?;
    Ok(0)
}

/// What `linux_raw_sys` calls the priority of a process; the numbers above are its.
const _: () = assert!(raw::PRIO_PROCESS == 0 && raw::PRIO_PGRP == 1 && raw::PRIO_USER == 2);
