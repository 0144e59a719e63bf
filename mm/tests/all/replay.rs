//! Replays random events against a naive model with one entry for each frame, and compares every
//! result. On failure proptest prints the shortest list of events that it found, and the seed.

use std::{mem::ManuallyDrop, time::Duration};

use crate::arena::{range, with};
use ebb_mm::{
    AllocError, Allocator, Config, CpuCache, Frame, FrameRange, IsolatedBlock, Mobility, Order,
    PAGEBLOCK_FRAMES, PutBack, ReportSink, Reporter, Request, Reserve, ZoneConfig, ZoneId,
    ZoneKind,
};
use proptest::prelude::*;

const EVENTS: usize = 300;
const CACHES: usize = 2;
const WORD: u64 = 64;
const ZONES: usize = 3;
/// The first frame of each zone of the model.
const BASES: [u64; ZONES] = [0, 3 * 512, 1 << 20];
/// The lowmem reserve ratio of each zone.
const RATIOS: [u64; ZONES] = [10, 30, 32];

#[derive(Clone, Debug)]
enum Event {
    Allocate {
        cache: usize,
        order: u8,
        mobility: Mobility,
        zone: ZoneKind,
        reserve: Reserve,
    },
    AllocateFrames {
        cache: usize,
        mobility: Mobility,
        count: usize,
    },
    Free {
        cache: usize,
        which: usize,
    },
    /// Frees several frames, in the order of their addresses.
    FreeMany {
        cache: usize,
        count: usize,
    },
    Drain {
        cache: usize,
    },
    Isolate {
        which: usize,
    },
    PutBack {
        which: usize,
        reported: bool,
    },
    ReportFrom {
        order: Option<u8>,
    },
    Poll {
        fail: bool,
    },
}

fn mobility() -> impl Strategy<Value = Mobility> {
    prop::sample::select(Mobility::ALL.to_vec())
}

fn event() -> impl Strategy<Value = Event> {
    let zone = prop::sample::select(vec![
        ZoneKind::Dma,
        ZoneKind::Dma32,
        ZoneKind::Normal,
        ZoneKind::Normal,
    ]);
    let reserve = prop::sample::select(vec![Reserve::Keep, Reserve::Use]);
    let cache = 0..CACHES;
    prop_oneof![
        6 => (cache.clone(), 0..=10u8, mobility(), zone, reserve).prop_map(
            |(cache, order, mobility, zone, reserve)| {
                Event::Allocate { cache, order, mobility, zone, reserve }
            }
        ),
        3 => (cache.clone(), mobility(), 1..1500usize)
            .prop_map(|(cache, mobility, count)| Event::AllocateFrames { cache, mobility, count }),
        6 => (cache.clone(), any::<usize>())
            .prop_map(|(cache, which)| Event::Free { cache, which }),
        3 => (cache.clone(), 1..1500usize)
            .prop_map(|(cache, count)| Event::FreeMany { cache, count }),
        2 => cache.prop_map(|cache| Event::Drain { cache }),
        2 => any::<usize>().prop_map(|which| Event::Isolate { which }),
        2 => (any::<usize>(), any::<bool>())
            .prop_map(|(which, reported)| Event::PutBack { which, reported }),
        1 => prop::option::of(0..=10u8).prop_map(|order| Event::ReportFrom { order }),
        3 => prop::bool::weighted(0.2).prop_map(|fail| Event::Poll { fail }),
    ]
}

/// The model's state of a frame.
#[derive(Copy, Clone, Default)]
struct Page {
    managed: bool,
    held: bool,
    isolated: bool,
    /// Whether the frame was reported, and no frame of its bitmap word was allocated since.
    reported: bool,
}

struct Model {
    zones: [(ZoneKind, Vec<FrameRange>); ZONES],
    /// The frames of each zone, by frame number minus the zone's base.
    pages: [Vec<Page>; ZONES],
    held: Vec<(Frame, Order)>,
}

impl Model {
    fn new(zones: [(ZoneKind, Vec<FrameRange>); ZONES]) -> Self {
        let pages = [0, 1, 2].map(|zone| {
            let (_, ranges) = &zones[zone];
            let end = ranges.last().expect("ranges").end().number();
            (BASES[zone]..end + 1024)
                .map(|number| Page {
                    managed: ranges
                        .iter()
                        .any(|range| range.contains(Frame::new(number))),
                    ..Page::default()
                })
                .collect()
        });
        Self {
            zones,
            pages,
            held: Vec::new(),
        }
    }

    fn zone_of(&self, frame: Frame) -> usize {
        let above = |base: &&u64| frame.number() >= **base;
        BASES.iter().filter(above).count() - 1
    }

    fn pages(&mut self, range: FrameRange) -> &mut [Page] {
        let zone = self.zone_of(range.start);
        let first = usize::try_from(range.start.number() - BASES[zone]).expect("small");
        &mut self.pages[zone][first..first + usize::try_from(range.frames).expect("small")]
    }

    /// Allocates `frame`. `exact_marks` says that touched marks are kept for each frame, and not
    /// for each block.
    fn take(&mut self, frame: Frame, request: Request, exact_marks: bool) {
        let order = request.order;
        assert!(frame.is_aligned(order), "{frame:?} of order {order:?}");
        let (kind, _) = self.zones[self.zone_of(frame)];
        assert!(
            kind <= request.zone,
            "{frame:?} of {kind:?} for {request:?}"
        );
        for page in self.pages(FrameRange::new(frame, order.frames())) {
            assert!(
                page.managed && !page.held && !page.isolated,
                "{frame:?} is not free"
            );
            page.held = true;
        }
        let unit = if exact_marks { WORD } else { PAGEBLOCK_FRAMES };
        let first = Frame::new(frame.number() / unit * unit);
        for page in self.pages(FrameRange::new(first, order.frames().max(unit))) {
            page.reported = false;
        }
        self.held.push((frame, order));
    }

    fn give(&mut self, which: usize) -> (Frame, Order) {
        let (frame, order) = self.held.swap_remove(which);
        for page in self.pages(FrameRange::new(frame, order.frames())) {
            assert!(std::mem::take(&mut page.held));
        }
        (frame, order)
    }

    fn free_frames(&self, zone: usize) -> u64 {
        let free = |page: &&Page| page.managed && !page.held && !page.isolated;
        self.pages[zone].iter().filter(free).count() as u64
    }

    fn managed_frames(&self, zone: usize) -> u64 {
        self.zones[zone].1.iter().map(|range| range.frames).sum()
    }

    /// Returns the lowmem reserve that a zone keeps from a request.
    fn kept(&self, zone: usize, request: Request) -> u64 {
        let above = (zone + 1..ZONES).filter(|&above| self.zones[above].0 <= request.zone);
        above.map(|above| self.managed_frames(above)).sum::<u64>() / RATIOS[zone]
    }

    /// Returns whether a zone has a free run of `order`, regardless of its reserve.
    fn has_run(&self, zone: usize, order: Order) -> bool {
        let size = usize::try_from(order.frames()).expect("small");
        self.zones[zone].0 <= ZoneKind::Normal
            && self.pages[zone].chunks_exact(size).any(|run| {
                run.iter()
                    .all(|page| page.managed && !page.held && !page.isolated)
            })
    }

    /// Asserts that an allocation had to fail once all caches are drained.
    fn assert_out_of(&self, a: &Allocator<'_>, request: Request) {
        for zone in 0..ZONES {
            if self.zones[zone].0 > request.zone {
                continue;
            }
            let floor = if request.reserve == Reserve::Keep {
                a.watermarks(ZoneId::new(zone)).min + self.kept(zone, request)
            } else {
                0
            };
            let free = self.free_frames(zone);
            assert!(
                free < floor + request.order.frames() || !self.has_run(zone, request.order),
                "{request:?} failed with {free} free frames in zone {zone}"
            );
        }
    }
}

struct Host<'a> {
    model: &'a mut Model,
    fail: bool,
    order: Order,
}

impl ReportSink for Host<'_> {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        for &range in ranges {
            let unit = self.order.frames();
            assert!(range.start.is_aligned(self.order) && range.frames.is_multiple_of(unit));
            assert!(
                self.model
                    .pages(range)
                    .iter()
                    .all(|p| p.managed && !p.held && !p.isolated),
                "{range:?} was reported and is not free"
            );
            // A unit is reported if a word of it was used since the last report. Blocks of order 9
            // that became free in parts are reported whole.
            let mut start = range.start.number();
            while start < range.end().number() {
                let whole = start.is_multiple_of(PAGEBLOCK_FRAMES)
                    && start + PAGEBLOCK_FRAMES <= range.end().number();
                let size = if whole {
                    unit.max(PAGEBLOCK_FRAMES)
                } else {
                    unit
                };
                let pages = self.model.pages(FrameRange::new(Frame::new(start), size));
                assert!(
                    pages.iter().any(|page| !page.reported),
                    "{range:?} was reported twice at {start:#x}"
                );
                start += size;
            }
        }
        if self.fail {
            return Err(());
        }
        for &range in ranges {
            self.model
                .pages(range)
                .iter_mut()
                .for_each(|page| page.reported = true);
        }
        Ok(())
    }
}

struct Replay<'a, 'm> {
    a: &'a Allocator<'m>,
    model: Model,
    caches: [ManuallyDrop<CpuCache>; CACHES],
    isolated: Vec<IsolatedBlock>,
    reporter: Reporter,
    now: Duration,
}

impl Replay<'_, '_> {
    fn allocate(&mut self, cache: usize, request: Request) -> bool {
        let mut result = self.a.allocate(&mut self.caches[cache], request);
        if result.is_err() {
            assert!(self.a.drain_requested(&self.caches[1 - cache]));
            self.drain();
            result = self.a.allocate(&mut self.caches[cache], request);
        }
        let exact_marks = self
            .a
            .reporting_order()
            .is_some_and(|order| order < Order::PAGEBLOCK);
        match result {
            Ok(frame) => self.model.take(frame, request, exact_marks),
            Err(error) => {
                self.drain();
                self.model.assert_out_of(self.a, request);
                let isolated = self
                    .isolated
                    .iter()
                    .any(|block| self.model.zones[block.zone().index()].0 <= request.zone);
                assert_eq!(matches!(error, AllocError::Isolated { .. }), isolated);
            }
        }
        result.is_ok()
    }

    fn drain(&mut self) {
        for cache in &mut self.caches {
            self.a.drain(cache);
        }
    }

    fn free(&mut self, cache: usize, which: usize) {
        let (frame, order) = self.model.give(which);
        self.a.free(&mut self.caches[cache], frame, order);
    }

    fn isolate(&mut self, which: usize) {
        let blocks = [(0, 12), (BASES[2], 12)].map(|(base, blocks)| {
            (0..blocks).map(move |block| Frame::new(base + block * PAGEBLOCK_FRAMES))
        });
        let blocks: Vec<_> = blocks.into_iter().flatten().collect();
        let start = blocks[which % blocks.len()];
        let range = FrameRange::new(start, PAGEBLOCK_FRAMES);
        self.drain();
        let end = BASES[self.model.zone_of(start)]
            + self.model.pages[self.model.zone_of(start)].len() as u64;
        let free = range.end().number() <= end
            && self
                .model
                .pages(range)
                .iter()
                .all(|p| p.managed && !p.held && !p.isolated);
        match self.a.isolate(start) {
            Some(block) => {
                assert!(free, "{start:?} was isolated and is not free");
                assert_eq!(block.range(), range);
                self.model
                    .pages(range)
                    .iter_mut()
                    .for_each(|page| page.isolated = true);
                self.isolated.push(block);
            }
            None => assert!(!free, "{start:?} is free and was not isolated"),
        }
    }

    fn put_back(&mut self, which: usize, reported: bool) {
        if self.isolated.is_empty() {
            return;
        }
        let block = self.isolated.swap_remove(which % self.isolated.len());
        for page in self.model.pages(block.range()) {
            page.isolated = false;
            page.reported |= reported;
        }
        self.a.put_back(
            block,
            if reported {
                PutBack::Reported
            } else {
                PutBack::Unchanged
            },
        );
    }

    fn poll(&mut self, fail: bool) -> bool {
        let order = self.a.reporting_order();
        let mut host = Host {
            model: &mut self.model,
            fail,
            order: order.unwrap_or(Order::BASE),
        };
        let poll = self.reporter.poll(self.now, self.a, &mut host);
        assert!(order.is_some() || poll.requests == 0);
        assert!(fail || poll.error.is_none());
        if let Some(next) = poll.next {
            self.now = next;
        }
        poll.next.is_some()
    }

    fn run(&mut self, event: &Event) {
        match *event {
            Event::Allocate {
                cache,
                order,
                mobility,
                zone,
                reserve,
            } => {
                let order = Order::new(order).expect("an order");
                let request = Request::new(order, mobility).zone(zone).reserve(reserve);
                self.allocate(cache, request);
            }
            Event::AllocateFrames {
                cache,
                mobility,
                count,
            } => {
                let request = Request::new(Order::BASE, mobility);
                for _ in 0..count {
                    if !self.allocate(cache, request) {
                        break;
                    }
                }
            }
            Event::Free { cache, which } => {
                if !self.model.held.is_empty() {
                    self.free(cache, which % self.model.held.len());
                }
            }
            Event::FreeMany { cache, count } => {
                self.model
                    .held
                    .sort_unstable_by_key(|&(frame, _)| std::cmp::Reverse(frame));
                for _ in 0..count.min(self.model.held.len()) {
                    self.free(cache, self.model.held.len() - 1);
                }
            }
            Event::Drain { cache } => {
                self.a.drain(&mut self.caches[cache]);
                assert_eq!(self.caches[cache].held(), 0);
            }
            Event::Isolate { which } => self.isolate(which),
            Event::PutBack { which, reported } => self.put_back(which, reported),
            Event::ReportFrom { order } => {
                self.a
                    .set_reporting_order(order.and_then(Order::new))
                    .expect("an order that can be given back");
            }
            Event::Poll { fail } => _ = self.poll(fail),
        }
    }

    fn check(&mut self) {
        self.drain();
        self.a.validate().expect("valid");
        for zone in self.a.zone_ids() {
            let free = self.model.free_frames(zone.index());
            assert_eq!(self.a.zone_stats(zone).free_frames, free);
            assert_eq!(self.a.free_areas(zone).frames(), free);
        }
    }

    fn finish(&mut self) {
        while !self.model.held.is_empty() {
            self.free(0, self.model.held.len() - 1);
        }
        while !self.isolated.is_empty() {
            self.put_back(0, false);
        }
        self.check();
        self.a
            .set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        for zone in self.a.zone_ids() {
            self.a
                .set_watermarks(zone, ebb_mm::Watermarks::default())
                .expect("rising marks");
        }
        for _ in 0..100 {
            if !self.poll(false) {
                break;
            }
        }
        self.check();
        assert_eq!(
            self.a.stats().unreported_free_frames,
            0,
            "all is reported in the end"
        );
    }
}

proptest! {
    #[test]
    fn the_allocator_does_as_the_model_says(events in prop::collection::vec(event(), 1..EVENTS)) {
        // The first two zones share a tree and a GiB.
        let zones = [
            (ZoneKind::Dma, vec![range(0, 160), range(256, 2 * 512 + 77)]),
            (ZoneKind::Dma32, vec![range(BASES[1] + 20, 3 * 512 + 77), range(3700, 100)]),
            (ZoneKind::Normal, vec![range(BASES[2] + 100, 5 * 512)]),
        ];
        let model = Model::new(zones.clone());
        let zones = zones.each_ref().map(|(kind, ranges)| ZoneConfig { kind: *kind, node: 0, ranges });
        with(&Config::new(&zones).with_frame_marks(), &(), |a| {
            for (kind, ratio) in ZoneKind::ALL.into_iter().zip(RATIOS) {
                a.set_lowmem_reserve_ratio(kind, ratio);
            }
            let mut replay = Replay {
                a,
                model,
                caches: [(); CACHES].map(|()| ManuallyDrop::new(CpuCache::new())),
                isolated: Vec::new(),
                reporter: Reporter::new(),
                now: Duration::ZERO,
            };
            for (step, event) in events.iter().enumerate() {
                replay.run(event);
                if step % 16 == 0 {
                    replay.check();
                }
            }
            replay.check();
            replay.finish();
        });
    }
}
