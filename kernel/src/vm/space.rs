//! Address spaces.

use super::{Backing, MapFlags, Prot, VmaFlags};
use crate::errno::Errno;
use alloc::sync::Arc;
use core::ops::Range;

/// A process's memory: its areas and its page tables.
#[derive(Debug)]
pub struct AddressSpace(());

/// How much of it there is, in bytes.
#[derive(Copy, Clone, Debug, Default)]
pub struct Usage {
    /// All areas.
    pub size: u64,
    /// The most that `size` has been.
    pub peak_size: u64,
    /// Mapped pages of anonymous memory.
    pub rss_anon: u64,
    /// Mapped pages of files.
    pub rss_file: u64,
    /// Mapped pages of shared memory.
    pub rss_shmem: u64,
    /// The most that the sum of the three has been.
    pub peak_rss: u64,
    /// Private writable areas that are not stacks.
    pub data: u64,
    /// Stacks.
    pub stack: u64,
    /// Executable areas.
    pub text: u64,
    /// `mlock`ed areas.
    pub locked: u64,
    /// Page tables.
    pub page_tables: u64,
}

impl Usage {
    /// Mapped pages, in bytes.
    pub const fn rss(&self) -> u64 {
        self.rss_anon + self.rss_file + self.rss_shmem
    }
}

/// One area, for `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct VmaInfo {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Rights and kind.
    pub flags: VmaFlags,
    /// Offset in the file.
    pub offset: u64,
    /// Device and inode of the file; 0, 0 for anonymous memory.
    pub inode: (u64, u64),
    /// Path, or `[heap]`, `[stack]`, or empty.
    pub name: Arc<[u8]>,
}

/// What to do with existing mappings; `madvise(2)`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Frees the pages: private memory reads as zero (or the file's bytes) again.
    DontNeed,
    /// Frees the file's bytes behind a shared mapping.
    Remove,
    /// Maps the pages for reading now.
    PopulateRead,
    /// Maps the pages for writing now.
    PopulateWrite,
    /// Not copied by fork.
    DontFork,
    /// Copied by fork.
    DoFork,
    /// Zero in the child.
    WipeOnFork,
    /// Kept in the child.
    KeepOnFork,
    /// Accepted, changes nothing.
    Nothing,
}

/// Limits that the process has set (`setrlimit`), in bytes; `u64::MAX`: none.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: u64,
    /// `RLIMIT_DATA`.
    pub data: u64,
    /// `RLIMIT_STACK`.
    pub stack: u64,
}

#[expect(unused_variables, reason = "landing")]
impl AddressSpace {
    /// A new, empty space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Arc<Self>, Errno> {
        Err(Errno::ENOMEM)
    }

    /// A copy for a child process: private pages are shared until one of the two writes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn fork(&self) -> Result<Arc<Self>, Errno> {
        Err(Errno::ENOMEM)
    }

    /// Makes a mapping and returns its address. `hint` is the address with `FIXED*`, else a wish;
    /// `bytes` is rounded up to pages.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub fn map(
        self: &Arc<Self>,
        hint: Option<u64>,
        bytes: u64,
        prot: Prot,
        flags: MapFlags,
        backing: Backing,
    ) -> Result<u64, Errno> {
        Err(Errno::ENOMEM)
    }

    /// `munmap(2)`.
    pub fn unmap(&self, start: u64, bytes: u64) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// `mprotect(2)`.
    pub fn protect(&self, start: u64, bytes: u64, prot: Prot) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// `madvise(2)`.
    pub fn advise(&self, start: u64, bytes: u64, advice: Advice) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// Where the heap starts (end of the program's data, rounded up); exec calls it once.
    pub fn set_brk(&self, start: u64) {}

    /// `brk(2)`: the new end of the heap, or the old one where it cannot be moved.
    pub fn brk(&self, address: u64) -> u64 {
        0
    }

    /// Sets the limits that hold for this space.
    pub fn set_limits(&self, limits: Limits) {}

    /// Makes it the space of this CPU: called on a switch to a task of it. Cheap when it is already.
    pub fn activate(&self) {}

    /// Leaves it for the kernel's own tables: called before a task's last reference may go, and by
    /// kernel threads and the idle loop when they have the time.
    pub fn deactivate(&self) {}

    /// How much memory it has.
    pub fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Hands its areas out, upwards, without a lock held meanwhile.
    pub fn for_each_vma(&self, each: impl FnMut(&VmaInfo)) {}

    /// Copies bytes of the space, which need not be the current one; all or `EFAULT`.
    pub fn read_bytes(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EFAULT)
    }

    /// Copies bytes into the space, which need not be the current one; all or `EFAULT`. `force`
    /// writes (a private copy) where the program itself may not.
    pub fn write_bytes(&self, address: u64, from: &[u8], force: bool) -> Result<(), Errno> {
        Err(Errno::EFAULT)
    }

    /// Where the program's arguments stand (`/proc/PID/cmdline`).
    pub fn set_arg_range(&self, range: Range<u64>) {}

    /// Where its environment stands (`/proc/PID/environ`).
    pub fn set_env_range(&self, range: Range<u64>) {}

    /// What `set_arg_range` set.
    pub fn arg_range(&self) -> Range<u64> {
        0..0
    }

    /// What `set_env_range` set.
    pub fn env_range(&self) -> Range<u64> {
        0..0
    }

    /// The key by which a shared futex at this address is known to all that map the page: equal
    /// exactly for the same byte of the same memory.
    ///
    /// # Errors
    /// `EFAULT` when the page cannot be mapped for writing.
    pub fn futex_key(&self, address: u64) -> Result<(u64, u64), Errno> {
        Err(Errno::EFAULT)
    }
}
