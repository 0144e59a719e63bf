//! Converts exceptions of user mode to signals.

use super::frame::float_code;
use super::{Detail, SIG_DFL, SigInfo, Signal};
use crate::process;
use crate::process::ptrace;
use crate::vm;
use logic::repeats::Fault;
use machine::arch::frame::RFLAGS_RF;
use machine::arch::{USER_END, UserFrame, debug};
use machine::sched::work;

/// Raises the signal number `signo`, with `si_code` `code`, in the current task because of a fault
/// at `address`. If the task blocks or ignores the signal, the process ends by it. Does nothing if
/// `signo` is no signal.
pub fn force(signo: u32, code: i32, address: u64) {
    let Some(signal) = Signal::new(signo) else {
        return;
    };
    force_info(SigInfo {
        signal,
        errno: 0,
        code,
        detail: Detail::Fault { address },
    });
}

/// Raises SIGSEGV in the current task, because data in the program's memory is invalid: the frame
/// of a handler or a `struct rseq`. If the task blocks or ignores SIGSEGV, the process ends.
pub(crate) fn force_bad_frame() {
    force_info(SigInfo::kernel(Signal::SIGSEGV));
}

/// Ends the current process by `signal` even if the signal has a handler, because the frame of the
/// handler cannot be written.
pub(super) fn force_fatal(signal: Signal) {
    let actions = process::current().process().actions();
    actions.change(signal, |action| action.handler = SIG_DFL);
    force_info(SigInfo::kernel(signal));
}

/// Raises the signal `info` in the current task. If the task blocks or ignores the signal, the
/// process ends by it.
pub(crate) fn force_info(info: SigInfo) {
    let task = process::current();
    let signal = info.signal;
    let blocked = task.blocked().contains(signal);
    task.process().actions().change(signal, |action| {
        if blocked || action.ignores(signal) {
            action.handler = SIG_DFL;
        }
    });
    if blocked {
        let mut mask = task.blocked();
        mask.remove(signal);
        task.signals().set_blocked(mask);
    }
    // The limit does not apply, so that this entry is kept. It can only lack memory.
    let uid = task.users().real;
    let _ = task.signals().pending().add(info, uid, u64::MAX);
    task.add_work(work::SIGNAL);
}

const ILL_ILLOPN: i32 = 2;
const FPE_INTDIV: i32 = 1;
/// `si_code` of SIGFPE: a floating-point division by zero.
pub(super) const FPE_FLTDIV: i32 = 3;
/// `si_code` of SIGFPE: a floating-point overflow.
pub(super) const FPE_FLTOVF: i32 = 4;
/// `si_code` of SIGFPE: a floating-point underflow.
pub(super) const FPE_FLTUND: i32 = 5;
/// `si_code` of SIGFPE: an inexact floating-point result.
pub(super) const FPE_FLTRES: i32 = 6;
/// `si_code` of SIGFPE: an invalid floating-point operation.
pub(super) const FPE_FLTINV: i32 = 7;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const BUS_ADRALN: i32 = 1;
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
const TRAP_HWBKPT: i32 = 4;

/// DR6: a single step.
const STEPPED: u64 = 1 << 14;
/// DR6: the four breakpoints.
const BROKE: u64 = 0xf;

/// Handles a single step, or a breakpoint of the debug registers.
fn on_debug(frame: &mut UserFrame) {
    let status = debug::take_status();
    let task = process::current();
    if ptrace::breakpoints::note(task, status) {
        // The instruction then runs when the program continues.
        frame.rflags |= RFLAGS_RF;
    }
    if !task.is_traced() {
        let stepped = task.work() & work::STEPS != 0;
        ptrace::registers::end_step(task, frame);
        if ptrace::breakpoints::drop_left(task) || stepped {
            // The tracer that wanted this is gone.
            return;
        }
    }
    let code = match (status & STEPPED, status & BROKE) {
        (0, 0) => TRAP_BRKPT,
        (0, _) => TRAP_HWBKPT,
        _ => TRAP_TRACE,
    };
    force(Signal::SIGTRAP.number(), code, frame.rip);
}

/// Raises SIGTRAP in the current task, which single-steps and has made a system call. The call
/// counts as an instruction. `frame` holds the task's registers.
pub(crate) fn step_over_call(frame: &UserFrame) {
    force(Signal::SIGTRAP.number(), TRAP_BRKPT, frame.rip);
}

/// Serves a page fault of user mode that [`vm::on_user_store`] does not serve. `address` is the
/// address of the access, and `error` the CPU's error code. Raises a signal if the access is not
/// allowed, or if the fault repeats for ever. Always inlined into the entry point, which does
/// nothing else.
#[inline(always)]
pub fn on_user_fault(frame: &mut UserFrame, address: u64, error: u64) {
    let fault = Fault {
        instruction: frame.rip,
        address,
        error,
    };
    if process::current().signals().note_fault(fault) {
        process::current()
            .signals()
            .note_trap(14, error, Some(address));
        return force(Signal::SIGSEGV.number(), SEGV_ACCERR, address);
    }
    if let Err(fault) = vm::on_user_fault(address, error) {
        /// The CPU's error code: the page was present.
        const PRESENT: u64 = 1;
        // As on Linux, programs do not learn which pages of the kernel are present.
        let hidden = if address >= USER_END { PRESENT } else { 0 };
        process::current()
            .signals()
            .note_trap(14, error | hidden, Some(address));
        force(fault.signal, fault.code, address);
    }
}

/// Raises the signal for the exception `vector` in user mode, other than a page fault.
pub fn on_exception(frame: &mut UserFrame, vector: u8) {
    let task = process::current();
    task.signals().note_trap(vector, frame.error, None);
    let (signal, code, address) = match vector {
        0 => (Signal::SIGFPE, FPE_INTDIV, frame.rip),
        1 => return on_debug(frame),
        3 => return force_info(SigInfo::kernel(Signal::SIGTRAP)),
        4 | 5 => return force_info(SigInfo::kernel(Signal::SIGSEGV)),
        6 => (Signal::SIGILL, ILL_ILLOPN, frame.rip),
        11 | 12 => return force_info(SigInfo::kernel(Signal::SIGBUS)),
        16 | 19 => (Signal::SIGFPE, float_code(vector), frame.rip),
        17 => (Signal::SIGBUS, BUS_ADRALN, 0),
        18 => (Signal::SIGTRAP, TRAP_BRKPT, frame.rip),
        14 => (Signal::SIGSEGV, SEGV_MAPERR, 0),
        // General protection, and all other exceptions that a program can cause.
        _ => return force_info(SigInfo::kernel(Signal::SIGSEGV)),
    };
    force(signal.number(), code, address);
}
