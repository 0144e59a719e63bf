//! Turns blocks of the allocator into pages of a pool, and back.

use super::pool::Stack;
use super::side::{self, CARRIED_SHIFT, GIGANTIC, POOLED, SHARED, TOUCHED, ZERO};
use super::{OPTIMIZE, PageSize};
use crate::arch::ipi;
use crate::arch::spin::SpinLock;
use crate::memory::allocator::allocator;
use crate::memory::helpers::HELPERS;
use crate::memory::memmap::{self, Descriptor, HUGE_PAGE_HEAD};
use crate::memory::percpu::{self, Count};
use crate::memory::pressure;
use crate::memory::vmemmap::{self, Carrier, Restored, Supply};
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{
    AllocError, Contents, Frame, FrameRange, Mobility, Order, PAGEBLOCK_FRAMES, Request, Reserve,
};

/// The most pageblocks that are allocated or freed together as pages of 2 MiB.
pub(super) const BATCH: usize = 32;

/// Returns the most pages of `size` that are allocated, freed or reported together. A page of 1 GiB
/// takes as long as 512 pages of 2 MiB, so it is alone.
const fn batch(size: PageSize) -> usize {
    match size {
        PageSize::Mib2 => BATCH,
        PageSize::Gib1 => 1,
    }
}

/// The most bytes of all ranges of one report (virtio 1.2, 2.7.5.2).
const MAX_REPORT_BYTES: u64 = 1 << 32;
const _: () = assert!(
    batch(PageSize::Mib2) as u64 * PageSize::Mib2.bytes() <= MAX_REPORT_BYTES
        && batch(PageSize::Gib1) as u64 * PageSize::Gib1.bytes() <= MAX_REPORT_BYTES,
    "the pages of a batch fit in a report"
);

/// The number of pageblocks whose descriptors are given up, for `/proc/vmstat` and the host.
pub(super) static OPTIMIZED: AtomicU64 = AtomicU64::new(0);
/// Pageblocks that left a pool and contain their own part of the memmap.
static CARRIERS: SpinLock<Carriers> = SpinLock::new(Carriers {
    stack: Stack::new(),
    tried: Stack::new(),
    count: 0,
});

/// The pageblocks that left a pool and contain their own part of the memmap.
struct Carriers {
    /// Blocks that [`relieve`] has not tried yet.
    stack: Stack,
    /// Blocks that [`relieve`] has tried without success. It tries them again when `stack` is
    /// empty.
    tried: Stack,
    /// The number of blocks in both stacks, and of those that [`relieve`] is trying now.
    count: u64,
}

impl Carriers {
    fn next(&mut self) -> Option<Frame> {
        if self.stack.is_empty() {
            core::mem::swap(&mut self.stack, &mut self.tried);
        }
        self.stack.pop()
    }
}

/// A list of huge pages of one size that are handled together.
pub(super) struct Batch {
    size: PageSize,
    pages: [Frame; BATCH],
    len: usize,
}

impl Batch {
    /// Makes an empty list of pages of `size`.
    pub(super) const fn new(size: PageSize) -> Self {
        Self {
            size,
            pages: [Frame::new(0); BATCH],
            len: 0,
        }
    }

    /// Adds `page` to the list.
    ///
    /// # Panics
    /// If the list has [`BATCH`] pages.
    pub(super) fn push(&mut self, page: Frame) {
        self.pages[self.len] = page;
        self.len += 1;
    }

    /// Allocates up to `pages` blocks, as far as the list has room, and adds them. Returns `None`
    /// if all of these were added. Returns an error if the allocator had fewer blocks, or if there
    /// was no memory for an entry in the side table. Does not wait.
    pub(super) fn fill(&mut self, pages: u64) -> Option<AllocError> {
        let request = Request::new(self.size.order(), Mobility::Movable).reserve(Reserve::Keep);
        let mut blocks = [(Frame::new(0), Contents::Unknown); BATCH];
        let room = batch(self.size) - self.len;
        let most = usize::try_from(pages).map_or(room, |pages| pages.min(room));
        let (taken, mut error) = percpu::this().allocate_blocks(request, &mut blocks[..most]);
        for &(block, contents) in &blocks[..taken] {
            error = self.add(block, contents).err().or(error);
        }
        error
    }

    /// Adds `block`, which the caller has allocated, and makes its entries in the side table.
    /// `contents` is the allocator's answer about the block's contents.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory for the entries. The block has been freed then.
    pub(super) fn add(&mut self, block: Frame, contents: Contents) -> Result<(), AllocError> {
        make_entries(self.size, block, contents)
            .inspect_err(|_| free_block(self.size, block))
            .map(|()| self.push(block))
    }

    /// Returns the number of pages.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the list has the number of pages that are handled together: [`BATCH`] pages
    /// of 2 MiB, or one page of 1 GiB.
    pub(super) const fn is_full(&self) -> bool {
        self.len == batch(self.size)
    }

    /// Returns the pages.
    pub(super) fn as_slice(&self) -> &[Frame] {
        &self.pages[..self.len]
    }
}

/// Returns the first frames of all pageblocks of `page`, a page of `size`.
fn pageblocks(size: PageSize, page: Frame) -> impl Iterator<Item = Frame> {
    (0..size.pageblocks()).map(move |index| page.offset(index * PAGEBLOCK_FRAMES))
}

/// Sets the heads of the side table's entries for all pageblocks of `page`, a page of `size`, to
/// `head`.
fn set_entries(size: PageSize, page: Frame, head: u64) {
    for block in pageblocks(size, page) {
        side::entry(block).head.store(head, Ordering::Relaxed);
    }
}

/// Makes the entries in the side table of `page`, a block with the known contents `contents` that
/// will join the pool of pages of `size`. Fails with [`AllocError`] if there is no memory for them.
/// In that case some of them may exist.
fn make_entries(size: PageSize, page: Frame, contents: Contents) -> Result<(), AllocError> {
    for block in pageblocks(size, page) {
        side::make(block, memmap::end())?;
    }
    // It was never used, so it is zero, and the host holds no memory for it.
    let known = if contents == Contents::NeverUsed {
        ZERO
    } else {
        TOUCHED
    };
    let kind = if size == PageSize::Gib1 { GIGANTIC } else { 0 };
    set_entries(size, page, POOLED | known | kind);
    Ok(())
}

/// Serves other CPUs between two parts of long work, and lets other threads run if the caller may
/// block.
fn give_way() {
    ipi::poll_mailbox();
    if pressure::may_block() {
        (HELPERS.give_way)();
    }
}

/// Calls `write` with each descriptor of `page`, a page of `size`. Calls [`give_way`] after each
/// pageblock, because a page of 1 GiB takes long.
fn each_descriptor(size: PageSize, page: Frame, write: impl Fn(&Descriptor)) {
    for block in pageblocks(size, page) {
        for index in 0..PAGEBLOCK_FRAMES {
            write(Descriptor::get(block.offset(index)));
        }
        give_way();
    }
}

/// Frees the memory of the descriptors of `blocks`, which are about to join the pool of pages of
/// `size`. Their part of the memmap then maps the page of descriptors that all huge pages share.
/// The descriptors stay, and each is marked as that of a huge page, if this is switched off
/// ([`OPTIMIZE`]) or no frame is free for a page table or for the shared page. Adds the frames of
/// `blocks` to the count of frames in pools.
pub(super) fn give_up_descriptors(size: PageSize, blocks: &[Frame]) {
    let mut shared = [false; BATCH];
    if OPTIMIZE.load(Ordering::Relaxed) {
        let mut exchange = vmemmap::begin();
        for (&page, shared) in blocks.iter().zip(&mut shared) {
            // Without a frame for a table the descriptors stay.
            *shared = match size {
                PageSize::Mib2 => exchange.share(page).is_ok(),
                PageSize::Gib1 => exchange.share_giant(page).is_ok(),
            };
        }
        exchange.end();
    }
    for (&page, shared) in blocks.iter().zip(shared) {
        if shared {
            for block in pageblocks(size, page) {
                side::entry(block).head.fetch_or(SHARED, Ordering::Relaxed);
            }
            OPTIMIZED.fetch_add(size.pageblocks(), Ordering::Relaxed);
        } else {
            each_descriptor(size, page, |descriptor| {
                descriptor.head.store(HUGE_PAGE_HEAD, Ordering::Relaxed);
            });
        }
    }
    percpu::add(Count::HugetlbFrames, blocks.len() as u64 * size.frames());
}

/// Frees `page`, a block for a page of `size` that did not join a pool. Clears its entries in the
/// side table.
pub(super) fn free_block(size: PageSize, page: Frame) {
    for block in pageblocks(size, page) {
        if let Some(entry) = side::find(block) {
            entry.head.store(0, Ordering::Relaxed);
        }
    }
    percpu::free(page, size.order());
}

/// Frees `pages`, pages of `size` that have left their pool, and restores their descriptors. Never
/// fails. For pages of 2 MiB, `supply` provides the frames that the descriptors need. If it cannot,
/// the first frames of the page itself are used and stay allocated until [`relieve`] succeeds.
/// Pages of 1 GiB allocate these frames without `supply`.
pub(super) fn free_pages(size: PageSize, pages: &[Frame], supply: &mut Supply) {
    percpu::subtract(Count::HugetlbFrames, pages.len() as u64 * size.frames());
    match size {
        PageSize::Mib2 => free_blocks(pages, supply),
        PageSize::Gib1 => {
            for &page in pages {
                free_gib(page);
            }
        }
    }
}

/// Frees `page`, a page of 1 GiB that has left its pool. If its descriptors were given up, restores
/// its part of the memmap in large pages, as at boot, while pageblocks for them are free. Restores
/// the rest as for pages of 2 MiB.
fn free_gib(page: Frame) {
    let shared = side::entry(page).head.load(Ordering::Relaxed) & SHARED != 0;
    let parts = PageSize::Gib1.frames() / vmemmap::LARGE_FRAMES;
    let mut whole = 0;
    if shared {
        while whole < parts && vmemmap::restore_large(page.offset(whole * vmemmap::LARGE_FRAMES)) {
            whole += 1;
            OPTIMIZED.fetch_sub(vmemmap::LARGE_FRAMES / PAGEBLOCK_FRAMES, Ordering::Relaxed);
            // 2 MiB of descriptors were cleared.
            give_way();
        }
    } else {
        each_descriptor(PageSize::Gib1, page, Descriptor::clear);
        whole = parts;
    }
    if whole == parts {
        free_block(PageSize::Gib1, page);
        return;
    }
    allocator().split(page, Order::GIB, Order::PAGEBLOCK);
    let rest = whole * vmemmap::LARGE_FRAMES / PAGEBLOCK_FRAMES;
    for (index, block) in (0..).zip(pageblocks(PageSize::Gib1, page)) {
        let head = if index < rest { 0 } else { SHARED };
        side::entry(block).head.store(head, Ordering::Relaxed);
    }
    // First the blocks with restored descriptors: the others may need frames of them.
    let mut blocks = [Frame::new(0); BATCH];
    let mut supply = Supply::new(PageSize::Gib1.pageblocks() - rest);
    let mut from = 0;
    while from < PageSize::Gib1.pageblocks() {
        for (index, block) in (from..).zip(&mut blocks) {
            *block = page.offset(index * PAGEBLOCK_FRAMES);
        }
        if from < rest {
            percpu::this().free_pageblocks(&blocks);
        } else {
            free_blocks(&blocks, &mut supply);
        }
        from += BATCH as u64;
    }
}

/// Splits `page`, a free page of 1 GiB, into 512 pages of 2 MiB. `page` is in no list of a pool.
/// The caller adds the new pages to the other pool.
pub(super) fn demote(page: Frame) {
    let head = side::entry(page).head.load(Ordering::Relaxed) & !GIGANTIC;
    allocator().split(page, Order::GIB, Order::PAGEBLOCK);
    set_entries(PageSize::Gib1, page, head);
}

const _: () = assert!(
    (vmemmap::LARGE_FRAMES / PAGEBLOCK_FRAMES).is_multiple_of(BATCH as u64),
    "batches hold blocks of one part"
);

/// Frees `blocks`, pageblocks that have left a pool, and restores their descriptors on frames of
/// `supply`. If it has too few frames and can allocate no more, a block keeps its own first frames
/// for its descriptors, and joins [`CARRIERS`].
fn free_blocks(blocks: &[Frame], supply: &mut Supply) {
    let mut carried = [0; BATCH];
    let is_shared = |block: Frame| side::entry(block).head.load(Ordering::Relaxed) & SHARED != 0;
    if blocks.iter().any(|&block| is_shared(block)) {
        let mut exchange = vmemmap::begin();
        for (&block, carried) in blocks.iter().zip(&mut carried) {
            if is_shared(block) {
                OPTIMIZED.fetch_sub(1, Ordering::Relaxed);
                if let Restored::Carried(frames) = exchange.restore(block, &mut supply.0) {
                    *carried = frames;
                }
            }
        }
        exchange.end();
    }
    for (&block, carried) in blocks.iter().zip(carried) {
        if !is_shared(block) {
            each_descriptor(PageSize::Mib2, block, Descriptor::clear);
        }
        let head = &side::entry(block).head;
        head.store(carried << CARRIED_SHIFT, Ordering::Relaxed);
    }
    if carried == [0; BATCH] {
        percpu::this().free_pageblocks(blocks);
        return;
    }
    for (&block, &carried) in blocks.iter().zip(&carried) {
        if carried == 0 {
            percpu::free(block, Order::PAGEBLOCK);
            continue;
        }
        allocator().split(block, Order::PAGEBLOCK, Order::BASE);
        let rest = FrameRange::new(block.offset(carried), PAGEBLOCK_FRAMES - carried);
        percpu::this().free_range(rest);
        let mut carriers = CARRIERS.lock();
        carriers.stack.push(block);
        carriers.count += 1;
    }
    (HELPERS.relieve_soon)();
}

/// Tries to free all frames of the blocks that left a pool and contain their own part of the
/// memmap. The other frames of such a block must be free, and frames elsewhere must be free for its
/// part of the memmap.
///
/// Calls `empty` with the first frame of each block before the attempt; `empty` may move the other
/// frames of the block. A block that could not be freed is tried again after the others. Ends when
/// all blocks were tried, or after some failures in a row.
pub fn relieve(mut empty: impl FnMut(Frame)) {
    let count = CARRIERS.lock().count;
    for _ in 0..count.div_ceil(vmemmap::TOGETHER as u64) {
        let mut some = [Carrier::new(Frame::new(0), 0); vmemmap::TOGETHER];
        let mut len = 0;
        while len < some.len() {
            let Some(block) = CARRIERS.lock().next() else {
                break;
            };
            let carried = side::entry(block).head.load(Ordering::Relaxed) >> CARRIED_SHIFT;
            some[len] = Carrier::new(block, carried);
            len += 1;
        }
        let some = &mut some[..len];
        for carrier in some.iter() {
            empty(carrier.block);
        }
        // Called before the block is freed: afterwards its entry may belong to another page.
        vmemmap::relieve(some, |block| {
            side::entry(block).head.store(0, Ordering::Relaxed);
        });
        let mut carriers = CARRIERS.lock();
        for carrier in some.iter() {
            if carrier.whole {
                carriers.count -= 1;
            } else {
                carriers.tried.push(carrier.block);
            }
        }
        if some.iter().all(|carrier| !carrier.whole) {
            return;
        }
    }
}

/// Returns whether a block of the GiB that begins with `first` cannot be moved: it belongs to a
/// page of a pool, or left a pool and contains its own part of the memmap. Other CPUs may change
/// that at any time.
pub fn stays_in_gib(first: Frame) -> bool {
    let stays = |block| {
        // Relaxed: out of date at once in any case.
        side::find(block).is_some_and(|entry| entry.head.load(Ordering::Relaxed) != 0)
    };
    pageblocks(PageSize::Gib1, first).any(stays)
}

/// Returns two numbers of pageblocks. The first counts those whose descriptors are given up,
/// because their part of the memmap maps the shared page. The second counts those that left a pool
/// and contain their own part of the memmap.
pub fn optimized() -> (u64, u64) {
    (OPTIMIZED.load(Ordering::Relaxed), CARRIERS.lock().count)
}
