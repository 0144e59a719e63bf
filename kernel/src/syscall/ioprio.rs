//! `ioprio_get(2)` and `ioprio_set(2)`. Priorities are only stored for programs to read. Requests
//! go to a disk in the order in which they come, as on Linux without an I/O scheduler.

use super::Args;
use super::sched::{Subjects, for_each_of};
use super::sched_policy::policies;
use crate::process::task::Scheduling;
use crate::process::{self, caller};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};

/// The lowest bit of the class in a priority; below it are hints, and the level in the lowest bits.
const CLASS_SHIFT: u32 = 13;
const CLASS_MASK: u32 = 7;
const LEVEL_MASK: u32 = 7;
/// The bits of a priority that the kernel keeps.
const KEPT: u32 = 0xffff;
const NONE: u32 = 0;
const REALTIME: u32 = 1;
const BEST_EFFORT: u32 = 2;
const IDLE: u32 = 3;

/// Returns the threads that the first two arguments refer to. The numbers of argument 0 are one
/// higher than those of `getpriority(2)`.
fn subjects(a: &Args) -> Result<Subjects, Errno> {
    let which = a.int(0).checked_sub(1).ok_or(Errno::EINVAL)?;
    Subjects::of(which, a.int(1))
}

/// Returns the effective priority of a thread. If the thread has set none, its policy and nice
/// value determine it.
fn effective(thread: &Scheduling) -> u32 {
    let level = (thread.nice + 20).cast_unsigned() / 5;
    match thread.io_priority {
        priority if priority >> CLASS_SHIFT != NONE => priority,
        _ if thread.policy == policies::IDLE => (IDLE << CLASS_SHIFT) | level,
        _ if thread.is_realtime() => (REALTIME << CLASS_SHIFT) | level,
        _ => (BEST_EFFORT << CLASS_SHIFT) | level,
    }
}

/// `ioprio_get(2)`. Returns the priority that a single thread has set, or the most urgent effective
/// priority of several threads.
pub fn ioprio_get(a: &Args) -> SysResult {
    let subjects = subjects(a)?;
    let one = matches!(subjects, Subjects::Thread(_));
    let mut best: Option<u32> = None;
    for_each_of(&subjects, |thread| {
        let own = thread.get();
        let own = if one {
            own.io_priority
        } else {
            effective(&own)
        };
        best = Some(best.map_or(own, |best| best.min(own)));
    })?;
    best.map(|best| best as usize).ok_or(Errno::ESRCH)
}

/// `ioprio_set(2)`. As on Linux the first thread that cannot be set ends the call, and 0 as a user
/// is root, not the caller's user.
pub fn ioprio_set(a: &Args) -> SysResult {
    let priority = a.uint(2) & KEPT;
    let class = (priority >> CLASS_SHIFT) & CLASS_MASK;
    if class > IDLE || class == NONE && priority & LEVEL_MASK != 0 {
        return Err(Errno::EINVAL);
    }
    if class == REALTIME
        && !caller::can(Capabilities::SYS_NICE)
        && !caller::can(Capabilities::SYS_ADMIN)
    {
        return Err(Errno::EPERM);
    }
    let own = process::current();
    let mut subjects = subjects(a)?;
    if let Subjects::User(user) = &mut subjects
        && a.int(1) == 0
    {
        *user = 0;
    }
    let mut result = Ok(0);
    for_each_of(&subjects, |thread| {
        if result.is_err() {
            return;
        }
        let changed = thread.change(|scheduling| {
            let subject = thread.credentials();
            let users = own.users();
            let uid = subject.users.real;
            let of_user = uid == users.effective || uid == users.real;
            let privileged = caller::can(Capabilities::SYS_NICE);
            let lacks_none =
                caller::with_credentials(|own| own.permitted.contains(subject.permitted));
            if !(privileged || of_user && lacks_none) {
                return Err(Errno::EPERM);
            }
            // A thread that has ended has no priority.
            if thread.task().is_some() {
                scheduling.io_priority = priority;
            }
            Ok(())
        });
        if changed.is_err() {
            result = Err(Errno::EPERM);
        }
    })?;
    result
}
