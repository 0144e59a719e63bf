//! Calls on the attributes of files.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `stat(2)`.
pub fn stat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fstat(2)`.
pub fn fstat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `lstat(2)`.
pub fn lstat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `newfstatat(2)`.
pub fn newfstatat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `statx(2)`.
pub fn statx(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `access(2)`.
pub fn access(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `faccessat(2)`.
pub fn faccessat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `faccessat2(2)`.
pub fn faccessat2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `chmod(2)`.
pub fn chmod(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fchmod(2)`.
pub fn fchmod(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fchmodat(2)`.
pub fn fchmodat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `chown(2)`.
pub fn chown(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fchown(2)`.
pub fn fchown(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `lchown(2)`.
pub fn lchown(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fchownat(2)`.
pub fn fchownat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `utime(2)`.
pub fn utime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `utimes(2)`.
pub fn utimes(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `futimesat(2)`.
pub fn futimesat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `utimensat(2)`.
pub fn utimensat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `statfs(2)`.
pub fn statfs(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fstatfs(2)`.
pub fn fstatfs(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setxattr(2)`.
pub fn setxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `lsetxattr(2)`.
pub fn lsetxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fsetxattr(2)`.
pub fn fsetxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getxattr(2)`.
pub fn getxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `lgetxattr(2)`.
pub fn lgetxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fgetxattr(2)`.
pub fn fgetxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `listxattr(2)`.
pub fn listxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `llistxattr(2)`.
pub fn llistxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `flistxattr(2)`.
pub fn flistxattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `removexattr(2)`.
pub fn removexattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `lremovexattr(2)`.
pub fn lremovexattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fremovexattr(2)`.
pub fn fremovexattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
