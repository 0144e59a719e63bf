//! A guest's RAM as a memfd, and how much of it the host really holds.
//!
//! Resident memory is the memfd's `st_blocks`: exact, the same for every guest, and free of what
//! QEMU uses for itself.

use crate::Failure;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// `st_blocks` counts units of 512 bytes, whatever the file system's block size.
const STAT_BLOCK_BYTES: u64 = 512;
/// Descriptors of one process that a search looks at, at most.
const MAX_DESCRIPTORS: usize = 4096;

/// An open guest RAM.
#[derive(Debug)]
pub(crate) struct Ram(File);

impl Ram {
    /// A new RAM of `bytes` bytes, nothing of it resident.
    pub(crate) fn create(bytes: u64) -> Result<Self, Failure> {
        let fd = memfd_create("guest-ram", MemfdFlags::CLOEXEC)
            .and_then(|fd| ftruncate(&fd, bytes).map(|()| fd))
            .map_err(|e| Failure::io(format!("make a memfd of {bytes} bytes"), e.into()))?;
        Ok(Self(File::from(fd)))
    }

    /// The path under which another process of this user opens the same RAM.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// The RAM of `bytes` bytes that process `pid` holds as a memfd, once it has made it.
    pub(crate) fn of_process(pid: u32, bytes: u64) -> Option<Self> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        entries.take(MAX_DESCRIPTORS).flatten().find_map(|entry| {
            let path: PathBuf = entry.path();
            let target = std::fs::read_link(&path).ok()?;
            if !target.to_string_lossy().starts_with("/memfd:") {
                return None;
            }
            let file = File::open(&path).ok()?;
            (file.metadata().ok()?.len() == bytes).then_some(Self(file))
        })
    }

    /// Bytes of this RAM that the host holds now.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let metadata = self
            .0
            .metadata()
            .map_err(|e| Failure::io("stat the guest's RAM".to_owned(), e))?;
        Ok(metadata.blocks() * STAT_BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn only_written_pages_are_resident_and_another_view_sees_the_same() {
        let ram = Ram::create(64 << 20).expect("memfd");
        assert_eq!(ram.resident_bytes().expect("stat"), 0);
        ram.0.write_all_at(&[1; 5000], 1 << 20).expect("write");
        assert_eq!(ram.resident_bytes().expect("stat"), 8192);
        let same = Ram::of_process(std::process::id(), 64 << 20).expect("found");
        assert_eq!(same.resident_bytes().expect("stat"), 8192);
        assert!(Ram::of_process(std::process::id(), 63 << 20).is_none());
    }
}
