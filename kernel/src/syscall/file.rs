//! Calls on open files and their data.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `read(2)`.
pub fn read(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `write(2)`.
pub fn write(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `open(2)`.
pub fn open(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `openat(2)`.
pub fn openat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `openat2(2)`.
pub fn openat2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `creat(2)`.
pub fn creat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `lseek(2)`.
pub fn lseek(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pread64(2)`.
pub fn pread64(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pwrite64(2)`.
pub fn pwrite64(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `readv(2)`.
pub fn readv(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `writev(2)`.
pub fn writev(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `preadv(2)`.
pub fn preadv(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pwritev(2)`.
pub fn pwritev(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `preadv2(2)`.
pub fn preadv2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pwritev2(2)`.
pub fn pwritev2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sendfile(2)`.
pub fn sendfile(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `copy_file_range(2)`.
pub fn copy_file_range(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `truncate(2)`.
pub fn truncate(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `ftruncate(2)`.
pub fn ftruncate(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fallocate(2)`.
pub fn fallocate(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fsync(2)`.
pub fn fsync(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fdatasync(2)`.
pub fn fdatasync(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sync(2)`.
pub fn sync(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `syncfs(2)`.
pub fn syncfs(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sync_file_range(2)`.
pub fn sync_file_range(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fadvise64(2)`.
pub fn fadvise64(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `readahead(2)`.
pub fn readahead(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `memfd_create(2)`.
pub fn memfd_create(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `flock(2)`.
pub fn flock(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `splice(2)`.
pub fn splice(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `tee(2)`.
pub fn tee(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `vmsplice(2)`.
pub fn vmsplice(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
