//! The layout of the kernel's address space.
//!
//! | from | to | what |
//! |---|---|---|
//! | 0 | 0x0000_7fff_ffff_f000 | user, one table a process |
//! | 0xffff_8880_0000_0000 | + 64 TiB | physmap: all RAM, 1 GiB or 2 MiB pages |
//! | 0xffff_d000_0000_0000 | + 1 GiB | device registers, uncached |
//! | 0xffff_ea00_0000_0000 | + 1 TiB | memmap (part `memory`) |
//! | 0xffff_ffff_8000_0000 | + 2 GiB | the kernel image at its physical address |

/// The first address after user memory.
pub const USER_END: u64 = 0x0000_7fff_ffff_f000;
/// The virtual address of physical address 0 in the physmap.
pub const PHYSMAP_BASE: u64 = 0xffff_8880_0000_0000;
/// The size of the physical address space that the physmap can cover, in bytes.
pub const PHYSMAP_SIZE: u64 = 1 << 46;
/// The virtual address at which device registers are mapped.
pub const DEVICE_BASE: u64 = 0xffff_d000_0000_0000;
/// The size of the window for device registers in bytes: what one page directory covers.
pub const DEVICE_SIZE: u64 = 1 << 30;
/// The virtual address of the memmap, the array of frame descriptors.
pub const MEMMAP_BASE: u64 = 0xffff_ea00_0000_0000;
/// The difference between virtual and physical addresses of the kernel image.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// Returns the virtual address of physical address `phys` in the physmap.
#[inline]
pub const fn phys_to_virt(phys: u64) -> *mut u8 {
    (PHYSMAP_BASE + phys) as *mut u8
}

/// Returns the physical address of `ptr`, a virtual address in the physmap or the kernel image.
#[inline]
pub fn virt_to_phys(ptr: *const u8) -> u64 {
    let address = ptr as u64;
    if address >= KERNEL_BASE {
        address - KERNEL_BASE
    } else {
        debug_assert!((PHYSMAP_BASE..PHYSMAP_BASE + PHYSMAP_SIZE).contains(&address));
        address - PHYSMAP_BASE
    }
}

/// A range of physical addresses, `end` exclusive.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PhysRange {
    /// The address of the first byte.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
}

impl PhysRange {
    /// Returns the length in bytes.
    pub const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Returns whether `address` lies in the range.
    pub const fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// The size of a frame and of a page in bytes.
pub const PAGE_SIZE: usize = 4096;
