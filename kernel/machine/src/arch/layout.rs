//! The layout of the kernel's address space.
//!
//! | from | to | what |
//! |---|---|---|
//! | 0 | 0x0000_7fff_ffff_f000 | user, one table a process |
//! | 0xffff_8880_0000_0000 | + 64 TiB | physmap: all RAM, 1 GiB or 2 MiB pages |
//! | 0xffff_d000_0000_0000 | + 1 GiB | device registers, uncached |
//! | 0xffff_ea00_0000_0000 | + 1 TiB | memmap (part `memory`) |
//! | 0xffff_ffff_8000_0000 | + 2 GiB | the kernel image at its physical address |

/// First address that no user mapping may cover.
pub const USER_END: u64 = 0x0000_7fff_ffff_f000;
/// Virtual address of physical address 0 in the physmap.
pub const PHYSMAP_BASE: u64 = 0xffff_8880_0000_0000;
/// Highest amount of physical address space that the physmap can cover.
pub const PHYSMAP_SIZE: u64 = 1 << 46;
/// Where device registers are mapped.
pub const DEVICE_BASE: u64 = 0xffff_d000_0000_0000;
/// Room for device registers: what one page directory covers.
pub const DEVICE_SIZE: u64 = 1 << 30;
/// Where the frame descriptors are mapped.
pub const MEMMAP_BASE: u64 = 0xffff_ea00_0000_0000;
/// Virtual minus physical address of the kernel image.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// The physmap's address of a physical address.
#[inline]
pub const fn phys_to_virt(phys: u64) -> *mut u8 {
    (PHYSMAP_BASE + phys) as *mut u8
}

/// The physical address behind a physmap or kernel image address.
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
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
}

impl PhysRange {
    /// Length in bytes.
    pub const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether an address lies in it.
    pub const fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// Bytes in a frame and a page.
pub const PAGE_SIZE: usize = 4096;
