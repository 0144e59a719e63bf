//! Measures the resident memory of a guest's RAM from outside, by the blocks of its RAM files.

use super::super::meter::child_of;
use rustix::fs::statfs;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The magic number of tmpfs, whose files are in memory.
const TMPFS: i64 = 0x0102_1994;
/// The magic number of hugetlbfs, whose files are in memory.
const HUGETLBFS: i64 = 0x9584_58f6;
/// The minimum size of a RAM file in bytes. All other files of QEMU and `ebb` in memory are
/// smaller.
const LEAST: u64 = 32 << 20;

/// The files that hold the RAM of one guest, in tmpfs or hugetlbfs.
#[derive(Debug)]
pub(super) struct ResidentFiles {
    /// A path to each file, by its device and inode.
    files: BTreeMap<(u64, u64), PathBuf>,
}

impl ResidentFiles {
    /// Finds the RAM files among the open descriptors of the `ebb run` with process number `ebb`,
    /// and of its QEMU: files of at least 32 MiB in tmpfs or hugetlbfs.
    ///
    /// # Errors
    /// If there is no such file, for example because the guest has ended.
    pub(super) fn of(ebb: u32) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        let pids = std::iter::once(ebb).chain(child_of(ebb));
        for pid in pids {
            let folder = fs::read_dir(format!("/proc/{pid}/fd"));
            for entry in folder.into_iter().flatten().flatten() {
                let path = entry.path();
                let Ok(found) = fs::metadata(&path) else {
                    continue;
                };
                let kind = statfs(&path).map(|system| system.f_type);
                if found.is_file()
                    && found.len() >= LEAST
                    && kind.is_ok_and(|kind| kind == TMPFS || kind == HUGETLBFS)
                {
                    files.insert((found.dev(), found.ino()), path);
                }
            }
        }
        if files.is_empty() {
            return Err("the file of its RAM cannot be found among its descriptors".into());
        }
        Ok(Self { files })
    }

    /// Returns the resident bytes of all files together. A file that is no longer open counts as 0,
    /// so the sum is 0 once the guest has ended.
    pub(super) fn bytes(&self) -> u64 {
        self.files
            .iter()
            .filter_map(|(id, path)| {
                let found = fs::metadata(path).ok()?;
                ((found.dev(), found.ino()) == *id).then(|| found.blocks() * 512)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::pwrite;

    #[test]
    fn blocks_of_a_large_file_in_memory_are_counted_and_no_others() {
        let file = memfd_create("held", MemfdFlags::CLOEXEC).expect("a file in memory");
        ftruncate(&file, LEAST).expect("its size");
        let resident = ResidentFiles::of(std::process::id()).expect("it is there");
        let before = resident.bytes();
        pwrite(&file, &[1; 4096], 0).expect("a page");
        assert_eq!(resident.bytes(), before + 4096);
        drop(file);
        assert!(ResidentFiles::of(u32::MAX).is_err());
    }
}
