//! The kernel's page tables, as the memmap needs them.

use crate::arch::cpu::read_cr3;
use crate::arch::pte::{ADDRESS, LARGE, PRESENT};
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

/// An entry of the kernel's tables.
fn entry(table: u64, index: u64) -> &'static AtomicU64 {
    let slot = phys_to_virt(table + index % 512 * size_of::<u64>() as u64).cast::<AtomicU64>();
    // SAFETY: the kernel's root and the tables below it are in the physmap. Removed tables are
    // freed when no CPU walks or reads them (`vmemmap`). Entries change atomically.
    unsafe { &*slot }
}

/// The entry that stands for the 2 MiB of the memmap around byte `offset`.
pub(super) fn memmap_slot(offset: u64) -> Option<&'static AtomicU64> {
    let address = MEMMAP_BASE + offset;
    let mut table = kernel_root();
    for shift in [39, 30] {
        // Relaxed: set at boot, before other CPUs start.
        let value = entry(table, address >> shift).load(Ordering::Relaxed);
        if value & PRESENT == 0 {
            return None;
        }
        table = value & ADDRESS;
    }
    let slot = entry(table, address >> 21);
    (slot.load(Ordering::Relaxed) & PRESENT != 0).then_some(slot)
}

/// The entry of a page in the table of the last level that an entry of [`memmap_slot`] leads to.
pub(super) fn memmap_entry(table: u64, offset: u64) -> &'static AtomicU64 {
    entry(table & ADDRESS, offset >> 12)
}

/// The physical address behind byte `offset` of the memmap, and how many bytes from there on the
/// same entry maps.
pub(super) fn memmap_run(offset: u64) -> Option<(u64, u64)> {
    // Acquire: pairs with the Release that inserts a table after filling it.
    let value = memmap_slot(offset)?.load(Ordering::Acquire);
    if value & LARGE != 0 {
        let inside = offset & (LARGE_PAGE - 1);
        let start = value & ADDRESS & !(LARGE_PAGE - 1);
        return Some((start + inside, LARGE_PAGE - inside));
    }
    let page = memmap_entry(value, offset).load(Ordering::Relaxed);
    let inside = offset % 4096;
    (page & PRESENT != 0).then_some(((page & ADDRESS) + inside, 4096 - inside))
}
