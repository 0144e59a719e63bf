//! Files that exist only in memory.

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::fs::File;

/// Creates an empty memfd, open for reading and writing. `name` appears only in `/proc`. Fails as
/// memfd_create(2).
pub(crate) fn memory_file(name: &str) -> Result<File, Errno> {
    Ok(File::from(rustix::fs::memfd_create(
        name,
        MemfdFlags::CLOEXEC,
    )?))
}
