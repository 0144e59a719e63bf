//! The kernel's page tables, as the memmap needs them.

use crate::arch::cpu::read_cr3;
use crate::arch::pte::{ADDRESS, PRESENT};
use crate::arch::{MEMMAP_BASE, phys_to_virt};
use core::sync::atomic::{AtomicU64, Ordering};

/// 2 MiB, a page of the memmap's mapping.
const LARGE_PAGE: u64 = 2 << 20;

/// Physical address of the root.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// Notes the root that this CPU uses, which stays the kernel's own. Called once.
pub(super) fn find_root() -> u64 {
    let root = read_cr3() & ADDRESS;
    KERNEL_ROOT.store(root, Ordering::Relaxed);
    root
}

/// Physical address of the page-table root that all kernel mappings hang on.
pub fn kernel_root() -> u64 {
    // Relaxed: written once, before other CPUs start.
    KERNEL_ROOT.load(Ordering::Relaxed)
}

/// The physical address behind byte `offset` of the memmap.
pub(super) fn memmap_physical(offset: u64) -> Option<u64> {
    let entry = |table: u64, index: u64| {
        let slot = phys_to_virt(table + index % 512 * size_of::<u64>() as u64).cast::<u64>();
        // SAFETY: the kernel's root and what hangs on it are tables in the physmap, which stay.
        unsafe { slot.read_volatile() }
    };
    let address = MEMMAP_BASE + offset;
    let mut table = kernel_root();
    for shift in [39, 30] {
        let value = entry(table, address >> shift);
        if value & PRESENT == 0 {
            return None;
        }
        table = value & ADDRESS;
    }
    let value = entry(table, address >> 21);
    (value & PRESENT != 0)
        .then_some((value & ADDRESS & !(LARGE_PAGE - 1)) + (address & (LARGE_PAGE - 1)))
}
