//! Tests of the fragmentation estimate from the summaries, against the walk over all bits.

use crate::arena::{ZONE, range, with};
use ebb_mm::{
    Allocator, Config, CpuCache, Frame, Mobility, Order, Request, Reserve, ZoneConfig, ZoneKind,
};
use proptest::prelude::*;

/// The number of frames in 64 MiB.
const TREE: u64 = 1 << 14;

fn memory<R>(trees: u64, test: impl FnOnce(&Allocator<'_>) -> R) -> R {
    // With a hole, so that one block has no memory and one begins with frames in use.
    let ranges = [range(0, 700), range(1024, trees * TREE - 1024)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), test)
}

fn compare(a: &Allocator<'_>) {
    let (exact, estimate) = (a.free_areas(ZONE), a.estimate(ZONE));
    assert_eq!(estimate.frames(), exact.frames());
    assert_eq!(estimate.frames(), a.stats().free_frames);
    for order in Order::all() {
        let usable: u64 = Order::all()
            .filter(|&of| of >= order)
            .map(|of| exact.count(of, None) * of.frames())
            .sum();
        let within = estimate.usable(order);
        assert!(within.contains(&usable), "{order:?}: {usable}, {within:?}");
        let (unusable, within) = (exact.unusable_index(order), estimate.unusable_index(order));
        assert!(
            within.contains(&unusable),
            "{order:?}: {unusable}, {within:?}"
        );
        let index = exact.fragmentation_index(order);
        let within = estimate.fragmentation_index(order);
        assert!(within.contains(&index), "{order:?}: {index}, {within:?}");
        if order == Order::BASE || order == Order::PAGEBLOCK {
            assert_eq!(estimate.usable(order), usable..=usable);
            assert_eq!(estimate.unusable_index(order), unusable..=unusable);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_walk_is_within_the_bounds(
        trees in 1..4u64,
        events in prop::collection::vec((0..11u8, 0..3usize, any::<prop::sample::Index>(), 0..5u8), 1..600),
        most in 0..64usize,
    ) {
        memory(trees, |a| {
            let mut cache = CpuCache::new();
            let mut held: Vec<(Frame, Order)> = Vec::new();
            let events = events.into_iter().enumerate();
            for (number, (order, mobility, index, event)) in events {
                if event < 2 && !held.is_empty() {
                    let (frame, order) = held.swap_remove(index.index(held.len()));
                    a.free(&mut cache, frame, order);
                } else {
                    let order = Order::new(order).expect("an order");
                    let request = Request::new(order, Mobility::ALL[mobility])
                        .reserve(Reserve::Use);
                    // Many small blocks, so that pageblocks fill up.
                    for _ in 0..=(most >> order.get()) {
                        held.extend(a.allocate(&mut cache, request).map(|frame| (frame, order)));
                    }
                }
                if number % 50 == 0 {
                    a.drain(&mut cache);
                    compare(a);
                }
            }
            a.drain(&mut cache);
            compare(a);
            for (frame, order) in held {
                a.free(&mut cache, frame, order);
            }
            a.drain(&mut cache);
            a.validate().expect("valid");
            compare(a);
        });
    }
}

#[test]
fn memory_that_is_full_or_a_sieve_has_exact_figures() {
    memory(1, |a| {
        let mut cache = CpuCache::new();
        let request = Request::new(Order::BASE, Mobility::Movable).reserve(Reserve::Use);
        let mut frames = Vec::new();
        while let Ok(frame) = a.allocate(&mut cache, request) {
            frames.push(frame);
        }
        a.drain(&mut cache);
        compare(a);
        assert_eq!(
            a.estimate(ZONE).fragmentation_index(Order::PAGEBLOCK),
            0..=0
        );
        // Every second frame is free: no two free frames are adjacent.
        frames.sort_unstable();
        let (odd, even): (Vec<_>, Vec<_>) = frames.iter().partition(|f| f.number() % 2 == 1);
        for &frame in &odd {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        compare(a);
        let estimate = a.estimate(ZONE);
        assert_eq!(estimate.unusable_index(Order::PAGEBLOCK), 1000..=1000);
        // Enough single frames are free: the request fails only because of fragmentation.
        let index = estimate.fragmentation_index(Order::PAGEBLOCK);
        assert!(*index.start() > 900, "{index:?}");
        for frame in even {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        compare(a);
    });
}
