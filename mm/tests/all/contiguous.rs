//! Tests of allocations of any number of adjacent frames, against a model with one entry for each
//! frame.

use std::mem::ManuallyDrop;

use crate::arena::{MIB, ZONE, order, range, with};
use ebb_mm::{
    Allocator, Config, ContiguousError, CpuCache, Frame, FrameRange, Mobility, Order, Request,
    Reserve, ZoneConfig, ZoneKind,
};
use proptest::prelude::*;

/// A zone from 0 with two holes, one of them not of whole bitmap words, and a second zone above.
const LOW: [(u64, u64); 3] = [(0, 160), (256, 5000), (6000, 64 * MIB - 6000)];
const HIGH: (u64, u64) = (1 << 20, 20 * MIB + 77);

fn machine(test: impl FnOnce(&Allocator<'_>, &mut CpuCache)) {
    let (low, high) = (
        LOW.map(|(start, frames)| range(start, frames)),
        [range(HIGH.0, HIGH.1)],
    );
    let zones = [(ZoneKind::Dma32, &low[..]), (ZoneKind::Normal, &high[..])];
    let zones = zones.map(|(kind, ranges)| ZoneConfig {
        kind,
        node: 0,
        ranges,
    });
    with(&Config::new(&zones), &(), |a| {
        test(a, &mut ManuallyDrop::new(CpuCache::new()));
    });
}

/// For each zone its first frame, and for each of its frames whether it is free. Frames without
/// memory are in use.
struct Model([(u64, Vec<bool>); 2]);

impl Model {
    fn new() -> Self {
        let mut low = vec![false; 64 * 256];
        for (start, frames) in LOW {
            for frame in start..start + frames {
                low[usize::try_from(frame).expect("small")] = true;
            }
        }
        let high = vec![true; usize::try_from(HIGH.1).expect("small")];
        Self([(0, low), (HIGH.0, high)])
    }

    fn set(&mut self, range: FrameRange, free: bool) {
        for frame in range.start.number()..range.end().number() {
            let of = self.0.iter_mut().rev().find(|(start, _)| *start <= frame);
            let (start, frames) = of.expect("a zone");
            let entry = &mut frames[usize::try_from(frame - *start).expect("small")];
            assert_ne!(*entry, free, "frame {frame:#x} of {range:?}");
            *entry = free;
        }
    }

    /// Returns whether `frames` aligned adjacent frames are free.
    fn has(&self, frames: u64, align: u64, within: Option<FrameRange>, zone: ZoneKind) -> bool {
        let zones = if zone == ZoneKind::Normal { 2 } else { 1 };
        self.0[..zones].iter().any(|(start, free)| {
            let mut run = 0;
            (*start..).zip(free).any(|(frame, &free)| {
                let inside = within.is_none_or(|within| within.contains(Frame::new(frame)));
                let begins = run != 0 || frame.is_multiple_of(align);
                run = if free && inside && begins { run + 1 } else { 0 };
                // A run that begins too early may contain an aligned frame.
                run >= frames
            })
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        frames: u64,
        align: u8,
        within: Option<(u64, u64)>,
        dma: bool,
    },
    One(u8),
    /// Frees a range or a part of it.
    Give {
        which: usize,
        part: Option<(u64, u64)>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let frames = prop_oneof![3 => 1..40u64, 3 => 1..1500u64, 1 => 1500..20000u64];
    let align = prop_oneof![4 => Just(0u8), 1 => 0..=10u8];
    let within = proptest::option::of(prop_oneof![
        Just((0, 16 * MIB)),
        (0..20_000u64, 1..9000u64),
        (0..9000u64, 1..9000u64).prop_map(|(start, frames)| (HIGH.0 + start, frames)),
    ]);
    let take = (frames, align, within, any::<bool>()).prop_map(|(frames, align, within, dma)| {
        Step::Take {
            frames,
            align,
            within,
            dma,
        }
    });
    let part = proptest::option::of((any::<u64>(), any::<u64>()));
    prop_oneof![
        5 => take,
        2 => (0..=9u8).prop_map(Step::One),
        5 => (any::<usize>(), part).prop_map(|(which, part)| Step::Give { which, part }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_adjacent_is_found_and_given_back(steps in proptest::collection::vec(step(), 1..120)) {
        let mut result = Ok(());
        machine(|a, cache| result = follow(a, cache, &steps));
        result?;
    }
}

fn follow(a: &Allocator<'_>, cache: &mut CpuCache, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = Model::new();
    let mut held: Vec<FrameRange> = Vec::new();
    for step in steps {
        match *step {
            Step::Take {
                frames,
                align,
                within,
                dma,
            } => {
                let zone = if dma {
                    ZoneKind::Dma32
                } else {
                    ZoneKind::Normal
                };
                let within = within.map(|(start, frames)| range(start, frames));
                let request = Request::new(order(align), Mobility::Unmovable)
                    .zone(zone)
                    .reserve(Reserve::Use);
                let got = a.allocate_contiguous(cache, frames, within, request);
                let has = model.has(frames, 1 << align, within, zone);
                match got {
                    Ok(range) => {
                        prop_assert_eq!(range.frames, frames);
                        prop_assert!(range.start.is_aligned(order(align)), "{:?}", range);
                        prop_assert!(within.is_none_or(|within| within.contains_range(range)));
                        prop_assert!(!dma || range.start.number() < HIGH.0);
                        model.set(range, false);
                        held.push(range);
                    }
                    Err(error) => {
                        prop_assert_eq!(error, ContiguousError::Exhausted(frames));
                        prop_assert!(!has, "{:?} failed", step);
                    }
                }
            }
            Step::One(of) => {
                let request = Request::new(order(of), Mobility::Movable).reserve(Reserve::Use);
                if let Ok(frame) = a.allocate(cache, request) {
                    let block = FrameRange::new(frame, order(of).frames());
                    model.set(block, false);
                    if of >= 9 {
                        a.split(frame, order(of), Order::BASE);
                    }
                    held.push(block);
                }
            }
            Step::Give { which, part } if !held.is_empty() => {
                let range = held.swap_remove(which % held.len());
                let (mut given, mut left) = (range, None);
                if let Some((start, frames)) = part {
                    let start = start % range.frames;
                    let frames = frames % (range.frames - start) + 1;
                    given = FrameRange::new(range.start.offset(start), frames);
                    left = Some((start, start + frames));
                }
                a.free_range(cache, given);
                model.set(given, true);
                if let Some((before, after)) = left {
                    let rest = [(0, before), (after, range.frames)];
                    let rest = rest.into_iter().filter(|(from, to)| from < to);
                    held.extend(
                        rest.map(|(from, to)| FrameRange::new(range.start.offset(from), to - from)),
                    );
                }
            }
            Step::Give { .. } => {}
        }
    }
    for range in held {
        a.free_range(cache, range);
        model.set(range, true);
    }
    a.drain(cache);
    a.validate().expect("valid");
    let all: u64 = LOW.iter().map(|&(_, frames)| frames).sum::<u64>() + HIGH.1;
    prop_assert_eq!(a.stats().free_frames, all);
    Ok(())
}

#[test]
fn memory_for_isa_dma_is_below_16_mib() {
    machine(|a, cache| {
        let below = Some(range(0, 16 * MIB));
        let request = Request::new(Order::BASE, Mobility::Unmovable).zone(ZoneKind::Dma32);
        // Allocates rings of 48 KiB until there is no space for one.
        let mut taken = 0;
        while let Ok(ring) = a.allocate_contiguous(cache, 12, below, request) {
            assert!(ring.end().address() <= 16 << 20);
            taken += 1;
        }
        // Below the first hole, and from there to 16 MiB.
        assert_eq!(taken, 160 / 12 + (4096 - 256) / 12);
    });
}

#[test]
fn what_cannot_be_is_refused() {
    machine(|a, cache| {
        let request = Request::new(Order::BASE, Mobility::Movable);
        let none = a.allocate_contiguous(cache, 0, None, request);
        assert_eq!(none, Err(ContiguousError::None));
        for frames in [1 << 30, u64::MAX] {
            let refused = Err(ContiguousError::Exhausted(frames));
            assert_eq!(a.allocate_contiguous(cache, frames, None, request), refused);
        }
        let nowhere = Some(range(u64::MAX - 5, u64::MAX));
        let refused = Err(ContiguousError::Exhausted(1));
        assert_eq!(a.allocate_contiguous(cache, 1, nowhere, request), refused);
        // The reserve is kept, and used by requests that may use it.
        let zone = request.zone(ZoneKind::Dma32);
        let min = 1000;
        let marks = ebb_mm::Watermarks {
            min,
            low: min,
            high: min,
        };
        a.set_watermarks(ZONE, marks).expect("rising marks");
        let most = 64 * MIB - 6000;
        a.allocate_contiguous(cache, most - 100, None, zone)
            .expect("memory");
        let free = a.zone_stats(ZONE).free_frames;
        let too_deep = free - min + 1;
        assert!(too_deep < 5000);
        a.allocate_contiguous(cache, too_deep, None, zone)
            .expect_err("a reserve");
        let deep = zone.reserve(Reserve::Use);
        a.allocate_contiguous(cache, too_deep, None, deep)
            .expect("the reserve");
        let block = a.isolate(Frame::new(HIGH.0)).expect("a free block");
        let wanted = 20 * MIB;
        let refused = Err(ContiguousError::Isolated(wanted));
        assert_eq!(a.allocate_contiguous(cache, wanted, None, request), refused);
        a.put_back(block, ebb_mm::PutBack::Unchanged);
        a.allocate_contiguous(cache, wanted, None, request.reserve(Reserve::Use))
            .expect("memory");
    });
}
