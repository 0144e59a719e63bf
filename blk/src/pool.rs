//! The pool of buffer pages of one instance (one served disk).
//!
//! A page is in one of three states:
//!
//! | state | resident | who may access it |
//! |---|---|---|
//! | absent | no | no one: it was never used, or was returned to the system |
//! | free | yes | no one: it counts against the limit |
//! | in use | yes | the request that holds its [`Batch`] |
//!
//! All pages are absent at first, and the pool grows as requests take pages. Two limits bound it:
//!
//! | pages | limit | what holds it |
//! |---|---|---|
//! | free | `max_buffer_pages`, after each batch of requests | [`Pool::shrink`] |
//! | free and in use together | [`MAX_POOL_PAGES`], at any time | [`Pool::take`] |
//!
//! At a pressure event all free pages are returned to the system at once, and the limit for free
//! pages is 0 for a while ([`Squeeze`]). Then the hold begins, in which [`Pool::trim`] returns the
//! free pages that no request needed for a [`SHRINK_INTERVAL`]; a busy disk would take the others
//! again at once. Pages in use are never taken away. The module has no clock: its caller passes the
//! time.

use crate::time::Micros;
use std::time::Duration;

/// Size of a page of a pool in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Maximum number of pages of one pool, in use and free together: 64 MiB. A request that finds no
/// page waits until another returns some.
pub const MAX_POOL_PAGES: u32 = 16_384;

/// Default value of `max_buffer_pages`, the limit for the free pages of a pool: 4 MiB
/// (`xen-blkback`'s default, there for each ring).
pub const DEFAULT_MAX_BUFFER_PAGES: u32 = 1024;

/// Default value of `buffer_squeeze_duration_ms` (`xen-blkback`'s default): milliseconds after a
/// pressure event in which no batch of requests leaves a free page.
pub const DEFAULT_BUFFER_SQUEEZE_DURATION_MS: u32 = 10;

/// Largest value of `buffer_squeeze_duration_ms`: about 49 days, the largest number of its type, as
/// in `xen-blkback`.
pub const MAX_BUFFER_SQUEEZE_DURATION_MS: u32 = u32::MAX;

/// Interval at which an instance trims its pool in the hold of a squeeze.
pub const SHRINK_INTERVAL: Duration = Duration::from_millis(100);

/// Default value of `squeeze_hold_ms`: milliseconds for which a squeeze lasts in all. Without it
/// the pools of idle disks would grow to their limits again and cause the next shortage.
pub const DEFAULT_SQUEEZE_HOLD_MS: u32 = 10_000;

/// Largest value of `squeeze_hold_ms`: a minute.
pub const MAX_SQUEEZE_HOLD_MS: u32 = 60_000;

/// Index of a page in its pool, from 0.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageIndex(pub u32);

/// The memory that a pool's pages are in.
pub trait Backing {
    /// Returns `count` pages from `first` on to the system, which then are not resident. Their
    /// contents are lost. No request may hold them.
    fn release(&mut self, first: PageIndex, count: u32);
}

/// The pages of a pool that one request uses. [`Pool::put`] returns them to their pool.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "pages that are not put back are lost to the pool"]
pub struct Batch(Vec<PageIndex>);

impl Batch {
    /// Returns the indices of the pages, in the order of the request's bytes in them.
    pub fn pages(&self) -> &[PageIndex] {
        &self.0
    }
}

/// The numbers of pages of a pool in each state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Free pages that are resident.
    pub free: u32,
    /// Pages that requests hold.
    pub in_use: u32,
    /// Pages returned to the system since the pool was made.
    pub released: u64,
}

impl Counts {
    /// Returns the number of pages taken from the system since the pool was made: those that are
    /// resident and all that were returned. A page counts each time.
    pub fn fetched(&self) -> u64 {
        u64::from(self.free) + u64::from(self.in_use) + self.released
    }
}

/// The buffer pages of one instance: which are free, in use, or not resident.
#[derive(Debug)]
pub struct Pool<B> {
    backing: B,
    /// Free resident pages, the least recently used first.
    free: Vec<PageIndex>,
    /// Pages that are not resident. Runs are stored with the highest index first, so that pages
    /// taken one after the other tend to be adjacent.
    absent: Vec<PageIndex>,
    in_use: u32,
    released: u64,
    capacity: u32,
    /// Smallest length of `free` since the last [`Pool::trim`]: pages that no request needed.
    idle: usize,
}

impl<B: Backing> Pool<B> {
    /// Makes a pool of the pages 0 to `capacity` (excluded) of `backing`. None of them is resident.
    pub fn new(backing: B, capacity: u32) -> Self {
        Self {
            backing,
            free: Vec::new(),
            absent: (0..capacity).rev().map(PageIndex).collect(),
            in_use: 0,
            released: 0,
            capacity,
            idle: 0,
        }
    }

    /// Returns the memory that the pages are in.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Takes `count` pages for a request, resident ones first. Returns `None`, and takes no page,
    /// if fewer than `count` pages of the pool are free or absent.
    pub fn take(&mut self, count: u32) -> Option<Batch> {
        if count > self.capacity - self.in_use {
            return None;
        }
        let count_usize = count as usize;
        let free = self.free.len() - count_usize.min(self.free.len());
        let mut pages = self.free.split_off(free);
        let fresh = self.absent.len() - (count_usize - pages.len());
        pages.extend(self.absent.drain(fresh..).rev());
        self.idle = self.idle.min(self.free.len());
        self.in_use += count;
        self.check();
        Some(Batch(pages))
    }

    /// Returns the pages of a request to the pool, as the most recently used free pages. They stay
    /// resident until [`Self::shrink`] or [`Self::trim`] returns them to the system.
    ///
    /// # Panics
    /// If the pool has fewer pages in use than `batch` holds.
    pub fn put(&mut self, batch: Batch) {
        let count = u32::try_from(batch.0.len()).unwrap_or(u32::MAX);
        assert!(
            count <= self.in_use,
            "{count} pages of {} put back",
            self.in_use
        );
        self.in_use -= count;
        self.free.extend(batch.0);
        self.check();
    }

    /// Returns the free pages above the number `limit` to the system, the least recently used
    /// first. Returns how many these are.
    pub fn shrink(&mut self, limit: u32) -> u32 {
        self.release(self.free.len().saturating_sub(limit as usize))
    }

    /// Returns the free pages to the system that no request has needed since the last call. Demand
    /// varies, so no page is returned if fewer than a quarter of the resident pages were unneeded.
    /// Returns how many pages were returned.
    pub fn trim(&mut self) -> u32 {
        let resident = self.free.len() + self.in_use as usize;
        let released = if self.idle * 4 >= resident {
            self.release(self.idle)
        } else {
            0
        };
        self.idle = self.free.len();
        released
    }

    /// Returns the `excess` least recently used free pages to the system, and their number.
    fn release(&mut self, excess: usize) -> u32 {
        if excess == 0 {
            return 0;
        }
        let mut going: Vec<_> = self.free.drain(..excess).collect();
        going.sort_unstable();
        for run in going.chunk_by(|a, b| a.0 + 1 == b.0) {
            self.backing
                .release(run[0], u32::try_from(run.len()).unwrap_or(u32::MAX));
        }
        self.absent.extend(going.into_iter().rev());
        self.idle = self.idle.min(self.free.len());
        self.released += excess as u64;
        self.check();
        u32::try_from(excess).unwrap_or(u32::MAX)
    }

    /// Returns the numbers of free pages, of pages in use, and of pages returned to the system so
    /// far.
    pub fn counts(&self) -> Counts {
        Counts {
            free: u32::try_from(self.free.len()).unwrap_or(u32::MAX),
            in_use: self.in_use,
            released: self.released,
        }
    }

    fn check(&self) {
        assert_eq!(
            self.free.len() + self.absent.len() + self.in_use as usize,
            self.capacity as usize,
            "a page was lost or doubled"
        );
    }
}

/// The times of a squeeze, from its pressure event on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SqueezeTimes {
    /// The time in which no batch of requests leaves a free page (`buffer_squeeze_duration_ms`).
    pub every_batch: Duration,
    /// The time of the whole squeeze, at least as long. In its rest, the hold, pages that no
    /// request needs are returned (`squeeze_hold_ms`, or the other setting if that is longer).
    pub all: Duration,
}

/// A squeeze: the time after a pressure event in which an instance keeps fewer free pages than its
/// limit. Each instance has its own and changes it on its own thread, so it needs no lock.
#[derive(Copy, Clone, Debug, Default)]
pub struct Squeeze {
    /// The end of the time in which every batch of requests returns its pages.
    every_batch_end: Micros,
    end: Micros,
    /// Whether there was an event that [`Self::take_event`] has not reported yet.
    event_pending: bool,
}

impl Squeeze {
    /// Starts a squeeze for a pressure event at `event`, which lasts as long as `times` says. The
    /// end of an earlier squeeze no longer counts, even if it is later: the duration that is set at
    /// the last event decides, as in `xen-blkback`. Call this with later events only.
    pub fn begin(&mut self, event: Micros, times: SqueezeTimes) {
        self.every_batch_end = event + times.every_batch;
        self.end = event + times.all;
        self.event_pending = true;
    }

    /// Returns whether [`Self::begin`] has started a squeeze since the last call, even
    /// if that squeeze has ended.
    pub fn take_event(&mut self) -> bool {
        std::mem::take(&mut self.event_pending)
    }

    /// Returns whether the squeeze returns the pages of every batch of requests at `now`.
    pub fn returns_every_batch(&self, now: Micros) -> bool {
        now < self.every_batch_end
    }

    /// Returns whether a squeeze lasts at `now`, so that unneeded pages are returned.
    pub fn active(&self, now: Micros) -> bool {
        now < self.end
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
