//! Rights and kinds of mappings.

use bitflags::bitflags;

bitflags! {
    /// What user code may do with a page.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Prot: u32 {
        /// Load from it.
        const READ = 1;
        /// Store to it.
        const WRITE = 2;
        /// Fetch instructions from it.
        const EXEC = 4;
    }

    /// How a mapping is made.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct MapFlags: u32 {
        /// Exactly at the given address; mappings there are removed.
        const FIXED = 1;
        /// Exactly at the given address; `EEXIST` if there is a mapping.
        const FIXED_NOREPLACE = 1 << 1;
        /// A stack: grows downwards when it is touched below.
        const GROWSDOWN = 1 << 2;
        /// All pages are mapped at once.
        const POPULATE = 1 << 3;
        /// Not counted as committed memory.
        const NORESERVE = 1 << 4;
        /// Below 2 GiB.
        const LOW = 1 << 5;
        /// Pages stay in memory; counted in `VmLck`.
        const LOCKED = 1 << 6;
        /// The initial stack, which `/proc/PID/maps` names.
        const STACK = 1 << 7;
        /// No huge pages: a thread's stack, which mostly stays small.
        const NO_HUGE_PAGES = 1 << 8;
    }

    /// Rights and kind of an area. Areas that differ here are never merged.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct VmaFlags: u32 {
        /// Loads are allowed.
        const READ = 1;
        /// Stores are allowed.
        const WRITE = 2;
        /// Instruction fetches are allowed.
        const EXEC = 4;
        /// Stores reach the file or the other sharers; without it they make a private copy.
        const SHARED = 1 << 3;
        /// `mprotect` may allow stores.
        const MAY_WRITE = 1 << 4;
        /// Grows downwards.
        const GROWS_DOWN = 1 << 5;
        /// Counted as committed memory.
        const ACCOUNTED = 1 << 6;
        /// `mlock`ed: counted in `VmLck`, not dropped.
        const LOCKED = 1 << 7;
        /// The heap that `brk` moves.
        const HEAP = 1 << 8;
        /// The initial stack.
        const STACK = 1 << 9;
        /// Not copied by fork.
        const DONT_FORK = 1 << 10;
        /// Zero in the child after fork.
        const WIPE_ON_FORK = 1 << 11;
        /// Not in core files.
        const DONT_DUMP = 1 << 18;
        /// Huge pages are asked for.
        const HUGE_PAGES = 1 << 12;
        /// Huge pages are declined.
        const NO_HUGE_PAGES = 1 << 13;
        /// Not counted as committed memory, with any rights.
        const NO_RESERVE = 1 << 14;
        /// Mapped by pages of the pool of huge pages, and nothing else.
        const HUGETLB = 1 << 15;
        /// In such an area: pages were given up for the process that had reserved them. Missing
        /// pages cannot be faulted in.
        const POOL_LOST = 1 << 17;
        /// `mprotect` may not allow instruction fetches.
        const NO_EXEC = 1 << 16;
        /// The memory policy, packed.
        const POLICY = 0x3f << 19;
    }
}

impl VmaFlags {
    /// The rights.
    pub const RIGHTS: Self = Self::READ.union(Self::WRITE).union(Self::EXEC);
}

impl Prot {
    /// The same rights as flags of an area.
    pub fn flags(self) -> VmaFlags {
        VmaFlags::from_bits_truncate(self.bits())
    }
}
