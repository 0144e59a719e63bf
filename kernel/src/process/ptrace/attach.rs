//! The relation of tracer and tracee, its beginning and its end.
//!
//! It changes under the process table's lock. It consists of the tracer's list of tracees and the
//! tracee's state. If the tracee is a main thread, its process has a reference to the tracer's
//! process, too. An ended tracee keeps its number and stays in the list until its tracer has waited
//! for it or is gone.

use super::resume::{self, Way};
use super::tracee::{State, tracer_credentials, wait_for_trap};
use crate::process;
use crate::process::signal::{self, SI_USER, SigInfo, Signal};
use crate::process::task::table::{self, Table};
use crate::process::task::{self, Process, Stop, Task, WaitStatus};
use crate::process::{TaskRef, caller};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use logic::credentials::others::LooksAs;
use logic::credentials::{Capabilities, Credentials};
use logic::errno::Errno;
use logic::ptrace::Options;
use machine::sched;
use machine::sched::work;

/// References to a tracer and its process that a tracee has given up.
type Unlinked = (Option<Arc<Task>>, Option<Arc<Process>>);

/// Reserves room for one more tracee in a tracer's list. The caller holds the table's lock. Fails
/// with `ENOMEM`.
fn reserve(tracer: &Task) -> Result<(), Errno> {
    let mut relations = tracer.process().relations.lock();
    relations.tracees.try_reserve(1).map_err(|_| Errno::ENOMEM)
}

/// Makes `tracee` a tracee of `tracer`. The caller has called `reserve`.
fn link(tracer: &Arc<Task>, tracee: &Arc<Task>, mut state: Box<State>) {
    let process = tracer.process();
    process.relations.lock().tracees.push(tracee.clone());
    tracer.tracee().set_traces();
    if is_leader(tracee) {
        tracee.process().relations.lock().tracer = Some(process.clone());
    }
    let old = {
        let mut place = tracee.tracee().lock();
        if tracee.work() & work::STEPS != 0 {
            // The thread still steps for its last tracer.
            let old = place.as_deref();
            state.steps = true;
            state.forced_step = old.is_none_or(|old| old.forced_step);
        }
        if let Some(old) = place.as_deref_mut() {
            // The thread is on its way out of a stop for its last tracer.
            state.inside = old.inside;
            state.code = old.code;
            state.info = old.info;
            state.registers = old.registers.take();
        }
        place.replace(state)
    };
    drop(old);
    tracee.add_work(work::TRACED);
}

fn is_leader(task: &Task) -> bool {
    task.tid() == task.process().pid()
}

/// Takes a tracee from its tracer. A tracee in a ptrace-stop continues. The caller drops the result
/// without the table's lock.
#[must_use]
fn unlink(tracee: &Task) -> Unlinked {
    tracee.clear_work(work::TRACED | work::TRACED_CALLS);
    let (tracer, state) = {
        let mut place = tracee.tracee().lock();
        let Some(state) = place.as_deref_mut() else {
            return (None, None);
        };
        let tracer = state.tracer.take();
        state.end_steps(tracee);
        state.stands = false;
        // A thread in a stop drops the state when it leaves the stop.
        let stays = state.inside;
        (tracer, if stays { None } else { place.take() })
    };
    drop(state);
    let Some(tracer) = tracer else {
        return (None, None);
    };
    let listed = {
        let mut relations = tracer.process().relations.lock();
        let tracees = &mut relations.tracees;
        let at = tracees
            .iter()
            .position(|task| core::ptr::eq(Arc::as_ptr(task), tracee));
        at.map(|at| tracees.swap_remove(at))
    };
    let process = if is_leader(tracee) {
        tracee.process().relations.lock().tracer.take()
    } else {
        None
    };
    // The caller's reference keeps the tracee, and `tracer` keeps the tracer.
    drop(listed);
    let stops = tracee.process().group.lock().stop != Stop::No;
    if stops {
        sched::notify(tracee, work::STOP);
        if process.is_some() {
            // A parent that has traced the process has not waited for the process's stop.
            let parent = tracee.process().relations.lock().parent.clone();
            if let Some(parent) = parent {
                parent.child_events.wake_all();
            }
        }
    } else {
        sched::wake(tracee);
    }
    (Some(tracer), process)
}

/// Returns the parent's thread that made the process, or another thread of the parent if that has
/// ended. Returns `None` if no thread of the parent can trace.
fn parent_thread(process: &Process) -> Option<Arc<Task>> {
    let parent = process.relations.lock().parent.clone()?;
    let maker = process.maker.load(Ordering::Relaxed);
    let group = parent.group.lock();
    let usable = |task: &&Arc<Task>| {
        // Relaxed: the table's lock guards the flag.
        !task.is_kernel() && !task.tracee().traces_no_more.load(Ordering::Relaxed)
    };
    let named = group.tasks.iter().filter(usable);
    let first = named.clone().next();
    named
        .clone()
        .find(|task| task.tid() == maker)
        .or(first)
        .cloned()
}

/// Makes a thread of the parent process the tracer of the current thread (`PTRACE_TRACEME`).
///
/// # Errors
/// Fails with `EPERM` if the current thread is traced already, or if no thread of the parent can
/// trace, as for children of init. Fails with `ENOMEM`.
pub(crate) fn trace_me() -> Result<(), Errno> {
    let task = process::current();
    let table = table::lock();
    if super::tracer_of(&task).is_some() {
        return Err(Errno::EPERM);
    }
    let tracer = parent_thread(task.process()).ok_or(Errno::EPERM)?;
    reserve(&tracer)?;
    let credentials = task.credentials();
    let state = State::new(tracer.clone(), credentials, false, Options::empty());
    let state = Box::new(state);
    link(&tracer, &task.to_arc(), state);
    drop(table);
    Ok(())
}

/// A mark on a thread that executes a program which gives it further rights. It stays until this
/// value is dropped.
#[derive(Debug)]
pub(crate) struct Gain(TaskRef);

impl Drop for Gain {
    fn drop(&mut self) {
        // Relaxed: an attach that still sees the flag fails as it would have just before.
        self.0.tracee().gains.store(false, Ordering::Relaxed);
    }
}

/// Returns the credentials that the current thread `task` gets from the program that it executes,
/// and whether the C library must not trust its environment (`AT_SECURE`). Both depend on the
/// rights of the tracer, if there is one.
///
/// If the thread gains rights, also returns a [`Gain`]. While it exists, only a tracer that may use
/// these rights can begin to trace the thread. The caller drops it once the thread has the new
/// credentials, or once exec has failed.
pub(crate) fn credentials_for_program(task: TaskRef) -> (Credentials, bool, Option<Gain>) {
    let compute = || {
        let tracer = tracer_credentials(&task);
        task.with_credentials(|own| own.for_program(tracer.as_deref()))
    };
    let (new, secure) = compute();
    if !task.with_credentials(|old| new.hides_from(old)) {
        return (new, secure, None);
    }
    // An attach holds this lock from its check until the thread is traced.
    let table = table::lock();
    task.tracee().gains.store(true, Ordering::Relaxed);
    let (new, secure) = compute();
    drop(table);
    (new, secure, Some(Gain(task)))
}

/// Makes the current thread trace the thread `tid`. If `seized` is given, seizes the thread with
/// these options instead of sending it SIGSTOP. Fails as [`attach`] does.
fn begin(tid: i32, seized: Option<Options>) -> Result<(), Errno> {
    let tid = u32::try_from(tid).map_err(|_| Errno::ESRCH)?;
    let tracer = process::current().to_arc();
    let table = table::lock();
    let Some(tracee) = table.task(tid).cloned() else {
        let zombie = table.process(tid).is_some() || table.is_kept(tid);
        return Err(if zombie { Errno::EPERM } else { Errno::ESRCH });
    };
    let own = Arc::ptr_eq(tracee.process(), tracer.process());
    if tracee.is_kernel() || own || super::tracer_of(&tracee).is_some() {
        return Err(Errno::EPERM);
    }
    caller::look_into(tracee.process(), LooksAs::Real)?;
    // Relaxed: set under the table's lock.
    if tracee.tracee().gains.load(Ordering::Relaxed) {
        // As if the exec was over. Linux waits for that.
        caller::need(Capabilities::SYS_PTRACE)?;
    }
    reserve(&tracer)?;
    let options = seized.unwrap_or_default();
    let credentials = process::current().credentials();
    let state = State::new(tracer.clone(), credentials, seized.is_some(), options);
    let mut state = Box::new(state);
    let (stops, stands) = {
        let group = tracee.process().group.lock();
        (group.stop != Stop::No, tracee.signals().is_stopped())
    };
    state.interrupted = stops;
    state.trapping = stops && stands;
    link(&tracer, &tracee, state);
    if seized.is_none() {
        let _ = signal::send_to_task(&tracee, SigInfo::kernel(Signal::SIGSTOP));
    }
    if stops {
        sched::notify(&tracee, work::TRAP);
    }
    drop(table);
    if stops && stands {
        // The tracer may use the tracee at once, without a wait.
        wait_for_trap(&tracee);
    }
    Ok(())
}

/// Makes the current thread the tracer of the thread `tid`, and sends that thread SIGSTOP
/// (`PTRACE_ATTACH`).
///
/// # Errors
/// Fails with `ESRCH` if there is no such thread. Fails with `EPERM` for kernel threads, threads of
/// the caller's process, threads that are traced or have ended, and threads that the caller may not
/// inspect. Fails with `ENOMEM`.
pub(crate) fn attach(tid: i32) -> Result<(), Errno> {
    begin(tid, None)
}

/// Makes the current thread the tracer of the thread `tid`, with `options` and without stopping it
/// (`PTRACE_SEIZE`).
///
/// # Errors
/// Fails with the errors of [`attach`].
pub(crate) fn seize(tid: i32, options: Options) -> Result<(), Errno> {
    begin(tid, Some(options))
}

/// Ends the tracing of `tracee`, which must be in a ptrace-stop (`PTRACE_DETACH`). `tracee`
/// continues with the signal number in `data`, or without a signal if `data` is 0.
///
/// # Errors
/// Fails with `EIO` if `data` is no signal. Fails with `ESRCH` if `tracee` is no tracee of the
/// current thread, or is not in a ptrace-stop.
pub(crate) fn detach(tracee: &Arc<Task>, data: u64) -> Result<(), Errno> {
    let code = resume::signal(data)?;
    let table = table::lock();
    super::at_stop(tracee, |state, registers| {
        resume::set_way(tracee, state, registers, Way::default(), false);
        state.code = code;
        Ok(())
    })?;
    let gone = unlink(tracee);
    drop(table);
    drop(gone);
    Ok(())
}

/// Makes `tracee`, which must be seized, enter a ptrace-stop (`PTRACE_INTERRUPT`). If `tracee` is
/// in a ptrace-stop already, it stops again once it continues.
///
/// # Errors
/// Fails with `ESRCH` if `tracee` is no tracee of the current thread, and with `EIO` if it was not
/// seized.
pub(crate) fn interrupt(tracee: &Task) -> Result<(), Errno> {
    {
        let mut state = tracee.tracee().lock();
        let state = state
            .as_deref_mut()
            .filter(|state| state.is_of(&process::current()))
            .ok_or(Errno::ESRCH)?;
        if !state.seized {
            return Err(Errno::EIO);
        }
        state.interrupted = true;
        state.stop_listening();
    }
    sched::notify(tracee, work::TRAP);
    Ok(())
}

/// If `task` is seized, makes it enter a ptrace-stop, so that its tracer sees that the process
/// stops or continues. The caller holds the lock of the process's group.
pub(crate) fn notify_seized(task: &Task) {
    if task.work() & work::TRACED == 0 {
        return;
    }
    {
        let mut state = task.tracee().lock();
        let Some(state) = state.as_deref_mut().filter(|state| state.seized) else {
            return;
        };
        state.notified = true;
        state.stop_listening();
    }
    sched::notify(task, work::TRAP);
}

/// Reserves memory for one more tracee in the list of the process that traces `parent`, so that
/// [`adopt`] cannot fail. Does nothing if `parent` has no tracer. The caller holds the process
/// table's lock.
///
/// # Errors
/// Fails with `ENOMEM`.
pub(crate) fn reserve_tracee(parent: &Task) -> Result<(), Errno> {
    match super::tracer_of(parent) {
        Some(tracer) => reserve(&tracer),
        None => Ok(()),
    }
}

/// Makes the tracer of `parent` trace the thread `child` from its first instruction on. Does
/// nothing if `parent` has no tracer. The caller holds the process table's lock and has called
/// `reserve_tracee`.
pub(crate) fn adopt(parent: &Task, child: &Arc<Task>) {
    let known = {
        let state = parent.tracee().lock();
        state.as_ref().and_then(|state| {
            let tracer = state.tracer.clone()?;
            let credentials = state.credentials.clone();
            Some((tracer, credentials, state.seized, state.options))
        })
    };
    let Some((tracer, credentials, seized, options)) = known else {
        return;
    };
    let mut state = Box::new(State::new(tracer.clone(), credentials, seized, options));
    state.interrupted = seized;
    link(&tracer, child, state);
    if seized {
        child.add_work(work::TRAP);
    } else {
        let info = SigInfo::user(Signal::SIGSTOP, SI_USER, 0, 0);
        let uid = child.credentials_for_others().users.real;
        let _ = child.signals().pending().add(info, uid, u64::MAX);
        child.add_work(work::SIGNAL);
    }
}

/// Removes the thread `task`, which ends with `status`, from the process table. If `task` is traced
/// and no main thread, its number stays in use and its tracer is notified. Returns the table's
/// reference to `task`, or `None` if the table has none. The caller drops the result without the
/// table's lock.
#[must_use]
pub(crate) fn end_of_tracee(
    table: &mut Table,
    task: TaskRef,
    status: WaitStatus,
) -> Option<Arc<Task>> {
    let tracer = {
        let mut state = task.tracee().lock();
        let state = state.as_deref_mut().filter(|state| state.tracer.is_some());
        state.and_then(|state| {
            state.ended = Some(status);
            state.tracer.clone()
        })
    };
    let Some(tracer) = tracer else {
        return table.remove_task(task.tid());
    };
    let is_leader = is_leader(&task);
    // The thread counts until it has left the tracer's list.
    let gone = table.keep_task(task.tid(), !is_leader);
    if is_leader {
        // The tracer is notified when the whole process has ended.
        return gone;
    }
    let mut info = signal::child_info(task.process(), Signal::SIGCHLD, status);
    if let signal::Detail::Child { pid, .. } = &mut info.detail {
        *pid = task.tid();
    }
    let _ = signal::send_to_process(tracer.process(), info);
    tracer.process().child_events.wake_all();
    gone
}

/// The process that is notified when a process has ended. It depends on the tracer of the main
/// thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaderGone {
    /// No thread traces the main thread, so the parent is notified.
    Untraced,
    /// The parent traces the main thread. The parent is notified as the tracer, and must wait for
    /// the process even if it ignores SIGCHLD.
    ByParent,
    /// Another process traces the main thread. The tracer is notified first, and the parent once
    /// the tracer has waited.
    ByOther,
}

impl LeaderGone {
    /// Returns which process is notified of the end of `process`. The caller holds the process
    /// table's lock.
    pub(crate) fn of(process: &Process) -> Self {
        let relations = process.relations.lock();
        match (&relations.tracer, &relations.parent) {
            (None, _) => Self::Untraced,
            (Some(tracer), Some(parent)) if Arc::ptr_eq(tracer, parent) => Self::ByParent,
            (Some(_), _) => Self::ByOther,
        }
    }
}

/// Finishes the end of `tracee` once its tracer has seen that end, or cannot see it any more:
/// releases the thread's number or, for a main thread, notifies the parent of the process. `before`
/// says which process was notified when the tracee ended. If that reaps the process, returns the
/// table's reference to it. The caller holds the table's lock and drops the result without it.
#[must_use]
fn settle(table: &mut Table, tracee: &Task, before: LeaderGone) -> Option<Arc<Process>> {
    let process = tracee.process();
    if !is_leader(tracee) {
        table.release_number(tracee.tid());
        return None;
    }
    let status = process.relations.lock().zombie?;
    match before {
        LeaderGone::ByOther => task::tell_parent(table, process, status, true),
        LeaderGone::ByParent | LeaderGone::Untraced => {
            let parent = process.relations.lock().parent.clone()?;
            parent.child_events.wake_all();
            if signal::children_ignored(&parent) {
                return task::reap(table, process);
            }
            None
        }
    }
}

/// Ends the tracing of all tracees of the thread `task`, which ends.
#[cold]
pub(crate) fn end_of_tracer(task: TaskRef) {
    // No task before this index in the list is a tracee of this thread, unless a removal has moved
    // it there.
    let mut from = 0;
    loop {
        let mut table = table::lock();
        // Relaxed: the table's lock guards the flag.
        let own = task.tracee();
        own.traces_no_more.store(true, Ordering::Relaxed);
        let tracee = {
            let relations = task.process().relations.lock();
            let mut tracees = relations.tracees.iter().enumerate().skip(from);
            let of_task = |(_, tracee): &(usize, &Arc<Task>)| {
                let state = tracee.tracee().lock();
                state.as_ref().is_some_and(|state| state.is_of(&task))
            };
            tracees
                .find(of_task)
                .map(|(place, tracee)| (place, tracee.clone()))
        };
        let Some((place, tracee)) = tracee else {
            if from == 0 {
                break;
            }
            // A removal by another thread may have moved one of our tracees to the front.
            from = 0;
            continue;
        };
        from = place;
        let (ended, kills) = {
            let state = tracee.tracee().lock();
            let state = state.as_ref();
            let ended = state.is_some_and(|state| state.ended.is_some());
            let kills = state.is_some_and(|state| state.options.contains(Options::EXIT_KILL));
            (ended, kills)
        };
        if kills {
            let _ = signal::send_to_process(tracee.process(), SigInfo::kernel(Signal::SIGKILL));
        }
        let before = LeaderGone::of(tracee.process());
        let unlinked = unlink(&tracee);
        let reaped = if ended {
            table.uncount(&tracee);
            settle(&mut table, &tracee, before)
        } else {
            None
        };
        drop(table);
        drop(reaped);
        drop(unlinked);
        drop(tracee);
    }
}

/// Removes the ended thread `tracee`, which its tracer has waited for. Returns the process of
/// `tracee` if that was reaped, else `None`, and the references to the tracer that `tracee` has
/// given up. The caller holds the process table's lock and drops the result without it.
#[must_use]
pub(crate) fn reap(table: &mut Table, tracee: &Arc<Task>) -> (Option<Arc<Process>>, Unlinked) {
    let before = LeaderGone::of(tracee.process());
    let unlinked = unlink(tracee);
    table.uncount(tracee);
    let reaped = if is_leader(tracee) && before != LeaderGone::ByOther {
        task::reap(table, tracee.process())
    } else {
        settle(table, tracee, before)
    };
    (reaped, unlinked)
}

/// Removes the ended main thread of `process` from its tracer, because another thread takes over
/// its number in exec. No tracer waits for the old main thread any more. Returns that thread, or
/// `None` if it was not traced. The caller holds the process table's lock and drops the result
/// without it.
#[must_use]
pub(crate) fn leader_taken_over(table: &mut Table, process: &Process) -> Option<Arc<Task>> {
    let tracer = process.relations.lock().tracer.clone()?;
    let old = {
        let relations = tracer.relations.lock();
        let mut tracees = relations.tracees.iter();
        tracees.find(|task| task.tid() == process.pid()).cloned()
    }?;
    drop(unlink(&old));
    // The old main thread has ended.
    table.uncount(&old);
    Some(old)
}

/// Stores the tracer's process in the relations of the process of `task`, because `task` has become
/// its main thread (exec). Does nothing if no thread traces `task`.
pub(crate) fn note_new_leader(task: &Task) {
    if let Some(tracer) = super::tracer_of(task) {
        task.process().relations.lock().tracer = Some(tracer.process().clone());
    }
}
