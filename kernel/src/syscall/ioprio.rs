//! `ioprio_get(2)` and `ioprio_set(2)`: priorities are kept and shown. Requests go to a disk in the
//! order in which they come, as on Linux where no I/O scheduler is set.

use super::Args;
use super::sched::{Subjects, for_each_meant};
use crate::process::task::Task;
use crate::process::{self, caller};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};

/// Where the class stands in a priority; below it are level and hints.
const CLASS_SHIFT: u32 = 13;
const NONE: u32 = 0;
const REALTIME: u32 = 1;
const BEST_EFFORT: u32 = 2;
const IDLE: u32 = 3;

/// Whom the first two arguments mean; the numbers are one higher than those of `getpriority(2)`.
fn subjects(a: &Args) -> Result<Subjects, Errno> {
    let which = a.int(0).checked_sub(1).ok_or(Errno::EINVAL)?;
    Subjects::of(which, a.int(1))
}

/// What a thread's priority comes to: where it has set none, its nice value says it.
fn effective(task: &Task) -> u32 {
    match task.io_priority() {
        priority if priority >> CLASS_SHIFT != NONE => priority,
        _ => (BEST_EFFORT << CLASS_SHIFT) | ((task.nice() + 20).cast_unsigned() / 5),
    }
}

/// `ioprio_get(2)`: what a thread has set, or the most urgent of several.
pub fn ioprio_get(a: &Args) -> SysResult {
    let subjects = subjects(a)?;
    let one = matches!(subjects, Subjects::Thread(_));
    let mut best: Option<u32> = None;
    for_each_meant(&subjects, |task| {
        let own = if one {
            task.io_priority()
        } else {
            effective(task)
        };
        best = Some(best.map_or(own, |best| best.min(own)));
    })?;
    best.map(|best| best as usize).ok_or(Errno::ESRCH)
}

/// `ioprio_set(2)`.
pub fn ioprio_set(a: &Args) -> SysResult {
    let priority = a.uint(2);
    let (class, data) = (priority >> CLASS_SHIFT, priority & ((1 << CLASS_SHIFT) - 1));
    if class > IDLE || class == NONE && data != 0 {
        return Err(Errno::EINVAL);
    }
    if class == REALTIME
        && !caller::can(Capabilities::SYS_NICE)
        && !caller::can(Capabilities::SYS_ADMIN)
    {
        return Err(Errno::EPERM);
    }
    let own = process::current();
    let mut result = Ok(0);
    for_each_meant(&subjects(a)?, |task| {
        let uid = task.credentials_for_others().users.real;
        let users = own.credentials().users;
        let of_user = uid == users.effective || uid == users.real;
        if of_user || caller::can(Capabilities::SYS_NICE) {
            task.set_io_priority(priority);
        } else {
            result = Err(Errno::EPERM);
        }
    })?;
    result
}
