//! Bits of page-table entries, of every level.

/// The CPU uses the entry.
pub const PRESENT: u64 = 1;
/// Stores are allowed.
pub const WRITABLE: u64 = 1 << 1;
/// User mode may use it.
pub const USER: u64 = 1 << 2;
/// Not cached: device registers.
pub const UNCACHED: u64 = 1 << 3 | 1 << 4;
/// The CPU has used it.
pub const ACCESSED: u64 = 1 << 5;
/// The CPU has stored by it.
pub const DIRTY: u64 = 1 << 6;
/// Above the last level: maps a large page itself.
pub const LARGE: u64 = 1 << 7;
/// Survives a change of tables.
pub const GLOBAL: u64 = 1 << 8;
/// Instructions cannot be fetched.
pub const NO_EXECUTE: u64 = 1 << 63;
/// The address part.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
