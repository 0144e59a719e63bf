//! The CPU's debug registers, as a tracer sets them for a tracee.

use super::tracee::State;
use crate::process::TaskRef;
use crate::process::task::Task;
use logic::errno::Errno;
use logic::ptrace;
use machine::arch::USER_END;
use machine::arch::debug::{Breakpoints, DR6_QUIET};
use machine::sched::work;

/// Returns the value that a tracer reads from debug register `n` of the tracee with the state
/// `state`. Unused registers read as 0.
pub(crate) fn read(state: &State, n: usize) -> u64 {
    match n {
        0..4 => state.breakpoints.addresses[n],
        6 => state.breakpoint_status ^ DR6_QUIET,
        7 => state.breakpoints.control,
        _ => 0,
    }
}

/// Sets debug register `n` of `tracee`, which is in a ptrace-stop, to `value`.
///
/// # Errors
/// Fails with `EINVAL` for a breakpoint that is invalid or not in user memory, and with `EIO` for a
/// register that does not exist.
pub(crate) fn write(tracee: &Task, state: &mut State, n: usize, value: u64) -> Result<(), Errno> {
    let mut new = state.breakpoints;
    match n {
        0..4 => {
            if value >= USER_END {
                return Err(Errno::EINVAL);
            }
            new.addresses[n] = value;
            new.control = ptrace::control(&new.addresses, new.control)?;
        }
        6 => {
            state.breakpoint_status = value ^ DR6_QUIET;
            return Ok(());
        }
        7 => new.control = ptrace::control(&new.addresses, value)?,
        _ => return Err(Errno::EIO),
    }
    state.breakpoints = new;
    if new.control & 0xff != 0 {
        tracee.add_work(work::BREAKPOINTS);
    }
    Ok(())
}

/// Unloads the breakpoints of `previous` from this CPU and loads those of `next`. Called when this
/// CPU switches threads and one of them has breakpoints.
#[cold]
pub(crate) fn switch(previous: &Task, next: &Task) {
    if previous.work() & work::BREAKPOINTS != 0 {
        Breakpoints::unload();
    }
    load(next);
}

/// Loads the breakpoints of a thread that runs on this CPU, or is about to.
fn load(task: &Task) {
    if task.work() & work::BREAKPOINTS == 0 {
        return;
    }
    let wanted = {
        let state = task.tracee().lock();
        state
            .as_ref()
            .map(|state| state.breakpoints)
            .filter(|wanted| wanted.control & 0xff != 0)
    };
    match wanted {
        Some(wanted) => wanted.load(),
        None => {
            Breakpoints::unload();
            task.clear_work(work::BREAKPOINTS);
        }
    }
}

/// Loads the breakpoints of the current thread `task` again, because its tracer may have changed
/// them.
pub(super) fn reload(task: &Task) {
    load(task);
}

/// Removes the breakpoints of the current thread `task`, because it runs another program.
pub(crate) fn forget(task: TaskRef) {
    if task.work() & work::BREAKPOINTS != 0 {
        if let Some(state) = task.tracee().lock().as_deref_mut() {
            state.breakpoints = Breakpoints::default();
        }
        load(&task);
    }
}

/// Removes the breakpoints of the current thread `task`, which is not traced any more. Returns
/// whether it had any.
pub(crate) fn drop_left(task: TaskRef) -> bool {
    let had = task.work() & work::BREAKPOINTS != 0;
    if had {
        Breakpoints::unload();
        task.clear_work(work::BREAKPOINTS);
    }
    had
}

/// Stores `status`, the bits of DR6 that the CPU reports for a step or for breakpoints, for the
/// tracer of `task`. Returns `true` if the next instruction has an execution breakpoint. Returns
/// `false` if `task` is not traced.
pub(crate) fn note(task: TaskRef, status: u64) -> bool {
    if !task.is_traced() {
        return false;
    }
    let mut state = task.tracee().lock();
    let Some(state) = state.as_deref_mut() else {
        return false;
    };
    state.breakpoint_status = status;
    let executed = |n: u32| state.breakpoints.control >> (16 + 4 * n) & 3 == 0;
    (0..4).any(|n| status >> n & 1 != 0 && executed(n))
}
