//! Signals.

use super::Args;
use super::process::process_or_current;
use crate::process;
use crate::process::signal::{
    self, Action, SI_TKILL, SI_USER, SIGINFO_BYTES, SigInfo, SigSet, Signal, StackT,
};
use crate::process::task::{Process, Scheduled, table};
use crate::process::time::values::Timespec;
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};
use machine::arch::UserFrame;
use machine::arch::clock;
use machine::sched::work;
use machine::sync::{WaitEnd, WaitQueue};
use machine::uaccess::{self, UserPtr};

/// `rt_sigaction(2)`.
pub fn rt_sigaction(a: &Args) -> SysResult {
    if a.size(3) != size_of::<u64>() {
        return Err(Errno::EINVAL);
    }
    let signal = Signal::new(a.uint(0)).ok_or(Errno::EINVAL)?;
    if a.addr(1) != 0 && SigSet::UNBLOCKABLE.contains(signal) {
        return Err(Errno::EINVAL);
    }
    let new = match a.addr(1) {
        0 => None,
        address => {
            let [handler, flags, restorer, mask] = UserPtr::<[u64; 4]>::new(address).read()?;
            Some(Action {
                handler,
                flags,
                restorer,
                mask: SigSet(mask).blockable(),
            })
        }
    };
    let process = process::current().process().clone();
    let actions = process.actions();
    let old = match new {
        None => actions.get(signal),
        Some(new) => actions.change(signal, |action| core::mem::replace(action, new)),
    };
    if let Some(new) = new
        && new.ignores(signal)
    {
        discard(&process, signal);
    }
    if a.addr(2) != 0 {
        let words = [old.handler, old.flags, old.restorer, old.mask.0];
        UserPtr::<[u64; 4]>::new(a.addr(2)).write(&words)?;
    }
    Ok(0)
}

/// Discards all pending instances of `signal`, which the process ignores from now on.
fn discard(process: &Process, signal: Signal) {
    let unwanted = SigSet::of(&[signal]);
    let mut group = process.group.lock();
    group.pending.discard(unwanted);
    for task in &group.tasks {
        task.signals().pending().discard(unwanted);
    }
}

/// `rt_sigprocmask(2)`.
pub fn rt_sigprocmask(a: &Args) -> SysResult {
    const BLOCK: i32 = 0;
    const UNBLOCK: i32 = 1;
    const SETMASK: i32 = 2;
    if a.size(3) != size_of::<u64>() {
        return Err(Errno::EINVAL);
    }
    let old = process::current().blocked();
    if a.addr(1) != 0 {
        let set = signal::read_set(a.addr(1), a.size(3))?;
        let new = match a.int(0) {
            BLOCK => old.union(set),
            UNBLOCK => old.without(set),
            SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        signal::set_mask(new);
    }
    if a.addr(2) != 0 {
        UserPtr::<u64>::new(a.addr(2)).write(&old.0)?;
    }
    Ok(0)
}

/// `rt_sigreturn(2)`.
pub fn rt_sigreturn(_a: &Args, frame: &mut UserFrame) -> SysResult {
    Ok(super::value(signal::return_from_handler(frame)))
}

/// `sigaltstack(2)`.
pub fn sigaltstack(a: &Args, frame: &mut UserFrame) -> SysResult {
    let old = signal::alt_stack(frame.rsp);
    if a.addr(0) != 0 {
        let new = UserPtr::<StackT>::new(a.addr(0)).read()?;
        signal::change_alt_stack(&new, frame.rsp)?;
    }
    if a.addr(1) != 0 {
        UserPtr::<StackT>::new(a.addr(1)).write(&old)?;
    }
    Ok(0)
}

/// `rt_sigpending(2)`.
pub fn rt_sigpending(a: &Args) -> SysResult {
    if a.size(1) > size_of::<u64>() {
        return Err(Errno::EINVAL);
    }
    let task = process::current();
    let waiting = task
        .process()
        .pending_set()
        .union(task.signals().pending().set());
    let blocked = waiting.intersection(task.blocked());
    uaccess::copy_out(a.addr(0), &blocked.0.to_ne_bytes()[..a.size(1)])?;
    Ok(0)
}

/// `rt_sigtimedwait(2)`.
pub fn rt_sigtimedwait(a: &Args) -> SysResult {
    let wanted = signal::read_set(a.addr(0), a.size(3))?.blockable();
    let deadline = match a.addr(2) {
        0 => None,
        address => Some(clock::now().saturating_add(Timespec::read(address)?)),
    };
    let task = process::current();
    let mut info = signal::take_awaited(task, wanted);
    if info.is_none() {
        // Senders wake this thread for the awaited signals, although it blocks them.
        task.signals().set_awaited(wanted);
        let queue = WaitQueue::new();
        let ready = || {
            info = signal::take_awaited(process::current(), wanted);
            info.is_some()
        };
        let end = match deadline {
            Some(deadline) => queue.wait_deadline(ready, deadline),
            None => queue.wait(ready).map(|()| WaitEnd::Ready),
        };
        task.signals().set_awaited(SigSet::EMPTY);
        if info.is_none() {
            // One may have come after the last look.
            info = signal::take_awaited(task, wanted);
        }
        signal::recalculate_without(&task, wanted.intersection(task.blocked()));
        match end {
            Err(_) if info.is_none() => return Err(Errno::EINTR),
            Ok(WaitEnd::TimedOut) if info.is_none() => return Err(Errno::EAGAIN),
            _ => {}
        }
    }
    let info = info.ok_or(Errno::EAGAIN)?;
    if a.addr(1) != 0 {
        uaccess::copy_out(a.addr(1), &info.to_bytes())?;
    }
    Ok(info.signal.number() as usize)
}

/// `rt_sigsuspend(2)`.
pub fn rt_sigsuspend(a: &Args) -> SysResult {
    let mask = signal::read_set(a.addr(0), a.size(1))?;
    signal::set_temporary_mask(mask);
    wait_for_signal()
}

/// `pause(2)`.
pub fn pause(_a: &Args) -> SysResult {
    wait_for_signal()
}

fn wait_for_signal() -> SysResult {
    // The condition is never true, so only a signal ends the wait.
    let _ = WaitQueue::new().wait(|| false);
    Err(Errno::ERESTARTNOHAND)
}

/// `kill(2)`.
pub fn kill(a: &Args) -> SysResult {
    // As on Linux, the recipient is searched before the signal is checked.
    let signal = || optional_signal(a.uint(1));
    let own = process::current().process().clone();
    let info = |signal| SigInfo::user(signal, SI_USER, own.pid(), own.credentials().users.real);
    let group = match a.int(0) {
        i32::MIN => return Err(Errno::ESRCH),
        // All processes but init and the caller.
        -1 => None,
        0 => Some(own.pgid()),
        pid if pid < 0 => Some(pid.unsigned_abs()),
        pid => {
            let process = process_or_current(pid)?;
            let signal = signal()?;
            may_send(&process, signal)?;
            if let Some(signal) = signal {
                signal::send_to_process(&process, info(signal))?;
            }
            return Ok(0);
        }
    };
    let (mut found, mut reached) = (false, false);
    let table = table::lock();
    let mut send_to = |process: &Arc<Process>| -> Result<(), Errno> {
        found = true;
        let signal = signal()?;
        if may_send(process, signal).is_ok() {
            reached = true;
            if let Some(signal) = signal {
                signal::send_to_one_of_many(&table, process, info(signal))?;
            }
        }
        Ok(())
    };
    match group {
        Some(group) => table.members(group).try_for_each(&mut send_to)?,
        None => table
            .processes()
            .filter(|process| process.pid() > 1 && process.pid() != own.pid())
            .try_for_each(&mut send_to)?,
    }
    match group {
        _ if !found => Err(Errno::ESRCH),
        // Among all processes, those that the caller may not signal are left out without an error.
        Some(_) if !reached => Err(Errno::EPERM),
        _ => Ok(0),
    }
}

/// Checks that the caller may send `signal` to `process`. Any process may send SIGCONT within its
/// session. `None` is signal 0, which only checks.
///
/// # Errors
/// Fails with `EPERM` if the caller may not.
pub(super) fn may_send(process: &Process, signal: Option<Signal>) -> Result<(), Errno> {
    let own = process::current();
    let goes_on =
        || signal == Some(Signal::SIGCONT) && process.session() == own.process().session();
    if own.process().pid() == process.pid()
        || own.with_credentials(|own| own.may_signal(&process.credentials()))
        || goes_on()
    {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Returns the signal with this number. Returns `None` for 0, which sends nothing and only checks
/// the target.
///
/// # Errors
/// Fails with `EINVAL` if there is no such signal.
pub(super) fn optional_signal(number: u32) -> Result<Option<Signal>, Errno> {
    match number {
        0 => Ok(None),
        number => Signal::new(number).map(Some).ok_or(Errno::EINVAL),
    }
}

/// Finds the thread `tid` of the process `group`, or of any process if `group` is `None`. A main
/// thread that has ended has its number until its process is reaped; signals to it are lost.
///
/// # Errors
/// Fails with `EINVAL` if a number is not positive, and with `ESRCH`.
fn thread(group: Option<i32>, tid: i32) -> Result<Scheduled, Errno> {
    let positive = |number: i32| {
        let number = u32::try_from(number).ok();
        number.filter(|&number| number != 0).ok_or(Errno::EINVAL)
    };
    let group = group.map(positive).transpose()?;
    let tid = positive(tid)?;
    let is_kernel = |thread: &Scheduled| thread.task().is_some_and(|task| task.is_kernel());
    Scheduled::find(tid)
        .filter(|thread| !is_kernel(thread))
        .filter(|thread| group.is_none_or(|group| thread.process().pid() == group))
        .ok_or(Errno::ESRCH)
}

/// Sends the signal `number` to the thread `tid` of the process `group`, or of any process if
/// `group` is `None`. Returns 0. Fails as `tkill(2)` and `tgkill(2)` do.
fn send_to_thread(group: Option<i32>, tid: i32, number: u32) -> SysResult {
    let thread = thread(group, tid)?;
    let signal = optional_signal(number)?;
    may_send(thread.process(), signal)?;
    if let (Some(signal), Some(task)) = (signal, thread.task()) {
        let own = process::current().process().clone();
        let uid = own.credentials().users.real;
        signal::send_to_task(task, SigInfo::user(signal, SI_TKILL, own.pid(), uid))?;
    }
    Ok(0)
}

/// `tkill(2)`.
pub fn tkill(a: &Args) -> SysResult {
    send_to_thread(None, a.int(0), a.uint(1))
}

/// `tgkill(2)`.
pub fn tgkill(a: &Args) -> SysResult {
    send_to_thread(Some(a.int(0)), a.int(1), a.uint(2))
}

/// Reads the `siginfo_t` at `address`.
///
/// # Errors
/// Fails with `EFAULT`.
fn read_info(address: u64) -> Result<[u8; SIGINFO_BYTES], Errno> {
    let mut bytes = [0; SIGINFO_BYTES];
    uaccess::copy_in(&mut bytes, address)?;
    Ok(bytes)
}

/// Checks that `info`, for the process or thread `target`, does not claim to come from the kernel
/// or `tkill`, unless `target` is the number of the calling thread. As on Linux, a thread other
/// than the main one may not claim so for its own process.
///
/// # Errors
/// Fails with `EPERM`.
fn may_claim(info: &[u8; SIGINFO_BYTES], target: i32) -> Result<(), Errno> {
    let code = SigInfo::from_bytes(Signal::SIGUSR1, info).code;
    let own = process::current().tid();
    if own.cast_signed() != target && (code >= 0 || code == SI_TKILL) {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// `rt_sigqueueinfo(2)`.
pub fn rt_sigqueueinfo(a: &Args) -> SysResult {
    let pid = a.int(0);
    let info = read_info(a.addr(2))?;
    may_claim(&info, pid)?;
    if pid <= 0 {
        return Err(Errno::ESRCH);
    }
    let process = process_or_current(pid)?;
    let signal = optional_signal(a.uint(1))?;
    may_send(&process, signal)?;
    if let Some(signal) = signal {
        signal::send_to_process(&process, SigInfo::from_bytes(signal, &info))?;
    }
    Ok(0)
}

/// `rt_tgsigqueueinfo(2)`.
pub fn rt_tgsigqueueinfo(a: &Args) -> SysResult {
    let info = read_info(a.addr(3))?;
    if a.int(0) <= 0 || a.int(1) <= 0 {
        return Err(Errno::EINVAL);
    }
    may_claim(&info, a.int(1))?;
    let thread = thread(Some(a.int(0)), a.int(1))?;
    let signal = optional_signal(a.uint(2))?;
    may_send(thread.process(), signal)?;
    if let (Some(signal), Some(task)) = (signal, thread.task()) {
        signal::send_to_task(task, SigInfo::from_bytes(signal, &info))?;
    }
    Ok(0)
}

/// `restart_syscall(2)`. Continues a sleep or wait that a signal without a handler interrupted.
/// Fails with `EINTR` if there is none.
pub fn restart_syscall(_a: &Args) -> SysResult {
    let restart = process::current().signals().take_restart();
    match restart {
        Some(restart) => (restart.call)(&restart.args),
        None => Err(Errno::EINTR),
    }
}

/// Restores the signal mask that a call with this `result` replaced for its duration. If a signal
/// interrupted the call, the handler's frame restores the mask instead.
pub(super) fn finish(result: SysResult) {
    let interrupted = matches!(
        result,
        Err(Errno::ERESTARTSYS
            | Errno::ERESTARTNOHAND
            | Errno::ERESTARTNOINTR
            | Errno::ERESTART_RESTARTBLOCK
            | Errno::EINTR)
    );
    let task = process::current();
    if interrupted {
        task.add_work(work::RESTART);
    } else if task.work() & work::RESTORE_MASK != 0 {
        signal::restore_mask();
    }
}
