//! Tests of a zone of the first 16 MiB, for ISA devices, beside the other zones of a PC: the order
//! of allocation, the lowmem reserve, and that everything else works there as in larger zones.

use std::{mem::ManuallyDrop, time::Duration};

use crate::arena::{MIB, order, range, with};
use crate::exercise::Memory;
use ebb_mm::{
    AllocError, Allocator, Compactor, Compacts, Config, ConfigError, CpuCache, DMA_RESERVE_RATIO,
    Emptied, Frame, FrameRange, Mobility, NodePolicy, Order, Reclaimer, ReportSink, Reporter,
    Request, Reserve, StepEnd, ZoneConfig, ZoneId, ZoneKind,
    attach::{Attached, Usage},
    metadata_layout,
};
use proptest::prelude::*;

const GIB: u64 = 1 << 18;
const DMA: ZoneId = ZoneId::FIRST;
/// The number of frames in the lowest zone: 640 KiB, and all above 1 MiB.
const DMA_FRAMES: u64 = 160 + 15 * MIB;
/// The frame after the end of the lowest zone.
const DMA_END: u64 = 16 * MIB;
const ABOVE: u64 = 100 * MIB;

/// Calls `test` with the configuration of a PC with `high` frames from 4 GiB on, and 3 GiB below.
fn pc<R>(high: u64, test: impl FnOnce(&Config<'_>) -> R) -> R {
    let dma = [range(0, 160), range(MIB, 15 * MIB)];
    let dma32 = [range(DMA_END, 3 * GIB - DMA_END)];
    let normal = [range(4 * GIB, high)];
    let zone = |kind, ranges| ZoneConfig {
        kind,
        node: 0,
        ranges,
    };
    let zones = [
        zone(ZoneKind::Dma, &dma),
        zone(ZoneKind::Dma32, &dma32),
        zone(ZoneKind::Normal, &normal),
    ];
    test(&Config::new(&zones).with_frame_marks())
}

/// Calls `test` with a machine of 16 MiB and `above` adjacent frames, whose zones share one tree.
/// The cache is not dropped, as a panic in its `drop` while a test panics would end the test in an
/// abort.
fn small<R>(above: u64, test: impl FnOnce(&Allocator<'_>, &mut CpuCache) -> R) -> R {
    let (dma, dma32) = ([range(0, DMA_END)], [range(DMA_END, above)]);
    let zones = [(ZoneKind::Dma, &dma), (ZoneKind::Dma32, &dma32)];
    let zones = zones.map(|(kind, ranges)| ZoneConfig {
        kind,
        node: 0,
        ranges,
    });
    with(&Config::new(&zones).with_frame_marks(), &(), |a| {
        test(a, &mut ManuallyDrop::new(CpuCache::new()))
    })
}

fn ordinary(order: Order) -> Request {
    Request::new(order, Mobility::Unmovable)
}

fn dma(order: Order) -> Request {
    ordinary(order).zone(ZoneKind::Dma)
}

fn is_dma(frame: Frame) -> bool {
    frame.number() < DMA_END
}

fn take_all(a: &Allocator<'_>, cache: &mut CpuCache, request: Request) -> Vec<Frame> {
    std::iter::from_fn(|| a.allocate(cache, request).ok()).collect()
}

fn free_all(a: &Allocator<'_>, cache: &mut CpuCache, frames: Vec<Frame>, order: Order) {
    for frame in frames {
        a.free(cache, frame, order);
    }
    a.drain(cache);
    a.validate().expect("valid");
}

#[test]
fn the_zones_of_a_pc_are_tried_from_the_top() {
    pc(GIB, |config| {
        with(config, &(), |a| {
            let tried = |highest| a.fallback(0, highest).map(ZoneId::index);
            assert!(tried(ZoneKind::Normal).eq([2, 1, 0]));
            assert!(tried(ZoneKind::Dma32).eq([1, 0]));
            assert!(tried(ZoneKind::Dma).eq([0]));
            let stats = a.zone_stats(DMA);
            assert_eq!(
                (stats.managed_frames, stats.free_frames),
                (DMA_FRAMES, DMA_FRAMES)
            );
            // The block with the hole is not free.
            assert_eq!((stats.blocks, stats.free_blocks), (8, 7));
            let marks = stats.watermarks;
            assert!(0 < marks.min && marks.min < marks.low && marks.low < marks.high);
            assert!(marks.high < DMA_FRAMES / 64, "{marks:?}");
            assert_eq!(DMA_RESERVE_RATIO, 256);
            let dma32 = 3 * GIB - DMA_END;
            assert_eq!(a.lowmem_reserve(DMA, ZoneKind::Dma), 0);
            assert_eq!(a.lowmem_reserve(DMA, ZoneKind::Dma32), dma32 / 256);
            assert_eq!(a.lowmem_reserve(DMA, ZoneKind::Normal), (dma32 + GIB) / 256);
            let above = ZoneId::new(1);
            assert_eq!(a.lowmem_reserve(above, ZoneKind::Normal), 0, "not set");
            a.set_lowmem_reserve_ratio(ZoneKind::Dma32, 32);
            assert_eq!(a.lowmem_reserve(above, ZoneKind::Normal), GIB / 32);
            assert_eq!(a.lowmem_reserve(above, ZoneKind::Dma32), 0);
            a.validate().expect("valid");
        });
    });
}

#[test]
fn gibs_are_those_without_a_part_of_the_zone() {
    pc(GIB, |config| {
        with(config, &(), |a| {
            let mut cache = ManuallyDrop::new(CpuCache::new());
            let gibs = take_all(a, &mut cache, ordinary(Order::GIB).reserve(Reserve::Use));
            let mut starts: Vec<_> = gibs.iter().map(|frame| frame.number() / GIB).collect();
            starts.sort_unstable();
            assert_eq!(starts, [1, 2, 4]);
            free_all(a, &mut cache, gibs, Order::GIB);
        });
    });
}

#[test]
fn zones_meet_at_any_pageblock_and_nowhere_else() {
    let refused = |low: &[FrameRange], high: &[FrameRange]| {
        let zone = |kind, ranges| ZoneConfig {
            kind,
            node: 0,
            ranges,
        };
        let zones = [zone(ZoneKind::Dma, low), zone(ZoneKind::Normal, high)];
        metadata_layout(&Config::new(&zones)).err()
    };
    assert_eq!(refused(&[range(0, 512)], &[range(512, 100)]), None);
    assert_eq!(refused(&[range(512, 100)], &[range(0, 512)]), None);
    let overlap = Some(ConfigError::Overlap(DMA, ZoneId::new(1)));
    assert_eq!(refused(&[range(0, 500)], &[range(500, 100)]), overlap);
    assert_eq!(refused(&[range(0, 513)], &[range(513, 600)]), overlap);
    // In a gap of the other zone: once too small, once large enough.
    assert_eq!(
        refused(
            &[range(512, 512)],
            &[range(0, 512), range(32 * 512, 32 * 512)]
        ),
        overlap
    );
    assert_eq!(
        refused(&[range(512, 512)], &[range(0, 512), range(64 * 512, 512)]),
        None
    );
    let beyond = range(4000, 97);
    assert_eq!(
        refused(&[beyond], &[range(1 << 20, 512)]),
        Some(ConfigError::BeyondLimit(ZoneKind::Dma, beyond))
    );
    let text = ConfigError::BeyondLimit(ZoneKind::Dma, beyond).to_string();
    assert!(
        text.contains("0xfa0") && text.contains("0x1000000"),
        "{text}"
    );
}

/// A device driver allocates and frees while the kernel takes all memory that it can get.
#[test]
fn ordinary_requests_leave_the_reserve_whatever_is_freed_between() {
    for of in 0..=10 {
        small(ABOVE, |a, cache| {
            a.set_lowmem_reserve_ratio(ZoneKind::Dma, 16);
            let kept = a.lowmem_reserve(DMA, ZoneKind::Normal);
            assert_eq!(kept, ABOVE / 16);
            let mut taken = take_all(a, cache, ordinary(Order::BASE));
            let left = a.zone_stats(DMA).free_frames;
            let floor = kept + a.watermarks(DMA).min;
            assert_eq!(left, floor, "of {DMA_END}");
            // The driver allocates a block and frees it. Then ordinary requests ask for it.
            let of = order(of);
            for turn in 0..2000 {
                let block = a.allocate(cache, dma(of)).expect("kept for this");
                assert!(is_dma(block) && block.is_aligned(of));
                a.free(cache, block, of);
                for of in [of, Order::BASE] {
                    if let Ok(frame) = a.allocate(cache, ordinary(of)) {
                        taken.push(frame);
                        assert_eq!(of, Order::BASE, "a block of order {of:?}");
                    }
                }
                if turn % 100 == 99 {
                    a.drain(cache);
                }
            }
            a.drain(cache);
            assert_eq!(a.zone_stats(DMA).free_frames, left, "order {}", of.get());
            // Drivers get the rest except the zone's own reserve. Requests that may use the reserve
            // get all.
            taken.extend(take_all(a, cache, dma(Order::BASE)));
            assert_eq!(a.zone_stats(DMA).free_frames, a.watermarks(DMA).min);
            taken.extend(take_all(a, cache, dma(Order::BASE).reserve(Reserve::Use)));
            assert_eq!(a.zone_stats(DMA).free_frames, 0);
            assert_eq!(
                a.allocate(cache, dma(Order::BASE)),
                Err(AllocError::Exhausted {
                    order: Order::BASE,
                    zone: ZoneKind::Dma
                })
            );
            let last = ordinary(Order::BASE).reserve(Reserve::Use);
            taken.extend(take_all(a, cache, last));
            assert_eq!(taken.len() as u64, DMA_END + ABOVE);
            free_all(a, cache, taken, Order::BASE);
        });
    }
}

#[test]
fn many_caches_at_once_leave_it_too() {
    const CACHES: usize = 32;
    small(ABOVE, |a, _| {
        a.set_lowmem_reserve_ratio(ZoneKind::Dma, 16);
        let floor = a.lowmem_reserve(DMA, ZoneKind::Normal) + a.watermarks(DMA).min;
        let mut caches: Vec<_> = (0..CACHES)
            .map(|_| ManuallyDrop::new(CpuCache::new()))
            .collect();
        let mut taken = Vec::new();
        loop {
            let before = taken.len();
            for cache in &mut caches {
                taken.extend(a.allocate(cache, ordinary(Order::BASE)).ok());
            }
            if taken.len() == before {
                break;
            }
        }
        caches.iter_mut().for_each(|cache| a.drain(cache));
        let left = a.zone_stats(DMA).free_frames;
        // Each cache may have frames that the zone does not know of: a 256th of the zone.
        let unseen = CACHES as u64 * DMA_END / 256;
        assert!(left + unseen >= floor, "{left} of {floor} frames");
        for frame in taken {
            a.free(&mut caches[0], frame, Order::BASE);
        }
        a.drain(&mut caches[0]);
        a.validate().expect("valid");
    });
}

#[test]
fn a_ratio_of_one_is_a_zone_of_its_own() {
    small(ABOVE, |a, cache| {
        a.set_lowmem_reserve_ratio(ZoneKind::Dma, 1);
        let taken = take_all(a, cache, ordinary(Order::BASE));
        assert!(!taken.iter().copied().any(is_dma));
        assert_eq!(a.zone_stats(DMA).free_frames, DMA_END);
        let mut blocks = [Frame::new(0); 8];
        let error = a
            .allocate_bulk(cache, ordinary(Order::PAGEBLOCK), &mut blocks)
            .expect_err("none but there");
        assert_eq!(error.taken, 0);
        a.allocate_contiguous(cache, 16, None, ordinary(Order::BASE))
            .expect_err("none but there");
        let block = a
            .allocate_contiguous(cache, 100, None, dma(Order::BASE))
            .expect("free");
        assert!(block.end().number() <= DMA_END);
        a.free_range(cache, block);
        a.set_lowmem_reserve_ratio(ZoneKind::Dma, 0);
        let rest = take_all(a, cache, ordinary(Order::BASE));
        assert!(rest.len() as u64 > DMA_END * 7 / 8);
        free_all(a, cache, [taken, rest].concat(), Order::BASE);
    });
}

#[test]
fn the_reserve_is_that_of_the_node_and_of_the_memory_that_there_is() {
    let ranges = [
        [range(0, DMA_END)],
        [range(DMA_END, ABOVE)],
        [range(4 * GIB, GIB)],
    ];
    let kinds = [
        (ZoneKind::Dma, 0),
        (ZoneKind::Normal, 0),
        (ZoneKind::Normal, 1),
    ];
    let zones = [0, 1, 2].map(|zone| ZoneConfig {
        kind: kinds[zone].0,
        node: kinds[zone].1,
        ranges: &ranges[zone],
    });
    with(&Config::new(&zones), &(), |a| {
        let mut cache = ManuallyDrop::new(CpuCache::on_node(1));
        let kept = |a: &Allocator<'_>| a.lowmem_reserve(DMA, ZoneKind::Normal);
        assert_eq!(kept(a), ABOVE / 256);
        // A driver's frame is on node 0, from every CPU.
        let frame = a
            .allocate(&mut cache, dma(Order::BASE))
            .expect("of node 0's");
        assert!(is_dma(frame));
        let here = dma(Order::BASE).node(NodePolicy::Only(1));
        a.allocate(&mut cache, here).expect_err("none on node 1");
        a.free(&mut cache, frame, Order::BASE);
        a.offline(&mut cache, range(DMA_END, ABOVE / 2))
            .expect("free");
        a.set_lowmem_reserve_ratio(ZoneKind::Dma, 256);
        assert_eq!(kept(a), ABOVE / 2 / 256);
        a.drain(&mut cache);
        a.validate().expect("valid");
    });
}

/// The ranges that were reported to the host.
#[derive(Default)]
struct Told(Vec<FrameRange>);

impl Told {
    fn frames(&self, wanted: impl Fn(Frame) -> bool) -> u64 {
        let ranges = self.0.iter().filter(|range| wanted(range.start));
        ranges.map(|range| range.frames).sum()
    }
}

impl ReportSink for Told {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        self.0.extend_from_slice(ranges);
        Ok(())
    }
}

/// Allocates and frees all of both zones.
fn touch(a: &Allocator<'_>, cache: &mut CpuCache) {
    let request = ordinary(Order::PAGEBLOCK).reserve(Reserve::Use);
    let blocks = take_all(a, cache, request);
    assert!(blocks.iter().copied().any(is_dma));
    free_all(a, cache, blocks, Order::PAGEBLOCK);
}

#[test]
fn it_is_reported_like_the_others() {
    for of in [3, 9, 10] {
        small(ABOVE, |a, cache| {
            a.set_reporting_order(Some(order(of)))
                .expect("an order that can be given back");
            touch(a, cache);
            let (mut reporter, mut told) = (Reporter::with_delay(Duration::ZERO), Told::default());
            for zone in a.zone_ids() {
                a.set_watermarks(zone, ebb_mm::Watermarks::default())
                    .expect("rising marks");
            }
            let mut now = Duration::ZERO;
            for _ in 0..1000 {
                match reporter.poll(now, a, &mut told).next {
                    Some(next) => now = next,
                    None => break,
                }
            }
            assert_eq!(told.frames(is_dma), DMA_END);
            assert_eq!(told.frames(|frame| !is_dma(frame)), ABOVE);
            assert_eq!(a.stats().unreported_free_frames, 0);
            a.validate().expect("valid");
        });
    }
}

#[test]
fn a_host_takes_free_memory_of_it_and_sees_each_block_once() {
    pc(GIB, |config| {
        let memory = Memory::new(metadata_layout(config).expect("valid").size());
        // SAFETY: zeroed memory of this layout, and longer-lived than both.
        let a = unsafe { Allocator::new(memory.base(), config, &()) }.expect("valid");
        // SAFETY: the same memory, changed by atomics only.
        let attached = unsafe { Attached::new(memory.base(), memory.bytes()) }.expect("metadata");
        let mut starts: Vec<_> = attached.blocks().map(|block| block.start).collect();
        assert_eq!(starts.len() as u64, 4 * GIB / 512);
        assert!(attached.blocks().all(|block| block.usage != Usage::Missing));
        starts.dedup();
        assert_eq!(starts.len() as u64, 4 * GIB / 512);
        let kinds: Vec<_> = attached.zones().map(|zone| zone.kind).collect();
        assert_eq!(kinds, ZoneKind::ALL);

        let mut cache = ManuallyDrop::new(CpuCache::new());
        // Both zones of the first GiB are in use.
        let mut blocks = take_all(&a, &mut cache, dma(Order::PAGEBLOCK));
        let below = ordinary(Order::PAGEBLOCK).zone(ZoneKind::Dma32);
        blocks.extend((0..100).map(|_| a.allocate(&mut cache, below).expect("memory")));
        let used = blocks.len() as u64 * 512;
        assert!(blocks.iter().copied().any(is_dma) && !blocks.iter().copied().all(is_dma));
        free_all(&a, &mut cache, blocks, Order::PAGEBLOCK);
        let (mut reclaimer, mut told) = (Reclaimer::new(), Told::default());
        while reclaimer.step(&attached, u64::MAX, &mut told).end == StepEnd::More {}
        assert_eq!(told.frames(|_| true), used);
        assert_eq!(a.stats().unreported_free_frames, 0);
        // One block of each zone is out, and the host is gone.
        for start in [512, DMA_END] {
            let mut open = attached.open(Frame::new(start)).expect("free");
            open.take(Frame::new(start)).expect("free");
            drop(open);
        }
        assert_eq!(attached.recover(|| ()), 2);
        a.validate().expect("valid");
    });
}

#[test]
fn it_is_compacted_by_itself() {
    small(ABOVE, |a, cache| {
        // Half of each block is in use, and less of the first blocks.
        let mut held = Vec::new();
        for block in 0..8_u64 {
            for frame in 0..40 * (block + 1) {
                let frame = range(block * 512 + frame, 1);
                a.allocate_range(cache, frame, Mobility::Movable)
                    .expect("free");
                held.push(frame.start);
            }
        }
        let mut compactor = Compactor::new(DMA);
        let now = Duration::from_secs(100);
        let plan = compactor
            .plan(now, a, 2, Compacts::Direct)
            .expect("there is room");
        assert_eq!((plan.blocks, plan.frames), (2, 40 + 80));
        let mut whole = 0;
        while let Some(block) = compactor.next(a) {
            let sources: Vec<_> = a.frames_in_use(*block).collect();
            let mut targets = vec![Frame::new(0); sources.len()];
            assert_eq!(
                compactor.targets(a, Compacts::Direct, &mut targets),
                sources.len()
            );
            for (from, &to) in sources.iter().zip(&targets) {
                assert!(is_dma(to), "{to:?} cannot be reached");
                a.free(cache, *from, Order::BASE);
                held.retain(|frame| frame != from);
                held.push(to);
            }
            a.drain(cache);
            whole += u64::from(compactor.finish(now, a, Compacts::Direct, block) == Emptied::Whole);
        }
        assert_eq!((whole, a.zone_stats(DMA).free_blocks), (2, 2));
        assert_eq!(held.len(), 40 * (1..=8).sum::<usize>());
        free_all(a, cache, held, Order::BASE);
    });
}

#[test]
fn blocks_of_it_are_isolated_and_go_offline() {
    small(ABOVE, |a, cache| {
        let last = Frame::new(DMA_END - 512);
        let block = a.isolate(last).expect("free");
        assert_eq!(block.zone(), DMA);
        assert_eq!(a.zone_stats(DMA).isolated_frames, 512);
        assert!(a.isolate(last).is_none());
        a.put_back(block, ebb_mm::PutBack::Unchanged);
        // Across the boundary of the zones.
        let both = range(DMA_END - 512, 1024);
        a.offline(cache, both).expect("free");
        assert_eq!(a.zone_stats(DMA).managed_frames, DMA_END - 512);
        assert_eq!(a.zone_stats(ZoneId::new(1)).managed_frames, ABOVE - 512);
        a.online(both, ebb_mm::PutBack::Reported).expect("offline");
        a.allocate_range(cache, range(DMA_END - 3, 6), Mobility::Unmovable)
            .expect("free");
        a.free_range(cache, range(DMA_END - 3, 6));
        a.claim(range(DMA_END - 3, 6)).expect("free");
        // Behind the last block of both zones, in their tree.
        a.claim(range(DMA_END + ABOVE, 1))
            .expect_err("no zone's memory");
        a.free_range(cache, range(DMA_END - 3, 6));
        a.drain(cache);
        a.validate().expect("valid");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every request gets a block if it may have one: below its limit, above the reserve. It does
    /// not fail while there is such a block.
    #[test]
    fn each_request_gets_what_it_may_have(
        ratio in prop::sample::select(vec![0, 1, 7, 16, 256]),
        steps in prop::collection::vec(
            (0..3usize, 0..=10u8, any::<bool>(), 0..8u8, any::<usize>()), 1..300),
    ) {
        small(ABOVE / 4, |a, cache| {
            a.set_lowmem_reserve_ratio(ZoneKind::Dma, ratio);
            let kept = (ABOVE / 4).checked_div(ratio).unwrap_or(0);
            let mut held: Vec<(Frame, Order)> = Vec::new();
            for (kind, of, reserve, what, which) in steps {
                if what == 0 {
                    a.drain(cache);
                } else if what < 4 && !held.is_empty() {
                    let (frame, of) = held.swap_remove(which % held.len());
                    a.free(cache, frame, of);
                } else {
                    let kind = ZoneKind::ALL[kind];
                    let reserve = if reserve { Reserve::Use } else { Reserve::Keep };
                    let request = Request::new(order(of), Mobility::ALL[which % 3])
                        .zone(kind)
                        .reserve(reserve);
                    match a.allocate(cache, request) {
                        Ok(frame) => {
                            prop_assert!(kind != ZoneKind::Dma || is_dma(frame));
                            held.push((frame, order(of)));
                        }
                        Err(_) => {
                            a.drain(cache);
                            for zone in a.zone_ids() {
                                let may = zone == DMA || kind > ZoneKind::Dma;
                                let kept = if zone == DMA && kind > ZoneKind::Dma { kept } else { 0 };
                                let floor = match reserve {
                                    Reserve::Keep => a.watermarks(zone).min + kept,
                                    Reserve::Use => 0,
                                };
                                let spare = a.zone_stats(zone).free_frames.saturating_sub(floor);
                                let larger = Order::all().filter(|larger| larger.get() >= of);
                                let areas = a.free_areas(zone);
                                let has = larger.map(|of| areas.count(of, None)).sum::<u64>() != 0;
                                prop_assert!(!may || !has || spare < order(of).frames());
                            }
                        }
                    }
                }
            }
            for (frame, of) in held {
                a.free(cache, frame, of);
            }
            a.drain(cache);
            a.validate().expect("valid");
            prop_assert_eq!(a.stats().free_frames, DMA_END + ABOVE / 4);
            Ok(())
        })?;
    }
}
