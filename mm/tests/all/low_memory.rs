//! Tests that `Events::low_memory` is called once for each time that a zone runs low.

use std::{
    mem::ManuallyDrop,
    sync::atomic::{AtomicU64, Ordering},
};

use ebb_mm::{
    Allocator, Config, CpuCache, Events, Frame, Mobility, Order, Request, Reserve, Watermarks,
    ZoneConfig, ZoneId, ZoneKind,
};
use proptest::prelude::*;

use crate::arena::{MIB, ZONE, order, range, with};

/// Counts the calls for each of two zones.
#[derive(Default)]
struct Calls([AtomicU64; 2]);

impl Calls {
    fn of(&self, zone: usize) -> u64 {
        self.0[zone].load(Ordering::Relaxed)
    }
}

impl Events for Calls {
    fn report_requested(&self) {}
    fn low_memory(&self, zone: ZoneId) {
        self.0[zone.index()].fetch_add(1, Ordering::Relaxed);
    }
}

const MARKS: Watermarks = Watermarks {
    min: 1000,
    low: 2000,
    high: 3000,
};

/// Calls `test` with one zone of 64 MiB below 4 GiB and one above, both with the same watermarks.
fn two_zones(test: impl FnOnce(&Allocator<'_>, &Calls)) {
    let (below, above) = ([range(0, 64 * MIB)], [range(1 << 20, 64 * MIB)]);
    let zones = [(ZoneKind::Dma32, &below), (ZoneKind::Normal, &above)];
    let zones = zones.map(|(kind, ranges)| ZoneConfig {
        kind,
        node: 0,
        ranges,
    });
    let calls = Calls::default();
    with(&Config::new(&zones), &calls, |a| {
        for zone in a.zone_ids() {
            a.set_watermarks(zone, MARKS).expect("rising marks");
        }
        test(a, &calls);
    });
}

/// Returns requests for blocks that no cache keeps, so that the zone's count matches the model.
fn single(of: Order) -> Request {
    Request::new(of, Mobility::Movable)
        .zone(ZoneKind::Dma32)
        .reserve(Reserve::Use)
}

#[derive(Clone, Debug)]
enum Step {
    Take(u8),
    Give(usize),
    Marks(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..=10u8).prop_map(Step::Take),
        7 => any::<usize>().prop_map(Step::Give),
        1 => (0..4000u64).prop_map(Step::Marks),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_fall_is_told_once(steps in proptest::collection::vec(step(), 1..300)) {
        let mut result = Ok(());
        two_zones(|a, calls| result = follow(a, calls, &steps));
        result?;
    }
}

/// Runs the steps near the watermarks, and compares the calls with a model that sees every change
/// at once.
fn follow(a: &Allocator<'_>, calls: &Calls, steps: &[Step]) -> Result<(), TestCaseError> {
    let cache = &mut *ManuallyDrop::new(CpuCache::new());
    let mut held: Vec<(Frame, Order)> = Vec::new();
    let (mut told, mut low, mut marks) = (0, false, MARKS);
    // Most of the zone is in use: the steps change the rest.
    for _ in 0..26 {
        let frame = a.allocate(cache, single(Order::PAGEBLOCK)).expect("memory");
        held.push((frame, Order::PAGEBLOCK));
    }
    for step in steps {
        let mut asked = false;
        match *step {
            Step::Take(of) => {
                asked = true;
                let of = order(of);
                if let Ok(frame) = a.allocate(cache, single(of)) {
                    held.push((frame, of));
                }
            }
            Step::Give(which) if !held.is_empty() => {
                let (frame, of) = held.swap_remove(which % held.len());
                a.free(cache, frame, of);
            }
            Step::Give(_) => {}
            Step::Marks(low) => {
                marks = Watermarks {
                    min: low / 2,
                    low,
                    high: low + 1000,
                };
                a.set_watermarks(ZONE, marks).expect("rising marks");
            }
        }
        a.drain(cache);
        let free = a.zone_stats(ZONE).free_frames;
        if asked && !low && free < marks.low {
            (told, low) = (told + 1, true);
        } else if free >= marks.high {
            low = false;
        }
        prop_assert_eq!(
            calls.of(0),
            told,
            "after {:?} with {} free of {:?}",
            step,
            free,
            marks
        );
    }
    prop_assert_eq!(calls.of(1), 0);
    Ok(())
}

#[test]
fn a_program_that_asks_again_and_again_is_told_of_once() {
    two_zones(|a, calls| {
        let cache = &mut *ManuallyDrop::new(CpuCache::new());
        let any = Request::new(Order::BASE, Mobility::Movable);
        let mut held = Vec::new();
        while let Ok(frame) = a.allocate(cache, any) {
            held.push(frame);
        }
        for _ in 0..100_000 {
            a.allocate(cache, any).expect_err("all is in use");
            let frame = held.pop().expect("memory");
            a.free(cache, frame, Order::BASE);
            held.push(a.allocate(cache, any).expect("memory"));
        }
        assert_eq!((calls.of(0), calls.of(1)), (1, 1));
        // Everything is freed and allocated again: one more call for each zone.
        for frame in held.drain(..) {
            a.free(cache, frame, Order::BASE);
        }
        while let Ok(frame) = a.allocate(cache, any) {
            held.push(frame);
        }
        assert_eq!((calls.of(0), calls.of(1)), (2, 2));
    });
}

#[test]
fn a_request_that_another_zone_can_meet_tells_nothing() {
    two_zones(|a, calls| {
        let cache = &mut *ManuallyDrop::new(CpuCache::new());
        let any = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        for _ in 0..56 {
            a.allocate(cache, any).expect("memory");
        }
        assert_eq!((calls.of(0), calls.of(1)), (0, 0));
        // No block of this order is left above the watermark, but no zone is below it.
        let gib = Request::new(Order::GIB, Mobility::Movable);
        a.allocate(cache, gib).expect_err("no GiB");
        assert_eq!((calls.of(0), calls.of(1)), (0, 0));
    });
}
