//! Long random runs of a few per-CPU caches against a simple model of the frames in use. The memory
//! is small, so that few bitmap words are in circulation and often compete for the entries of the
//! caches.

use std::{
    mem::{ManuallyDrop, replace},
    time::Duration,
};

use crate::arena::{order, range, with};
use ebb_mm::{
    AllocError, Allocator, Config, Contents, CpuCache, Frame, FrameRange, FreeBatch, Mobility,
    Order, PAGEBLOCK_FRAMES, ReportSink, Reporter, Request, Watermarks, ZoneConfig, ZoneKind,
};

/// The first frame of the upper zone.
const HIGH: u64 = 1 << 20;
/// The number of frames of the lower zone, which ends within a block, and of the upper zone.
const FRAMES: [u64; 2] = [3 * PAGEBLOCK_FRAMES + 200, 2 * PAGEBLOCK_FRAMES];
const MANAGED: u64 = FRAMES[0] + FRAMES[1];
/// The number of phases in a run. Each phase repeats one kind of operation.
const PHASES: usize = if cfg!(debug_assertions) { 100 } else { 400 };
const SEEDS: u64 = if cfg!(debug_assertions) { 2 } else { 24 };

/// A random number generator: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The low bits are the least random.
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// Prints the seed of the run if it fails.
struct Seed(u64, usize);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with seed {} and {} caches", self.0, self.1);
        }
    }
}

/// The model's state of a frame.
#[derive(Copy, Clone, Default)]
struct Page {
    owned: bool,
    /// Whether the frame was ever allocated.
    used: bool,
}

/// Returns the index of a frame in the model.
fn at(frame: Frame) -> usize {
    let number = frame.number();
    let at = if number < HIGH {
        assert!(number < FRAMES[0], "{frame:?} is not managed");
        number
    } else {
        assert!(number < HIGH + FRAMES[1], "{frame:?} is not managed");
        number - HIGH + FRAMES[0]
    };
    usize::try_from(at).expect("small")
}

struct Model<'a, 'm> {
    a: &'a Allocator<'m>,
    caches: Vec<ManuallyDrop<CpuCache>>,
    pages: Vec<Page>,
    owned: Vec<(Frame, Order)>,
    /// The number of frames in a batch.
    in_batch: u64,
    reporter: Reporter,
    now: Duration,
    random: Random,
}

/// A host that receives free ranges.
struct Host<'a>(&'a [Page]);

impl ReportSink for Host<'_> {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        for range in ranges {
            let first = at(range.start);
            let pages = &self.0[first..][..usize::try_from(range.frames).expect("small")];
            assert!(pages.iter().all(|page| !page.owned), "{range:?} is owned");
        }
        Ok(())
    }
}

impl Model<'_, '_> {
    fn cache(&mut self) -> usize {
        self.random.below(self.caches.len())
    }

    fn mobility(&mut self) -> Mobility {
        Mobility::ALL[self.random.below(Mobility::COUNT)]
    }

    fn pages(&mut self, frame: Frame, order: Order) -> &mut [Page] {
        let frames = usize::try_from(order.frames()).expect("small");
        &mut self.pages[at(frame)..][..frames]
    }

    fn take(&mut self, frame: Frame, request: Request, contents: Contents) {
        assert!(frame.is_aligned(request.order), "{frame:?} for {request:?}");
        let low = frame.number() < HIGH;
        assert!(
            low || request.zone == ZoneKind::Normal,
            "{frame:?} for {request:?}"
        );
        for page in self.pages(frame, request.order) {
            assert!(!replace(&mut page.owned, true), "{frame:?} is owned twice");
            let used = replace(&mut page.used, true);
            assert!(
                contents == Contents::Unknown || !used,
                "{frame:?} is not fresh"
            );
        }
        self.owned.push((frame, request.order));
    }

    fn give(&mut self, which: usize) -> (Frame, Order) {
        let (frame, order) = self.owned.swap_remove(which);
        for page in self.pages(frame, order) {
            assert!(replace(&mut page.owned, false), "the model is wrong");
        }
        (frame, order)
    }

    fn allocate(&mut self, cache: usize, request: Request) -> bool {
        let known = self.random.one_in(4);
        let mut ask = || {
            let cache = &mut *self.caches[cache];
            if known {
                self.a.allocate_known(cache, request)
            } else {
                let frame = self.a.allocate(cache, request)?;
                Ok((frame, Contents::Unknown))
            }
        };
        match ask() {
            Ok((frame, contents)) => self.take(frame, request, contents),
            Err(error) => {
                assert!(matches!(error, AllocError::Exhausted { .. }), "{error:?}");
                self.drain();
                match self.a.allocate(&mut self.caches[cache], request) {
                    Ok(frame) => self.take(frame, request, Contents::Unknown),
                    Err(_) => self.assert_out_of(request),
                }
                return false;
            }
        }
        true
    }

    /// Asserts that `request` has to fail once all caches are drained.
    fn assert_out_of(&self, request: Request) {
        let low = usize::try_from(FRAMES[0]).expect("small");
        let size = usize::try_from(request.order.frames()).expect("small");
        let (low, high) = self.pages.split_at(low);
        let has = |pages: &[Page]| {
            let mut runs = pages.chunks_exact(size);
            self.in_batch == 0 && runs.any(|run| run.iter().all(|page| !page.owned))
        };
        let out = !has(low) && (request.zone == ZoneKind::Dma32 || !has(high));
        assert!(out, "{request:?} failed and there is one");
    }

    /// Frees a block whole, or sometimes a run frame by frame.
    fn free(&mut self, cache: usize, which: usize) {
        let (frame, of) = self.give(which);
        let parts = of < Order::PAGEBLOCK && self.random.one_in(4);
        let cache = &mut *self.caches[cache];
        if !parts {
            self.a.free(cache, frame, of);
            return;
        }
        for frame in (0..of.frames()).map(|frames| frame.offset(frames)) {
            self.a.free(cache, frame, Order::BASE);
        }
    }

    fn free_any(&mut self) {
        let cache = self.cache();
        let count = self.owned.len();
        let which = match self.random.below(3) {
            0 => self.random.below(count),
            1 => count - 1,
            // One of the latest, so that the same words stay in circulation.
            _ => count - 1 - self.random.below(count.min(20)),
        };
        self.free(cache, which);
    }

    fn drain(&mut self) {
        for cache in &mut self.caches {
            self.a.drain(cache);
            assert_eq!(cache.held(), 0);
        }
    }

    /// Allocates a few blocks and frees them, repeatedly.
    fn pairs(&mut self, of: Order) {
        let (cache, depth) = (self.cache(), 1 + self.random.below(4));
        let kinds: Vec<_> = (0..=self.random.below(3))
            .map(|_| self.mobility())
            .collect();
        let strangers = self.random.one_in(3);
        let (zone, turns) = (self.zone(), self.random.below(300));
        for turn in 0..turns {
            for step in 0..depth {
                let mobility = kinds[(turn + step) % kinds.len()];
                if !self.allocate(cache, Request::new(of, mobility).zone(zone)) {
                    return;
                }
            }
            let last = self.owned.len() - depth;
            for left in (1..=depth).rev() {
                let by = if strangers { self.cache() } else { cache };
                let which = last + self.random.below(left);
                self.free(by, which);
            }
        }
    }

    fn zone(&mut self) -> ZoneKind {
        if self.random.one_in(6) {
            ZoneKind::Dma32
        } else {
            ZoneKind::Normal
        }
    }

    /// Allocates and frees at random, with at most about `most` blocks in use.
    fn churn(&mut self, most: usize, orders: usize) {
        let zone = self.zone();
        for _ in 0..self.random.below(600) {
            if self.owned.len() > self.random.below(2 * most) {
                self.free_any();
            } else {
                let of = u8::try_from(self.random.below(orders)).expect("small");
                let (cache, mobility) = (self.cache(), self.mobility());
                self.allocate(cache, Request::new(order(of), mobility).zone(zone));
            }
        }
    }

    /// Allocates all memory, and frees most of it.
    fn exhaust(&mut self) {
        let of = if self.random.one_in(2) {
            0
        } else {
            self.random.below(10)
        };
        let of = order(u8::try_from(of).expect("small"));
        let request = Request::new(of, self.mobility());
        let cache = self.cache();
        while self.allocate(cache, request) {}
        let left = self.random.below(100);
        while self.owned.len() > left {
            self.free_any();
        }
    }

    fn bulk(&mut self) {
        let (cache, mobility) = (self.cache(), self.mobility());
        let request = Request::new(Order::BASE, mobility).zone(self.zone());
        let mut frames = vec![Frame::new(u64::MAX); 1 + self.random.below(300)];
        let a = self.a;
        let taken = match a.allocate_bulk(&mut self.caches[cache], request, &mut frames) {
            Ok(()) => frames.len(),
            Err(error) => error.taken,
        };
        for &frame in &frames[..taken] {
            self.take(frame, request, Contents::Unknown);
        }
        let first = self.owned.len() - taken;
        match self.random.below(4) {
            0 => self.owned[first..].sort_unstable(),
            1 => self.owned[first..].reverse(),
            2 => self
                .owned
                .sort_unstable_by_key(|&(_, order)| std::cmp::Reverse(order)),
            _ => {}
        }
        self.free_together();
    }

    /// Frees the latest single frames, as a slice or in a batch. Between the frees of a batch other
    /// frames are allocated and freed.
    fn free_together(&mut self) {
        let (cache, count) = (self.cache(), self.random.below(300));
        let between = self.random.one_in(2);
        let mut batch = FreeBatch::new();
        let mut slice = Vec::new();
        let by_slice = self.random.one_in(2);
        for _ in 0..count {
            let Some(which) = self.owned.iter().rposition(|&(_, of)| of == Order::BASE) else {
                break;
            };
            let (frame, _) = self.give(which);
            self.in_batch += 1;
            if by_slice {
                slice.push(frame);
                continue;
            }
            batch.free(self.a, &mut self.caches[cache], frame);
            if between && self.random.one_in(8) {
                let request = Request::new(Order::BASE, self.mobility());
                let other = self.cache();
                if self.allocate(other, request) {
                    self.free(other, self.owned.len() - 1);
                }
            }
        }
        self.a
            .free_bulk(&mut self.caches[cache], &slice, Order::BASE);
        batch.finish(self.a, &mut self.caches[cache]);
        self.in_batch = 0;
    }

    fn report(&mut self) {
        let least = [None, Some(0), Some(5), Some(9)][self.random.below(4)];
        if self.random.one_in(2) {
            self.a
                .set_reporting_order(least.map(order))
                .expect("an order that can be given back");
        }
        for _ in 0..self.random.below(4) {
            let mut host = Host(&self.pages);
            let poll = self.reporter.poll(self.now, self.a, &mut host);
            self.now = poll.next.unwrap_or(self.now);
        }
    }

    /// Asserts that every frame is free, in a cache or in use.
    fn check(&self) {
        let zones = self.a.zone_ids();
        let free: u64 = zones.map(|zone| self.a.free_areas(zone).frames()).sum();
        let held: u64 = self.caches.iter().map(|cache| cache.held()).sum();
        let owned: u64 = self.owned.iter().map(|(_, of)| of.frames()).sum();
        assert_eq!(free + held + owned, MANAGED, "{free} {held} {owned}");
    }

    fn check_drained(&mut self) {
        self.drain();
        self.check();
        self.a.validate().expect("valid");
        let owned: u64 = self.owned.iter().map(|(_, of)| of.frames()).sum();
        assert_eq!(self.a.stats().free_frames, MANAGED - owned);
    }

    fn phase(&mut self) {
        match self.random.below(16) {
            0..=4 => self.pairs(Order::BASE),
            5 => {
                let of = u8::try_from(1 + self.random.below(9)).expect("small");
                self.pairs(order(of));
            }
            6..=8 => self.churn(60, 1),
            9 => self.churn(20, 10),
            10 | 11 => self.bulk(),
            12 => self.free_together(),
            13 => {
                let cache = self.cache();
                self.a.drain(&mut self.caches[cache]);
            }
            14 => self.report(),
            _ if self.random.one_in(4) => self.exhaust(),
            _ => self.check_drained(),
        }
        self.check();
    }

    /// Frees everything. Then every frame and every block can be allocated again.
    fn finish(&mut self) {
        while !self.owned.is_empty() {
            self.free_any();
        }
        self.check_drained();
        let whole = FRAMES.iter().map(|frames| frames / PAGEBLOCK_FRAMES).sum();
        for (of, blocks) in [(Order::BASE, MANAGED), (Order::PAGEBLOCK, whole)] {
            let request = Request::new(of, self.mobility());
            let cache = self.cache();
            while self.allocate(cache, request) {}
            assert_eq!(self.owned.len() as u64, blocks, "of order {}", of.get());
            while !self.owned.is_empty() {
                self.free_any();
            }
            self.check_drained();
        }
    }
}

fn run(seed: u64, caches: usize) {
    let _seed = Seed(seed, caches);
    let ranges = [[range(0, FRAMES[0])], [range(HIGH, FRAMES[1])]];
    let kinds = [ZoneKind::Dma32, ZoneKind::Normal];
    let zones = [0, 1].map(|zone| ZoneConfig {
        kind: kinds[zone],
        node: 0,
        ranges: &ranges[zone],
    });
    let config = Config::new(&zones).with_frame_marks().with_use_marks();
    with(&config, &(), |a| {
        for zone in a.zone_ids() {
            a.set_watermarks(zone, Watermarks::default())
                .expect("rising marks");
        }
        let mut model = Model {
            a,
            caches: (0..caches)
                .map(|_| ManuallyDrop::new(CpuCache::new()))
                .collect(),
            pages: vec![Page::default(); usize::try_from(MANAGED).expect("small")],
            owned: Vec::new(),
            in_batch: 0,
            reporter: Reporter::with_delay(Duration::ZERO),
            now: Duration::ZERO,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        };
        for _ in 0..PHASES {
            model.phase();
        }
        model.finish();
    });
}

#[test]
fn one_cache_loses_no_frame_and_hands_none_out_twice() {
    (1..=SEEDS).for_each(|seed| run(seed, 1));
}

#[test]
fn two_caches_lose_no_frame_and_hand_none_out_twice() {
    (1..=SEEDS).for_each(|seed| run(seed, 2));
}

#[test]
fn three_caches_lose_no_frame_and_hand_none_out_twice() {
    (1..=SEEDS).for_each(|seed| run(seed, 3));
}
