//! Access to the kernel's page tables, for the memmap.

use crate::arch::cpu::read_cr3;
use crate::arch::pte::{ADDRESS, LARGE, PRESENT};
use crate::arch::{MEMMAP_BASE, phys_to_virt};
use core::sync::atomic::{AtomicU64, Ordering};

/// The size of a large page in bytes, 2 MiB.
const LARGE_PAGE: u64 = 2 << 20;

/// The value of [`kernel_root`].
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// Records the present page-table root of this CPU as the kernel's own, and returns its physical
/// address. Called once, at boot.
pub(super) fn find_root() -> u64 {
    let root = read_cr3() & ADDRESS;
    KERNEL_ROOT.store(root, Ordering::Relaxed);
    root
}

/// Returns the physical address of the page-table root with all kernel mappings.
pub fn kernel_root() -> u64 {
    // Relaxed: written once, before other CPUs start.
    KERNEL_ROOT.load(Ordering::Relaxed)
}

/// Returns the entry with number `index` modulo 512 of the table at physical address `table`.
fn entry(table: u64, index: u64) -> &'static AtomicU64 {
    let slot = phys_to_virt(table + index % 512 * size_of::<u64>() as u64).cast::<AtomicU64>();
    // SAFETY: the kernel's root and the tables below it are in the physmap. Removed tables are
    // freed when no CPU walks or reads them (`vmemmap`). Entries change atomically. The host reads
    // them, too, and notices if a table was removed meanwhile (`ebb_wire::header::memmap`).
    unsafe { &*slot }
}

/// Returns the second-level entry for the 2 MiB of the memmap that contain byte `offset`. The entry
/// maps a large page or leads to a table. Returns `None` if the memmap has no memory there.
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

/// Returns the last-level entry for the page of the memmap at byte `offset`. `table` is the value
/// of an entry from [`memmap_slot`] that leads to a table.
pub(super) fn memmap_entry(table: u64, offset: u64) -> &'static AtomicU64 {
    entry(table & ADDRESS, offset >> 12)
}

/// Returns the physical address of byte `offset` of the memmap, and the number of bytes from there
/// on that the same entry maps. Returns `None` if the memmap has no memory there.
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
