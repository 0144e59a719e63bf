//! Processes, their relations and their end.

use super::Args;
use crate::arch::UserFrame;
use crate::errno::{Errno, SysResult};

/// `fork(2)`.
pub fn fork(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `vfork(2)`.
pub fn vfork(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `clone(2)`.
pub fn clone(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `clone3(2)`.
pub fn clone3(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `execve(2)`.
pub fn execve(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `execveat(2)`.
pub fn execveat(_a: &Args, _frame: &mut UserFrame) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `exit(2)`.
pub fn exit(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `exit_group(2)`.
pub fn exit_group(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `wait4(2)`.
pub fn wait4(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `waitid(2)`.
pub fn waitid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getpid(2)`.
pub fn getpid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getppid(2)`.
pub fn getppid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `gettid(2)`.
pub fn gettid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getpgrp(2)`.
pub fn getpgrp(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getpgid(2)`.
pub fn getpgid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setpgid(2)`.
pub fn setpgid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getsid(2)`.
pub fn getsid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setsid(2)`.
pub fn setsid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `set_tid_address(2)`.
pub fn set_tid_address(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `prctl(2)`.
pub fn prctl(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `arch_prctl(2)`.
pub fn arch_prctl(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `unshare(2)`.
pub fn unshare(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setns(2)`.
pub fn setns(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `kcmp(2)`.
pub fn kcmp(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `personality(2)`.
pub fn personality(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pidfd_open(2)`.
pub fn pidfd_open(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
