//! The rights and kinds of mappings and areas.

use bitflags::bitflags;

bitflags! {
    /// The accesses that user code may make to a page.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Prot: u32 {
        /// The page can be read.
        const READ = 1;
        /// The page can be written.
        const WRITE = 2;
        /// Instructions can be fetched from the page.
        const EXEC = 4;
    }

    /// The options of a new mapping.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct MapFlags: u32 {
        /// The mapping goes exactly to the given address. Mappings there are removed.
        const FIXED = 1;
        /// The mapping goes exactly to the given address. Fails with `EEXIST` if there is a
        /// mapping.
        const FIXED_NOREPLACE = 1 << 1;
        /// The mapping is a stack, which grows downwards when a page below it is touched.
        const GROWSDOWN = 1 << 2;
        /// All pages are mapped at once.
        const POPULATE = 1 << 3;
        /// The mapping does not count as committed memory.
        const NORESERVE = 1 << 4;
        /// The mapping goes below 2 GiB if there is room, otherwise above.
        const LOW = 1 << 5;
        /// The pages are locked in memory and counted in `VmLck`.
        const LOCKED = 1 << 6;
        /// The mapping is the initial stack, which `/proc/PID/maps` names.
        const STACK = 1 << 7;
        /// The mapping gets no huge pages. It is a thread's stack, which mostly stays small.
        const NO_HUGE_PAGES = 1 << 8;
    }

    /// The rights and the kind of an area. Areas with different flags are never merged.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct VmaFlags: u32 {
        /// Loads are allowed.
        const READ = 1;
        /// Stores are allowed.
        const WRITE = 2;
        /// Instruction fetches are allowed.
        const EXEC = 4;
        /// Stores reach the file or the other sharers. Without this flag they go to a private copy.
        const SHARED = 1 << 3;
        /// `mprotect` may allow stores.
        const MAY_WRITE = 1 << 4;
        /// The area grows downwards.
        const GROWS_DOWN = 1 << 5;
        /// The area counts as committed memory.
        const ACCOUNTED = 1 << 6;
        /// The pages are locked (`mlock`): counted in `VmLck`, and not dropped.
        const LOCKED = 1 << 7;
        /// The heap that `brk` moves.
        const HEAP = 1 << 8;
        /// The initial stack.
        const STACK = 1 << 9;
        /// `fork` does not copy the area.
        const DONT_FORK = 1 << 10;
        /// The area is zero in the child after `fork`.
        const WIPE_ON_FORK = 1 << 11;
        /// The area is not in core files.
        const DONT_DUMP = 1 << 18;
        /// The program asked for huge pages (`MADV_HUGEPAGE`).
        const HUGE_PAGES = 1 << 12;
        /// The program declined huge pages (`MADV_NOHUGEPAGE`).
        const NO_HUGE_PAGES = 1 << 13;
        /// The area does not count as committed memory, whichever rights it has.
        const NO_RESERVE = 1 << 14;
        /// The area is mapped by pages of the pool of huge pages only.
        const HUGETLB = 1 << 15;
        /// Pages were given up for the process that had reserved them, so missing pages cannot be
        /// faulted in. Only areas with `HUGETLB` have this flag.
        const POOL_LOST = 1 << 17;
        /// `mprotect` may not allow instruction fetches.
        const NO_EXEC = 1 << 16;
        /// The bits that hold the packed memory policy.
        const POLICY = 0x3f << 19;
    }
}

impl VmaFlags {
    /// All rights.
    pub const RIGHTS: Self = Self::READ.union(Self::WRITE).union(Self::EXEC);
}

impl Prot {
    /// Returns the same rights as flags of an area.
    pub fn flags(self) -> VmaFlags {
        VmaFlags::from_bits_truncate(self.bits())
    }
}
