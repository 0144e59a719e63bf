//! Sends signals.

use super::{Action, DefaultAction, Detail, SA_NOCLDWAIT, SIG_IGN, SigInfo, SigSet, Signal};
use crate::process::ptrace;
use crate::process::task::table::{self, Table};
use crate::process::task::{Group, Process, Task, WaitStatus, kill_group, limits};
use alloc::sync::Arc;
use logic::errno::Errno;
use machine::sched;
use machine::sched::work;
use machine::sync::SpinGuard;

/// `si_code` of SIGCHLD.
mod child_code {
    /// `CLD_EXITED`: the child has exited.
    pub(super) const EXITED: i32 = 1;
    /// `CLD_KILLED`: a signal has ended the child.
    pub(super) const KILLED: i32 = 2;
    /// `CLD_DUMPED`: a signal has ended the child and there is a core file.
    pub(super) const DUMPED: i32 = 3;
    /// `CLD_STOPPED`: the child has stopped.
    pub(super) const STOPPED: i32 = 5;
    /// `CLD_CONTINUED`: the child continues.
    pub(super) const CONTINUED: i32 = 6;
}

/// Sends the signal `info` to `process`. One of its threads takes the signal. Does nothing if the
/// process ends already, or is init or the kernel's own process.
///
/// # Errors
/// Fails with `EAGAIN` if the details of a realtime signal find no room, unless `kill` sent the
/// signal.
pub fn send_to_process(process: &Arc<Process>, info: SigInfo) -> Result<(), Errno> {
    send(process, Target::Process(None), info, None)
}

/// Sends the signal `info` to `process` as [`send_to_process`] does, for a caller that holds the
/// lock of the process table. `table` is the locked table.
///
/// # Errors
/// Fails as [`send_to_process`] does.
pub(crate) fn send_to_process_in(
    table: &Table,
    process: &Arc<Process>,
    info: SigInfo,
) -> Result<(), Errno> {
    send(process, Target::Process(None), info, Some(table))
}

/// Sends the signal `info` to `process`, one of several processes that get it at once. A child that
/// `process` is making gets the signal, too. The caller holds the lock of the process table from
/// the first of these processes to the last, so that no child is left out. `table` is the locked
/// table.
///
/// # Errors
/// Fails as [`send_to_process`] does.
pub(crate) fn send_to_one_of_many(
    table: &Table,
    process: &Arc<Process>,
    info: SigInfo,
) -> Result<(), Errno> {
    send(process, Target::OneOfMany, info, Some(table))
}

/// Sends the signal `info` to the process of `task`. The thread `task` takes the signal unless it
/// blocks it.
///
/// # Errors
/// Fails with `EAGAIN` if the details of a realtime signal find no room, unless `kill` sent the
/// signal.
pub(crate) fn send_to_process_of(task: &Task, info: SigInfo) -> Result<(), Errno> {
    send(task.process(), Target::Process(Some(task)), info, None)
}

/// The receiver of a signal.
#[derive(Copy, Clone)]
enum Target<'a> {
    Thread(&'a Task),
    /// A process. The thread named here takes the signal if it can.
    Process(Option<&'a Task>),
    /// A process that gets the signal with others.
    OneOfMany,
}

/// Sends the signal `info` to the thread `task`. Does nothing if its process ends already, or is
/// init or the kernel's own process.
///
/// # Errors
/// Fails with `EAGAIN` if the details of a realtime signal find no room, unless `kill` sent the
/// signal.
pub fn send_to_task(task: &Task, info: SigInfo) -> Result<(), Errno> {
    send(task.process(), Target::Thread(task), info, None)
}

/// Sends `info` to `target`, which is `process` or one of its threads. `table` is the process table
/// if the caller holds its lock. Fails with `EAGAIN` if the details of a realtime signal find no
/// room.
fn send(
    process: &Arc<Process>,
    target: Target<'_>,
    info: SigInfo,
    table: Option<&Table>,
) -> Result<(), Errno> {
    // The kernel and init take no signals.
    if process.pid() <= 1 {
        return Ok(());
    }
    let signal = info.signal;
    let limit = process.limit(limits::index::SIGPENDING);
    let uid = process.credentials().users.real;
    let action = process.actions().get(signal);
    let mut group = process.group.lock();
    if group.exit.is_some() || group.tasks.is_empty() {
        if signal == Signal::SIGKILL && group.dump.is_some() {
            // The process's core file is not needed any more.
            kill_group(&mut group, WaitStatus::signalled(signal));
        }
        return Ok(());
    }
    if signal == Signal::SIGKILL {
        kill_group(&mut group, WaitStatus::signalled(signal));
        return Ok(());
    }
    if matches!(target, Target::OneOfMany) {
        // A thread that begins to make a child afterwards finds the signal pending.
        for task in &group.tasks {
            task.signals().add_for_child(signal);
        }
    }
    let mut continued = false;
    if signal == Signal::SIGCONT {
        continued = continue_group(&mut group);
    } else if signal.default_action() == DefaultAction::Stop {
        discard(&mut group, SigSet::of(&[Signal::SIGCONT]));
    }
    let result = queue(&mut group, target, info, &action, (uid, limit));
    drop(group);
    process.tell_signal_readers();
    if continued {
        match table {
            Some(table) => super::stop::report_continue(table, process),
            None => super::stop::report_continue(&table::lock(), process),
        }
    }
    result
}

/// Continues a stopped process. Returns whether it was stopped.
fn continue_group(group: &mut Group) -> bool {
    discard(group, SigSet::STOP);
    for task in &group.tasks {
        task.clear_work(work::STOP);
        task.signals().set_may_stop(false);
        ptrace::notify_seized(task);
    }
    if !super::stop::end_stop(group) {
        return false;
    }
    for task in &group.tasks {
        sched::wake(task);
    }
    true
}

fn discard(group: &mut Group, unwanted: SigSet) {
    group.pending.discard(unwanted);
    for task in &group.tasks {
        task.signals().pending().discard(unwanted);
    }
}

fn queue(
    group: &mut SpinGuard<'_, Group>,
    target: Target<'_>,
    info: SigInfo,
    action: &Action,
    (uid, limit): (u32, u64),
) -> Result<(), Errno> {
    let signal = info.signal;
    match target {
        Target::Thread(task) => {
            if action.ignores(signal) && !holds_back(task, signal) {
                return Ok(());
            }
            task.signals().pending().add(info, uid, limit)?;
            if takes(task, signal) {
                sched::notify(task, work::SIGNAL);
            }
        }
        Target::Process(_) | Target::OneOfMany => {
            let preferred = match target {
                Target::Process(preferred) => preferred,
                _ => None,
            };
            let main = group.tasks.first();
            if action.ignores(signal) && !main.is_some_and(|task| holds_back(task, signal)) {
                return Ok(());
            }
            group.pending.add(info, uid, limit)?;
            if let Some(task) = preferred.filter(|task| takes(task, signal)) {
                sched::notify(task, work::SIGNAL);
                return Ok(());
            }
            // The main thread is the first one unless it has ended.
            let mut takers = group.tasks.iter().filter(|task| takes(task, signal));
            let first = takers.next();
            // A thread in a ptrace-stop would take the signal only when its tracer continues it.
            let taker = match first {
                Some(task) if task.is_traced() && ptrace::stands(task) => {
                    takers.find(|task| !ptrace::stands(task)).or(first)
                }
                first => first,
            };
            if let Some(task) = taker {
                sched::notify(task, work::SIGNAL);
            }
        }
    }
    Ok(())
}

/// Returns whether a thread keeps an ignored signal pending: it has blocked the signal and may
/// change its mind, or its tracer must see the signal.
fn holds_back(task: &Task, signal: Signal) -> bool {
    task.is_traced() || task.blocked().contains(signal) || task.signals().awaited().contains(signal)
}

/// Returns whether a thread would take the signal now.
fn takes(task: &Task, signal: Signal) -> bool {
    !task.blocked().contains(signal) || task.signals().awaited().contains(signal)
}

/// Notifies threads of those of `signals` that are pending for the whole process: each goes to one
/// thread that takes it, if there is one. `group` is the locked group of the process.
pub(super) fn pass_on(group: &Group, signals: SigSet) {
    let mut left = group.pending.set().intersection(signals);
    for other in &group.tasks {
        if left.is_empty() {
            return;
        }
        let signals = other.signals();
        let taken = left.intersection(other.blocked().complement().union(signals.awaited()));
        if !taken.is_empty() {
            sched::notify(other, work::SIGNAL);
            left = left.without(taken);
        }
    }
}

/// Returns whether the process `parent` does not want to wait for its children: it ignores SIGCHLD
/// or has set `SA_NOCLDWAIT`.
pub(crate) fn children_ignored(parent: &Process) -> bool {
    let action = parent.actions().get(Signal::SIGCHLD);
    action.handler == SIG_IGN || action.flags & SA_NOCLDWAIT != 0
}

/// Returns `signal` with the details for the parent of `child`, whose state has changed to
/// `status`.
pub(crate) fn child_info(child: &Process, signal: Signal, status: WaitStatus) -> SigInfo {
    let (code, value) = describe(status);
    let usage = child.usage_of_tasks();
    SigInfo {
        signal,
        errno: 0,
        code,
        detail: Detail::Child {
            pid: child.pid(),
            uid: child.credentials().users.real,
            status: value,
            utime: ticks(usage.user.0),
            stime: ticks(usage.system.0),
        },
    }
}

/// Returns the fields `si_code` and `si_status` of the signal for a child whose state has changed
/// to `status`.
pub(crate) fn describe(status: WaitStatus) -> (i32, i32) {
    let signal = status.signal();
    if status == WaitStatus::CONTINUED {
        (
            child_code::CONTINUED,
            Signal::SIGCONT.number().cast_signed(),
        )
    } else if signal == 0x7f {
        (child_code::STOPPED, status.code())
    } else if signal == 0 {
        (child_code::EXITED, status.code())
    } else {
        let code = if status.has_core() {
            child_code::DUMPED
        } else {
            child_code::KILLED
        };
        (code, signal.cast_signed())
    }
}

/// Converts nanoseconds to clock ticks of 10 ms.
fn ticks(ns: u64) -> i64 {
    (ns / 10_000_000).cast_signed()
}
