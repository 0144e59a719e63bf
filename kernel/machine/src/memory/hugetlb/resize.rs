//! The size of the pools: the requested size, reservations, and surplus pages for them.

use super::blocks::{Batch, demote as part, free_pages, give_up_descriptors, relieve};
use super::pool::pool;
use super::report::{self, want_report};
use super::{MADE, NOT_MADE, PageSize, counts};
use crate::arch::clock::{self, Nanos};
use crate::memory::helpers::HELPERS;
use crate::memory::pressure::Relief;
use crate::memory::vmemmap::Supply;
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_mm::{Contents, Frame, PAGEBLOCK_FRAMES};
use logic::errno::Errno;

/// The time in nanoseconds for which a thread that changes the size of a pool sleeps between two
/// attempts.
const RESIZE_WAIT: u64 = 1_000_000;

/// A thread is changing the size of a pool.
static RESIZING: AtomicBool = AtomicBool::new(false);

/// Sets the size of the pool of pages of `size` to `pages` pages. The pool grows as far as there is
/// memory. If it shrinks, pages in use beyond `pages` become surplus pages.
///
/// Calls `stop_growing` after each batch of pages that join the pool. If `stop_growing` returns
/// `true`, the pool grows no further. Calls `stop` after each batch of pages that leave the pool.
/// Also calls `stop` while it waits for another change of a pool's size, or for pages that are
/// being reported to the host. If `stop` returns `true`, the call ends. Both may let other threads
/// run.
pub fn resize(
    size: PageSize,
    pages: u64,
    mut stop_growing: impl FnMut() -> bool,
    mut stop: impl FnMut() -> bool,
) {
    let Some(_resizing) = Resizing::begin(&mut stop) else {
        return;
    };
    relieve(|_| ());
    grow(size, pages, &mut stop_growing);
    shrink(size, pages, &mut stop);
}

/// The right to change the size of pools. Only one thread has it at a time.
struct Resizing;

impl Resizing {
    /// Waits for the right. Returns `None` if `stop` returns `true` before.
    fn begin(stop: &mut dyn FnMut() -> bool) -> Option<Self> {
        // Acquire: pairs with the Release of `drop`.
        while RESIZING.swap(true, Ordering::Acquire) {
            if stop() {
                return None;
            }
            (HELPERS.sleep_until)(Nanos(clock::now().0 + RESIZE_WAIT));
        }
        Some(Self)
    }
}

impl Drop for Resizing {
    fn drop(&mut self) {
        RESIZING.store(false, Ordering::Release);
    }
}

/// Splits up to `pages` free, unreserved pages of 1 GiB into pages of 2 MiB, which join the pool of
/// that size. Ends early if no such page is left. Waits while another thread changes the size of a
/// pool, and until a page returns from a report to the host.
///
/// Calls `stop` after each page and during each wait, and ends if `stop` returns `true`. `stop` may
/// let other threads run.
pub fn demote(pages: u64, mut stop: impl FnMut() -> bool) {
    let Some(_resizing) = Resizing::begin(&mut stop) else {
        return;
    };
    for _ in 0..pages {
        let page = loop {
            {
                let mut pool = pool(PageSize::Gib1).lock();
                if let Some(page) = pool.remove() {
                    break page;
                }
                if pool.in_report == 0 || pool.counts.spare() == 0 {
                    return;
                }
            }
            report::pause();
            if stop() {
                return;
            }
        };
        part(page);
        let small = pool(PageSize::Mib2);
        for index in 0..PageSize::Gib1.pageblocks() {
            // The lock is taken for each page: other threads must not wait for all of them.
            let mut pool = small.lock();
            pool.put(page.offset(index * PAGEBLOCK_FRAMES));
            pool.counts.total += 1;
        }
        if small.lock().has_touched() {
            want_report();
        }
        if stop() {
            return;
        }
    }
}

fn grow(size: PageSize, pages: u64, stop: &mut dyn FnMut() -> bool) {
    {
        // Surplus pages become ordinary ones first.
        let counts = &mut pool(size).lock().counts;
        let wanted = pages.saturating_sub(counts.persistent());
        counts.surplus -= wanted.min(counts.surplus);
    }
    let mut relief = Relief::new(size.order());
    loop {
        let missing = pages.saturating_sub(counts(size).persistent());
        if missing == 0 {
            return;
        }
        let mut batch = Batch::new(size);
        let mut failed = batch.fill(missing);
        if size == PageSize::Gib1
            && failed.is_some()
            && let Some(gib) = (HELPERS.take_gib)()
        {
            failed = batch.add(gib, Contents::Unknown).err();
        }
        MADE.fetch_add(batch.len() as u64, Ordering::Relaxed);
        join(size, batch.as_slice(), false);
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

/// Adds `blocks` to the pool of pages of `size`, and returns the number of added ones. With
/// `surplus`, adds them as surplus pages, up to the limit of such pages, which other threads may
/// have reached in the meantime. Frees the blocks beyond the limit.
fn join(size: PageSize, blocks: &[Frame], surplus: bool) -> u64 {
    if blocks.is_empty() {
        return 0;
    }
    give_up_descriptors(size, blocks);
    let mut pool = pool(size).lock();
    let mut joined = 0;
    for &block in blocks {
        if surplus && !pool.counts.may_exceed() {
            break;
        }
        pool.put(block);
        pool.counts.total += 1;
        pool.counts.surplus += u64::from(surplus);
        joined += 1;
    }
    let touched = pool.has_touched();
    drop(pool);
    if touched {
        want_report();
    }
    let rest = &blocks[joined..];
    if !rest.is_empty() {
        free_pages(size, rest, &mut Supply::new(rest.len() as u64));
    }
    joined as u64
}

fn shrink(size: PageSize, pages: u64, stop: &mut dyn FnMut() -> bool) {
    let mut supply = Supply::new(counts(size).persistent().saturating_sub(pages));
    let mut low_first = false;
    loop {
        if !low_first && counts(size).persistent() > pages {
            pool(size).lock().begin_low();
            low_first = true;
        }
        let mut batch = Batch::new(size);
        {
            let mut pool = pool(size).lock();
            while !batch.is_full() && pool.counts.persistent() > pages {
                match pool.remove() {
                    Some(page) => batch.push(page),
                    None => break,
                }
            }
            if batch.len() == 0 {
                let too_many = pool.counts.persistent() > pages;
                if too_many && pool.in_report > 0 && pool.counts.spare() > 0 {
                    drop(pool);
                    if stop() {
                        return;
                    }
                    report::pause();
                    low_first = false;
                    continue;
                }
                // The others leave the pool when they are freed.
                let counts = &mut pool.counts;
                counts.surplus += counts.persistent().saturating_sub(pages);
                return;
            }
        }
        free_pages(size, batch.as_slice(), &mut supply);
        if stop() {
            return;
        }
    }
}

/// Reserves `pages` pages of `size` for later calls of [`HugePage::take`](super::HugePage::take).
/// Allocates surplus pages if too few pages of the pool are free and unreserved.
///
/// # Errors
/// `ENOMEM` if too few are free and the surplus pages are not allowed or cannot be allocated, or if
/// the thread is being killed. No page is reserved then.
pub fn reserve(size: PageSize, pages: u64) -> Result<(), Errno> {
    let mut made = 0;
    loop {
        let mut batch = Batch::new(size);
        let missing = {
            let mut pool = pool(size).lock();
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
            trim(size, made);
            return Err(Errno::ENOMEM);
        };
        // The pages are allocated first and reserved then. If other threads take them in between,
        // more are allocated.
        batch.fill(missing);
        MADE.fetch_add(batch.len() as u64, Ordering::Relaxed);
        if batch.len() == 0 {
            NOT_MADE.fetch_add(1, Ordering::Relaxed);
            trim(size, made);
            return Err(Errno::ENOMEM);
        }
        made += join(size, batch.as_slice(), true);
        if (HELPERS.killed)() {
            trim(size, made);
            return Err(Errno::ENOMEM);
        }
    }
}

/// Ends the reservation of `pages` pages of `size` that were not taken. Up to that number of free,
/// unreserved surplus pages leave the pool.
pub fn unreserve(size: PageSize, pages: u64) {
    pool(size).lock().counts.reserved -= pages;
    trim(size, pages);
}

/// Frees up to `most` free, unreserved surplus pages of `size`.
fn trim(size: PageSize, mut most: u64) {
    while most != 0 {
        let mut batch = Batch::new(size);
        {
            let mut pool = pool(size).lock();
            while !batch.is_full() && pool.counts.surplus > 0 && most != 0 {
                match pool.remove() {
                    Some(page) => batch.push(page),
                    None => break,
                }
                pool.counts.surplus -= 1;
                most -= 1;
            }
        }
        if batch.len() == 0 {
            let pool = pool(size).lock();
            if pool.in_report == 0 || pool.counts.spare() == 0 || pool.counts.surplus == 0 {
                return;
            }
            drop(pool);
            report::pause();
            continue;
        }
        free_pages(size, batch.as_slice(), &mut Supply::new(batch.len() as u64));
    }
}
