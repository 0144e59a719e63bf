//! Calls on processes that a descriptor names.

use super::Args;
use super::signal::{may_send, optional_signal};
use crate::fs::{OpenFile, OpenFlags};
use crate::process::signal::{self, SI_TKILL, SI_USER, SIGINFO_BYTES, SigInfo, Signal};
use crate::process::task::{Process, table};
use crate::process::{self, caller, pidfd};
use crate::procfs;
use alloc::sync::Arc;
use logic::credentials::others::LooksAs;
use logic::errno::{Errno, SysResult};
use machine::uaccess;

/// `pidfd_open(2)`.
pub fn pidfd_open(a: &Args) -> SysResult {
    let flags = a.uint(1);
    let pid = u32::try_from(a.int(0)).ok().filter(|&pid| pid != 0);
    let (Some(pid), true) = (pid, flags & !OpenFlags::NONBLOCK.bits() == 0) else {
        return Err(Errno::EINVAL);
    };
    let process = {
        let table = table::lock();
        match table.process(pid) {
            Some(process) => process.clone(),
            // The number of a thread that is no main thread, or of a group or session.
            None if table.is_used(pid) => return Err(Errno::EINVAL),
            None => return Err(Errno::ESRCH),
        }
    };
    caller::install(pidfd::open(process, flags != 0), true)
}

/// Returns the process of a pidfd, or of a directory `/proc/PID`. Fails with `EBADF` for other
/// files.
fn addressee(file: &OpenFile) -> Result<Arc<Process>, Errno> {
    pidfd::process_of(file).or_else(|_| procfs::process_of(file.node()))
}

/// `pidfd_send_signal(2)`.
pub fn pidfd_send_signal(a: &Args) -> SysResult {
    if a.uint(3) != 0 {
        return Err(Errno::EINVAL);
    }
    let target = addressee(&*caller::file(a.int(0))?)?;
    let own = process::current().process().clone();
    let number = a.uint(1);
    let mut info = [0; SIGINFO_BYTES];
    if a.addr(2) != 0 {
        uaccess::copy_in(&mut info, a.addr(2))?;
        let code = SigInfo::from_bytes(Signal::SIGUSR1, &info).code;
        let [first, second, third, fourth, ..] = info;
        if u32::from_ne_bytes([first, second, third, fourth]) != number {
            return Err(Errno::EINVAL);
        }
        let to_itself = process::current().tid() == target.pid();
        if !to_itself && (code >= 0 || code == SI_TKILL) {
            return Err(Errno::EPERM);
        }
    }
    if !pidfd::is_known(&target) {
        return Err(Errno::ESRCH);
    }
    let signal = optional_signal(number)?;
    may_send(&target, signal)?;
    if let Some(signal) = signal {
        let info = if a.addr(2) == 0 {
            SigInfo::user(signal, SI_USER, own.pid(), own.credentials().users.real)
        } else {
            SigInfo::from_bytes(signal, &info)
        };
        signal::send_to_process(&target, info)?;
    }
    Ok(0)
}

/// `pidfd_getfd(2)`.
pub fn pidfd_getfd(a: &Args) -> SysResult {
    if a.uint(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let target = pidfd::process_of(&*caller::file(a.int(0))?)?;
    if !pidfd::is_known(&target) {
        return Err(Errno::ESRCH);
    }
    caller::look_into(&target, LooksAs::Real)?;
    let files = target.files().ok_or(Errno::EBADF)?;
    let file = files.get(a.int(1))?;
    caller::install(file, true)
}
