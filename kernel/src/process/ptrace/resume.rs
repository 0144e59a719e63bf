//! A tracee continues, by single steps or from call to call.

use super::registers::Registers;
use super::tracee::{State, at_stop};
use crate::process::signal::MAX_SIGNAL;
use crate::process::task::Task;
use logic::errno::Errno;
use logic::ptrace;
use machine::sched;
use machine::sched::work;

/// How far a tracee runs when its tracer continues it. With no field set, it runs until a signal or
/// an event stops it.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Way {
    /// Whether the tracee also stops at the entry of its next system call, or at the exit of the
    /// current one (`PTRACE_SYSCALL`).
    pub(crate) calls: bool,
    /// Whether the tracee also stops at its next system call, which is not executed
    /// (`PTRACE_SYSEMU`).
    pub(crate) emulates: bool,
    /// Whether the tracee stops after one instruction (`PTRACE_SINGLESTEP`).
    pub(crate) steps: bool,
}

/// Returns the number of the signal with which a tracee continues, from the argument `data` of a
/// request. 0 means no signal.
///
/// # Errors
/// Fails with `EIO` if `data` is neither 0 nor a signal's number.
pub(super) fn signal(data: u64) -> Result<u32, Errno> {
    u32::try_from(data)
        .ok()
        .filter(|&signal| signal <= MAX_SIGNAL)
        .ok_or(Errno::EIO)
}

/// Continues `tracee`, which must be in a ptrace-stop, as far as `way` says. It takes the signal
/// with the number `data`, or no signal if `data` is 0.
///
/// # Errors
/// Fails with `EIO` if `data` is no signal. Fails with `ESRCH` if `tracee` is no tracee of the
/// current thread, or is not in a ptrace-stop.
pub(crate) fn resume(tracee: &Task, way: Way, data: u64) -> Result<(), Errno> {
    let code = signal(data)?;
    let mut sets_flags = false;
    if way.steps {
        let rip = at_stop(tracee, |_, registers| Ok(registers.frame().rip))?;
        let mut instruction = [0; ptrace::INSTRUCTION_BYTES];
        let space = tracee.process().vm();
        // At a page's end fewer bytes may be readable. No prefix is as long as the buffer.
        for byte in 0..instruction.len() {
            let at = rip.wrapping_add(byte as u64);
            let read = space
                .as_ref()
                .is_some_and(|space| space.read_bytes(at, &mut instruction[byte..=byte]).is_ok());
            if !read {
                break;
            }
            sets_flags = ptrace::sets_flags(&instruction[..=byte]);
            if sets_flags {
                break;
            }
        }
    }
    at_stop(tracee, |state, registers| {
        set_way(tracee, state, registers, way, sets_flags);
        state.code = code;
        state.stands = false;
        Ok(())
    })?;
    sched::wake(tracee);
    Ok(())
}

/// Prepares `tracee`, which is in a ptrace-stop, to run as `way` says. `sets_flags` says that its
/// next instruction writes the flags register.
pub(super) fn set_way(
    tracee: &Task,
    state: &mut State,
    registers: &mut Registers,
    way: Way,
    sets_flags: bool,
) {
    state.calls = way.calls;
    state.emulates = way.emulates;
    if way.steps {
        registers.step(tracee, state, sets_flags);
    } else {
        registers.run(tracee, state);
    }
    let sees_calls = way.calls || way.emulates || way.steps;
    if sees_calls {
        tracee.add_work(work::TRACED_CALLS);
    } else {
        tracee.clear_work(work::TRACED_CALLS);
    }
    if state.in_call {
        if sees_calls {
            tracee.add_work(work::CALL_END);
        } else {
            tracee.clear_work(work::CALL_END);
        }
    }
}
