//! The end of threads and processes.

use super::table::{self, Table};
use super::{
    Group, Process, Scheduling, Stop, Task, Usage, WaitStatus, core_dump, death_signal, robust,
    start,
};
use crate::process::ptrace::{self, LeaderGone};
use crate::process::signal::{self, SIG_IGN, Signal};
use crate::process::{self, TaskRef, futex_pi, terminal};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::own::Token;
use machine::arch::UserFrame;
use machine::sched;
use machine::sched::work;

/// Ends the current process with all its threads. The process ends with `status`, unless another
/// status was decided before. `frame` has the registers of the current thread.
pub(crate) fn exit_group(status: WaitStatus, frame: &mut UserFrame, token: &mut Token) -> ! {
    let task = process::current();
    let status = {
        let mut group = task.process().group.lock();
        kill_others(&mut group, status, Some(&task))
    };
    exit_thread(status, frame, token)
}

/// Kills all threads of the process with the group `group`. The process ends with `status`, unless
/// an earlier status was decided and no core file is being written. A core file is abandoned.
pub(crate) fn kill_group(group: &mut Group, status: WaitStatus) {
    if group.dump.is_some() {
        group.exit = Some(status);
    }
    kill_others(group, status, None);
}

/// Decides that the process with the group `group` ends with `status`, unless a status was decided
/// before, and kills all its threads except `but`. Returns the status with which the process ends.
pub(super) fn kill_others(group: &mut Group, status: WaitStatus, but: Option<&Task>) -> WaitStatus {
    let status = *group.exit.get_or_insert(status);
    for task in &group.tasks {
        if !but.is_some_and(|but| core::ptr::eq(but, Arc::as_ptr(task))) {
            sched::notify(task, work::KILL);
        }
    }
    status
}

/// Ends the current thread, which has the registers in `frame`. If this is the last thread, the
/// process ends too. The process ends with `status`, unless a status was decided before, as by
/// [`exit_group`].
pub(crate) fn exit_thread(status: WaitStatus, frame: &mut UserFrame, token: &mut Token) -> ! {
    let task = process::current();
    assert!(!task.is_kernel(), "a kernel thread exits like a program");
    core_dump::stand_by(task, frame);
    if task.is_traced() {
        ptrace::exit_event(task, frame, status);
    }
    task.note_end();
    robust::release_list(task);
    futex_pi::release_all(&task);
    robust::clear_child_tid(task);
    release_user_state(task, token);
    if task.tracee().traces() {
        ptrace::end_of_tracer(task);
    }
    let process = task.process().clone();
    let last = leave_group(&process, task, status);
    let gone = if last {
        end_process(&process, task, status)
    } else {
        death_signal::end_of_thread(&process, task.tid());
        let gone = ptrace::end_of_tracee(&mut table::lock(), task, status);
        // An exec also waits until this thread's number is free.
        process.thread_events.wake_all();
        gone
    };
    // A child may have made this thread its tracer just before the thread left the group. No child
    // can do so from here on.
    if task.tracee().traces() {
        ptrace::end_of_tracer(task);
    }
    drop(gone);
    drop(process);
    sched::exit_current(token)
}

/// Wakes the parent that waits in `vfork` for the child `process`, because the child has released
/// the parent's memory. Does nothing if no parent waits.
pub(super) fn finish_vfork(process: &Process) {
    if process.vfork_pending.swap(false, Ordering::AcqRel) {
        process.vfork_done.wake_all();
    }
}

/// Drops the task's memory, files, root and working directory.
fn release_user_state(task: TaskRef, token: &mut Token) {
    let vm = task.replace_vm(None, token);
    let files = task.replace_files(None, token);
    let fs = task.replace_fs(None, token);
    if let Some(vm) = vm {
        vm.deactivate();
        drop(vm);
    }
    task.leave_undo_list(token);
    drop(files);
    drop(fs);
}

/// Takes the task out of its process. Returns whether it was the last one.
fn leave_group(process: &Arc<Process>, task: TaskRef, status: WaitStatus) -> bool {
    if task.tid() == process.pid() {
        *process.last_name.lock() = task.name();
        let slack = task.timer_slack();
        process.last_timer_slack.store(slack, Ordering::Relaxed);
        *process.last_scheduling.lock() = Scheduling {
            io_priority: 0,
            ..task.scheduling()
        };
    }
    // Freed after the locks: there may be many.
    let _unused_signals;
    let mut group = process.group.lock();
    // No other thread takes the signals for this thread alone.
    _unused_signals = core::mem::take(&mut *task.signals().pending());
    let own = group.leave(&task);
    let usage = Usage::of_task(&task);
    group.ended.add(&usage);
    let last = group.tasks.is_empty();
    if last {
        group.leader_was_last = task.tid() == process.pid();
        signal::end_stop(&mut group);
        // If no thread has called `exit_group`, the last thread's status is the process's.
        group.exit.get_or_insert(status);
    }
    // The other threads must take the signals that this thread would have taken.
    if !group.pending.set().is_empty() {
        for other in &group.tasks {
            sched::notify(other, work::SIGNAL);
        }
    }
    let stopped = match group.stop {
        Stop::By(signal) if !last && group.stopped == group.tasks.len() && !group.stop_told => {
            group.stop_told = true;
            Some(signal)
        }
        _ => None,
    };
    drop(group);
    drop(own);
    if let Some(signal) = stopped {
        signal::report_stop(process, signal);
    }
    last
}

/// Ends the process after its last thread: frees its resources, hands its children on, and notifies
/// the parent. `own` is the status of the last thread `task`. Returns the table's reference to
/// `task`, or `None` if the table has none. The caller drops the result without the table's lock.
fn end_process(process: &Arc<Process>, task: TaskRef, own: WaitStatus) -> Option<Arc<Task>> {
    process.timers.clear();
    let resources = core::mem::take(&mut *process.resources.lock());
    if let Some(vm) = &resources.vm {
        process
            .peak_rss
            .fetch_max(vm.usage().peak_rss, Ordering::Relaxed);
    }
    // As on Linux memory and files are freed before the parent is notified.
    resources.release();
    process::ipc::shm::remove_forced(Some(process));
    finish_vfork(process);
    let status = process.group.lock().exit.unwrap_or(WaitStatus::exited(0));

    terminal::end_of_leader(process);

    let mut table = table::lock();
    let gone = ptrace::end_of_tracee(&mut table, task, own);
    let mut reaped = Vec::new();
    let orphans = hand_on_children(&mut table, process, &mut reaped);
    process.relations.lock().zombie = Some(status);
    let own_orphans = terminal::own_orphans(&table, process);
    let own_reaped = match LeaderGone::of(process) {
        LeaderGone::Untraced => tell_parent(&mut table, process, status, true),
        LeaderGone::ByParent => tell_parent(&mut table, process, status, false),
        LeaderGone::ByOther => {
            tell_tracer(process, status);
            None
        }
    };
    drop(table);
    drop((reaped, own_reaped));
    process.tell_end_readers();
    terminal::tell_orphans(own_orphans, orphans);
    gone
}

/// Gives the children of an ending process to the nearest subreaper among its ancestors, or to
/// init. An heir that is not init is notified of zombies among them. If it ignores its children,
/// they are reaped, and `reaped` gets the table's references to them, which the caller drops
/// without the table's lock. Returns whether groups of children may now be orphaned and need a
/// signal.
fn hand_on_children(
    table: &mut Table,
    process: &Arc<Process>,
    reaped: &mut Vec<Arc<Process>>,
) -> bool {
    let (first, group, session) = {
        let mut relations = process.relations.lock();
        let first = relations.first_child.take();
        relations.last_child = 0;
        (first, relations.group, relations.session)
    };
    let Some(first) = first else {
        return false;
    };
    let any_stopped = signal::any_stopped();
    let mut lost = false;
    let heir = find_heir(process);
    let mut child = first.clone();
    let mut zombies = 0;
    // Ends: visits each child once.
    loop {
        let next = {
            let mut relations = child.relations.lock();
            relations.parent = Some(heir.clone());
            if any_stopped && relations.group != group && relations.session == session {
                relations.lost_parent = true;
                lost = true;
            }
            zombies += usize::from(relations.zombie.is_some());
            relations.exit_signal = Signal::SIGCHLD.number();
            relations.next_sibling.clone()
        };
        death_signal::tell(table, &child, process.pid());
        match next {
            Some(next) => child = next,
            None => break,
        }
    }
    let last = child.pid();
    table.append_children(&heir, &first, last);
    if zombies > 0 {
        heir.child_events.wake_all();
        // Without memory they wait for the heir as zombies.
        if heir.pid() > 1 && reaped.try_reserve(zombies).is_ok() {
            tell_heir(table, first, last, reaped);
        }
    }
    lost
}

/// Notifies the new parent of the zombies among its children from `first` to the one with the
/// number `last`. `reaped` gets the table's references to those that are reaped, and has room for
/// them.
fn tell_heir(table: &mut Table, first: Arc<Process>, last: u32, reaped: &mut Vec<Arc<Process>>) {
    let mut next = Some(first);
    // Ends: visits each child once.
    while let Some(child) = next {
        let status = {
            let relations = child.relations.lock();
            next = relations.next_sibling.clone();
            relations.zombie
        };
        if let Some(status) = status
            && LeaderGone::of(&child) == LeaderGone::Untraced
        {
            reaped.extend(tell_parent(table, &child, status, true));
        }
        if child.pid() == last {
            return;
        }
    }
}

fn find_heir(process: &Arc<Process>) -> Arc<Process> {
    let mut ancestor = process.relations.lock().parent.clone();
    // Ends: each ancestor is older than the one before, up to init.
    while let Some(candidate) = ancestor {
        let lives = candidate.group.lock().exit.is_none();
        if lives && candidate.subreaper.load(Ordering::Relaxed) {
            return candidate;
        }
        ancestor = candidate.relations.lock().parent.clone();
    }
    start::init_process().clone()
}

/// Notifies the tracer of a process's main thread of its end, if the tracer is not the parent.
fn tell_tracer(process: &Process, status: WaitStatus) {
    let tracer = process.relations.lock().tracer.clone();
    if let Some(tracer) = tracer {
        let info = signal::child_info(process, Signal::SIGCHLD, status);
        let _ = signal::send_to_process(&tracer, info);
        tracer.child_events.wake_all();
    }
}

/// Sends the parent of `process`, which has ended with `status`, the exit signal, and wakes the
/// threads that wait for children. If `may_reap` is set and the parent ignores its children, reaps
/// `process` at once and returns the table's reference to it. Otherwise returns `None`. The caller
/// holds the table's lock and drops the result without it.
pub(crate) fn tell_parent(
    table: &mut Table,
    process: &Arc<Process>,
    status: WaitStatus,
    may_reap: bool,
) -> Option<Arc<Process>> {
    let (parent, exit_signal) = {
        let relations = process.relations.lock();
        (relations.parent.clone(), relations.exit_signal)
    };
    let parent = parent?;
    let mut ignored = false;
    if let Some(exit_signal) = Signal::new(exit_signal) {
        let usual = may_reap && exit_signal == Signal::SIGCHLD;
        ignored = usual && signal::children_ignored(&parent);
        // As on Linux, a blocked signal that is ignored becomes pending, but not this one.
        if !(usual && parent.actions().get(exit_signal).handler == SIG_IGN) {
            let info = signal::child_info(process, exit_signal, status);
            let _ = signal::send_to_process_in(table, &parent, info);
        }
    }
    let reaped = ignored.then(|| reap(table, process)).flatten();
    parent.child_events.wake_all();
    reaped
}

/// Removes the zombie `process` from the table and from the children of its parent. Returns the
/// table's reference to `process`, or `None` if the table has none. The caller holds the table's
/// lock and drops the result without it.
#[must_use]
pub(crate) fn reap(table: &mut Table, process: &Arc<Process>) -> Option<Arc<Process>> {
    let (parent, previous, next, pgid, session) = {
        let mut relations = process.relations.lock();
        (
            relations.parent.take(),
            core::mem::take(&mut relations.previous_sibling),
            relations.next_sibling.take(),
            core::mem::take(&mut relations.group),
            core::mem::take(&mut relations.session),
        )
    };
    if let Some(parent) = parent {
        unlink_child(table, &parent, previous, next);
    }
    table.count_group(pgid, false);
    table.count_session(session, false);
    table.remove_process(process.pid())
}

/// Closes the gap that a child leaves between its siblings. `previous` is 0 if the child was the
/// first.
fn unlink_child(table: &Table, parent: &Arc<Process>, previous: u32, next: Option<Arc<Process>>) {
    match &next {
        Some(next) => next.relations.lock().previous_sibling = previous,
        None => parent.relations.lock().last_child = previous,
    }
    if previous == 0 {
        parent.relations.lock().first_child = next;
        return;
    }
    // A sibling keeps its number until it is reaped, which takes it out of this list.
    let before = table.process(previous).expect("a sibling is in the table");
    before.relations.lock().next_sibling = next;
}
