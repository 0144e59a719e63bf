//! What is known of a file by its descriptor.

use rustix::fs::{AtFlags, FileType, Stat, StatxFlags, statx};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

/// A descriptor's own path.
pub(crate) fn own_path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// What a file is.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// When a file was made, in seconds and nanoseconds, where its file system knows: another file with
/// the same number has another time. An empty name means the descriptor's own file.
pub(crate) fn birth(folder: impl AsFd, name: &[u8]) -> Option<(i64, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let known = statx(folder, OsStr::from_bytes(name), flags, StatxFlags::BTIME).ok()?;
    let known_flags = StatxFlags::from_bits_retain(known.stx_mask);
    let time = known_flags
        .contains(StatxFlags::BTIME)
        .then_some(known.stx_btime)?;
    Some((time.tv_sec, time.tv_nsec))
}

/// What changes with the bytes of a file, or when another takes its place. Links to it, its mode and
/// its owner are not its bytes: who links a package into another place changes no program.
pub(crate) fn version_of_bytes(stat: &Stat, birth: Option<(i64, u32)>) -> u64 {
    let mut version = DefaultHasher::new();
    let of = (stat.st_dev, stat.st_ino, birth, stat.st_size);
    (of, stat.st_mtime, stat.st_mtime_nsec).hash(&mut version);
    version.finish()
}

/// What changes with a file, or when another takes its place.
pub(crate) fn version_of(stat: &Stat) -> u64 {
    let mut version = DefaultHasher::new();
    let of = (stat.st_dev, stat.st_ino, stat.st_size);
    let written = (stat.st_mtime, stat.st_mtime_nsec);
    (of, written, stat.st_ctime, stat.st_ctime_nsec).hash(&mut version);
    version.finish()
}
