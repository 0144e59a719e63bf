//! What is known of a file by its descriptor.

use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags, statx};
use rustix::io::Errno;
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

/// What stands in a folder under a name, which is not followed if it is a link, and when that was made: all in one call, as it is
/// asked of each name of a listing. An empty name means the descriptor's own file.
///
/// # Errors
/// The host's.
pub(crate) fn facts(folder: impl AsFd, name: &[u8]) -> Result<Statx, Errno> {
    // As the calls that tell less: nothing is mounted only because of a look.
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(folder, OsStr::from_bytes(name), flags, wanted)
}

/// What a file is.
pub(crate) fn kind_of(facts: &Statx) -> FileType {
    FileType::from_raw_mode(facts.stx_mode.into())
}

/// What changes with the bytes of a file, or when another takes its place. Links to it, its mode and
/// its owner are not its bytes: who links a package into another place changes no program. Another file with the same number
/// was made at another time, where its file system knows that.
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

/// What changes with a file, or when another takes its place.
pub(crate) fn version_of(stat: &Stat) -> u64 {
    let mut version = DefaultHasher::new();
    let of = (stat.st_dev, stat.st_ino, stat.st_size);
    let written = (stat.st_mtime, stat.st_mtime_nsec);
    (of, written, stat.st_ctime, stat.st_ctime_nsec).hash(&mut version);
    version.finish()
}
