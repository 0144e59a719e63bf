//! The files that a guest boots from, which are memory of the host's.

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::Errno;
use rustix::param::page_size;

/// The kernel and the initramfs. QEMU has them open, and mapped, until it ends.
#[derive(Debug)]
pub(crate) struct BootFiles([OwnedFd; 2]);

impl BootFiles {
    pub(super) fn new(kernel: OwnedFd, initramfs: OwnedFd) -> Self {
        Self([kernel, initramfs])
    }

    /// Gives their memory back to the host once the guest has read them. The sizes stay, so that QEMU's mappings hold: a
    /// guest that asks its firmware's device for them again gets zeros, and no more memory than before.
    pub(crate) fn give_back(self) -> Result<(), Errno> {
        for file in &self.0 {
            let bytes = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
            if bytes > 0 {
                // A page is only given back as a whole.
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
