//! Entries of page tables: the meaning of their bits in address spaces, and the addresses that they
//! stand for.

#![expect(unsafe_code, reason = "page tables are reached by their frames")]

use core::sync::atomic::AtomicU64;
use ebb_mm::Frame;
/// Also kept in entries that are not present.
pub(super) use machine::arch::pte::LARGE as HUGE;
pub(super) use machine::arch::pte::{
    ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, PRESENT, USER, WRITABLE, each_used, unused_before,
};
use machine::memory::memmap::frame_ptr;

/// Software bit: the frame is a page of a file.
pub(super) const FILE: u64 = 1 << 9;
/// Software bit: the frame is a page of shared memory.
pub(super) const SHMEM: u64 = 1 << 10;
/// Software bit: the huge page belongs to the pool of huge pages.
pub(super) const POOL: u64 = 1 << 52;
/// Software bit: the frame is being moved (`moving`). Any other change of the entry clears this
/// bit.
pub(super) const MOVING: u64 = 1 << 53;
/// Software bit: the frame is being joined with its neighbours (`collapse`). Set together with
/// `MOVING`, and cleared like it.
pub(super) const COLLAPSING: u64 = 1 << 54;
/// Software bit in an entry that leads to a last-level table: the table maps a huge block on trial
/// (`trial`).
pub(super) const TRIAL: u64 = 1 << 62;
/// The number of the lowest bit of [`NOTE`].
pub(super) const NOTE_SHIFT: u32 = 52;
/// The bits of an entry with `TRIAL` that hold the number of pages of the block that had stores at
/// the last check of the trial. All bits are set before the first check (`trial::FRESH`).
pub(super) const NOTE: u64 = 0x3ff << NOTE_SHIFT;
/// Software bit: the frame is the shared frame of zeros.
pub(super) const ZERO: u64 = 1 << 11;

/// The size of a page in bytes.
pub(super) const PAGE: u64 = 4096;
/// The number of bytes that an entry of each level maps, from the last level up.
pub(super) const SPANS: [u64; 4] = [PAGE, PAGE << 9, PAGE << 18, PAGE << 27];
/// The number of bytes that a table of the last level maps. An aligned range of this size is a
/// region.
pub(super) const REGION: u64 = SPANS[1];
/// A number that no region has.
pub(super) const NO_REGION: u64 = u64::MAX;

/// A page table: 512 entries.
pub(super) type Table = [AtomicU64; 512];

/// Returns the frame that `entry` points to.
#[inline]
pub(super) fn frame_of(entry: u64) -> Frame {
    Frame::containing(entry & ADDRESS)
}

/// Returns the page table that `entry`, a present entry of an upper level, points to.
#[inline]
pub(super) fn table_at(entry: u64) -> &'static Table {
    // SAFETY: present entries of upper levels lead to table frames in the physmap. They are only
    // freed by the holder of the space's lock, who then uses no reference made before, so the
    // 'static here means "while the lock is held". All access is atomic.
    unsafe { &*frame_ptr(frame_of(entry)).cast::<Table>() }
}

/// Returns the index of the entry for `address` in a table of `level`; the last level is 0.
#[inline]
pub(super) const fn index(address: u64, level: usize) -> usize {
    (address / SPANS[level] % 512) as usize
}

/// Returns the number of pages in `bytes` bytes of one region.
#[inline]
pub(super) const fn pages_in(bytes: u64) -> usize {
    debug_assert!(bytes <= REGION);
    (bytes / PAGE) as usize
}
