//! Bits of page-table entries of every level, and scans of tables.

use core::sync::atomic::{AtomicU64, Ordering};

/// The entry is valid: the CPU uses it.
pub const PRESENT: u64 = 1;
/// Stores through the entry are allowed.
pub const WRITABLE: u64 = 1 << 1;
/// User mode may use the entry.
pub const USER: u64 = 1 << 2;
/// The memory is not cached: device registers.
pub const UNCACHED: u64 = 1 << 3 | 1 << 4;
/// The CPU has used the entry for an access.
pub const ACCESSED: u64 = 1 << 5;
/// The CPU has used the entry for a store.
pub const DIRTY: u64 = 1 << 6;
/// In tables above the last level: the entry maps a large page and leads to no table.
pub const LARGE: u64 = 1 << 7;
/// The translation stays in the TLB when the CPU switches page tables.
pub const GLOBAL: u64 = 1 << 8;
/// Instructions cannot be fetched through the entry.
pub const NO_EXECUTE: u64 = 1 << 63;
/// The bits of the physical address.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The number of entries that are checked together where most are unused.
const GROUP: usize = 8;

/// Returns whether all entries of `group` are unused. In a full table the first entry decides.
#[inline]
fn are_unused(group: &[AtomicU64; GROUP]) -> bool {
    // Relaxed (both): the CPU does not make an entry used or unused.
    group[0].load(Ordering::Relaxed) == 0
        && group[1..]
            .iter()
            .fold(0, |all, entry| all | entry.load(Ordering::Relaxed))
            == 0
}

/// Calls `each` with every used entry: its index, the entry and its value.
#[inline]
pub fn each_used(entries: &[AtomicU64], mut each: impl FnMut(usize, &AtomicU64, u64)) {
    let (groups, rest) = entries.as_chunks::<GROUP>();
    let mut look = |first: usize, some: &[AtomicU64]| {
        for (place, entry) in some.iter().enumerate() {
            // Relaxed: as in `are_unused`.
            let value = entry.load(Ordering::Relaxed);
            if value != 0 {
                each(first + place, entry, value);
            }
        }
    };
    for (at, group) in groups.iter().enumerate() {
        if !are_unused(group) {
            look(at * GROUP, group);
        }
    }
    look(groups.len() * GROUP, rest);
}

/// Returns the number of unused entries before the first used one, or the number of all entries if
/// none is used.
pub fn unused_before(entries: &[AtomicU64]) -> usize {
    let (groups, _) = entries.as_chunks::<GROUP>();
    let skipped = groups.iter().take_while(|group| are_unused(group)).count() * GROUP;
    let rest = entries[skipped..].iter();
    skipped
        + rest
            .take_while(|entry| entry.load(Ordering::Relaxed) == 0)
            .count()
}
