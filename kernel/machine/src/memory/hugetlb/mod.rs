//! The pool of huge pages (`hugetlb`): pages of 2 MiB that are set aside, promised and handed out whole.
//!
//! A page of the pool has no descriptors of its own: all of them say `Kind::HugePage`, and are one page of memory that
//! all huge pages share (`vmemmap`). Its references and what is known of it stand in the side table (`side`). With
//! the exchange switched off each descriptor is written for itself.

mod pool;
mod side;

pub use pool::Counts;

use super::allocator::{self, allocator};
use super::clear_pages;
use super::helpers::HELPERS;
use super::memmap::{self, Descriptor, HUGE_PAGE_HEAD, frame_ptr};
use super::percpu::{self, Count};
use super::pressure::Relief;
use super::vmemmap::{Exchange, Restored, Supply};
use crate::arch::clock::{self, Nanos};
use crate::arch::ipi;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use ebb_mm::{
    AllocError, Contents, Frame, FrameRange, Mobility, Order, PAGEBLOCK_FRAMES, Request, Reserve,
};
use logic::errno::Errno;
use pool::POOL;
use side::{CARRIED_SHIFT, REFERENCES, SHARED, TOUCHED, ZERO};

/// Bytes of a huge page.
pub const BYTES: u64 = PAGEBLOCK_FRAMES * 4096;
/// Pages that are made or given up together.
const BATCH: usize = 32;
/// Frames that are cleared between two looks at what other CPUs ask for.
const CLEAR_BATCH: u64 = 32;
/// How long one who changes the size of the pool waits for another, in nanoseconds.
const RESIZE_WAIT: u64 = 1_000_000;

/// Whether descriptors are given up: `hugetlb_free_vmemmap=`, `vm.hugetlb_optimize_vmemmap`.
static OPTIMIZE: AtomicBool = AtomicBool::new(true);
/// Somebody changes the size of the pool.
static RESIZING: AtomicBool = AtomicBool::new(false);
/// The reporter knows that pages of the pool were freed.
static REPORT_WANTED: AtomicBool = AtomicBool::new(false);
/// Pages whose descriptors are given up. For `/proc/vmstat`.
static OPTIMIZED: AtomicU64 = AtomicU64::new(0);
/// Requests for a huge page that succeeded, and that failed.
static MADE: AtomicU64 = AtomicU64::new(0);
static NOT_MADE: AtomicU64 = AtomicU64::new(0);

/// Up to [`BATCH`] pages.
struct Batch {
    pages: [Frame; BATCH],
    len: usize,
}

impl Batch {
    const fn new() -> Self {
        Self {
            pages: [Frame::new(0); BATCH],
            len: 0,
        }
    }

    fn push(&mut self, page: Frame) {
        self.pages[self.len] = page;
        self.len += 1;
    }

    /// Takes up to so many blocks from the allocator; why it has no more. Does not wait.
    fn fill(&mut self, pages: u64) -> Option<AllocError> {
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Keep);
        let mut blocks = [(Frame::new(0), Contents::Unknown); BATCH];
        let most = usize::try_from(pages).map_or(BATCH, |pages| pages.min(BATCH));
        let (taken, mut error) = percpu::this().allocate_pageblocks(request, &mut blocks[..most]);
        for &(block, contents) in &blocks[..taken] {
            match make_entry(block, contents) {
                Ok(()) => self.push(block),
                Err(no_room) => {
                    percpu::free(block, Order::PAGEBLOCK);
                    error = Some(no_room);
                }
            }
        }
        error
    }

    const fn is_full(&self) -> bool {
        self.len == BATCH
    }

    fn as_slice(&self) -> &[Frame] {
        &self.pages[..self.len]
    }
}

/// Makes the entry of a block that is for the pool.
fn make_entry(block: Frame, contents: Contents) -> Result<(), AllocError> {
    let entry = side::make(block, memmap::end())?;
    // Nobody was handed it: it is zero, and the host holds nothing of it.
    let head = if contents == Contents::Fresh {
        ZERO
    } else {
        TOUCHED
    };
    entry.head.store(head, Ordering::Relaxed);
    Ok(())
}

/// Gives up the descriptors of blocks that are about to join the pool.
fn give_up_descriptors(blocks: &[Frame]) {
    let optimize = OPTIMIZE.load(Ordering::Relaxed);
    let mut exchange = Exchange::begin();
    for &block in blocks {
        // Without a frame for a table the descriptors stay.
        if optimize && exchange.share(block).is_ok() {
            side::entry(block).head.fetch_or(SHARED, Ordering::Relaxed);
            OPTIMIZED.fetch_add(1, Ordering::Relaxed);
        } else {
            for index in 0..PAGEBLOCK_FRAMES {
                let head = &Descriptor::get(block.offset(index)).head;
                head.store(HUGE_PAGE_HEAD, Ordering::Relaxed);
            }
        }
    }
    exchange.end();
    percpu::add(Count::HugetlbFrames, blocks.len() as u64 * PAGEBLOCK_FRAMES);
}

/// Gives blocks back to the allocator that have left the pool.
fn free_blocks(blocks: &[Frame], supply: &mut Supply) {
    if blocks.is_empty() {
        return;
    }
    percpu::subtract(Count::HugetlbFrames, blocks.len() as u64 * PAGEBLOCK_FRAMES);
    let mut carried = [0; BATCH];
    let mut exchange = Exchange::begin();
    for (&block, carried) in blocks.iter().zip(&mut carried) {
        let entry = side::entry(block);
        if entry.head.load(Ordering::Relaxed) & SHARED != 0 {
            OPTIMIZED.fetch_sub(1, Ordering::Relaxed);
            if let Restored::Carried(frames) = exchange.restore(block, supply) {
                *carried = frames;
            }
        } else {
            for index in 0..PAGEBLOCK_FRAMES {
                Descriptor::get(block.offset(index)).clear();
            }
        }
        entry
            .head
            .store(*carried << CARRIED_SHIFT, Ordering::Relaxed);
    }
    exchange.end();
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
        let mut pool = POOL.lock();
        pool.carriers.push(block);
        pool.carrying += 1;
    }
}

/// Makes blocks whole that carry their part of the memmap, where the rest of them is free and there are frames for it
/// elsewhere. Those that cannot be yet stay in the list.
pub fn relieve() {
    let count = POOL.lock().carrying;
    for _ in 0..count {
        let Some(block) = POOL.lock().carriers.pop() else {
            return;
        };
        let done = relieve_block(block);
        let mut pool = POOL.lock();
        if done {
            pool.carrying -= 1;
        } else {
            pool.carriers.push(block);
            return;
        }
    }
}

fn relieve_block(block: Frame) -> bool {
    let entry = side::entry(block);
    let carried = entry.head.load(Ordering::Relaxed) >> CARRIED_SHIFT;
    let this = percpu::this();
    let rest = FrameRange::new(block.offset(carried), PAGEBLOCK_FRAMES - carried);
    if !this.allocate_range(rest) {
        return false;
    }
    let mut exchange = Exchange::begin();
    let moved = exchange.move_out(block, carried);
    exchange.end();
    if moved {
        entry.head.store(0, Ordering::Relaxed);
        percpu::this().free_range(FrameRange::new(block, PAGEBLOCK_FRAMES));
    } else {
        percpu::this().free_range(rest);
    }
    moved
}

/// The counters at this moment.
pub fn counts() -> Counts {
    POOL.lock().counts
}

/// Pages whose descriptors are given up, and pageblocks that carry theirs.
pub fn optimized() -> (u64, u64) {
    (OPTIMIZED.load(Ordering::Relaxed), POOL.lock().carrying)
}

/// Requests for a huge page that succeeded, and that failed: `htlb_buddy_alloc_{success,fail}`.
pub fn requests() -> (u64, u64) {
    (
        MADE.load(Ordering::Relaxed),
        NOT_MADE.load(Ordering::Relaxed),
    )
}

/// Whether the descriptors of pages that join the pool are given up.
pub fn optimizes() -> bool {
    OPTIMIZE.load(Ordering::Relaxed)
}

/// Sets that; pages that are in the pool stay as they are.
pub fn set_optimize(optimize: bool) {
    OPTIMIZE.store(optimize, Ordering::Relaxed);
}

/// Sets how many surplus pages may be made.
pub fn set_overcommit(pages: u64) {
    POOL.lock().counts.overcommit = pages;
}

/// Gives the pool a size, as far as there is memory and as pages are free. Those that are in use beyond it become
/// surplus. Between batches it asks `stop` whether to go on, which may let others run.
pub fn resize(pages: u64, mut stop: impl FnMut() -> bool) {
    // Acquire: pairs with the Release below.
    while RESIZING.swap(true, Ordering::Acquire) {
        if stop() {
            return;
        }
        (HELPERS.sleep_until)(Nanos(clock::now().0 + RESIZE_WAIT));
    }
    relieve();
    grow(pages, &mut stop);
    shrink(pages, &mut stop);
    RESIZING.store(false, Ordering::Release);
}

fn grow(pages: u64, stop: &mut dyn FnMut() -> bool) {
    {
        // Surplus pages become ordinary ones first.
        let counts = &mut POOL.lock().counts;
        let wanted = pages.saturating_sub(counts.persistent());
        counts.surplus -= wanted.min(counts.surplus);
    }
    let mut relief = Relief::new(Order::PAGEBLOCK);
    loop {
        let missing = pages.saturating_sub(counts().persistent());
        if missing == 0 {
            return;
        }
        let mut batch = Batch::new();
        let failed = batch.fill(missing);
        MADE.fetch_add(batch.len as u64, Ordering::Relaxed);
        join(batch.as_slice(), false);
        if stop() {
            return;
        }
        if let Some(error) = failed
            && relief.step(error).is_err()
        {
            NOT_MADE.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// Has blocks join the pool.
fn join(blocks: &[Frame], surplus: bool) {
    if blocks.is_empty() {
        return;
    }
    give_up_descriptors(blocks);
    let mut pool = POOL.lock();
    for &block in blocks {
        pool.put(block);
        pool.counts.total += 1;
        pool.counts.surplus += u64::from(surplus);
    }
    let touched = pool.has_touched();
    drop(pool);
    if touched {
        want_report();
    }
}

fn shrink(pages: u64, stop: &mut dyn FnMut() -> bool) {
    let mut supply = Supply::new(counts().persistent().saturating_sub(pages));
    loop {
        let mut batch = Batch::new();
        {
            let mut pool = POOL.lock();
            while !batch.is_full() && pool.counts.persistent() > pages {
                match pool.remove() {
                    Some(page) => batch.push(page),
                    None => break,
                }
            }
            if batch.len == 0 {
                if pool.in_report > 0 && pool.counts.spare() > 0 {
                    drop(pool);
                    (HELPERS.yield_now)();
                    continue;
                }
                // The others leave when they are free.
                let counts = &mut pool.counts;
                counts.surplus += counts.persistent().saturating_sub(pages);
                return;
            }
        }
        free_blocks(batch.as_slice(), &mut supply);
        if stop() {
            return;
        }
    }
}

/// Promises so many pages: whoever was promised one gets it by [`HugePage::take`].
///
/// # Errors
/// `ENOMEM`: there are not as many free ones, nor may as many be made.
pub fn reserve(pages: u64) -> Result<(), Errno> {
    let mut made = 0;
    loop {
        let mut batch = Batch::new();
        let missing = {
            let mut pool = POOL.lock();
            let spare = pool.counts.spare();
            if pages <= spare {
                pool.counts.reserved += pages;
                return Ok(());
            }
            let may = pool.counts.overcommit.saturating_sub(pool.counts.surplus);
            let missing = pages - spare;
            (missing <= may).then_some(missing)
        };
        let Some(missing) = missing else {
            trim(made);
            return Err(Errno::ENOMEM);
        };
        // Made first, promised then: somebody else may take them in between, and then more are made.
        batch.fill(missing);
        MADE.fetch_add(batch.len as u64, Ordering::Relaxed);
        if batch.len == 0 {
            NOT_MADE.fetch_add(1, Ordering::Relaxed);
            trim(made);
            return Err(Errno::ENOMEM);
        }
        join(batch.as_slice(), true);
        made += batch.len as u64;
        if (HELPERS.killed)() {
            trim(made);
            return Err(Errno::ENOMEM);
        }
    }
}

/// Takes a promise back that nobody has made use of. Surplus pages that were made for it leave.
pub fn unreserve(pages: u64) {
    POOL.lock().counts.reserved -= pages;
    trim(pages);
}

/// Frees up to so many surplus pages that nobody has or was promised.
fn trim(mut most: u64) {
    while most != 0 {
        let mut batch = Batch::new();
        {
            let mut pool = POOL.lock();
            while !batch.is_full() && pool.counts.surplus > 0 && most != 0 {
                match pool.remove() {
                    Some(page) => batch.push(page),
                    None => break,
                }
                pool.counts.surplus -= 1;
                most -= 1;
            }
        }
        if batch.len == 0 {
            let pool = POOL.lock();
            if pool.in_report == 0 || pool.counts.spare() == 0 || pool.counts.surplus == 0 {
                return;
            }
            drop(pool);
            (HELPERS.yield_now)();
            continue;
        }
        free_blocks(batch.as_slice(), &mut Supply::new(batch.len as u64));
    }
}

/// Whether the host could be told of free pages.
pub fn has_reports() -> bool {
    POOL.lock().has_touched()
}

/// Calls for a report, unless that was done since the last.
fn want_report() {
    if !REPORT_WANTED.swap(true, Ordering::Relaxed) {
        allocator::report_wanted();
    }
}

/// Tells the host, by `report`, of free pages of the pool for which it holds memory, all that there are. Those of a report
/// that fails stay as they are, and end it.
///
/// # Errors
/// What `report` gives.
pub fn report<E>(mut report: impl FnMut(&[FrameRange]) -> Result<(), E>) -> Result<u64, E> {
    // Relaxed: pages that are freed from here on ask anew.
    REPORT_WANTED.store(false, Ordering::Relaxed);
    let mut told = 0;
    loop {
        let mut batch = Batch::new();
        {
            let mut pool = POOL.lock();
            while !batch.is_full()
                && let Some(page) = pool.begin_report()
            {
                batch.push(page);
            }
        }
        if batch.len == 0 {
            return Ok(told);
        }
        let mut ranges = [FrameRange::new(Frame::new(0), 0); BATCH];
        for (range, &page) in ranges.iter_mut().zip(batch.as_slice()) {
            *range = FrameRange::new(page, PAGEBLOCK_FRAMES);
        }
        let done = report(&ranges[..batch.len]);
        let mut pool = POOL.lock();
        for &page in batch.as_slice() {
            if done.is_ok() {
                let head = &side::entry(page).head;
                head.fetch_and(!TOUCHED, Ordering::Relaxed);
                told += 1;
            }
            pool.end_report(page);
        }
        drop(pool);
        done?;
        (HELPERS.yield_now)();
    }
}

/// A reference to a huge page of the pool.
#[derive(Debug)]
pub struct HugePage(Frame);

impl HugePage {
    /// A page of zeros that nobody else has; `promised`: one of those that were reserved. May wait for a report to the
    /// host that is under way.
    pub fn take(promised: bool) -> Option<Self> {
        let page = loop {
            let mut pool = POOL.lock();
            if !promised && pool.counts.spare() == 0 {
                break None;
            }
            let page = pool.get();
            if page.is_some() || pool.in_report == 0 {
                if promised {
                    pool.counts.reserved -= 1;
                }
                break page;
            }
            drop(pool);
            (HELPERS.yield_now)();
        };
        let page = match page {
            Some(page) => page,
            None if promised => panic!("a huge page was promised and is not there"),
            None => Self::surplus()?,
        };
        let entry = side::entry(page);
        let head = entry.head.load(Ordering::Relaxed);
        debug_assert_eq!(head & REFERENCES, 0);
        if head & ZERO == 0 {
            clear(page);
        }
        let head = (head & !ZERO) | TOUCHED | 1;
        entry.head.store(head, Ordering::Relaxed);
        Some(Self(page))
    }

    /// A page beyond the pool's size, if that is allowed.
    fn surplus() -> Option<Frame> {
        if !POOL.lock().counts.may_exceed() {
            return None;
        }
        let mut batch = Batch::new();
        batch.fill(1);
        let Some(&block) = batch.as_slice().first() else {
            NOT_MADE.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // Counted when it is there: meanwhile others count pages that they give back, and may have made the last one.
        let counted = {
            let counts = &mut POOL.lock().counts;
            let may = counts.may_exceed();
            counts.surplus += u64::from(may);
            counts.total += u64::from(may);
            may
        };
        if !counted {
            side::entry(block).head.store(0, Ordering::Relaxed);
            percpu::free(block, Order::PAGEBLOCK);
            return None;
        }
        MADE.fetch_add(1, Ordering::Relaxed);
        give_up_descriptors(batch.as_slice());
        Some(block)
    }

    /// A new reference to the page around a frame; the caller holds one, in whatever form.
    pub fn new_reference(frame: Frame) -> Self {
        get_reference(frame);
        Self(page_of(frame))
    }

    /// Gives the reference up without dropping it: the caller holds it in another form.
    pub fn into_counted(self) -> Frame {
        let frame = self.0;
        core::mem::forget(self);
        frame
    }

    /// Gives back a page that nobody else has, and promises one again in its place: nobody can take it in between.
    pub fn renounce(self) {
        let page = self.into_counted();
        // Release: as in `release`.
        let before = side::entry(page).head.fetch_sub(1, Ordering::Release) & REFERENCES;
        assert_eq!(before, 1, "{page:?} is given back and shared");
        fence(Ordering::Acquire);
        let mut pool = POOL.lock();
        pool.put(page);
        pool.counts.reserved += 1;
        drop(pool);
        want_report();
    }

    /// Its first frame.
    pub fn frame(&self) -> Frame {
        self.0
    }

    /// References at this moment.
    pub fn references(&self) -> u32 {
        references(self.0)
    }

    /// A page with the same bytes.
    pub fn copy_from(&self, other: &Self) {
        for index in 0..PAGEBLOCK_FRAMES {
            let (to, from) = (self.0.offset(index), other.0.offset(index));
            // SAFETY: both pages are held by references.
            unsafe { super::copy_page(frame_ptr(to), frame_ptr(from)) };
            if index % CLEAR_BATCH == 0 {
                ipi::poll_mailbox();
            }
        }
    }
}

impl Clone for HugePage {
    fn clone(&self) -> Self {
        get_reference(self.0);
        Self(self.0)
    }
}

impl Drop for HugePage {
    fn drop(&mut self) {
        release(self.0);
    }
}

fn clear(page: Frame) {
    for batch in 0..PAGEBLOCK_FRAMES / CLEAR_BATCH {
        // SAFETY: the caller has just taken the page, nobody else has it.
        unsafe { clear_pages(frame_ptr(page.offset(batch * CLEAR_BATCH)), CLEAR_BATCH) };
        ipi::poll_mailbox();
    }
}

/// The huge page around a frame.
pub const fn page_of(frame: Frame) -> Frame {
    Frame::new(frame.number() & !(PAGEBLOCK_FRAMES - 1))
}

/// References to the huge page around a frame.
pub fn references(frame: Frame) -> u32 {
    // Acquire: pairs with the Release of `release`.
    (side::entry(frame).head.load(Ordering::Acquire) & REFERENCES) as u32
}

/// One more reference to the huge page around a frame; the caller holds one.
pub fn get_reference(frame: Frame) {
    // Relaxed: made from one that exists.
    let before = side::entry(frame).head.fetch_add(1, Ordering::Relaxed) & REFERENCES;
    assert!(
        before != 0 && before < REFERENCES / 2,
        "{before} references to the huge page around {frame:?}"
    );
}

/// Drops one reference to the huge page around a frame.
pub fn release(frame: Frame) {
    let page = page_of(frame);
    // Release: what was done with the page comes before its next use; the fence pairs with it.
    let before = side::entry(page).head.fetch_sub(1, Ordering::Release) & REFERENCES;
    assert_ne!(before, 0, "{page:?} is released and free");
    if before == 1 {
        fence(Ordering::Acquire);
        let stays = POOL.lock().give(page);
        if !stays {
            free_blocks(&[page], &mut Supply::new(1));
        } else {
            want_report();
        }
    }
}
