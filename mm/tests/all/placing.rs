//! Tests which GiB movable and unmovable memory is taken from.

use crate::arena::{one, range, take, with};
use ebb_mm::{Config, CpuCache, Frame, Mobility, Order, Request, ZoneConfig, ZoneKind};
use proptest::prelude::*;
use std::{collections::BTreeSet, mem::ManuallyDrop};

const GIB: u64 = 1 << 18;

const fn gib_of(frame: Frame) -> u64 {
    frame.number() / GIB
}

fn with_gibs<R>(gibs: u64, test: impl FnOnce(&ebb_mm::Allocator<'_>, &mut CpuCache) -> R) -> R {
    let ranges = [range(0, gibs * GIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    // A panic in the drop of the cache while a test panics would end the test in an abort.
    with(&Config::new(&zones), &(), |a| {
        test(a, &mut ManuallyDrop::new(CpuCache::new()))
    })
}

#[test]
fn what_moves_comes_from_above_and_what_does_not_from_below() {
    with_gibs(4, |a, cache| {
        for order in [
            Order::BASE,
            Order::new(3).expect("an order"),
            Order::PAGEBLOCK,
        ] {
            let of = |mobility| Request::new(order, mobility);
            let mut gib = |mobility| gib_of(a.allocate(cache, of(mobility)).expect("memory"));
            assert_eq!(gib(Mobility::Movable), 3, "{order:?}");
            assert_eq!(gib(Mobility::Unmovable), 0, "{order:?}");
            assert_eq!(gib(Mobility::Reclaimable), 0, "{order:?}");
        }
    });
}

/// If the host has memory for high blocks only, unmovable memory is taken from low ones all the
/// same.
#[test]
fn what_does_not_move_stays_below_though_memory_above_is_touched() {
    with_gibs(3, |a, cache| {
        let blocks = take(a, cache, Order::PAGEBLOCK, 600);
        for block in blocks {
            a.free(cache, block, Order::PAGEBLOCK);
        }
        a.drain(cache);
        for order in [Order::BASE, Order::PAGEBLOCK] {
            let request = Request::new(order, Mobility::Unmovable);
            assert_eq!(gib_of(a.allocate(cache, request).expect("memory")), 0);
        }
        // Movable memory takes a block that the host has memory for, wherever it is.
        assert_eq!(gib_of(one(a, cache, Order::PAGEBLOCK)), 2);
    });
}

/// Memory is full of movable frames, with an unmovable frame for each 64 of them. All but one GiB
/// can be freed as a whole.
#[test]
fn an_index_of_what_moves_lies_in_one_gib() {
    with_gibs(4, |a, cache| {
        let mut gibs = BTreeSet::new();
        for number in 0..4 * GIB * 9 / 10 {
            if number % 64 == 0 {
                let request = Request::new(Order::BASE, Mobility::Unmovable);
                gibs.insert(gib_of(a.allocate(cache, request).expect("memory")));
            }
            one(a, cache, Order::BASE);
        }
        assert_eq!(gibs, BTreeSet::from([0]));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every free frame is found, for any frames in use.
    #[test]
    fn all_is_found(gibs in 1_u64..4, holes in prop::collection::vec(any::<u16>(), 0..40)) {
        with_gibs(gibs, |a, cache| {
            let blocks = gibs * GIB / 512;
            let mut taken = take(a, cache, Order::PAGEBLOCK, blocks);
            let mut freed = 0;
            for hole in holes {
                if !taken.is_empty() {
                    let block = taken.swap_remove(usize::from(hole) % taken.len());
                    a.free(cache, block, Order::PAGEBLOCK);
                    freed += 1;
                }
            }
            a.drain(cache);
            take(a, cache, Order::PAGEBLOCK, freed);
        });
    }
}
