//! The kernel image and the initramfs, which QEMU reads from memfds of the host.

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::Errno;
use rustix::param::page_size;

/// The memfds of the kernel image and the initramfs, which QEMU has open and mapped until it ends.
#[derive(Debug)]
pub(crate) struct BootFiles([OwnedFd; 2]);

impl BootFiles {
    /// Wraps the memfds of the kernel image and the initramfs, which are duplicates of those that
    /// QEMU has.
    pub(super) fn new(kernel: OwnedFd, initramfs: OwnedFd) -> Self {
        Self([kernel, initramfs])
    }

    /// Punches holes over both files, so that the host gets their memory back, and closes them
    /// here. Call this once the guest has read them.
    ///
    /// The sizes of the files stay, so QEMU's mappings remain valid. A guest that asks the
    /// firmware's device for the files again gets zeros, and no host memory is allocated for them.
    /// Fails if the host refuses to punch a hole.
    pub(crate) fn give_back(self) -> Result<(), Errno> {
        for file in &self.0 {
            let bytes = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
            if bytes > 0 {
                // `fallocate` frees whole pages only.
                let bytes = bytes.next_multiple_of(page_size() as u64);
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, flags, 0, bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::memory_file;
    use std::io::Write;

    #[test]
    fn nothing_stays_of_them_but_their_size() {
        let file = |bytes: usize| {
            let mut file = memory_file("test").unwrap();
            file.write_all(&vec![7; bytes]).unwrap();
            file
        };
        let (kernel, empty) = (file(100_001), file(0));
        let held = |file: &std::fs::File| {
            let stat = fstat(file).unwrap();
            (stat.st_size, stat.st_blocks)
        };
        assert!(held(&kernel).1 > 0);
        let same = kernel.try_clone().unwrap();
        BootFiles::new(kernel.into(), empty.into())
            .give_back()
            .unwrap();
        assert_eq!(held(&same), (100_001, 0));
    }
}
