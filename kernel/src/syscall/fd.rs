//! Calls on file descriptors.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `dup(2)`.
pub fn dup(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `dup2(2)`.
pub fn dup2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `dup3(2)`.
pub fn dup3(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fcntl(2)`.
pub fn fcntl(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `ioctl(2)`.
pub fn ioctl(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `close(2)`.
pub fn close(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `close_range(2)`.
pub fn close_range(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
