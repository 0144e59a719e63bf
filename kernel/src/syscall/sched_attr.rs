//! Scheduling policies by a structure that holds all about them.

use super::record::SchedAttr;
use super::sched::{may_be_nice, may_take_policy, policies, priorities, task_or_current};
use super::{Args, extensible};
use crate::vm::uaccess::{self, UserPtr};
use linux_raw_sys::general::SCHED_FLAG_RESET_ON_FORK;
use logic::errno::{Errno, SysResult};
use machine::memory::PAGE_SIZE;
use zerocopy::IntoBytes;

/// Bytes of the first version.
const FIRST: usize = 48;
/// Flags that are known, those of deadlines among them.
const KNOWN: u64 = 0x7f;
const KEEP_POLICY: u64 = 8;
const KEEP_PARAMS: u64 = 0x10;
/// Bounds of the use of a CPU, which nobody has.
const CLAMP: u64 = 0x60;

/// Whether a deadline can be met at all.
fn is_deadline(attr: &SchedAttr) -> bool {
    const LEAST_NANOS: u64 = 1 << 10;
    let period = if attr.period == 0 {
        attr.deadline
    } else {
        attr.period
    };
    attr.deadline != 0
        && attr.runtime >= LEAST_NANOS
        && (attr.deadline | period) >> 63 == 0
        && attr.runtime <= attr.deadline
        && attr.deadline <= period
}

fn read(address: u64) -> Result<SchedAttr, Errno> {
    let place = UserPtr::<u32>::new(address);
    let size = match place.read()? as usize {
        0 => FIRST,
        size => size,
    };
    extensible::read::<SchedAttr>(address, size, FIRST).map_err(|error| match error {
        Errno::EINVAL | Errno::E2BIG => {
            // So that the program can try again with what is known.
            let own = u32::try_from(size_of::<SchedAttr>()).unwrap_or(0);
            let _ = UserPtr::<u32>::new(address).write(&own);
            Errno::E2BIG
        }
        other => other,
    })
}

/// `sched_setattr(2)`: nobody may have a CPU before all others, as for `sched_setscheduler`.
pub fn sched_setattr(a: &Args) -> SysResult {
    if a.addr(1) == 0 || a.int(0) < 0 || a.uint(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let attr = read(a.addr(1))?;
    let with_clamp = attr.size as usize >= size_of::<SchedAttr>();
    if attr.flags & CLAMP != 0 && !with_clamp || attr.policy.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let task = task_or_current(a.int(0))?;
    let (policy, reset) = if attr.flags & KEEP_POLICY != 0 {
        (task.policy(), task.resets_policy())
    } else {
        let reset = attr.flags & u64::from(SCHED_FLAG_RESET_ON_FORK) != 0;
        (attr.policy, reset)
    };
    let keeps = attr.flags & KEEP_PARAMS != 0;
    let priority = if keeps { 0 } else { attr.priority };
    let fits = i32::try_from(priority).is_ok_and(|priority| {
        priorities(policy).is_ok_and(|possible| possible.contains(&priority))
    });
    if attr.flags & !KNOWN != 0 || !fits || policy == policies::DEADLINE && !is_deadline(&attr) {
        return Err(Errno::EINVAL);
    }
    if matches!(policy, policies::FIFO | policies::RR | policies::DEADLINE) {
        return Err(Errno::EPERM);
    }
    if attr.flags & CLAMP != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    may_take_policy(&task, policy, reset)?;
    let nice = attr.nice.clamp(-20, 19);
    if !keeps && nice < task.nice() && !may_be_nice(&task, nice) {
        return Err(Errno::EPERM);
    }
    if keeps {
        // As on Linux the policy stays, too.
        task.set_policy(task.policy(), reset);
    } else {
        task.set_policy(policy, reset);
        task.set_nice(nice);
    }
    Ok(0)
}

/// `sched_getattr(2)`.
pub fn sched_getattr(a: &Args) -> SysResult {
    let size = a.uint(2) as usize;
    if a.addr(1) == 0 || a.int(0) < 0 || !(FIRST..=PAGE_SIZE).contains(&size) || a.uint(3) != 0 {
        return Err(Errno::EINVAL);
    }
    let task = task_or_current(a.int(0))?;
    let given = size.min(size_of::<SchedAttr>());
    let attr = SchedAttr {
        size: u32::try_from(given).unwrap_or(0),
        policy: task.policy(),
        flags: u64::from(task.resets_policy()),
        nice: task.nice(),
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
        least_clamp: 0,
        most_clamp: 0,
    };
    const { assert!(SCHED_FLAG_RESET_ON_FORK == 1) };
    uaccess::copy_out(a.addr(1), &attr.as_bytes()[..given])?;
    Ok(0)
}
