//! Bits of page-table entries of every level.

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
