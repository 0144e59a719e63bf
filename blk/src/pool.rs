//! The pool of buffer pages of one instance.
//!
//! A page is in one of three states:
//!
//! | state | resident | who may touch it |
//! |---|---|---|
//! | absent | no | nobody; it was never used, or went back to the system |
//! | kept | yes | nobody; free, and counted against the limit |
//! | in use | yes | the request that holds its [`Batch`] |
//!
//! A pool starts empty (all absent), grows as requests take pages, and is brought back to its limit
//! by the instance's worker: each [`SHRINK_INTERVAL`] it gives back what is over the limit and was not
//! needed meanwhile ([`Pool::trim`]), for a busy disk would fetch it anew at once. Pages in use are
//! never taken from anybody. The limit is `max_buffer_pages`. A pressure event sends all free pages
//! back at once ([`Pool::shrink`]) and makes the limit 0 for a while ([`Squeeze`]). There is no clock
//! in here: the worker hands in the time.

use crate::time::Micros;
use std::time::Duration;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Pages that one instance may hold, in use and kept together: 64 MiB.
pub const MAX_POOL_PAGES: u32 = 16_384;

/// Free pages that an idle instance keeps unless told otherwise (the seed's default).
pub const DEFAULT_MAX_BUFFER_PAGES: u32 = 1024;

/// How long a pressure event keeps the limit at 0, before [`WARY`], unless told otherwise (the seed's
/// default).
pub const DEFAULT_BUFFER_SQUEEZE_DURATION_MS: u32 = 10;

/// Longest squeeze that can be set: a minute.
pub const MAX_BUFFER_SQUEEZE_DURATION_MS: u32 = 60_000;

/// A pool that holds more than its limit is looked at no later than this.
pub const SHRINK_INTERVAL: Duration = Duration::from_millis(100);

/// The limit stays 0 for this long beyond a squeeze. Else the pools of idle disks would grow to their
/// limits anew until they are what makes memory tight again.
pub const WARY: Duration = Duration::from_secs(10);

/// Number of a page in its pool, from 0.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageIndex(pub u32);

/// What holds the pages.
pub trait Backing {
    /// Gives `count` pages from `first` back to the system. Their contents are lost.
    fn release(&mut self, first: PageIndex, count: u32);
}

/// Pages in use by a request. Goes back to its pool by [`Pool::put`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "pages that are not put back are lost to the pool"]
pub struct Batch(Vec<PageIndex>);

impl Batch {
    /// The pages, in the order in which the request's bytes lie in them.
    pub fn pages(&self) -> &[PageIndex] {
        &self.0
    }
}

/// How a pool stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Free pages that are resident.
    pub kept: u32,
    /// Pages that requests hold.
    pub in_use: u32,
    /// Pages that went back to the system since the start.
    pub released: u64,
}

impl Counts {
    /// Pages that came from the system since the start.
    pub fn fetched(&self) -> u64 {
        u64::from(self.kept) + u64::from(self.in_use) + self.released
    }
}

/// Buffer pages of one instance.
#[derive(Debug)]
pub struct Pool<B> {
    backing: B,
    /// Least recently used first.
    kept: Vec<PageIndex>,
    /// Highest number first, where it was released together: taken pages tend to be neighbours.
    absent: Vec<PageIndex>,
    in_use: u32,
    released: u64,
    capacity: u32,
    /// Fewest pages that were kept since the last [`Pool::trim`]: nobody needed these.
    idle: usize,
}

impl<B: Backing> Pool<B> {
    /// An empty pool over the pages 0 to `capacity` of `backing`.
    pub fn new(backing: B, capacity: u32) -> Self {
        Self {
            backing,
            kept: Vec::new(),
            absent: (0..capacity).rev().map(PageIndex).collect(),
            in_use: 0,
            released: 0,
            capacity,
            idle: 0,
        }
    }

    /// What holds the pages.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// `count` pages, kept ones first; `None` if so many are not free, and then takes none.
    pub fn take(&mut self, count: u32) -> Option<Batch> {
        if count > self.capacity - self.in_use {
            return None;
        }
        let count_usize = count as usize;
        let kept = self.kept.len() - count_usize.min(self.kept.len());
        let mut pages = self.kept.split_off(kept);
        let fresh = self.absent.len() - (count_usize - pages.len());
        pages.extend(self.absent.drain(fresh..).rev());
        self.idle = self.idle.min(self.kept.len());
        self.in_use += count;
        self.check();
        Some(Batch(pages))
    }

    /// Takes pages back from a request that is done with them. They are kept until
    /// [`Self::shrink`].
    pub fn put(&mut self, batch: Batch) {
        let count = u32::try_from(batch.0.len()).unwrap_or(u32::MAX);
        assert!(
            count <= self.in_use,
            "{count} pages of {} put back",
            self.in_use
        );
        self.in_use -= count;
        self.kept.extend(batch.0);
        self.check();
    }

    /// Gives kept pages over `limit` back to the system, the least recently used first. Returns
    /// how many.
    pub fn shrink(&mut self, limit: u32) -> u32 {
        self.release(self.kept.len().saturating_sub(limit as usize))
    }

    /// As [`Self::shrink`], but leaves what was in use at some time since the last call: a busy
    /// instance would take it again at once. What it needs varies, so less than a quarter of its pages
    /// is left, too.
    pub fn trim(&mut self, limit: u32) -> u32 {
        let excess = self.kept.len().saturating_sub(limit as usize);
        let resident = self.kept.len() + self.in_use as usize;
        let released = if self.idle * 4 >= resident {
            self.release(excess.min(self.idle))
        } else {
            0
        };
        self.idle = self.kept.len();
        released
    }

    fn release(&mut self, excess: usize) -> u32 {
        if excess == 0 {
            return 0;
        }
        let mut going: Vec<_> = self.kept.drain(..excess).collect();
        going.sort_unstable();
        for run in going.chunk_by(|a, b| a.0 + 1 == b.0) {
            self.backing
                .release(run[0], u32::try_from(run.len()).unwrap_or(u32::MAX));
        }
        self.absent.extend(going.into_iter().rev());
        self.idle = self.idle.min(self.kept.len());
        self.released += excess as u64;
        self.check();
        u32::try_from(excess).unwrap_or(u32::MAX)
    }

    /// How the pool stands.
    pub fn counts(&self) -> Counts {
        Counts {
            kept: u32::try_from(self.kept.len()).unwrap_or(u32::MAX),
            in_use: self.in_use,
            released: self.released,
        }
    }

    fn check(&self) {
        assert_eq!(
            self.kept.len() + self.absent.len() + self.in_use as usize,
            self.capacity as usize,
            "a page was lost or doubled"
        );
    }
}

/// Until when an instance's limit is 0. Belongs to one instance and is changed only by its callback,
/// on its worker: nothing is shared, so nothing can race, and no other instance can push it out.
#[derive(Copy, Clone, Debug, Default)]
pub struct Squeeze {
    end: Micros,
    /// An event that no shrink has honoured yet.
    owed: bool,
}

impl Squeeze {
    /// The callback: memory is tight since `event`. Lasts `duration` and [`WARY`]. Later events extend
    /// it, an older one does not shorten it. A duration of 0 switches squeezing off.
    pub fn begin(&mut self, event: Micros, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        self.end = self.end.max(event + duration + WARY);
        self.owed = true;
    }

    /// Whether there was an event since the last call. One counts even if its squeeze has ended.
    pub fn begins(&mut self) -> bool {
        std::mem::take(&mut self.owed)
    }

    /// Whether the limit is 0 at `now`.
    pub fn active(&self, now: Micros) -> bool {
        now < self.end
    }
}

#[cfg(all(test, not(loom)))]
#[path = "pool_tests.rs"]
mod tests;
