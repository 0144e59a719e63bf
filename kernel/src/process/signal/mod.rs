//! Signals.
//!
//! - [`SigSet`], [`SigInfo`], [`Action`]: the types of the ABI.
//! - `send`: sends a signal to a process and chooses a thread to take it.
//! - `deliver`: a thread takes its signals on its way to user mode.
//! - `frame`: the stack frame of a handler, and the return from it.
//! - `stop`: job control.
//! - `fault`, `repeats`: exceptions become signals, and page faults that repeat for ever.
//! - `file`: signals that are read from a descriptor.
//! - `queued`: the number of queued signals of each user.

mod action;
mod deliver;
mod fault;
mod file;
mod frame;
mod info;
mod pending;
mod queued;
pub(crate) mod recipient;
mod repeats;
mod send;
mod stop;
mod thread;

pub use action::{
    Action, Actions, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART,
    SIG_DFL, SIG_IGN,
};
pub(crate) use deliver::{deliver, is_orphaned, recalculate, recalculate_without, take_awaited};
pub(crate) use fault::{force_bad_frame, force_info, step_over_call};
pub use fault::{on_exception, on_user_fault};
pub use file::SignalFile;
pub(crate) use frame::{StackT, alt_stack, change_alt_stack, minimum_stack, return_from_handler};
pub use info::{AUDIT_ARCH, Detail, SI_MESGQ, SI_TIMER, SI_TKILL, SI_USER, SIGINFO_BYTES, SigInfo};
pub use logic::signal_set::{DefaultAction, MAX_SIGNAL, SigSet, Signal};
pub use pending::Pending;
pub(crate) use queued::Queued;
pub use queued::queued_of;
pub(crate) use send::{child_info, children_ignored, describe};
pub(crate) use send::{send_to_one_of_many, send_to_process_in, send_to_process_of};
pub use send::{send_to_process, send_to_task};
pub(crate) use stop::{any_stopped, end_stop, report_stop, stand_still, tell_of_stop};
pub use thread::Restart;
pub(crate) use thread::ThreadSignals;

use crate::process;
use logic::errno::Errno;
use machine::sched::work;
use machine::uaccess;

/// Reads the set of signals at `address` in user memory. `size` is the set's size in bytes that the
/// program passes.
///
/// # Errors
/// Fails with `EINVAL` if `size` is not 8, and with `EFAULT` if the set cannot be read.
pub fn read_set(address: u64, size: usize) -> Result<SigSet, Errno> {
    if size != size_of::<u64>() {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; 8];
    uaccess::copy_in(&mut bytes, address)?;
    Ok(SigSet(u64::from_ne_bytes(bytes)))
}

/// Makes `mask`, without SIGKILL and SIGSTOP, the signals that the current task blocks.
pub fn set_mask(mask: SigSet) {
    let task = process::current();
    let before = task.blocked();
    task.signals().set_blocked(mask.blockable());
    recalculate_without(&task, task.blocked().without(before));
}

/// Makes `mask` the signals that the current task blocks until its present system call ends
/// (`ppoll`, `pselect`, `epoll_pwait`, `sigsuspend`). Then the old mask is restored. A handler that
/// interrupts the call still runs with `mask`.
pub fn set_temporary_mask(mask: SigSet) {
    let task = process::current();
    if task.work() & work::RESTORE_MASK == 0 {
        task.signals().save_mask();
        task.add_work(work::RESTORE_MASK);
    }
    set_mask(mask);
}

/// Makes the set of `size` bytes at `address` the signals that the current task blocks until its
/// present system call ends.
///
/// # Errors
/// Fails with `EINVAL` if `size` is not 8, and with `EFAULT` if the set cannot be read.
pub fn block_for_call(address: u64, size: usize) -> Result<(), Errno> {
    set_temporary_mask(read_set(address, size)?);
    Ok(())
}

/// Restores the blocked signals that [`set_temporary_mask`] replaced. Does nothing if it replaced
/// none.
pub(crate) fn restore_mask() {
    let task = process::current();
    if task.work() & work::RESTORE_MASK != 0 {
        task.clear_work(work::RESTORE_MASK);
        set_mask(task.signals().saved_mask());
    }
}

/// Sends the current thread `signal` from the kernel, as SIGPIPE and SIGXFSZ. Does nothing in a
/// kernel thread.
pub fn raise(signal: Signal) {
    let task = process::current();
    if !task.is_kernel() {
        let _ = send_to_task(&task, SigInfo::kernel(signal));
    }
}
