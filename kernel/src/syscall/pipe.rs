//! Pipes and sockets.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `pipe(2)`.
pub fn pipe(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pipe2(2)`.
pub fn pipe2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `socketpair(2)`.
pub fn socketpair(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `socket(2)`.
pub fn socket(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `connect(2)`.
pub fn connect(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `accept(2)`.
pub fn accept(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `accept4(2)`.
pub fn accept4(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `bind(2)`.
pub fn bind(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `listen(2)`.
pub fn listen(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sendto(2)`.
pub fn sendto(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `recvfrom(2)`.
pub fn recvfrom(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sendmsg(2)`.
pub fn sendmsg(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `recvmsg(2)`.
pub fn recvmsg(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sendmmsg(2)`.
pub fn sendmmsg(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `recvmmsg(2)`.
pub fn recvmmsg(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `shutdown(2)`.
pub fn shutdown(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getsockname(2)`.
pub fn getsockname(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getpeername(2)`.
pub fn getpeername(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setsockopt(2)`.
pub fn setsockopt(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getsockopt(2)`.
pub fn getsockopt(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
