//! Signals.

use super::Args;
use crate::arch::UserFrame;
use crate::errno::{Errno, SysResult};

/// `rt_sigaction(2)`.
pub fn rt_sigaction(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rt_sigprocmask(2)`.
pub fn rt_sigprocmask(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rt_sigreturn(2)`.
pub fn rt_sigreturn(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sigaltstack(2)`.
pub fn sigaltstack(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rt_sigpending(2)`.
pub fn rt_sigpending(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rt_sigtimedwait(2)`.
pub fn rt_sigtimedwait(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rt_sigsuspend(2)`.
pub fn rt_sigsuspend(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rt_sigqueueinfo(2)`.
pub fn rt_sigqueueinfo(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rt_tgsigqueueinfo(2)`.
pub fn rt_tgsigqueueinfo(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `kill(2)`.
pub fn kill(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `tkill(2)`.
pub fn tkill(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `tgkill(2)`.
pub fn tgkill(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pause(2)`.
pub fn pause(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pidfd_send_signal(2)`.
pub fn pidfd_send_signal(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `restart_syscall(2)`.
pub fn restart_syscall(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
