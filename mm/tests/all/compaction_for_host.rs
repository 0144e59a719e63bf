//! Tests of compaction for the host ([`Consolidation`]) with reporter and compactor, in virtual
//! time and at all orders: what is free in small pieces goes back, and no frame is migrated for
//! free memory that is reported where it is.

use std::{mem::ManuallyDrop, time::Duration};

use crate::arena::{ZONE, range, with};
use ebb_mm::{
    Allocator, Compactor, Compacts, Config, Consolidation, CpuCache, Emptied, Frame, FrameRange,
    Mobility, Order, PAGEBLOCK_FRAMES, ReportSink, Reporter, ZoneConfig, ZoneKind,
};
use proptest::prelude::*;

/// The first frame of the memory.
const BASE: u64 = 1 << 20;
/// The time to migrate a frame.
const MOVE: Duration = Duration::from_micros(2);
/// Longer than the rule may wait before it collects a frame: 4 s for each frame that is migrated
/// for another one.
const LONG: Duration = Duration::from_secs(2100);

/// The number of frames that the host took.
struct Host(u64);

impl ReportSink for Host {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        self.0 += ranges.iter().map(|range| range.frames).sum::<u64>();
        Ok(())
    }
}

/// A guest whose frames all move, and its host.
struct Machine<'a, 'm> {
    a: &'a Allocator<'m>,
    cache: ManuallyDrop<CpuCache>,
    order: Order,
    compactor: Compactor,
    rule: Consolidation,
    reporter: Reporter,
    host: Host,
    now: Duration,
    /// The number of frames that were migrated.
    moved: u64,
}

/// Calls `test` with a machine of one pageblock for each item of `blocks`, which has its frames in
/// use. Free blocks of `order` are reported. All memory was in use before, so the host holds all of
/// it.
fn machine(order: Order, blocks: &[Vec<FrameRange>], test: impl FnOnce(&mut Machine<'_, '_>)) {
    let all = range(BASE, blocks.len() as u64 * PAGEBLOCK_FRAMES);
    let ranges = [all];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones).with_frame_marks(), &(), |a| {
        a.set_reporting_order(Some(order)).expect("valid");
        let mut cache = ManuallyDrop::new(CpuCache::new());
        a.allocate_range(&mut cache, all, Mobility::Movable)
            .expect("all is free");
        let mut from = all.start;
        for &used in blocks.iter().flatten() {
            let gap = used.start.number() - from.number();
            a.free_range(&mut cache, FrameRange::new(from, gap));
            from = used.end();
        }
        let gap = all.end().number() - from.number();
        a.free_range(&mut cache, FrameRange::new(from, gap));
        a.drain(&mut cache);
        test(&mut Machine {
            a,
            cache,
            order,
            compactor: Compactor::new(ZONE),
            rule: Consolidation::new(),
            reporter: Reporter::new(),
            host: Host(0),
            now: Duration::from_secs(50),
            moved: 0,
        });
        a.validate().expect("valid");
    });
}

impl Machine<'_, '_> {
    fn scattered(&self) -> u64 {
        self.a.scattered_frames(ZONE, self.order)
    }

    /// Reports all that can be reported, and returns when the reporter sleeps or a pass reported
    /// nothing. Passes go on while a zone at its low watermark keeps a free block.
    fn report(&mut self) {
        let mut fruitless = 0;
        // The first poll may only set the time of the pass.
        while fruitless < 2 {
            let poll = self.reporter.poll(self.now, self.a, &mut self.host);
            let Some(next) = poll.next else { break };
            fruitless = if poll.frames == 0 { fruitless + 1 } else { 0 };
            self.now = self.now.max(next);
        }
    }

    /// Empties the planned pageblock. Returns `false` if it has become fuller since the scan.
    fn empty(&mut self) -> bool {
        let Some(block) = self.compactor.next(self.a) else {
            return false;
        };
        let sources: Vec<_> = self.a.frames_in_use(*block).collect();
        let mut targets = vec![Frame::new(0); sources.len()];
        let found = self
            .compactor
            .targets(self.a, Compacts::Daemon, &mut targets);
        assert_eq!(found, sources.len(), "the plan promised room");
        for &from in &sources {
            self.a.free(&mut self.cache, from, Order::BASE);
        }
        self.a.drain(&mut self.cache);
        self.moved += sources.len() as u64;
        self.now += MOVE * u32::try_from(sources.len()).expect("small");
        let emptied = self
            .compactor
            .finish(self.now, self.a, Compacts::Daemon, block);
        assert_eq!(emptied, Emptied::Whole);
        true
    }

    /// Collects for the host for a long time, in which the guest is idle, and reports between the
    /// steps. Each pageblock that is emptied must gain what its plan says.
    fn collect(&mut self) {
        let end = self.now + LONG;
        while self.now < end {
            self.report();
            let (now, a, order) = (self.now, self.a, self.order);
            let compactor = &mut self.compactor;
            let poll = self
                .rule
                .poll(now, a.scattered_frames(ZONE, order), 100, || {
                    compactor.plan_for_host(now, a, order)
                });
            let mut done = 0;
            while done < poll.blocks {
                let plan = self.compactor.plan_for_host(self.now, a, order);
                let Some(plan) = plan.filter(|&plan| self.rule.pays(self.now, plan)) else {
                    break;
                };
                let before = (self.scattered(), self.moved);
                if !self.empty() {
                    continue;
                }
                assert!(self.moved - before.1 <= plan.frames);
                assert!(self.scattered() + plan.gained.min(512 - plan.frames) <= before.0);
                done += 1;
            }
            self.rule.worked(self.now, self.now - now, done);
            let Some(next) = poll.next else { break };
            self.now = next.max(self.now + Duration::from_millis(1));
        }
        self.report();
    }
}

/// Returns the frames in use of the pageblock with index `block` if every other piece of `1 <<
/// grain` frames is in use, or three of four if `most` is set.
fn pieces(block: u64, grain: u8, most: bool) -> Vec<FrameRange> {
    let piece = 1 << grain;
    let every = if most { 4 } else { 2 };
    let first = BASE + block * PAGEBLOCK_FRAMES;
    (0..PAGEBLOCK_FRAMES / piece)
        .filter(|index| index % every != 0)
        .map(|index| range(first + index * piece, piece))
        .collect()
}

#[test]
fn pieces_that_are_reported_stay_where_they_are_and_smaller_ones_go_back_by_moving() {
    const BLOCKS: u64 = 128;
    for (order, grain) in Order::all().flat_map(|order| (0..=8).map(move |grain| (order, grain))) {
        let blocks: Vec<_> = (0..BLOCKS)
            .map(|block| pieces(block, grain, false))
            .collect();
        machine(order, &blocks, |m| {
            let free = m.a.stats().free_frames;
            assert_eq!(free, BLOCKS * PAGEBLOCK_FRAMES / 2);
            m.collect();
            let what = format!("order {}, pieces of {}", order.get(), 1 << grain);
            if order.get() <= grain {
                assert_eq!((m.moved, m.host.0), (0, free), "{what}");
                return;
            }
            assert!(m.scattered() < PAGEBLOCK_FRAMES, "{what}");
            assert!(m.moved != 0 && m.moved <= free, "{what}: {}", m.moved);
            let gone = m.host.0;
            assert!(gone * 100 >= free * 95, "{what}: {gone} of {free} frames");
        });
    }
}

#[test]
fn what_is_free_in_pieces_goes_back_in_seconds() {
    const BLOCKS: u64 = 256;
    let first = |block: u64| range(BASE + block * PAGEBLOCK_FRAMES, 128);
    let blocks: Vec<_> = (0..BLOCKS).map(|block| vec![first(block)]).collect();
    machine(Order::PAGEBLOCK, &blocks, |m| {
        let (start, free) = (m.now, m.a.stats().free_frames);
        m.collect();
        assert!(m.scattered() < PAGEBLOCK_FRAMES);
        assert!(m.host.0 * 100 >= free * 95, "{} of {free}", m.host.0);
        assert!(m.moved <= m.host.0 / 2, "{} for {}", m.moved, m.host.0);
        assert!(m.now - start < Duration::from_secs(15), "and it sleeps");
        assert_eq!(free, (BLOCKS * 3 / 4) * PAGEBLOCK_FRAMES);
    });
}

#[test]
fn the_pageblock_that_gains_most_for_its_copies_goes_first() {
    // At order 3 the pieces of 8 frames are with the host, the single frames are not.
    let blocks: Vec<_> = (0..64)
        .map(|block| pieces(block, if block % 2 == 0 { 3 } else { 0 }, block % 2 != 0))
        .collect();
    machine(Order::new(3).expect("valid"), &blocks, |m| {
        m.report();
        assert_eq!(m.host.0, 32 * 256);
        assert_eq!(m.scattered(), 32 * 128);
        let plan = m.compactor.plan_for_host(m.now, m.a, m.order);
        let plan = plan.expect("single frames can be collected");
        assert_eq!((plan.frames, plan.gained), (384, 128));
        m.collect();
        assert!(m.scattered() < PAGEBLOCK_FRAMES);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nothing_moves_for_what_the_host_has_or_gets_anyway(
        kinds in proptest::collection::vec((0_u8..=8, any::<bool>(), 0_u8..4), 8..48),
    ) {
        moves_pay(&kinds);
    }
}

#[test]
fn a_free_pair_that_the_low_watermark_keeps_ends_the_collecting() {
    moves_pay(&[
        (4, true, 2),
        (4, true, 1),
        (4, true, 2),
        (2, true, 3),
        (7, false, 2),
        (0, false, 0),
        (1, true, 1),
        (2, true, 1),
    ]);
}

#[test]
fn a_pageblock_that_the_low_watermark_keeps_is_not_emptied() {
    moves_pay(&[
        (0, false, 2),
        (0, true, 2),
        (0, false, 1),
        (0, false, 1),
        (0, false, 2),
        (0, false, 1),
        (0, false, 1),
        (0, false, 1),
    ]);
}

/// Collects for the host at each order, in a machine with a pageblock for each item of `kinds`: the
/// grain of its pieces, `true` if most are in use, and a number, which is 0 if it is free, 1 if all
/// of it is in use, else it is in pieces. Asserts that frames are migrated only for memory that the
/// host gets by that.
fn moves_pay(kinds: &[(u8, bool, u8)]) {
    let blocks: Vec<_> = kinds
        .iter()
        .zip(0..)
        .map(|(&(grain, most, kind), block)| match kind {
            0 => Vec::new(),
            1 => vec![range(BASE + block * PAGEBLOCK_FRAMES, PAGEBLOCK_FRAMES)],
            _ => pieces(block, grain, most),
        })
        .collect();
    for order in Order::all() {
        machine(order, &blocks, |m| {
            m.report();
            let few = m.scattered() < PAGEBLOCK_FRAMES;
            let reported = m.host.0;
            m.collect();
            if few {
                assert_eq!((m.moved, m.host.0), (0, reported));
            }
            // The frames of a pageblock may go into the other one of its pair. At order 10 the host
            // then gets neither.
            if order <= Order::PAGEBLOCK {
                assert!(m.moved == 0 || m.host.0 > reported);
            }
        });
    }
}
