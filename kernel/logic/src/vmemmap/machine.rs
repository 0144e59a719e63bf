//! The interface between an exchange and the machine.

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
    /// Mask of the address.
    pub address: u64,
    /// Set in an entry above the last level that maps a large page itself.
    pub large: u64,
    /// Bits of an entry that maps a readable page.
    pub page: u64,
    /// Additional bits of an entry that maps a writable page.
    pub writable: u64,
    /// Bits of an entry that leads to a table.
    pub table: u64,
    /// Software bit in the entry of a page: its frame came from the allocator. The other frames of
    /// the memmap are from boot.
    pub owned: u64,
}

/// A machine: its memmap and the tables that map it, its allocator and its CPUs. The methods need
/// no lock: only one CPU at a time exchanges, while all CPUs use the allocator.
///
/// Frames that the allocator returns are in use, and their descriptors are zero. They must be zero
/// again when a frame is freed.
pub trait Machine: Copy {
    /// Number of entries of a table. It is also the number of frames of a pageblock, of pages of a
    /// large page, and of pageblocks of a page of 1 GiB. A power of two.
    const ENTRIES: u64;
    /// Number of memmap pages that describe a pageblock, and of tables that describe
    /// [`Self::ENTRIES`] pageblocks. A power of two, at most [`MAX_PAGES`].
    const PAGES: usize;
    /// The bits of entries.
    const BITS: Bits;

    /// Returns the upper entry for the part of the memmap of `block`. It leads to a table, or maps
    /// a large page.
    fn slot<'a>(self, block: Frame) -> &'a AtomicU64
    where
        Self: 'a;
    /// Returns entry number `index` of `table`, a table of the last level.
    fn entry<'a>(self, table: Frame, index: u64) -> &'a AtomicU64
    where
        Self: 'a;
    /// Returns a word in the descriptor of the frame of `table`. It counts the entries of `table`
    /// that map the shared page. The word is zero in other descriptors.
    fn shared_entries<'a>(self, table: Frame) -> &'a AtomicU64
    where
        Self: 'a;

    /// Fills `frames`, which the caller owns, with zeros.
    fn clear(self, frames: FrameRange);
    /// Makes all descriptors in `page`, a page of zeros, those of a huge page.
    fn describe_huge_page(self, page: Frame);

    /// Marks `frame`, which came from the allocator, as part of the memmap.
    fn own(self, frame: Frame);
    /// Removes the mark from `frame`, so that its descriptor is zero.
    fn disown(self, frame: Frame);
    /// Adds `frames` to the count of marked frames.
    fn count(self, frames: u64);
    /// Subtracts `frames` from the count of marked frames.
    fn uncount(self, frames: u64);

    /// Allocates a frame for long-term use. Does not wait.
    ///
    /// # Errors
    /// [`AllocError`] if no frame is free.
    fn allocate(self) -> Result<Frame, AllocError>;
    /// Allocates frames and stores them in `frames`, from the start on, until the slice is full or
    /// no frame is free. Returns the number of allocated frames.
    fn allocate_many(self, frames: &mut [Frame]) -> usize;
    /// Allocates a pageblock as single frames.
    ///
    /// # Errors
    /// [`AllocError`] if no pageblock is free.
    fn allocate_block(self) -> Result<Frame, AllocError>;
    /// Allocates exactly the frames in `range` as single frames and returns `true`. Returns
    /// `false`, and allocates none, if one of them is not free.
    fn allocate_range(self, range: FrameRange) -> bool;
    /// Frees the frames in `range`, which are in use as single frames.
    fn free(self, range: FrameRange);
    /// Makes the frames in `range`, which the memmap has from boot, known to the allocator. After
    /// the call they count as allocated single frames, and [`Self::free`] can free them. The caller
    /// holds the exchange's lock, so only one CPU at a time calls this.
    fn admit(self, range: FrameRange);

    /// Makes this CPU flush its translations of the part of the memmap of `block`.
    fn forget(self, block: Frame);
    /// Makes all CPUs flush their translations of the memmap. When this returns, they have.
    fn flush(self);
}

/// Returns the index of the entry for the first memmap page of `block` in its table.
#[inline]
pub(super) fn first_entry<M: Machine>(block: Frame) -> u64 {
    block.number() / M::ENTRIES * M::PAGES as u64 % M::ENTRIES
}

/// Returns the entries of `machine` in `table` for the memmap pages of `block`.
#[inline]
pub(super) fn entries<'a, M: Machine + 'a>(
    machine: M,
    table: Frame,
    block: Frame,
) -> impl Iterator<Item = &'a AtomicU64> {
    let first = first_entry::<M>(block);
    (0..M::PAGES as u64).map(move |page| machine.entry(table, first + page))
}

/// Returns the frame whose address is in `entry`: a page or a table.
#[inline]
pub(super) const fn target<M: Machine>(entry: u64) -> Frame {
    Frame::containing(entry & M::BITS.address)
}

/// Returns the entry that maps `page`, a writable page that came from the allocator.
#[inline]
pub(super) const fn page_entry<M: Machine>(page: Frame) -> u64 {
    page.address() | M::BITS.page | M::BITS.writable | M::BITS.owned
}

/// Returns the entry that maps page number `index` of the large page that the entry `large` maps.
#[inline]
pub(super) fn part_entry<M: Machine>(large: u64, index: u64) -> u64 {
    let page = large_target::<M>(large).offset(index);
    page.address() | M::BITS.page | M::BITS.writable | large & M::BITS.owned
}

/// Returns the entry that leads to `table`.
#[inline]
pub(super) const fn table_entry<M: Machine>(table: Frame) -> u64 {
    table.address() | M::BITS.table
}

/// Returns the first frame of the large page that `entry` maps.
#[inline]
pub(super) fn large_target<M: Machine>(entry: u64) -> Frame {
    // In a large page's entry, x86 uses a bit within the address mask for something else.
    Frame::new(target::<M>(entry).number() & !(M::ENTRIES - 1))
}

/// Marks and counts `frames`, which came from the allocator of `machine`, as part of the memmap.
#[inline]
pub(super) fn take<M: Machine>(machine: M, frames: &[Frame]) {
    for &frame in frames {
        machine.own(frame);
    }
    machine.count(frames.len() as u64);
}
