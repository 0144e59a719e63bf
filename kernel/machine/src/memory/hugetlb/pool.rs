//! A pool: the huge pages of one size and their reservations, with Linux's counters and rules.

use super::PageSize;
use super::side::{self, REFERENCES, TOUCHED};
use crate::arch::ipi;
use crate::arch::spin::SpinLock;
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use ebb_mm::{Frame, Order};
use ebb_wire::header::pool as wire;

/// The counters of a pool in `/sys/kernel/mm/hugepages/*`, in pages. The host reads the first four
/// in place.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// All pages of the pool, including surplus ones (`nr_hugepages` counts these, too).
    pub total: u64,
    /// The free pages.
    pub free: u64,
    /// The reserved pages among the free ones.
    pub reserved: u64,
    /// The pages beyond the requested size of the pool. The next pages that are freed leave the
    /// pool until this number is 0.
    pub surplus: u64,
    /// The most surplus pages that the pool may have (`nr_overcommit_hugepages`).
    pub overcommit: u64,
}

const _: () = assert!(
    offset_of!(Counts, total) == 0
        && offset_of!(Counts, free) == 8
        && offset_of!(Counts, reserved) == 16
        && offset_of!(Counts, surplus) == 24
        && wire::COUNTS == 4
);

impl Counts {
    /// Returns the number of pages of the pool that are not surplus pages.
    pub const fn persistent(&self) -> u64 {
        self.total - self.surplus
    }

    /// Returns whether another surplus page may be allocated.
    pub(super) const fn may_exceed(&self) -> bool {
        self.surplus < self.overcommit
    }

    /// Returns the number of free pages without a reservation.
    pub const fn spare(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }
}

/// A stack of pages that are linked through their entries in the side table.
#[derive(Debug)]
pub(super) struct Stack(u64);

impl Stack {
    /// Makes an empty stack.
    pub(super) const fn new() -> Self {
        Self(0)
    }

    /// Puts `page` on the top of the stack.
    pub(super) fn push(&mut self, page: Frame) {
        // Relaxed (both): the pool's lock is held.
        side::entry(page).next.store(self.0, Ordering::Relaxed);
        self.0 = page.number();
    }

    /// Returns whether the stack is empty.
    pub(super) const fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Takes the page on the top out of the stack. Returns `None` if the stack is empty.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let page = self.top()?;
        self.0 = side::entry(page).next.swap(0, Ordering::Relaxed);
        Some(page)
    }

    /// Returns the page that [`Self::pop`] would take, or `None` if the stack is empty.
    fn top(&self) -> Option<Frame> {
        (self.0 != 0).then(|| Frame::new(self.0))
    }

    /// Returns the number of the lowest GiB that contains a page of the stack, or `None` if the
    /// stack is empty. Looks at each page.
    fn lowest_gib(&self) -> Option<u64> {
        let next = |page: &Frame| {
            ipi::poll_mailbox();
            Self(side::entry(*page).next.load(Ordering::Relaxed)).top()
        };
        core::iter::successors(self.top(), next).map(gib).min()
    }

    /// Moves the pages in the GiB with this `number` to the top of the stack. The order of the
    /// pages otherwise stays the same.
    fn raise(&mut self, number: u64) {
        let (mut inside, mut others) = (Self::new(), Self::new());
        while let Some(page) = self.pop() {
            ipi::poll_mailbox();
            let part = if gib(page) == number {
                &mut inside
            } else {
                &mut others
            };
            part.push(page);
        }
        for mut part in [others, inside] {
            while let Some(page) = part.pop() {
                ipi::poll_mailbox();
                self.push(page);
            }
        }
    }
}

/// Returns the number of the GiB that contains `page`.
const fn gib(page: Frame) -> u64 {
    page.number() / Order::GIB.frames()
}

/// The state of a pool: its counters, and its free pages.
#[derive(Debug)]
pub(super) struct Pool {
    /// Its counters.
    pub(super) counts: Counts,
    /// Free pages for which the host has memory, and those for which it has none.
    touched: Stack,
    untouched: Stack,
    /// The number of free pages that are being reported to the host. They count as free, and are in
    /// neither list.
    pub(super) in_report: u64,
    /// The number of pages that left the pool because the host may still drop them.
    pub(super) lost: u64,
    /// The number of a GiB. No free page is in a lower one. `None` before the pool first shrinks.
    lowest: Option<u64>,
}

static POOLS: [SpinLock<Pool>; PageSize::ALL.len()] =
    [const { SpinLock::new(Pool::new()) }; PageSize::ALL.len()];

/// Returns the pool of pages of `size`.
pub(super) fn pool(size: PageSize) -> &'static SpinLock<Pool> {
    &POOLS[size as usize]
}

impl Pool {
    const fn new() -> Self {
        Self {
            counts: Counts {
                total: 0,
                free: 0,
                reserved: 0,
                surplus: 0,
                overcommit: 0,
            },
            touched: Stack::new(),
            untouched: Stack::new(),
            in_report: 0,
            lost: 0,
            lowest: None,
        }
    }

    /// Adds `page`, which has no references, to the free pages.
    pub(super) fn put(&mut self, page: Frame) {
        // Relaxed: the page is the caller's, and the lock is held.
        let head = side::entry(page).head.load(Ordering::Relaxed);
        debug_assert_eq!(head & REFERENCES, 0, "{page:?} is freed and referred to");
        if head & TOUCHED != 0 {
            self.touched.push(page);
        } else {
            self.untouched.push(page);
        }
        self.lowest = self.lowest.map(|lowest| lowest.min(gib(page)));
        self.counts.free += 1;
    }

    /// Takes a free page, preferably one for which the host has memory. Returns `None` if no free
    /// page is in the lists.
    pub(super) fn get(&mut self) -> Option<Frame> {
        let page = self.touched.pop().or_else(|| self.untouched.pop())?;
        self.counts.free -= 1;
        Some(page)
    }

    /// Takes a free page for which the host has memory out of its list, so that the caller can
    /// report the page to the host. Returns `None` if there is no such page. The caller must then
    /// call [`Self::end_report`] or [`Self::lose`].
    pub(super) fn begin_report(&mut self) -> Option<Frame> {
        let page = self.touched.pop()?;
        self.in_report += 1;
        Some(page)
    }

    /// Puts `page`, which [`Self::begin_report`] returned, back into a list of free pages.
    pub(super) fn end_report(&mut self, page: Frame) {
        self.in_report -= 1;
        self.counts.free -= 1;
        self.put(page);
    }

    /// Removes a page that [`Self::begin_report`] returned from the pool for ever, because the host
    /// may still drop it. The page stays allocated. Reservations stay, so more pages may be
    /// reserved than are free.
    pub(super) fn lose(&mut self) {
        self.in_report -= 1;
        self.lost += 1;
        let counts = &mut self.counts;
        counts.free -= 1;
        counts.total -= 1;
        counts.surplus = counts.surplus.min(counts.total);
    }

    /// Returns whether the pool has a free page for which the host has memory, so that the page can
    /// be reported to the host.
    pub(super) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Makes [`Self::remove`] begin with the free pages in the lowest GiB. The memmap of the other
    /// pages is restored in frames of the first ones, and unmovable memory belongs at low
    /// addresses.
    ///
    /// Visits every free page, unless the next one is in that GiB already. So a pool that shrinks
    /// page by page visits all free pages once for each GiB, with the lock held. Serves the flush
    /// requests of other CPUs in that time. Pages that other CPUs free or report later may still
    /// come first.
    pub(super) fn begin_low(&mut self) {
        let lists = [&mut self.touched, &mut self.untouched];
        let mut next = lists.iter().filter_map(|list| list.top()).map(gib);
        if next.any(|number| self.lowest == Some(number)) {
            return;
        }
        self.lowest = lists.iter().filter_map(|list| list.lowest_gib()).min();
        if let Some(lowest) = self.lowest {
            lists.into_iter().for_each(|list| list.raise(lowest));
        }
    }

    /// Takes a free, unreserved page out of the pool, because the pool is too large. Each of the
    /// two lists has a page on its top, and this takes the one in the lower GiB. If both are in the
    /// same GiB, this takes the page for which the host has memory. Returns `None` if there is no
    /// free, unreserved page in the lists.
    pub(super) fn remove(&mut self) -> Option<Frame> {
        if self.counts.spare() == 0 {
            return None;
        }
        let lists = [&mut self.touched, &mut self.untouched];
        let lower = lists
            .into_iter()
            .filter(|list| !list.is_empty())
            .min_by_key(|list| list.top().map(gib))?;
        let page = lower.pop()?;
        self.counts.free -= 1;
        self.counts.total -= 1;
        Some(page)
    }

    /// Puts `page`, whose last reference was dropped, back into the pool and returns `true`. If the
    /// pool has surplus pages, takes `page` out of the pool instead and returns `false`. The caller
    /// then frees the page.
    pub(super) fn give(&mut self, page: Frame) -> bool {
        if self.counts.surplus == 0 {
            self.put(page);
            return true;
        }
        self.counts.surplus -= 1;
        self.counts.total -= 1;
        false
    }
}
