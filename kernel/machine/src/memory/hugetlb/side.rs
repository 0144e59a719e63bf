//! The side table: the state of each huge page of the pools, in place of its descriptors.
//!
//! It has an entry of 16 bytes for each pageblock. A page of entries (a leaf) exists for each 512
//! MiB that ever contained a huge page.
//!
//! The host reads the table, too (`host/src/registry/pool_map.rs`).

use crate::arch::header::HEADER;
use crate::arch::once::Once;
use crate::arch::virt_to_phys;
use crate::memory::clear_page;
use crate::memory::memmap::{Descriptor, Kind, frame_ptr};
use crate::memory::percpu;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame, Mobility, Order, PAGEBLOCK_FRAMES, Request, Reserve, ZoneKind};
use ebb_wire::header::pool;

/// The entry of one pageblock: the state of the huge page that begins there or contains it. All
/// zero if the pageblock neither belongs to a huge page nor contains its own part of the memmap.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    /// | bits | |
    /// |---|---|
    /// | 0–31 | references: page-table entries, files, pins of a part |
    /// | 32 | its part of the memmap is shared |
    /// | 33 | it is known to be zero |
    /// | 34 | the host holds memory for it |
    /// | 35 | it is part of a page of 1 GiB, whose first entry has the other fields |
    /// | 36 | it is in a pool |
    /// | 40–47 | frames with its part of the memmap that it carries itself: it is free otherwise |
    pub(super) head: AtomicU64,
    /// The next page in its list, as a frame number; 0 for none. Guarded by the pool's lock.
    pub(super) next: AtomicU64,
}

/// Bits of [`Entry::head`]: the number of references.
pub(super) const REFERENCES: u64 = pool::REFERENCES;
/// Bit of [`Entry::head`]: the page's part of the memmap is shared.
pub(super) const SHARED: u64 = 1 << 32;
/// Bit of [`Entry::head`]: the page is known to be zero.
pub(super) const ZERO: u64 = 1 << 33;
/// Bit of [`Entry::head`]: the host has memory for the page.
pub(super) const TOUCHED: u64 = 1 << 34;
/// Bit of [`Entry::head`]: the pageblock is part of a page of 1 GiB. Changes only while the page
/// has no references.
pub(super) const GIGANTIC: u64 = pool::GIGANTIC;
/// Bit of [`Entry::head`]: the page is in a pool.
pub(super) const POOLED: u64 = pool::POOLED;
/// The position in [`Entry::head`] of the number of frames in which a free block contains its own
/// part of the memmap.
pub(super) const CARRIED_SHIFT: u32 = 40;

const LEAF_ENTRIES: usize = 4096 / size_of::<Entry>();
const _: () = assert!(LEAF_ENTRIES as u64 == pool::ENTRIES);
const LEAF_FRAMES: u64 = LEAF_ENTRIES as u64 * PAGEBLOCK_FRAMES;

type Leaf = [Entry; LEAF_ENTRIES];

/// The physical addresses of the leaves; 0 for a leaf that does not exist. The host reads it, too.
static DIRECTORY: Once<Vec<AtomicU64>> = Once::new();

fn place(frame: Frame) -> (usize, usize) {
    let (leaf, frame) = (frame.number() / LEAF_FRAMES, frame.number() % LEAF_FRAMES);
    #[expect(clippy::cast_possible_truncation, reason = "`usize` has 64 bits")]
    (leaf as usize, (frame / PAGEBLOCK_FRAMES) as usize)
}

/// Returns the entry of the pageblock that contains `frame`. Returns `None` if the side table has
/// no memory for the entry yet.
pub(super) fn find(frame: Frame) -> Option<&'static Entry> {
    let (leaf, index) = place(frame);
    // Acquire: pairs with the Release in `make`.
    let leaf = DIRECTORY.get()?.get(leaf)?.load(Ordering::Acquire);
    if leaf == 0 {
        return None;
    }
    let leaf = frame_ptr(Frame::containing(leaf)).cast::<Leaf>();
    // SAFETY: a page of entries that stays for good. All fields are atomic.
    Some(&unsafe { &*leaf }[index])
}

/// Returns the entry of the pageblock that contains `frame`.
///
/// # Panics
/// If the side table has no memory for the entry yet.
pub(super) fn entry(frame: Frame) -> &'static Entry {
    match find(frame) {
        Some(entry) => entry,
        None => panic!("{frame:?} is not of the pool of huge pages"),
    }
}

/// Returns the entry of the pageblock that contains `frame`, and makes it if it does not exist.
/// `end` is the end of memory, above `frame`.
///
/// # Errors
/// [`AllocError`] if there is no memory for the table.
pub(super) fn make(frame: Frame, end: Frame) -> Result<&'static Entry, AllocError> {
    const NO_ROOM: AllocError = AllocError::Exhausted {
        order: Order::BASE,
        zone: ZoneKind::Normal,
    };
    if let Some(entry) = find(frame) {
        return Ok(entry);
    }
    if DIRECTORY.get().is_none() {
        let leaves = place(end).0 + 1;
        let mut directory = Vec::new();
        directory.try_reserve_exact(leaves).map_err(|_| NO_ROOM)?;
        directory.resize_with(leaves, AtomicU64::default);
        if DIRECTORY.set(directory).is_ok() {
            show();
        }
        // Otherwise another CPU was faster, and has made the same.
    }
    let slot = DIRECTORY
        .get()
        .and_then(|directory| directory.get(place(frame).0));
    let slot = slot.ok_or(NO_ROOM)?;
    let request = Request::new(Order::BASE, Mobility::Unmovable).reserve(Reserve::Keep);
    let page = percpu::allocate(request)?;
    // SAFETY: the frame is ours alone.
    unsafe { clear_page(frame_ptr(page)) };
    // Release: the page is zero. Several threads may make surplus pages at once; the first one's
    // leaf stays.
    let first = slot.compare_exchange(0, page.address(), Ordering::Release, Ordering::Relaxed);
    if first.is_ok() {
        Descriptor::get(page).take(Kind::Kernel, Order::BASE);
        percpu::add(Kind::Kernel.count(), 1);
    } else {
        percpu::free(page, Order::BASE);
    }
    find(frame).ok_or(NO_ROOM)
}

/// Publishes the address of the table for the host.
fn show() {
    if let Some(directory) = DIRECTORY.get() {
        let pages = directory.len() as u64;
        HEADER.pool_pages.store(pages, Ordering::Relaxed);
        let table = virt_to_phys(directory.as_ptr().cast());
        // Release: the number comes first.
        HEADER.pool_table.store(table, Ordering::Release);
    }
}
