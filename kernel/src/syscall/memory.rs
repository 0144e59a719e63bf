//! Memory mapping calls.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `mmap(2)`.
pub fn mmap(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mprotect(2)`.
pub fn mprotect(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `munmap(2)`.
pub fn munmap(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `brk(2)`.
pub fn brk(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mremap(2)`.
pub fn mremap(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `msync(2)`.
pub fn msync(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mincore(2)`.
pub fn mincore(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `madvise(2)`.
pub fn madvise(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mlock(2)`.
pub fn mlock(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `munlock(2)`.
pub fn munlock(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mlockall(2)`.
pub fn mlockall(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `munlockall(2)`.
pub fn munlockall(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mlock2(2)`.
pub fn mlock2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `process_madvise(2)`.
pub fn process_madvise(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `process_vm_readv(2)`.
pub fn process_vm_readv(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `process_vm_writev(2)`.
pub fn process_vm_writev(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
