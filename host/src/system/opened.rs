//! Properties of a file that are read through its descriptor.

use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags, statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

/// Returns the path `/proc/self/fd/N` of the open file `file`. It is valid only while `file` is
/// open, and only in this process.
pub(crate) fn own_path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Returns the type of the file that `stat` describes: regular file, folder, link and so on.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the type, size, times and other metadata of the file `name` in `folder`, including its
/// creation time. Does not follow a link. With an empty `name`, the file is `folder` itself. One
/// system call returns all, because listings need it for each name.
///
/// # Errors
/// The errors of statx(2).
pub(crate) fn facts(folder: impl AsFd, name: &[u8]) -> Result<Statx, Errno> {
    // As in stat(2), a look must not trigger an automount.
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(folder, OsStr::from_bytes(name), flags, wanted)
}

/// Returns the type of the file that `facts` describes: regular file, folder, link and so on.
pub(crate) fn kind_of(facts: &Statx) -> FileType {
    FileType::from_raw_mode(facts.stx_mode.into())
}

/// Returns a number that changes when the bytes of the file change or another file takes its place.
/// It depends on the device, inode number, creation time, size and modification time. It does not
/// depend on the link count, mode or owner, because they are no part of the content. The creation
/// time tells a new file from a deleted one with the same inode number, if the file system reports
/// it.
pub(crate) fn version_of_bytes(facts: &Statx) -> u64 {
    let known = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::BTIME);
    let birth = known.then_some((facts.stx_btime.tv_sec, facts.stx_btime.tv_nsec));
    let mut version = DefaultHasher::new();
    let device = (facts.stx_dev_major, facts.stx_dev_minor);
    let of = (device, facts.stx_ino, birth, facts.stx_size);
    let written = (facts.stx_mtime.tv_sec, facts.stx_mtime.tv_nsec);
    (of, written).hash(&mut version);
    version.finish()
}

/// Returns a number that changes when the file changes in any way or another file takes its place.
/// It depends on the device, inode number, size, modification time and change time.
pub(crate) fn version_of(stat: &Stat) -> u64 {
    let mut version = DefaultHasher::new();
    let of = (stat.st_dev, stat.st_ino, stat.st_size);
    let written = (stat.st_mtime, stat.st_mtime_nsec);
    (of, written, stat.st_ctime, stat.st_ctime_nsec).hash(&mut version);
    version.finish()
}
