//! A thread takes its signals on its way to user mode.

use super::{
    Action, DefaultAction, SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_DFL, SigInfo, SigSet, Signal,
    fault, frame, send, stop,
};
use crate::process::task::table::{self, Table};
use crate::process::task::{Task, WaitStatus, core_dump, exit_group};
use crate::process::{TaskRef, ptrace, rseq};
use linux_raw_sys::general::__NR_restart_syscall;
use logic::errno::Errno;
use logic::own::Token;
use machine::arch::UserFrame;
use machine::sched::work;

/// Sets the SIGNAL bit in the work word of the current task `task` if a pending signal is not
/// blocked, else clears it.
pub(crate) fn recalculate(task: &Task) {
    recalculate_without(task, SigSet::EMPTY);
}

/// Sets or clears the SIGNAL bit as [`recalculate`] does, after `task` has ceased to take the
/// signals `given_up`. Notifies other threads of those signals of `given_up` that are pending for
/// the process.
pub(crate) fn recalculate_without(task: &Task, given_up: SigSet) {
    let group = task.process().group.lock();
    let waiting = group.pending.set().union(task.signals().pending().set());
    // Under the group's lock no task adds a signal.
    if waiting.without(task.blocked()).is_empty() {
        task.clear_work(work::SIGNAL);
    } else {
        task.add_work(work::SIGNAL);
    }
    if !given_up.is_empty() {
        send::pass_on(&group, given_up);
    }
}

/// Takes the next signal of `wanted` that is pending for the current task `task` or its process. If
/// there is none, returns `None` and clears the SIGNAL bit of `task`.
fn take(task: TaskRef, wanted: SigSet) -> Option<SigInfo> {
    let mut group = task.process().group.lock();
    let own = task.signals().pending().take(wanted);
    let mut info = own.or_else(|| group.pending.take(wanted));
    if info.is_none() {
        task.clear_work(work::SIGNAL);
    } else {
        task.signals().set_may_stop(true);
    }
    drop(group);
    told(task, &mut info);
    info
}

/// Notifies the POSIX timer that has sent the signal `info`, if one has, that `task` has taken the
/// signal.
fn told(task: TaskRef, info: &mut Option<SigInfo>) {
    if let Some(info) = info {
        task.process().timers.posix.taken(info);
    }
}

/// Removes a pending signal of `wanted`, blocked or not, from `task` or its process
/// (`rt_sigtimedwait`). Returns the signal, or `None` if no signal of `wanted` is pending.
pub(crate) fn take_awaited(task: TaskRef, wanted: SigSet) -> Option<SigInfo> {
    let mut info = {
        let mut group = task.process().group.lock();
        let own = task.signals().pending().take(wanted);
        own.or_else(|| group.pending.take(wanted))
    };
    told(task, &mut info);
    recalculate(&task);
    info
}

/// Returns the restart code (such as `ERESTARTSYS`) that is the result of the call in `frame`.
/// Returns `None` for another result, and if the entry was no call.
fn restart_code(frame: &UserFrame) -> Option<Errno> {
    if !frame.is_syscall() {
        return None;
    }
    [
        Errno::ERESTARTSYS,
        Errno::ERESTARTNOINTR,
        Errno::ERESTARTNOHAND,
        Errno::ERESTART_RESTARTBLOCK,
    ]
    .into_iter()
    .find(|errno| errno.to_return() == frame.rax)
}

/// Length of the `syscall` instruction in bytes.
const SYSCALL_BYTES: u64 = 2;

/// Makes the program repeat its call if the result asks for it. Called if no handler runs.
fn restart(frame: &mut UserFrame) {
    let Some(code) = restart_code(frame) else {
        return;
    };
    frame.rax = if code == Errno::ERESTART_RESTARTBLOCK {
        u64::from(__NR_restart_syscall)
    } else {
        frame.orig_rax
    };
    frame.rip = frame.rip.wrapping_sub(SYSCALL_BYTES);
    frame.orig_rax = UserFrame::NO_SYSCALL;
}

/// Sets the result of the interrupted call, or repeats the call, when a handler runs.
fn settle_call(frame: &mut UserFrame, action: &Action) {
    let Some(code) = restart_code(frame) else {
        return;
    };
    let again = code == Errno::ERESTARTNOINTR
        || code == Errno::ERESTARTSYS && action.flags & SA_RESTART != 0;
    if again {
        restart(frame);
    } else {
        frame.rax = Errno::EINTR.to_return();
        frame.orig_rax = UserFrame::NO_SYSCALL;
    }
}

/// Delivers the pending signals of the current task `task`, whose registers are in `frame`. Sets up
/// at most one handler. Further handlers follow when the handler returns. Without a handler, makes
/// the program repeat a call that was interrupted.
pub(crate) fn deliver(task: TaskRef, frame: &mut UserFrame, token: &mut Token) {
    // Each turn takes one signal. Only other tasks can send more, and the queue is bounded.
    while let Some(mut info) = take(task, task.blocked().complement()) {
        if task.is_traced() {
            let kept = ptrace::signal_stop(task, frame, info);
            if task.killed() {
                return;
            }
            match kept {
                Some(seen) => info = seen,
                None => continue,
            }
        }
        let signal = info.signal;
        // Nothing here may own memory from this point on, because `exit_group` does not return to
        // drop it.
        let action = task.process().actions().change(signal, |action| {
            let now = *action;
            if now.is_handler() && now.flags & SA_RESETHAND != 0 {
                action.handler = SIG_DFL;
            }
            now
        });
        if action.is_handler() {
            settle_call(frame, &action);
            run_handler(task, frame, &action, &info);
            return;
        }
        if action.ignores(signal) {
            continue;
        }
        match signal.default_action() {
            DefaultAction::Ignore | DefaultAction::Continue => {}
            DefaultAction::Stop => {
                if signal == Signal::SIGSTOP || !is_of_orphans(task) {
                    stop::begin_stop(task, signal);
                    // The caller sees the STOP bit and comes back here afterwards, at least to
                    // restart the call.
                    task.add_work(work::RESTART);
                    return;
                }
            }
            DefaultAction::Terminate => exit_group(WaitStatus::signalled(signal), frame, token),
            DefaultAction::Dump => core_dump::end(task, frame, &info, token),
        }
    }
    restart(frame);
    super::restore_mask();
}

/// Returns whether the task's process group is orphaned, so that no process could continue it after
/// a stop by the terminal.
fn is_of_orphans(task: TaskRef) -> bool {
    let table = table::lock();
    let (pgid, session) = {
        let relations = task.process().relations.lock();
        (relations.group, relations.session)
    };
    is_orphaned(&table, pgid, session)
}

/// Returns whether the process group `pgid` of `session` is orphaned: no live member has a parent
/// in another group of the same session. Such a parent could continue the group.
pub(crate) fn is_orphaned(table: &Table, pgid: u32, session: u32) -> bool {
    for process in table.members(pgid) {
        let parent = {
            let relations = process.relations.lock();
            if relations.zombie.is_some() {
                continue;
            }
            relations.parent.clone()
        };
        let Some(parent) = parent else { continue };
        let relations = parent.relations.lock();
        if relations.group != pgid && relations.session == session {
            return false;
        }
    }
    true
}

fn run_handler(task: TaskRef, frame: &mut UserFrame, action: &Action, info: &SigInfo) {
    // If a call with a temporary mask was interrupted, the handler runs with the temporary mask,
    // and the frame holds the earlier mask.
    let mask = if task.work() & work::RESTORE_MASK != 0 {
        task.signals().saved_mask()
    } else {
        task.blocked()
    };
    let steps = ptrace::registers::end_step(task, frame);
    let ready = rseq::before_handler(task, frame).is_ok();
    if !ready || frame::push(task, frame, action, info, mask).is_err() {
        // The handler's stack cannot be written. The program may have a handler for SIGSEGV on
        // another stack. If that stack cannot be written either, the process ends.
        if info.signal == Signal::SIGSEGV {
            fault::force_fatal(Signal::SIGSEGV);
        } else {
            fault::force_bad_frame();
        }
        return;
    }
    task.clear_work(work::RESTORE_MASK);
    let mut blocked = task.blocked().union(action.mask);
    if action.flags & SA_NODEFER == 0 {
        blocked.insert(info.signal);
    }
    super::set_mask(blocked);
    if steps {
        ptrace::handler_ready(task, frame);
    }
}
