//! Calls on directories and names.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `getdents(2)`.
pub fn getdents(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getdents64(2)`.
pub fn getdents64(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mkdir(2)`.
pub fn mkdir(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mkdirat(2)`.
pub fn mkdirat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rmdir(2)`.
pub fn rmdir(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `unlink(2)`.
pub fn unlink(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `unlinkat(2)`.
pub fn unlinkat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rename(2)`.
pub fn rename(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `renameat(2)`.
pub fn renameat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `renameat2(2)`.
pub fn renameat2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `link(2)`.
pub fn link(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `linkat(2)`.
pub fn linkat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `symlink(2)`.
pub fn symlink(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `symlinkat(2)`.
pub fn symlinkat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `readlink(2)`.
pub fn readlink(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `readlinkat(2)`.
pub fn readlinkat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getcwd(2)`.
pub fn getcwd(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `chdir(2)`.
pub fn chdir(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `fchdir(2)`.
pub fn fchdir(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `chroot(2)`.
pub fn chroot(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `umask(2)`.
pub fn umask(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mknod(2)`.
pub fn mknod(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mknodat(2)`.
pub fn mknodat(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `mount(2)`.
pub fn mount(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `umount2(2)`.
pub fn umount2(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `pivot_root(2)`.
pub fn pivot_root(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `inotify_init(2)`.
pub fn inotify_init(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `inotify_init1(2)`.
pub fn inotify_init1(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
