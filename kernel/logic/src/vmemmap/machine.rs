//! What the exchange needs of a machine.

#[cfg(not(ebb_model))]
pub(super) use core::sync::atomic::AtomicU64;
use ebb_mm::{AllocError, Frame, FrameRange};
#[cfg(ebb_model)]
pub(super) use loom::sync::atomic::AtomicU64;

/// The most pages of the memmap that describe a pageblock.
pub const MAX_PAGES: usize = 8;

/// Bits of the entries of page tables.
#[derive(Copy, Clone, Debug)]
pub struct Bits {
    /// The address part.
    pub address: u64,
    /// Above the last level: the entry maps a large page itself.
    pub large: u64,
    /// What the entry of a page has that can be read.
    pub page: u64,
    /// What it has besides if it can be written.
    pub writable: u64,
    /// What an entry has that leads to a table.
    pub table: u64,
    /// Ours, in the entry of a page: its frame came from the allocator. The memmap has others from boot.
    pub owned: u64,
}

/// A machine: its memmap and the tables that map it, its allocator, its CPUs. The methods need not lock anything: one
/// CPU at a time exchanges, but the allocator is everybody's.
///
/// Frames are in use when they come from the allocator, their descriptors zero; they go back so.
pub trait Machine: Copy {
    /// Entries of a table, which are also the frames of a pageblock, the pages of a large page, and the pageblocks of a
    /// page of 1 GiB. A power of two.
    const ENTRIES: u64;
    /// Pages of the memmap that describe a pageblock, and tables that describe [`Self::ENTRIES`] of them. A power of
    /// two, [`MAX_PAGES`] at most.
    const PAGES: usize;
    /// How entries are written.
    const BITS: Bits;

    /// The entry that leads to the table for a block's part of the memmap, or maps it by a large page.
    fn slot<'a>(self, block: Frame) -> &'a AtomicU64
    where
        Self: 'a;
    /// An entry of a table of the last level.
    fn entry<'a>(self, table: Frame, index: u64) -> &'a AtomicU64
    where
        Self: 'a;
    /// A word in the descriptor of a table's frame: how many of its entries lead to the shared page. Zero in other
    /// descriptors.
    fn shared_entries<'a>(self, table: Frame) -> &'a AtomicU64
    where
        Self: 'a;

    /// Fills frames with zeros that are the caller's alone.
    fn clear(self, frames: FrameRange);
    /// Has all descriptors in a page of zeros say that they are of a huge page.
    fn describe_huge_page(self, page: Frame);

    /// Marks a frame from the allocator as the memmap's.
    fn own(self, frame: Frame);
    /// Takes the mark back: the descriptor is zero.
    fn disown(self, frame: Frame);
    /// Counts so many more frames that are marked.
    fn count(self, frames: u64);
    /// Counts so many less.
    fn uncount(self, frames: u64);

    /// Takes a frame from the allocator, which stays for long. Does not wait.
    ///
    /// # Errors
    /// If it has none.
    fn allocate(self) -> Result<Frame, AllocError>;
    /// Fills a slice with frames, as far as there are any; how many.
    fn allocate_many(self, frames: &mut [Frame]) -> usize;
    /// Takes a pageblock, as single frames.
    ///
    /// # Errors
    /// If there is none.
    fn allocate_block(self) -> Result<Frame, AllocError>;
    /// Takes exactly these frames, as single ones, if all are free.
    fn allocate_range(self, range: FrameRange) -> bool;
    /// Gives single frames back.
    fn free(self, range: FrameRange);
    /// Makes frames that the memmap has from boot the allocator's, in use as single ones.
    fn admit(self, range: FrameRange);

    /// This CPU drops what it knows of where a block's part of the memmap is.
    fn forget(self, block: Frame);
    /// All CPUs drop what they know of where the memmap is. When this returns, they have.
    fn flush(self);
}

/// The place of a block's first page in its table.
#[inline]
pub(super) fn first_entry<M: Machine>(block: Frame) -> u64 {
    block.number() / M::ENTRIES * M::PAGES as u64 % M::ENTRIES
}

/// The entries of a block's pages.
#[inline]
pub(super) fn entries<'a, M: Machine + 'a>(
    machine: M,
    table: Frame,
    block: Frame,
) -> impl Iterator<Item = &'a AtomicU64> {
    let first = first_entry::<M>(block);
    (0..M::PAGES as u64).map(move |page| machine.entry(table, first + page))
}

/// The frame that an entry leads to.
#[inline]
pub(super) const fn target<M: Machine>(entry: u64) -> Frame {
    Frame::containing(entry & M::BITS.address)
}

/// The entry of a page that can be written, and that came from the allocator.
#[inline]
pub(super) const fn page_entry<M: Machine>(page: Frame) -> u64 {
    page.address() | M::BITS.page | M::BITS.writable | M::BITS.owned
}

/// The entry of one page of a large page.
#[inline]
pub(super) fn part_entry<M: Machine>(large: u64, index: u64) -> u64 {
    let page = large_target::<M>(large).offset(index);
    page.address() | M::BITS.page | M::BITS.writable | large & M::BITS.owned
}

/// The entry that leads to a table.
#[inline]
pub(super) const fn table_entry<M: Machine>(table: Frame) -> u64 {
    table.address() | M::BITS.table
}

/// The first frame of a large page.
#[inline]
pub(super) fn large_target<M: Machine>(entry: u64) -> Frame {
    // Below the address of a large page x86 has a bit that is no part of it.
    Frame::new(target::<M>(entry).number() & !(M::ENTRIES - 1))
}

/// Counts frames as the memmap's own.
#[inline]
pub(super) fn take<M: Machine>(machine: M, frames: &[Frame]) {
    for &frame in frames {
        machine.own(frame);
    }
    machine.count(frames.len() as u64);
}
