//! The memmap's own memory: given up for huge pages of the pool, and brought back for what they become.
//!
//! The descriptors of a pageblock fill eight pages of the memmap. All descriptors of a huge page of the pool say the
//! same (`Kind::HugePage`), so all eight are one read-only page that all such blocks share, and their frames are
//! ordinary memory. Where all 64 blocks under one table of the last level are such, that table is shared, too.
//!
//! # Protocol
//!
//! Whoever exchanges a block's part of the memmap owns all frames of the block: nobody else writes their descriptors,
//! which are all zero but for what the owner wrote. Anybody may read them at any time. He finds what was there before
//! or what is there after, for the old frames are freed when every CPU has dropped its translations, and the new ones
//! are filled before they are put in.
//!
//! | | [`Exchange::share`] | [`Exchange::restore`] |
//! |---|---|---|
//! | a reader sees before | free, or what the owner wrote | part of a huge page |
//! | and after | part of a huge page | free |
//! | until all CPUs have flushed | either | either |
//! | then | the old frames are freed | the block may be freed: who gets frames of it writes their descriptors |
//!
//! One flush serves all blocks of an [`Exchange`].
//!
//! # Nothing is refused
//!
//! Where the allocator has no frame, `restore` takes the first frames of the block itself: they carry the block's
//! part of the memmap, and the others are free. [`relieve`] makes such a block whole when the others are free and
//! there are frames elsewhere.

use super::memmap::{DESCRIPTOR_BYTES, Descriptor, HUGE_PAGE_HEAD, Kind, frame_ptr};
use super::percpu::{self, Count};
use super::{allocator, clear_pages, tables};
use crate::arch::ipi::{self, FlushRequest};
use crate::arch::pte::{ACCESSED, ADDRESS, DIRTY, GLOBAL, LARGE, NO_EXECUTE, PRESENT, WRITABLE};
use crate::arch::spin::{SpinGuard, SpinLock};
use crate::arch::{MEMMAP_BASE, cpu, online_cpus};
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame, FrameRange, Mobility, Order, PAGEBLOCK_FRAMES, Request, Reserve};

/// Pages of the memmap that describe a pageblock.
pub(super) const PAGES: u64 = PAGEBLOCK_FRAMES * DESCRIPTOR_BYTES / 4096;
/// The same, to index by.
const IN_BLOCK: usize = 8;
const _: () = assert!(IN_BLOCK as u64 == PAGES);
/// The most frames that a block carries: its part of the memmap, and a table to map it.
const CARRIED: usize = IN_BLOCK + 1;
/// Frames whose descriptors fill the memory under one table of the last level.
pub(super) const LARGE_FRAMES: u64 = TABLE_BYTES / DESCRIPTOR_BYTES;
/// Runs of frames that are kept until all CPUs have flushed.
const RUNS: usize = 64;
/// Bytes of the memmap under one table of the last level, and entries in it.
const TABLE_BYTES: u64 = 2 << 20;
const ENTRIES: u64 = 512;
/// From so many blocks on, frames for their parts of the memmap come by the pageblock.
const MANY: u64 = 32;

const PAGE_BITS: u64 = PRESENT | ACCESSED | DIRTY | GLOBAL | NO_EXECUTE;
const TABLE_BITS: u64 = PRESENT | WRITABLE | ACCESSED | DIRTY;

/// What all huge pages share.
#[derive(Copy, Clone)]
struct Common {
    /// The page of descriptors.
    page: Frame,
    /// The table that leads to nothing else.
    table: Frame,
}

/// Frames of the memmap that it has from boot.
static BOOT_PAGES: AtomicU64 = AtomicU64::new(0);

/// Notes how many frames the memmap has at boot.
pub(super) fn set_boot_pages(frames: u64) {
    // Relaxed (all): a figure.
    BOOT_PAGES.store(frames, Ordering::Relaxed);
}

/// Frames that the memmap has still from boot.
pub(super) fn boot_pages() -> u64 {
    BOOT_PAGES.load(Ordering::Relaxed)
}

static COMMON: SpinLock<Option<Common>> = SpinLock::new(None);

/// Frames that were taken out of the memmap.
struct Retired {
    runs: [FrameRange; RUNS],
    len: usize,
}

/// Frames to restore parts of the memmap on. For many blocks they come by the pageblock, so that no other block is
/// broken up for what may stay long; for few of them as there are any.
pub(super) struct Supply {
    /// Frames that follow each other.
    run: FrameRange,
    /// Blocks that are still to come.
    blocks: u64,
}

impl Supply {
    /// Nothing yet, for so many blocks.
    pub(super) const fn new(blocks: u64) -> Self {
        Self {
            run: FrameRange::new(Frame::new(0), 0),
            blocks,
        }
    }

    /// Fills a slice with frames, all or none.
    fn get(&mut self, wanted: &mut [Frame]) -> bool {
        let count = wanted.len() as u64;
        if self.run.frames < count && self.blocks >= MANY {
            self.refill();
        }
        self.blocks = self.blocks.saturating_sub(1);
        if self.run.frames < count {
            return get_any(wanted);
        }
        for (index, frame) in (0..).zip(wanted) {
            *frame = self.run.start.offset(index);
        }
        self.run = FrameRange::new(self.run.start.offset(count), self.run.frames - count);
        true
    }

    fn refill(&mut self) {
        let request = Request::new(Order::PAGEBLOCK, Mobility::Unmovable).reserve(Reserve::Keep);
        if let Ok(block) = percpu::allocate(request) {
            self.free();
            allocator().split(block, Order::PAGEBLOCK, Order::BASE);
            self.run = FrameRange::new(block, PAGEBLOCK_FRAMES);
        }
    }

    fn free(&mut self) {
        let run = core::mem::replace(&mut self.run, FrameRange::new(Frame::new(0), 0));
        if !run.is_empty() {
            percpu::this().free_range(run);
        }
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        self.free();
    }
}

/// Fills a slice with whatever frames there are, all or none.
fn get_any(wanted: &mut [Frame]) -> bool {
    let request = Request::new(Order::BASE, Mobility::Unmovable).reserve(Reserve::Keep);
    let taken = percpu::this().allocate_many(request, wanted);
    let all = taken == wanted.len();
    if !all {
        for &frame in &wanted[..taken] {
            percpu::free(frame, Order::BASE);
        }
    }
    all
}

/// How a block's part of the memmap was restored.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Restored {
    /// On frames of the allocator's: all of the block is the caller's to free.
    Elsewhere,
    /// On the block's own first frames, so many.
    Carried(u64),
}

/// Blocks whose part of the memmap is exchanged together.
pub(super) struct Exchange {
    common: SpinGuard<'static, Option<Common>>,
    retired: Retired,
    /// Something was changed that a TLB may know.
    any: bool,
}

fn new_frame() -> Result<Frame, AllocError> {
    let request = Request::new(Order::BASE, Mobility::Unmovable).reserve(Reserve::Keep);
    percpu::allocate(request)
}

/// Counts frames as the memmap's own.
fn take(frames: &[Frame]) {
    for &frame in frames {
        Descriptor::get(frame).take(Kind::Memmap, Order::BASE);
    }
    percpu::add(Count::MemmapFrames, frames.len() as u64);
}

fn memmap_offset(block: Frame) -> u64 {
    block.number() * DESCRIPTOR_BYTES
}

fn slot_of(block: Frame) -> &'static AtomicU64 {
    match tables::memmap_slot(memmap_offset(block)) {
        Some(slot) => slot,
        None => panic!("{block:?} has no descriptors"),
    }
}

/// The entries of a block's pages in their table.
fn entries(table: u64, block: Frame) -> impl Iterator<Item = &'static AtomicU64> {
    let first = memmap_offset(block);
    (0..PAGES).map(move |page| tables::memmap_entry(table, first + page * 4096))
}

impl Common {
    fn new() -> Result<Self, AllocError> {
        let page = new_frame()?;
        let table = match new_frame() {
            Ok(table) => table,
            Err(error) => {
                percpu::free(page, Order::BASE);
                return Err(error);
            }
        };
        take(&[page, table]);
        // SAFETY: the frame is ours alone.
        unsafe { clear_pages(frame_ptr(page), 1) };
        let descriptors = frame_ptr(page).cast::<Descriptor>();
        for index in 0..4096 / size_of::<Descriptor>() {
            // SAFETY: inside the page, which is ours and zero, a valid value.
            let descriptor = unsafe { &*descriptors.add(index) };
            descriptor.head.store(HUGE_PAGE_HEAD, Ordering::Relaxed);
        }
        let common = Self { page, table };
        for index in 0..ENTRIES {
            tables::memmap_entry(table.address(), index * 4096)
                .store(common.entry(), Ordering::Relaxed);
        }
        Ok(common)
    }

    /// The entry of the shared page.
    fn entry(&self) -> u64 {
        self.page.address() | PAGE_BITS
    }
}

impl Retired {
    /// Keeps a frame; false: it is full.
    fn push(&mut self, frame: Frame) -> bool {
        if let Some(last) = self.runs[..self.len].last_mut()
            && last.end() == frame
        {
            last.frames += 1;
            return true;
        }
        if self.len == RUNS {
            return false;
        }
        self.runs[self.len] = FrameRange::new(frame, 1);
        self.len += 1;
        true
    }

    /// Frees all of them.
    fn free(&mut self) {
        for run in &self.runs[..core::mem::take(&mut self.len)] {
            let kind = |frame| Descriptor::get(frame).kind();
            let mut start = run.start;
            while start != run.end() {
                let ours = kind(start);
                let mut end = start.offset(1);
                while end != run.end() && kind(end) == ours {
                    end = end.offset(1);
                }
                free_part(FrameRange::new(start, end.number() - start.number()), ours);
                start = end;
            }
        }
    }
}

/// Frees frames that were part of the memmap from the start, or are of this kind.
fn free_part(range: FrameRange, kind: Option<Kind>) {
    let this = percpu::this();
    if kind.is_some() {
        debug_assert_eq!(kind, Some(Kind::Memmap));
        for index in 0..range.frames {
            Descriptor::get(range.start.offset(index)).clear();
        }
        this.subtract(Count::MemmapFrames, range.frames);
    } else if let Err(error) = allocator().admit(range) {
        panic!("the memmap's memory does not become ordinary: {error}");
    } else {
        BOOT_PAGES.fetch_sub(range.frames, Ordering::Relaxed);
    }
    this.free_range(range);
}

impl Exchange {
    /// Nothing is exchanged yet. Others wait until this ends.
    pub(super) fn begin() -> Self {
        Self {
            common: COMMON.lock(),
            retired: Retired {
                runs: [FrameRange::new(Frame::new(0), 0); RUNS],
                len: 0,
            },
            any: false,
        }
    }

    fn retire(&mut self, frame: Frame) {
        if !self.retired.push(frame) {
            self.flush();
            self.retired.free();
            self.retired.push(frame);
        }
    }

    fn flush(&mut self) {
        if core::mem::take(&mut self.any) {
            ipi::flush_tlb(online_cpus(), FlushRequest::Kernel);
        }
    }

    fn common(&mut self) -> Result<Common, AllocError> {
        if let Some(common) = *self.common {
            return Ok(common);
        }
        let common = Common::new()?;
        *self.common = Some(common);
        Ok(common)
    }

    /// Gives up the part of the memmap of a block that the caller has allocated and whose descriptors are zero.
    ///
    /// # Errors
    /// If there is no frame for a table. Nothing has changed then.
    pub(super) fn share(&mut self, block: Frame) -> Result<(), AllocError> {
        let common = self.common()?;
        let slot = slot_of(block);
        let mut table = slot.load(Ordering::Relaxed);
        if table & LARGE != 0 {
            table = split(slot, table)?;
        }
        debug_assert_ne!(
            table & ADDRESS,
            common.table.address(),
            "{block:?} is shared twice"
        );
        self.any = true;
        for entry in entries(table, block) {
            // Relaxed (both): under the lock; the CPUs' walkers take any order.
            let old = entry.load(Ordering::Relaxed);
            entry.store(common.entry(), Ordering::Relaxed);
            self.retire(Frame::containing(old & ADDRESS));
        }
        // The table's own descriptor counts the entries that lead to the shared page.
        let table = Frame::containing(table & ADDRESS);
        let shared = &Descriptor::get(table).objects;
        let count = shared.load(Ordering::Relaxed) + PAGES;
        shared.store(count, Ordering::Relaxed);
        if count == ENTRIES {
            shared.store(0, Ordering::Relaxed);
            slot.store(common.table.address() | TABLE_BITS, Ordering::Release);
            self.retire(table);
        }
        Ok(())
    }

    /// The same of a block of 1 GiB, by whole tables.
    ///
    /// # Errors
    /// As [`Self::share`].
    pub(super) fn share_giant(&mut self, block: Frame) -> Result<(), AllocError> {
        let common = self.common()?;
        let mut part = block;
        while part.number() < block.number() + Order::GIANT.frames() {
            let slot = slot_of(part);
            let old = slot.load(Ordering::Relaxed);
            // Release: the shared table was filled before.
            slot.store(common.table.address() | TABLE_BITS, Ordering::Release);
            self.any = true;
            self.retire_table(old, &common);
            part = part.offset(LARGE_FRAMES);
        }
        Ok(())
    }

    /// Retires what an entry led to that stood for the descriptors of [`LARGE_FRAMES`].
    fn retire_table(&mut self, old: u64, common: &Common) {
        debug_assert_ne!(old & ADDRESS, common.table.address(), "shared twice");
        if old & LARGE != 0 {
            let first = Frame::containing(old & ADDRESS & !(TABLE_BYTES - 1));
            for index in 0..ENTRIES {
                self.retire(first.offset(index));
            }
            return;
        }
        for index in 0..ENTRIES {
            let page = tables::memmap_entry(old, index * 4096).load(Ordering::Relaxed);
            let page = Frame::containing(page & ADDRESS);
            if page != common.page {
                self.retire(page);
            }
        }
        let table = Frame::containing(old & ADDRESS);
        Descriptor::get(table).objects.store(0, Ordering::Relaxed);
        self.retire(table);
    }

    /// Brings back the part of the memmap of a block whose part is shared, all zero. Never fails. The block must not be
    /// freed before [`Self::end`].
    pub(super) fn restore(&mut self, block: Frame, supply: &mut Supply) -> Restored {
        let Some(common) = *self.common else {
            panic!("{block:?} shares its descriptors with nobody")
        };
        let slot = slot_of(block);
        let needs_table = slot.load(Ordering::Relaxed) & ADDRESS == common.table.address();
        let mut frames = [Frame::new(0); CARRIED];
        let wanted = if needs_table { CARRIED } else { IN_BLOCK };
        let wanted = &mut frames[..wanted];
        let found = supply.get(wanted);
        if !found {
            for (index, frame) in (0..).zip(&mut *wanted) {
                *frame = block.offset(index);
            }
        }
        self.put(
            block,
            slot,
            &wanted[..IN_BLOCK],
            wanted.get(IN_BLOCK).copied(),
        );
        take(wanted);
        // The table's own descriptor counts the entries that lead to the shared page.
        let table = slot.load(Ordering::Relaxed) & ADDRESS;
        let shared = &Descriptor::get(Frame::containing(table)).objects;
        let before = if needs_table {
            ENTRIES
        } else {
            shared.load(Ordering::Relaxed)
        };
        shared.store(before - PAGES, Ordering::Relaxed);
        if found {
            Restored::Elsewhere
        } else {
            Restored::Carried(wanted.len() as u64)
        }
    }

    /// Brings the part of the memmap of a block that carries it, and of which the caller has all frames, to frames of
    /// the allocator's; false: it has none. After [`Self::end`] the block is the caller's to free, in single frames.
    pub(super) fn move_out(&mut self, block: Frame, carried: u64) -> bool {
        let slot = slot_of(block);
        let own_table = Frame::containing(slot.load(Ordering::Relaxed) & ADDRESS);
        let carries_table = carried > PAGES && own_table == block.offset(PAGES);
        let mut frames = [Frame::new(0); CARRIED];
        let wanted = if carries_table { CARRIED } else { IN_BLOCK };
        let wanted = &mut frames[..wanted];
        if !get_any(wanted) {
            return false;
        }
        let shared = Descriptor::get(own_table).objects.load(Ordering::Relaxed);
        if let Some(&new) = wanted.get(IN_BLOCK) {
            for index in 0..ENTRIES {
                let entry = |table: u64| tables::memmap_entry(table, index * 4096);
                let value = entry(own_table.address()).load(Ordering::Relaxed);
                entry(new.address()).store(value, Ordering::Relaxed);
            }
            slot.store(new.address() | TABLE_BITS, Ordering::Release);
        }
        self.put(block, slot, &wanted[..IN_BLOCK], None);
        take(wanted);
        if let Some(&new) = wanted.get(IN_BLOCK) {
            Descriptor::get(new)
                .objects
                .store(shared, Ordering::Relaxed);
        }
        // The descriptors of the carrying frames are zero with all others of the block.
        percpu::subtract(Count::MemmapFrames, carried);
        true
    }

    /// Puts pages in for a block's part of the memmap, and a table for them if there is one. This CPU may write the
    /// descriptors afterwards.
    fn put(&mut self, block: Frame, slot: &AtomicU64, pages: &[Frame], new_table: Option<Frame>) {
        clear(pages);
        let table = match new_table {
            Some(frame) => {
                let shared = self.common.as_ref().map_or(0, Common::entry);
                for index in 0..ENTRIES {
                    tables::memmap_entry(frame.address(), index * 4096)
                        .store(shared, Ordering::Relaxed);
                }
                frame.address() | TABLE_BITS
            }
            None => slot.load(Ordering::Relaxed),
        };
        for (entry, page) in entries(table, block).zip(pages) {
            // Release: the page is clear. x86 keeps stores in order, so the walkers' reads find it.
            entry.store(page.address() | PAGE_BITS | WRITABLE, Ordering::Release);
        }
        slot.store(table, Ordering::Release);
        self.any = true;
        for page in 0..PAGES {
            cpu::invlpg(MEMMAP_BASE + memmap_offset(block) + page * 4096);
        }
    }

    /// Ends the exchange: when this returns, every CPU knows.
    pub(super) fn end(mut self) {
        self.flush();
        // What is freed may be asked for by others who exchange.
        drop(self.common);
        self.retired.free();
    }
}

/// Brings back the part of the memmap of [`LARGE_FRAMES`] frames from `first` on, all of which are of huge pages that are not
/// in use, by one pageblock of zeros; false: there is none. When this returns, every CPU knows.
pub(super) fn restore_large(first: Frame) -> bool {
    let request = Request::new(Order::PAGEBLOCK, Mobility::Unmovable).reserve(Reserve::Keep);
    let Ok(block) = percpu::allocate(request) else {
        return false;
    };
    allocator().split(block, Order::PAGEBLOCK, Order::BASE);
    for batch in 0..PAGEBLOCK_FRAMES / PAGES {
        // SAFETY: the block is ours alone.
        unsafe { clear_pages(frame_ptr(block.offset(batch * PAGES)), PAGES) };
        ipi::poll_mailbox();
    }
    for index in 0..PAGEBLOCK_FRAMES {
        Descriptor::get(block.offset(index)).take(Kind::Memmap, Order::BASE);
    }
    percpu::add(Count::MemmapFrames, PAGEBLOCK_FRAMES);
    let mut exchange = Exchange::begin();
    let slot = slot_of(first);
    let shared = exchange.common.map(|common| common.table.address());
    let old = slot.load(Ordering::Relaxed) & ADDRESS;
    assert_eq!(Some(old), shared, "{first:?} shares no table");
    // Release: the block is clear.
    slot.store(
        block.address() | PAGE_BITS | WRITABLE | LARGE,
        Ordering::Release,
    );
    exchange.any = true;
    exchange.end();
    true
}

/// Gives a table of pages in the place of a large page.
fn split(slot: &AtomicU64, large: u64) -> Result<u64, AllocError> {
    let table = new_frame()?;
    take(&[table]);
    let base = large & ADDRESS & !(TABLE_BYTES - 1);
    for index in 0..ENTRIES {
        let page = base + index * 4096;
        tables::memmap_entry(table.address(), index * 4096)
            .store(page | PAGE_BITS | WRITABLE, Ordering::Relaxed);
    }
    let value = table.address() | TABLE_BITS;
    // Release: the entries come first. Both ways lead to the same frames.
    slot.store(value, Ordering::Release);
    Ok(value)
}

fn clear(pages: &[Frame]) {
    let first = pages[0];
    let together = (0..)
        .zip(pages)
        .all(|(index, &page)| page == first.offset(index));
    if together {
        // SAFETY: the frames are the caller's alone.
        unsafe { clear_pages(frame_ptr(first), PAGES) };
        return;
    }
    for &page in pages {
        // SAFETY: as above.
        unsafe { clear_pages(frame_ptr(page), 1) };
    }
}
