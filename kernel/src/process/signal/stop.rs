//! Job control: processes that stop and continue.

use super::{SA_NOCLDSTOP, SIG_IGN, SigInfo, Signal, child_info, send_to_process};
use crate::process::TaskRef;
use crate::process::ptrace::{self, LeaderGone};
use crate::process::task::table::{self, Table};
use crate::process::task::{Group, Process, Stop, WaitStatus};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use machine::arch::UserFrame;
use machine::sched;
use machine::sched::work;

/// The number of stopped processes.
static STOPPED: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any process in the system is stopped.
pub(crate) fn any_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed) != 0
}

/// Ends the stop of the process with the group `group`, because the process continues or has ended.
/// Returns whether it was stopped.
pub(crate) fn end_stop(group: &mut Group) -> bool {
    let was = core::mem::replace(&mut group.stop, Stop::No) != Stop::No;
    if was {
        STOPPED.fetch_sub(1, Ordering::Relaxed);
    }
    was
}

/// Begins a stop of the current process by `signal`, which the current thread has taken. All its
/// threads stop on their way to user mode. Does nothing if a SIGCONT came after the thread took
/// `signal`.
pub(crate) fn begin_stop(task: TaskRef, signal: Signal) {
    let mut group = task.process().group.lock();
    if group.exit.is_some() || !task.signals().may_stop() {
        return;
    }
    let stopped = group.stop != Stop::No;
    if !stopped {
        group.stop = Stop::By(signal);
        group.stop_told = false;
        // Relaxed: a reader of this count may miss a job that stops now. No task has seen that job
        // stop yet.
        STOPPED.fetch_add(1, Ordering::Relaxed);
    }
    // A tracer may have continued some threads of a stopped process.
    for other in &group.tasks {
        if !stopped || !other.signals().is_stopped() {
            sched::notify(other, work::STOP);
        }
    }
}

/// Serves the STOP bit of the work word of the current thread `task`. Stops the thread until the
/// process continues or is killed, or until its tracer continues it.
pub(crate) fn stand_still(task: TaskRef, frame: &mut UserFrame) {
    let process = task.process();
    let mut group = process.group.lock();
    task.clear_work(work::STOP);
    let Stop::By(signal) = group.stop else {
        drop(group);
        ptrace::trapping_ends(&task);
        return;
    };
    ptrace::sees_group(task);
    group.stopped += 1;
    task.signals().set_stopped(true);
    let complete = group.stopped == group.tasks.len() && !group.stop_told;
    group.stop_told |= complete;
    drop(group);
    if complete {
        report_stop(process, signal);
    }
    if task.is_traced() {
        ptrace::group_stop(task, frame, signal);
    } else {
        loop {
            sched::prepare_to_block();
            let stopped = process.group.lock().stop != Stop::No;
            if !stopped || task.killed() {
                break;
            }
            if task.is_traced() {
                // The thread stops again, for a new tracer or without one.
                task.add_work(work::STOP);
                break;
            }
            sched::block();
        }
        sched::cancel_block();
    }
    task.signals().set_stopped(false);
    process.group.lock().stopped -= 1;
    if task.work() & work::STOP == 0 {
        ptrace::trapping_ends(&task);
    }
}

/// Notifies the parent of `process` that all threads of the process have stopped by `signal`. A
/// parent that traces the main thread is not notified.
pub(crate) fn report_stop(process: &Arc<Process>, signal: Signal) {
    let guard = table::lock();
    // A parent that traces the process sees the stops of its threads. It learns of this stop when
    // it stops tracing.
    let told = LeaderGone::of(process) != LeaderGone::ByParent;
    let parent = {
        let mut relations = process.relations.lock();
        relations.stop_report = Some(signal);
        relations.continue_report = false;
        relations.parent.clone()
    };
    if let Some(parent) = parent.as_ref().filter(|_| told) {
        tell(parent, process, WaitStatus::stopped(signal));
    }
    drop(guard);
}

/// Notifies the parent of `process` that the process continues. The process table is locked.
pub(super) fn report_continue(_: &Table, process: &Arc<Process>) {
    let parent = {
        let mut relations = process.relations.lock();
        relations.continue_report = true;
        relations.stop_report = None;
        relations.parent.clone()
    };
    if let Some(parent) = &parent {
        tell(parent, process, WaitStatus::CONTINUED);
    }
}

/// Sends `parent`, the parent or tracer of a stopped or continued process, the signal `info`. Does
/// nothing if `parent` ignores SIGCHLD or has set `SA_NOCLDSTOP`.
pub(crate) fn tell_of_stop(parent: &Arc<Process>, info: SigInfo) {
    let action = parent.actions().get(Signal::SIGCHLD);
    if action.handler != SIG_IGN && action.flags & SA_NOCLDSTOP == 0 {
        let _ = send_to_process(parent, info);
    }
}

fn tell(parent: &Arc<Process>, process: &Process, status: WaitStatus) {
    tell_of_stop(parent, child_info(process, Signal::SIGCHLD, status));
    parent.child_events.wake_all();
}
