//! System calls: the entry, the arguments and the table.
//!
//! A handler takes [`Args`] and returns a [`SysResult`]. It checks the values that come from the
//! program where it uses them. Handlers that change the user registers take the frame too.
//! Those that replace the task's own values take its [`Token`].

pub mod adjtime;
pub mod aio;
mod at;
pub mod clone;
pub mod credentials;
pub mod dir;
mod extensible;
mod failure;
pub mod fd;
pub mod file;
pub mod futex;
pub mod handle;
pub mod info;
pub mod inotify;
pub mod ioprio;
mod ipc;
pub mod kcmp;
pub mod lock;
pub mod membarrier;
pub mod memory;
pub mod mempolicy;
pub mod mount;
pub mod mqueue;
pub mod msg;
mod owner;
pub mod pidfd;
pub mod pipe;
pub mod poll;
pub mod prctl;
pub mod process;
mod process_vm;
mod ptrace_filters;
mod ptrace_registers;
pub mod ptrace_request;
mod record;
pub mod sched;
pub mod sched_attr;
pub mod sched_policy;
pub mod seccomp;
pub mod sem;
pub mod shm;
pub mod signal;
pub mod signalfd;
pub mod socket;
pub mod socket_messages;
pub mod socket_options;
pub mod splice;
mod stamps;
pub mod stat;
pub mod syslog;
mod table;
pub mod time;
pub(crate) mod trace;
mod transfer;
mod unknown;
pub mod xattr;

pub(crate) use crate::process::args::{Args, value};
use crate::process::{TaskRef, ptrace, seccomp as filters};
use logic::errno::{Errno, to_register};
use logic::own::Token;
use machine::arch::clock::Ticks;
use machine::arch::{BootInfo, UserFrame};
use machine::sched::work;

/// Carries out the system call of `frame` for the current task, whose token is `token`. The entry
/// code calls this for a `syscall` instruction. The number is in `orig_rax`, and the result goes to
/// `rax`. Always inlined into the entry point, which does nothing else.
#[inline(always)]
pub fn entry(frame: &mut UserFrame, token: &mut Token) {
    let task = crate::process::current();
    if task.work() & work::LOOKED_AT != 0 && !may_begin(task, frame, token) {
        return;
    }
    let args = Args::of(frame);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "Linux looks at the low 32 bits alone"
    )]
    let number = frame.orig_rax as u32;
    task.account().enter_call(Ticks::now());
    trace::call(number, &args);
    let result = table::dispatch(number, &args, frame, token);
    trace::result(number, result);
    let result = match result {
        Err(error) => Err(failed(number, error)),
        Ok(_) => result,
    };
    frame.rax = to_register(result);
    if result.is_ok() && task.work() & work::RESTORE_MASK != 0 {
        signal::finish(result);
    }
    task.account().leave_call(Ticks::now());
}

/// Does the work before a call that a tracer or a filter inspects, the tracer first. Returns
/// `false` if the call is not made. Its result is then in `frame`.
#[cold]
fn may_begin(task: TaskRef, frame: &mut UserFrame, token: &mut Token) -> bool {
    frame.rax = Errno::ENOSYS.to_return();
    if task.work() & work::TRACED_CALLS != 0 && !ptrace::enter_call(task, frame) {
        return false;
    }
    // Filters inspect the call even if the tracer has cancelled it.
    if task.work() & work::CONFINED != 0 && !filters::enter_call(task, frame, token) {
        return false;
    }
    frame.is_syscall()
}

/// Does the work after a failed call: raises the signal of `error`, names an unsupported call on
/// the console, and restores the signal mask. Returns the error for the program.
#[cold]
fn failed(number: u32, error: Errno) -> Errno {
    let error = failure::signalled(error);
    if error == Errno::ENOSYS {
        unknown::name_once(number);
    }
    signal::finish(Err(error));
    error
}

/// Turns the trace of calls on if the command line has `ebb.trace=calls`. Call this before the
/// first program starts.
pub fn init(boot: &BootInfo) {
    if boot.option("ebb.trace") == Some("calls") {
        trace::enable();
    }
}
