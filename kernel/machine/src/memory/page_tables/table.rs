//! The form of page tables.

use crate::arch::pte::{ACCESSED, LARGE, PRESENT, USER, WRITABLE, unused_before};
use core::sync::atomic::AtomicU64;

/// Software bit in an entry that leads to a last-level table: the pages of that table are no pages
/// of their own. Walks end at the entry.
pub const TRIAL: u64 = 1 << 62;

/// The number of bytes that an entry of each level maps, from the last level up.
pub const SPANS: [u64; 4] = [4096, 4096 << 9, 4096 << 18, 4096 << 27];
/// The number of bytes that a table of the last level maps. An aligned range of this size is a
/// region.
pub const REGION: u64 = SPANS[1];
/// The number of entries of a root that map addresses of programs.
pub(super) const USERS: usize = 256;
/// The bits of an entry that leads to a table.
pub(super) const UPPER: u64 = PRESENT | WRITABLE | USER | ACCESSED;

/// A page table: 512 entries.
pub type Table = [AtomicU64; 512];

/// Returns the index of the entry for `address` in a table of `level`; the last level is 0.
#[inline]
#[must_use]
pub const fn index(address: u64, level: usize) -> usize {
    (address / SPANS[level] % 512) as usize
}

/// Returns whether `entry`, of an upper level, leads to a table.
#[inline]
pub(super) const fn leads_to_table(entry: u64) -> bool {
    entry != 0 && entry & LARGE == 0
}

/// Returns the address that the next used entry of `table` behind the entry for `address` maps.
/// Returns the end of the range of `table` if there is none.
#[inline]
pub(super) fn next_used(table: &Table, address: u64, level: usize) -> u64 {
    let unused = unused_before(&table[index(address, level) + 1..]);
    (address / SPANS[level] + 1 + unused as u64) * SPANS[level]
}

/// Returns whether no entry of `table` is in use.
pub(super) fn is_empty(table: &Table) -> bool {
    unused_before(table) == table.len()
}
