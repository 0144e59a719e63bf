//! Files that exist only in memory.

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::fs::File;

/// An empty one; `name` is for people who look around in `/proc`.
pub(crate) fn memory_file(name: &str) -> Result<File, Errno> {
    Ok(File::from(rustix::fs::memfd_create(
        name,
        MemfdFlags::CLOEXEC,
    )?))
}
