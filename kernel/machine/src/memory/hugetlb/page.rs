//! Counted references to huge pages of the pools.

use super::blocks::{Batch, free_block, free_pages, give_up_descriptors};
use super::pool::pool;
use super::report::{self, want_report};
use super::side::{self, GIGANTIC, REFERENCES, TOUCHED, ZERO};
use super::{MADE, NOT_MADE, PageSize};
use crate::memory::clear::clear_frames;
use crate::memory::copy_page;
use crate::memory::helpers::HELPERS;
use crate::memory::memmap::frame_ptr;
use crate::memory::vmemmap::Supply;
use core::sync::atomic::{Ordering, fence};
use ebb_mm::Frame;

/// A counted reference to a huge page of a pool. Dropping the last reference returns the page to
/// its pool, or frees it if the pool has surplus pages.
#[derive(Debug)]
pub struct HugePage(Frame);

impl HugePage {
    /// Takes a page out of the pool of pages of `size`, and fills it with zeros. With `promised`,
    /// takes one of the reserved pages, and ends its reservation. Otherwise takes an unreserved
    /// page, or allocates a surplus page if the pool has none. Returns `None` if a surplus page is
    /// not allowed or cannot be allocated. Also returns `None` if the reserved page was lost in a
    /// report to the host.
    ///
    /// May wait until pages return from a report to the host, and lets other threads run while it
    /// clears the page. So the caller holds no spin lock.
    ///
    /// # Panics
    /// If `promised` is set, there is no reserved page, and none was lost.
    pub fn take(size: PageSize, promised: bool) -> Option<Self> {
        let page = loop {
            let mut pool = pool(size).lock();
            if !promised && pool.counts.spare() == 0 {
                break None;
            }
            let page = pool.get();
            if page.is_some() || pool.in_report == 0 {
                if promised {
                    pool.counts.reserved -= 1;
                    let there = page.is_some() || pool.lost > 0;
                    assert!(there, "a huge page was promised and is not there");
                }
                break page;
            }
            drop(pool);
            report::pause();
        };
        let page = match page {
            Some(page) => page,
            None if promised => return None,
            None => Self::surplus(size)?,
        };
        let entry = side::entry(page);
        let head = entry.head.load(Ordering::Relaxed);
        debug_assert_eq!(head & REFERENCES, 0);
        if head & ZERO == 0 {
            // SAFETY: the page was taken out of the pool, so no other thread uses it.
            unsafe { clear_frames(page, size.frames()) };
        }
        let head = (head & !ZERO) | TOUCHED | 1;
        entry.head.store(head, Ordering::Relaxed);
        Some(Self(page))
    }

    /// Allocates a surplus page of `size`: one beyond the pool's size. Returns its first frame.
    /// Returns `None` if the limit of surplus pages is reached, or if there is no memory.
    fn surplus(size: PageSize) -> Option<Frame> {
        if !pool(size).lock().counts.may_exceed() {
            return None;
        }
        let mut batch = Batch::new(size);
        // If no block is free, empties one.
        if batch.fill(1).is_some() && size == PageSize::Mib2 && (HELPERS.make_block)() {
            batch.fill(1);
        }
        let Some(&block) = batch.as_slice().first() else {
            NOT_MADE.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // Counted once it exists: other CPUs count the pages that they give back in between, and
        // one may be the last.
        let counted = {
            let counts = &mut pool(size).lock().counts;
            let may = counts.may_exceed();
            counts.surplus += u64::from(may);
            counts.total += u64::from(may);
            may
        };
        if !counted {
            free_block(size, block);
            return None;
        }
        MADE.fetch_add(1, Ordering::Relaxed);
        give_up_descriptors(size, batch.as_slice());
        Some(block)
    }

    /// Returns a new reference to the huge page that contains `frame`. The caller must hold a
    /// reference to that page, as a `HugePage`, in a page-table entry or otherwise.
    pub fn new_reference(frame: Frame) -> Self {
        get_reference(frame);
        Self(page_of(frame))
    }

    /// Returns the first frame of the page without dropping the reference. The caller then holds
    /// the reference in another form, such as a page-table entry.
    pub fn into_counted(self) -> Frame {
        let frame = self.0;
        core::mem::forget(self);
        frame
    }

    /// Drops this reference, which must be the only one, and returns the page to its pool. Reserves
    /// a page of the pool in the same step.
    ///
    /// # Panics
    /// If the page has other references.
    pub fn renounce(self) {
        let size = self.size();
        let page = self.into_counted();
        // Release: as in `release`.
        let before = side::entry(page).head.fetch_sub(1, Ordering::Release) & REFERENCES;
        assert_eq!(before, 1, "{page:?} is given back and shared");
        fence(Ordering::Acquire);
        let mut pool = pool(size).lock();
        pool.put(page);
        pool.counts.reserved += 1;
        drop(pool);
        want_report();
    }

    /// Returns the first frame of the page.
    pub fn frame(&self) -> Frame {
        self.0
    }

    /// Returns the present number of references to the page.
    pub fn references(&self) -> u32 {
        references(self.0)
    }

    /// Returns the size of the page.
    pub fn size(&self) -> PageSize {
        size_of(self.0)
    }

    /// Copies all bytes of `other`, a page of the same size, into this page. Other threads may run
    /// during the call, so the caller holds no spin lock.
    pub fn copy_from(&self, other: &Self) {
        let size = self.size();
        debug_assert_eq!(size, other.size());
        for index in 0..size.frames() {
            let (to, from) = (self.0.offset(index), other.0.offset(index));
            // SAFETY: both pages are held by references.
            unsafe { copy_page(frame_ptr(to), frame_ptr(from)) };
            (HELPERS.give_way)();
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

/// Returns the size of the huge page that contains `frame`.
fn size_of(frame: Frame) -> PageSize {
    // Relaxed: it does not change while there are references, and the caller holds one.
    if side::entry(frame).head.load(Ordering::Relaxed) & GIGANTIC == 0 {
        PageSize::Mib2
    } else {
        PageSize::Gib1
    }
}

/// Returns the first frame of the huge page that contains `frame`. The caller holds a reference to
/// that page.
pub fn page_of(frame: Frame) -> Frame {
    Frame::new(frame.number() & !(size_of(frame).frames() - 1))
}

/// Returns the present number of references to the huge page that contains `frame`. The caller
/// holds one of them.
pub fn references(frame: Frame) -> u32 {
    // Acquire: pairs with the Release of `release`.
    (side::entry(page_of(frame)).head.load(Ordering::Acquire) & REFERENCES) as u32
}

/// Adds one reference to the huge page that contains `frame`. The caller holds a reference to that
/// page already.
///
/// # Panics
/// If the page has no references, or their number is close to overflow.
pub fn get_reference(frame: Frame) {
    // Relaxed: made from one that exists.
    let head = &side::entry(page_of(frame)).head;
    let before = head.fetch_add(1, Ordering::Relaxed) & REFERENCES;
    assert!(
        before != 0 && before < REFERENCES / 2,
        "{before} references to the huge page around {frame:?}"
    );
}

/// Drops one reference to the huge page that contains `frame`. If it was the last one, the page
/// returns to its pool, or is freed if the pool has surplus pages.
///
/// # Panics
/// If the page has no references.
pub fn release(frame: Frame) {
    let size = size_of(frame);
    let page = page_of(frame);
    // Release: the accesses to the page come before its next use; the fence pairs with this.
    let before = side::entry(page).head.fetch_sub(1, Ordering::Release) & REFERENCES;
    assert_ne!(before, 0, "{page:?} is released and free");
    if before == 1 {
        fence(Ordering::Acquire);
        let stays = pool(size).lock().give(page);
        if !stays {
            free_pages(size, &[page], &mut Supply::new(1));
        } else {
            want_report();
        }
    }
}
