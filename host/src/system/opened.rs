//! What is known of a file by its descriptor.

use rustix::fs::{FileType, Stat};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, OwnedFd};

/// A descriptor's own path.
pub(crate) fn own_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// What a file is.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// What changes with the bytes of a file, or when another takes its place. Links to it, its mode and
/// its owner are not its bytes: who links a package into another place changes no program.
pub(crate) fn version_of_bytes(stat: &Stat) -> u64 {
    let mut version = DefaultHasher::new();
    let of = (stat.st_dev, stat.st_ino, stat.st_size);
    (of, stat.st_mtime, stat.st_mtime_nsec).hash(&mut version);
    version.finish()
}

/// What changes with a file, or when another takes its place.
pub(crate) fn version_of(stat: &Stat) -> u64 {
    let mut version = DefaultHasher::new();
    let changed = (stat.st_ctime, stat.st_ctime_nsec);
    (version_of_bytes(stat), changed).hash(&mut version);
    version.finish()
}
