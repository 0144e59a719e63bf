//! Calls that wait for several files.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `poll(2)`.
pub fn poll(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `ppoll(2)`.
pub fn ppoll(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `select(2)`.
pub fn select(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pselect6(2)`.
pub fn pselect6(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `epoll_create(2)`.
pub fn epoll_create(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `epoll_create1(2)`.
pub fn epoll_create1(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `epoll_ctl(2)`.
pub fn epoll_ctl(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `epoll_wait(2)`.
pub fn epoll_wait(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `epoll_pwait(2)`.
pub fn epoll_pwait(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `epoll_pwait2(2)`.
pub fn epoll_pwait2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `eventfd(2)`.
pub fn eventfd(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `eventfd2(2)`.
pub fn eventfd2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timerfd_create(2)`.
pub fn timerfd_create(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timerfd_settime(2)`.
pub fn timerfd_settime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timerfd_gettime(2)`.
pub fn timerfd_gettime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `signalfd(2)`.
pub fn signalfd(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `signalfd4(2)`.
pub fn signalfd4(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
