//! Entries of page tables: the meaning of their bits in address spaces, and the addresses that they
//! stand for.

use ebb_mm::Frame;
/// Also kept in entries that are not present.
pub(super) use machine::arch::pte::LARGE as HUGE;
pub(super) use machine::arch::pte::{
    ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, PRESENT, USER, WRITABLE, each_used,
};
pub(super) use machine::memory::page_tables::{REGION, SPANS, TRIAL, Table, index};

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
/// The number of the lowest bit of [`NOTE`].
pub(super) const NOTE_SHIFT: u32 = 52;
/// The bits of an entry with `TRIAL` that hold the number of pages of the block that had stores at
/// the last check of the trial. All bits are set before the first check (`trial::FRESH`).
pub(super) const NOTE: u64 = 0x3ff << NOTE_SHIFT;
/// Software bit: the frame is the shared frame of zeros.
pub(super) const ZERO: u64 = 1 << 11;

/// The size of a page in bytes.
pub(super) const PAGE: u64 = 4096;
/// Returns the frame that `entry` points to.
#[inline]
pub(super) fn frame_of(entry: u64) -> Frame {
    Frame::containing(entry & ADDRESS)
}

/// Returns the number of pages in `bytes` bytes of one region.
#[inline]
pub(super) const fn pages_in(bytes: u64) -> usize {
    debug_assert!(bytes <= REGION);
    (bytes / PAGE) as usize
}
