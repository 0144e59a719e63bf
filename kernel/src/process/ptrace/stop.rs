//! The ptrace-stops: for a signal, at a call, for an event, with the process.

use super::registers::Registers;
use super::tracee::State;
use crate::process::TaskRef;
use crate::process::signal::{self, Detail, SI_USER, SigInfo, Signal};
use crate::process::task::{Stop, Task, Usage, WaitStatus};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use logic::errno::Errno;
pub(crate) use logic::ptrace::Event;
use logic::ptrace::{self, Options};
use machine::arch::UserFrame;
use machine::sched;
use machine::sched::work;

/// `si_code` of the tracer's SIGCHLD when a tracee stops with its process.
const CLD_STOPPED: i32 = 5;
/// `si_code` of the tracer's SIGCHLD for all other stops.
const CLD_TRAPPED: i32 = 4;

/// `PTRACE_EVENTMSG_SYSCALL_ENTRY`.
pub(crate) const CALL_ENTRY: u64 = 1;
/// `PTRACE_EVENTMSG_SYSCALL_EXIT`.
pub(crate) const CALL_EXIT: u64 = 2;

/// The values that a tracer sees during one ptrace-stop.
struct Standing {
    /// The stop's signal with the event above it, as `waitpid` of the tracer reports it.
    code: u32,
    /// The `si_code` of the SIGCHLD that the tracer gets.
    why: i32,
    message: u64,
    info: Option<SigInfo>,
    /// Whether the tracee has stopped inside a system call: at its entry, or for an event of the
    /// call, such as `fork` or exec.
    in_call: bool,
}

/// The values with which the tracer has continued a tracee.
struct Released {
    /// The number of the signal with which the tracee continues; 0 if none.
    code: u32,
    info: Option<SigInfo>,
    /// The thread that was the tracer when the stop began.
    tracer: Arc<Task>,
}

/// Returns the details of a stop that no signal caused.
fn trap_info(task: TaskRef, signal: Signal, code: u32) -> SigInfo {
    let uid = task.process().credentials().users.real;
    SigInfo::user(signal, code.cast_signed(), task.tid(), uid)
}

/// Sends a tracer SIGCHLD for a stop and wakes its waits.
fn tell(tracer: &Task, task: TaskRef, why: i32, code: u32) {
    let usage = Usage::of_task(&task);
    let process = tracer.process();
    let info = SigInfo {
        signal: Signal::SIGCHLD,
        errno: 0,
        code: why,
        detail: Detail::Child {
            pid: task.tid(),
            uid: task.process().credentials().users.real,
            status: (code & 0x7f).cast_signed(),
            utime: (usage.user.0 / 10_000_000).cast_signed(),
            stime: (usage.system.0 / 10_000_000).cast_signed(),
        },
    };
    signal::tell_of_stop(process, info);
    process.child_events.wake_all();
}

/// Stops the current thread until its tracer continues it, or until it is killed. Returns `None` if
/// no thread traces it, or if it is being killed.
fn stand(task: TaskRef, frame: &mut UserFrame, standing: Standing) -> Option<Released> {
    if task.work() & work::TRACED == 0 || task.killed() {
        return None;
    }
    let registers = Registers::of_current(frame);
    let tracer = {
        let mut state = task.tracee().lock();
        let state = state.as_deref_mut()?;
        let tracer = state.tracer.clone()?;
        state.code = standing.code;
        state.message = standing.message;
        state.info = standing.info;
        state.in_call = standing.in_call;
        state.listening = false;
        // This stop also serves a request for an interrupt.
        state.interrupted = false;
        state.trapping = false;
        state.inside = true;
        state.registers = Some(registers);
        state.stands = true;
        tracer
    };
    tell(&tracer, task, standing.why, standing.code);
    loop {
        sched::prepare_to_block();
        let stands = {
            let state = task.tracee().lock();
            state.as_ref().is_some_and(|state| state.stands)
        };
        if !stands || task.killed() {
            break;
        }
        sched::block();
    }
    sched::cancel_block();
    let (code, info) = leave(task, frame);
    super::breakpoints::reload(&task);
    signal::recalculate(&task);
    (!task.killed()).then_some(Released { code, info, tracer })
}

/// Ends the current thread's stop, and loads the registers that the tracer has left into `frame`
/// and the floating-point state. Returns the number of the signal with which the thread continues,
/// or 0 for none, and the details of the signal that stopped the thread, if any.
fn leave(task: TaskRef, frame: &mut UserFrame) -> (u32, Option<SigInfo>) {
    let mut all = task.tracee().lock();
    // The state stays while the tracee is inside a stop.
    let Some(state) = all.as_deref_mut() else {
        return (0, None);
    };
    // A thread that leaves without its tracer is killed.
    let stands = core::mem::take(&mut state.stands);
    let code = if stands { 0 } else { state.code };
    let info = state.info.take();
    state.code = 0;
    state.message = 0;
    state.listening = false;
    state.inside = false;
    let registers = state.registers.take();
    let gone = if state.tracer.is_none() {
        all.take()
    } else {
        None
    };
    drop(all);
    drop(gone);
    if let Some(registers) = registers {
        registers.load(task, frame);
    }
    (code, info)
}

/// Returns the result of `look` for the current thread's tracing state, or `None` if no thread
/// traces it.
fn of<R>(task: TaskRef, look: impl FnOnce(&mut State) -> R) -> Option<R> {
    if task.work() & work::TRACED == 0 {
        return None;
    }
    let mut state = task.tracee().lock();
    let state = state.as_deref_mut()?;
    state.tracer.is_some().then(|| look(state))
}

/// Stops the traced thread `task` for the signal `info`, which is about to be delivered. Returns
/// the signal that the tracer lets through, or `None`.
#[cold]
pub(crate) fn signal_stop(task: TaskRef, frame: &mut UserFrame, info: SigInfo) -> Option<SigInfo> {
    let standing = Standing {
        code: info.signal.number(),
        why: CLD_TRAPPED,
        message: 0,
        info: Some(info),
        in_call: false,
    };
    let Some(released) = stand(task, frame, standing) else {
        return Some(info);
    };
    let signal = Signal::new(released.code)?;
    let info = match released.info {
        Some(info) if info.signal == signal => info,
        _ => {
            let tracer = released.tracer.process();
            let uid = tracer.credentials().users.real;
            SigInfo::user(signal, SI_USER, tracer.pid(), uid)
        }
    };
    drop(released.tracer);
    if task.blocked().contains(signal) {
        let _ = signal::send_to_task(&task, info);
        return None;
    }
    Some(info)
}

/// Sends the current thread the signal with which its tracer has ended a stop.
fn send_released(task: TaskRef, released: Option<Released>) {
    if let Some(signal) = released.and_then(|released| Signal::new(released.code)) {
        let _ = signal::send_to_task(&task, SigInfo::kernel(signal));
    }
}

/// Stops at a call: at its entry or its exit, as `message` says.
fn call_stop(task: TaskRef, frame: &mut UserFrame, options: Options, message: u64) {
    let code = ptrace::call_code(options);
    let standing = Standing {
        code,
        why: CLD_TRAPPED,
        message,
        info: Some(trap_info(task, Signal::SIGTRAP, code)),
        in_call: message == CALL_ENTRY,
    };
    let released = stand(task, frame, standing);
    send_released(task, released);
}

/// Stops the traced thread `task` at the entry of a system call, if its tracer asked for it.
/// Returns `false` if the call is not made. Its result is then already in `frame`, unless something
/// else sets it.
#[cold]
pub(crate) fn enter_call(task: TaskRef, frame: &mut UserFrame) -> bool {
    let found = of(task, |state| {
        (state.calls || state.emulates, state.emulates, state.options)
    });
    let Some((stops, emulates, options)) = found else {
        return true;
    };
    task.add_work(work::CALL_END);
    if stops {
        call_stop(task, frame, options, CALL_ENTRY);
    }
    if emulates {
        task.clear_work(work::CALL_END);
    }
    !emulates && !task.killed()
}

/// Stops the traced thread `task` at the exit of a system call, if its tracer asked for it. A
/// single-stepping thread gets SIGTRAP instead.
#[cold]
pub(crate) fn end_call(task: TaskRef, frame: &mut UserFrame) {
    task.clear_work(work::CALL_END);
    match of(task, |state| (state.steps, state.calls, state.options)) {
        Some((true, ..)) => signal::step_over_call(frame),
        Some((_, true, options)) => call_stop(task, frame, options, CALL_EXIT),
        _ => {}
    }
}

fn event_stop(task: TaskRef, frame: &mut UserFrame, event: Event, signal: Signal, message: u64) {
    let code = event.code(signal);
    let (why, in_call) = match event {
        Event::Stop => (CLD_STOPPED, false),
        Event::Exit => (CLD_TRAPPED, false),
        _ => (CLD_TRAPPED, true),
    };
    // At the beginning of a call, the value that the tracer has put there stays.
    if in_call && event != Event::Seccomp {
        frame.rax = Errno::ENOSYS.to_return();
    }
    let standing = Standing {
        code,
        why,
        message,
        info: Some(trap_info(task, signal, code)),
        in_call,
    };
    stand(task, frame, standing);
}

/// Stops the thread `task` for `event` if its tracer asked for such stops. `message` is the value
/// that `PTRACE_GETEVENTMSG` returns.
#[cold]
pub(crate) fn event(task: TaskRef, frame: &mut UserFrame, event: Event, message: u64) {
    if of(task, |state| state.options.contains(event.option())) == Some(true) {
        event_stop(task, frame, event, Signal::SIGTRAP, message);
    }
}

/// Stops the thread `task` at a system call, because a seccomp filter wants the tracer to see the
/// call. `data` is the filter's value for the tracer. Returns `false` without a stop if there is no
/// tracer, or if it did not ask for such stops.
pub(crate) fn filter_stop(task: TaskRef, frame: &mut UserFrame, data: u16) -> bool {
    let seen = of(task, |state| state.options.contains(Options::SECCOMP)) == Some(true);
    if seen {
        event_stop(task, frame, Event::Seccomp, Signal::SIGTRAP, data.into());
    }
    seen
}

/// Returns whether the tracer of `task` has suspended the seccomp filters
/// (`PTRACE_O_SUSPEND_SECCOMP`).
pub(crate) fn suspends_filters(task: TaskRef) -> bool {
    of(task, |state| {
        state.options.contains(Options::SUSPEND_SECCOMP)
    }) == Some(true)
}

/// Returns the event for which `task` stops when it clones, or `None`, and whether the child is
/// traced, too. `is_vfork` is `CLONE_VFORK`, `exit_signal` the child's exit signal, `unseen` is
/// `CLONE_UNTRACED`, and `asks` is `CLONE_PTRACE`.
pub(crate) fn clone_event(
    task: TaskRef,
    is_vfork: bool,
    exit_signal: u32,
    unseen: bool,
    asks: bool,
) -> (Option<Event>, bool) {
    let event = Event::of_clone(is_vfork, exit_signal);
    match of(task, |state| state.options.contains(event.option())) {
        None => (None, false),
        Some(wanted) if wanted && !unseen => (Some(event), true),
        Some(_) => (None, asks),
    }
}

/// Stops the thread `task`, if its tracer asked for it, because its child `tid` by `vfork` has
/// released the memory.
pub(crate) fn vfork_done(task: TaskRef, frame: &mut UserFrame, tid: u32) {
    event(task, frame, Event::VforkDone, u64::from(tid));
}

/// Stops the current thread `task`, if its tracer asked for it, because it runs another program.
/// `tid` was its number before. Sends SIGTRAP instead if the tracer neither seized the thread nor
/// asked for such stops.
#[cold]
pub(crate) fn executed(task: TaskRef, frame: &mut UserFrame, tid: u32) {
    let asks = of(task, |state| {
        state.forced_step = false;
        (state.options.contains(Options::EXEC), state.seized)
    });
    match asks {
        Some((true, _)) => event(task, frame, Event::Exec, u64::from(tid)),
        Some((false, false)) => {
            let (pid, uid) = (
                task.process().pid(),
                task.process().credentials().users.real,
            );
            let info = SigInfo::user(Signal::SIGTRAP, SI_USER, pid, uid);
            let _ = signal::send_to_task(&task, info);
        }
        _ => {}
    }
}

/// Stops the current thread `task`, if its tracer asked for it, because it is about to end with
/// `status`. A thread whose process was killed since does not stop, nor does an OOM victim.
#[cold]
pub(crate) fn exit_event(task: TaskRef, frame: &mut UserFrame, status: WaitStatus) {
    if of(task, |state| state.options.contains(Options::EXIT)) == Some(true) {
        let process = task.process();
        if process.oom_victim.load(Ordering::Relaxed) {
            // The OOM killer waits for its memory.
            return;
        }
        {
            let group = process.group.lock();
            if group.exit.is_some_and(|exit| exit != status) {
                // The process has been killed since, so the thread does not stop.
                return;
            }
            // The signal that ends the thread has been taken. Another one ends the stop.
            task.clear_work(work::KILL);
        }
        event_stop(
            task,
            frame,
            Event::Exit,
            Signal::SIGTRAP,
            u64::from(status.0),
        );
    }
}

/// Stops the single-stepping thread `task` at the first instruction of a signal handler.
#[cold]
pub(crate) fn handler_ready(task: TaskRef, frame: &mut UserFrame) {
    let code = Signal::SIGTRAP.number();
    let standing = Standing {
        code,
        why: CLD_TRAPPED,
        message: 0,
        info: Some(trap_info(task, Signal::SIGTRAP, code)),
        in_call: false,
    };
    stand(task, frame, standing);
}

/// Notes that the tracer of `task` sees all stops and continuations of the process so far in the
/// stop that follows. The caller holds the lock of the process's group, so a later change is a new
/// one.
pub(crate) fn sees_group(task: TaskRef) {
    of(task, |state| {
        state.interrupted = false;
        state.notified = false;
    });
}

/// Stops the current thread `task` for its tracer, because the process has stopped by `signal`. The
/// thread continues when the tracer says so. Does nothing if the thread is not traced.
#[cold]
pub(crate) fn group_stop(task: TaskRef, frame: &mut UserFrame, signal: Signal) {
    match of(task, |state| state.seized) {
        Some(true) => event_stop(task, frame, Event::Stop, signal, 0),
        Some(false) => {
            let standing = Standing {
                code: signal.number(),
                why: CLD_STOPPED,
                message: 0,
                info: None,
                in_call: false,
            };
            stand(task, frame, standing);
        }
        None => {}
    }
}

/// Serves the TRAP bit of the work word of `task`: a request of the tracer to stop, or a stop or
/// continuation of the process.
#[cold]
pub(crate) fn trap(task: TaskRef, frame: &mut UserFrame) {
    task.clear_work(work::TRAP);
    let due = of(task, |state| {
        let due = state.interrupted || state.notified;
        (due, state.seized)
    });
    let Some((due, seized)) = due else {
        // The tracer is gone, so the thread stops with its process.
        let group = task.process().group.lock();
        if group.stop != Stop::No {
            task.add_work(work::STOP);
        }
        return;
    };
    if !due {
        return;
    }
    {
        let group = task.process().group.lock();
        if group.stop != Stop::No {
            // The thread stops with the group.
            task.add_work(work::STOP);
            return;
        }
        sees_group(task);
    }
    if seized {
        event_stop(task, frame, Event::Stop, Signal::SIGTRAP, 0);
    }
}
