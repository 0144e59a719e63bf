//! Signals.
//!
//! - [`SigSet`], [`SigInfo`], [`Action`]: the ABI's terms.
//! - `send`: a signal comes into being, finds its process and a thread to take it.
//! - `deliver`: a thread takes its signals on its way to user mode.
//! - `frame`: what a handler finds on its stack, and the way back.
//! - `stop`: job control.
//! - `fault`: exceptions become signals.

mod action;
mod deliver;
mod fault;
mod frame;
mod info;
mod pending;
mod send;
mod set;
mod stop;

pub use action::{
    Action, Actions, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART,
    SIG_DFL, SIG_IGN,
};
pub(crate) use deliver::{deliver, recalculate, take_awaited};
pub use fault::{force, on_exception};
pub(crate) use frame::{
    SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, StackT, minimum_stack, return_from_handler, stack_t,
};
pub use info::{Detail, SI_TIMER, SI_TKILL, SI_USER, SIGINFO_BYTES, SigInfo};
pub use pending::Pending;
pub(crate) use send::{child_info, children_ignored, describe};
pub use send::{send_to_process, send_to_task};
pub use set::{DefaultAction, MAX_SIGNAL, SigSet, Signal};
pub(crate) use stop::{report_stop, stand_still};

use crate::errno::Errno;
use crate::sched;
use crate::task::work;
use crate::uaccess;
use core::sync::atomic::Ordering;

impl SigSet {
    /// Reads a set that a program passes with its size in bytes.
    ///
    /// # Errors
    /// `EINVAL` for another size than 8; `EFAULT`.
    pub fn from_user(address: u64, size: usize) -> Result<Self, Errno> {
        if size != size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 8];
        uaccess::copy_in(&mut bytes, address)?;
        Ok(Self(u64::from_ne_bytes(bytes)))
    }
}

/// Sets the current task's mask of blocked signals.
pub fn set_mask(mask: SigSet) {
    let task = sched::current();
    task.blocked.store(mask.blockable().0, Ordering::Relaxed);
    recalculate(&task);
}

/// Sets a mask until the present call ends (`ppoll`, `pselect`, `epoll_pwait`, `sigsuspend`): then
/// the old one comes back, after a handler that interrupted the call has run with this one.
pub fn set_temporary_mask(mask: SigSet) {
    let task = sched::current();
    if task.work.load(Ordering::Relaxed) & work::RESTORE_MASK == 0 {
        task.saved_mask.store(task.blocked().0, Ordering::Relaxed);
        task.add_work(work::RESTORE_MASK);
    }
    set_mask(mask);
}

/// Puts back the mask that [`set_temporary_mask`] replaced, if it did.
pub(crate) fn restore_mask() {
    let task = sched::current();
    if task.work.load(Ordering::Relaxed) & work::RESTORE_MASK != 0 {
        task.clear_work(work::RESTORE_MASK);
        set_mask(SigSet(task.saved_mask.load(Ordering::Relaxed)));
    }
}

/// Sends a signal to the current process, as from the kernel (SIGPIPE, SIGXFSZ).
pub fn raise(signal: Signal) {
    let task = sched::current();
    if !task.is_kernel() {
        let _ = send_to_task(&task, SigInfo::kernel(signal));
    }
}
