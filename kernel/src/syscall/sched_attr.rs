//! Scheduling policies: the calls that use `struct sched_attr`.

use super::record::SchedAttr;
use super::sched::scheduled_or_current;
use super::sched_policy::{Wanted, policies, priorities};
use super::{Args, extensible};
use crate::process::task::{Scheduled, Scheduling};
use linux_raw_sys::general::SCHED_FLAG_RESET_ON_FORK;
use logic::errno::{Errno, SysResult};
use machine::memory::PAGE_SIZE;
use machine::uaccess::{self, UserPtr};
use zerocopy::IntoBytes;

/// The size of the first version of `struct sched_attr` in bytes.
const FIRST: usize = 48;
/// The known flags, including those of deadlines.
const KNOWN: u64 = 0x7f;
const KEEP_POLICY: u64 = 8;
const KEEP_PARAMS: u64 = 0x10;
/// The flags that limit a task's use of a CPU. They are not supported.
const CLAMP: u64 = 0x60;

/// Returns whether the times of `attr` are a valid deadline.
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
            // The program can then try again with the size that this kernel knows.
            let own = u32::try_from(size_of::<SchedAttr>()).unwrap_or(0);
            let _ = UserPtr::<u32>::new(address).write(&own);
            Errno::E2BIG
        }
        other => other,
    })
}

/// `sched_setattr(2)`. There is no deadline policy: a valid request for it gives `EPERM`.
pub fn sched_setattr(a: &Args) -> SysResult {
    if a.addr(1) == 0 || a.int(0) < 0 || a.uint(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let attr = read(a.addr(1))?;
    let with_clamp = attr.size as usize >= size_of::<SchedAttr>();
    if attr.flags & CLAMP != 0 && !with_clamp || attr.policy.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let to = scheduled_or_current(a.int(0))?;
    to.change(|scheduling| set(&attr, scheduling, &to))?;
    Ok(0)
}

/// Changes `scheduling`, that of the thread `to`, as `attr` says. Fails with `EINVAL` for a value
/// out of bounds, and with `EPERM` if the caller may not make the change. A change to the deadline
/// policy, which does not exist, always fails.
fn set(attr: &SchedAttr, scheduling: &mut Scheduling, to: &Scheduled) -> Result<(), Errno> {
    let keeps = attr.flags & KEEP_PARAMS != 0;
    let mut wanted = Wanted {
        policy: attr.policy,
        priority: attr.priority,
        nice: attr.nice.clamp(-20, 19),
        resets_on_fork: attr.flags & u64::from(SCHED_FLAG_RESET_ON_FORK) != 0,
    };
    if attr.flags & KEEP_POLICY != 0 {
        wanted.policy = scheduling.policy;
        wanted.resets_on_fork = scheduling.resets_on_fork;
    }
    if keeps && scheduling.is_realtime() {
        wanted.priority = scheduling.priority;
    } else if keeps {
        wanted.nice = scheduling.nice;
    }
    let fits = priorities(wanted.policy).is_ok_and(|possible| possible.contains(&wanted.priority));
    let deadline = wanted.policy == policies::DEADLINE;
    if attr.flags & !KNOWN != 0 || !fits || deadline && !is_deadline(attr) {
        return Err(Errno::EINVAL);
    }
    // There is no deadline policy, so no thread may have it.
    if deadline {
        return Err(Errno::EPERM);
    }
    wanted.check(scheduling, to)?;
    if attr.flags & CLAMP != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if keeps {
        // As on Linux, the policy stays, too.
        scheduling.resets_on_fork = wanted.resets_on_fork;
    } else {
        wanted.put(scheduling);
    }
    Ok(())
}

/// `sched_getattr(2)`.
pub fn sched_getattr(a: &Args) -> SysResult {
    let size = a.uint(2) as usize;
    if a.addr(1) == 0 || a.int(0) < 0 || !(FIRST..=PAGE_SIZE).contains(&size) || a.uint(3) != 0 {
        return Err(Errno::EINVAL);
    }
    let has = scheduled_or_current(a.int(0))?.get();
    let given = size.min(size_of::<SchedAttr>());
    let attr = SchedAttr {
        size: u32::try_from(given).unwrap_or(0),
        policy: has.policy,
        flags: u64::from(has.resets_on_fork),
        // As on Linux, 0 if the policy does not use the nice value.
        nice: if has.is_realtime() { 0 } else { has.nice },
        priority: has.priority,
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
