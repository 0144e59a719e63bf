//! Tests of whole GiB regions, split blocks and offline memory.

use crate::arena::{MIB, ZONE, one, order, range, validate_after, with_gibs};
use ebb_mm::{Frame, Mobility, OnlineError, Order, PutBack, Request};

const GIB: u64 = 1024 * MIB;

#[test]
fn a_gib_is_taken_whole_and_given_back() {
    with_gibs(|a, cache| {
        let total = a.stats().managed_frames;
        let mut held: Vec<_> = (0..3).map(|_| one(a, cache, Order::GIB)).collect();
        for (number, frame) in held.iter().enumerate() {
            assert_eq!(frame.number(), (1 << 20) + GIB * (number as u64 + 1));
        }
        let request = Request::new(Order::GIB, Mobility::Movable);
        assert!(
            a.allocate(cache, request).is_err(),
            "the first lacks a tree"
        );
        assert!(a.isolate(held[1]).is_none(), "it is in use");
        a.drain(cache);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, total - 3 * GIB);
        assert_eq!(a.zone_stats(ZONE).blocks_of[1], 3 * 512);
        assert_eq!(a.zone_stats(ZONE).free_blocks, 15 * 32);
        assert_eq!(a.free_areas(ZONE).frames(), total - 3 * GIB);
        // The rest is allocated, without a frame of the three.
        let mut rest = Vec::new();
        while let Ok(frame) = a.allocate(cache, Request::new(Order::PAGEBLOCK, Mobility::Movable)) {
            assert!(
                held.iter()
                    .all(|&gib| !ebb_mm::FrameRange::new(gib, GIB).contains(frame))
            );
            rest.push(frame);
        }
        assert_eq!(rest.len(), 15 * 32);
        a.free(cache, held.remove(1), Order::GIB);
        assert_eq!(a.stats().unreported_free_frames, GIB);
        assert_eq!(a.zone_stats(ZONE).free_blocks, 512);
        rest.push(one(a, cache, Order::PAGEBLOCK));
        rest.push(one(a, cache, Order::BASE));
        validate_after(a, cache);
        a.free(cache, rest.pop().expect("a frame"), Order::BASE);
        for frame in rest {
            a.free(cache, frame, Order::PAGEBLOCK);
        }
        for frame in held {
            a.free(cache, frame, Order::GIB);
        }
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(a.stats().unreported_free_frames, total);
        assert_eq!(one(a, cache, Order::GIB).number(), (1 << 20) + GIB);
    });
}

#[test]
fn a_gib_in_use_in_part_is_not_taken_whole() {
    with_gibs(|a, cache| {
        let request = Request::new(Order::GIB, Mobility::Movable);
        let gibs: Vec<_> = (0..3).map(|_| one(a, cache, Order::GIB)).collect();
        a.free(cache, gibs[2], Order::GIB);
        a.claim(range(gibs[2].number() + 77, 1)).expect("free");
        assert!(a.allocate(cache, request).is_err());
        a.free(cache, gibs[2].offset(77), Order::BASE);
        a.drain(cache);
        assert_eq!(a.allocate(cache, request), Ok(gibs[2]));
        for gib in gibs {
            a.free(cache, gib, Order::GIB);
        }
        validate_after(a, cache);
    });
}

#[test]
fn a_block_is_split_and_freed_in_parts() {
    with_gibs(|a, cache| {
        a.set_reporting_order(Some(order(3)))
            .expect("an order that can be given back");
        let total = a.stats().free_frames;
        let gib = one(a, cache, Order::GIB);
        a.split(gib, Order::GIB, Order::PAGEBLOCK);
        validate_after(a, cache);
        let block = |number: u64| gib.offset(number * 512);
        a.split(block(1), Order::PAGEBLOCK, Order::BASE);
        a.split(block(2), Order::MAX, order(4));
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total - GIB);
        for frame in 0..512 {
            a.free(cache, block(1).offset(frame), Order::BASE);
        }
        for run in 0..64 {
            a.free(cache, block(2).offset(run * 16), order(4));
        }
        for number in (0..512).filter(|number| !(1..4).contains(number)) {
            a.free(cache, block(number), Order::PAGEBLOCK);
        }
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(one(a, cache, Order::GIB), gib);
        a.split(gib, Order::GIB, Order::BASE);
        for frame in 0..GIB {
            a.free(cache, gib.offset(frame), Order::BASE);
        }
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total);
    });
}

#[test]
fn memory_goes_offline_and_comes_back() {
    with_gibs(|a, cache| {
        let total = a.stats().managed_frames;
        // Unmovable frames are in the lowest GiB.
        let request = Request::new(Order::BASE, Mobility::Unmovable);
        let low = |_| a.allocate(cache, request).expect("memory");
        let held: Vec<_> = (0..600).map(low).collect();
        let first = held[0].number() / 512 * 512;
        let all = range((1 << 20) + 64 * MIB, 4032 * MIB);
        let error = a.offline(cache, all).expect_err("in use");
        let OnlineError::InUse(used) = error else {
            panic!("{error}")
        };
        assert!(
            used.contains(held[0]) && used.start.number() >= first,
            "{error}"
        );
        validate_after(a, cache);
        let high = range((1 << 20) + 2 * GIB + 512, 2 * GIB - 512);
        a.offline(cache, high).expect("free");
        validate_after(a, cache);
        assert_eq!(a.stats().managed_frames, total - high.frames);
        assert_eq!(a.stats().free_frames, total - high.frames - 600);
        assert_eq!(
            a.offline(cache, range(high.start.number(), 512)),
            Err(OnlineError::Offline(range(high.start.number(), 512)))
        );
        assert!(matches!(
            a.online(all, PutBack::Unchanged),
            Err(OnlineError::Online(_))
        ));
        assert!(matches!(
            a.online(range(7, 512), PutBack::Unchanged),
            Err(OnlineError::Misaligned(_))
        ));
        assert!(matches!(
            a.offline(cache, range(0, 512)),
            Err(OnlineError::NotManaged(_))
        ));
        let mut rest = Vec::new();
        while let Ok(frame) = a.allocate(cache, Request::new(Order::PAGEBLOCK, Mobility::Movable)) {
            assert!(!high.contains(frame), "{frame:?} is offline");
            rest.push(frame);
        }
        a.online(high, PutBack::Reported).expect("offline");
        validate_after(a, cache);
        assert_eq!(a.stats().managed_frames, total);
        let gib = one(a, cache, Order::GIB);
        assert!(high.contains(gib));
        a.free(cache, gib, Order::GIB);
        for frame in rest {
            a.free(cache, frame, Order::PAGEBLOCK);
        }
        for frame in held {
            a.free(cache, frame, Order::BASE);
        }
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total);
    });
}

#[test]
fn memory_comes_online_in_parts() {
    with_gibs(|a, cache| {
        let total = a.stats().managed_frames;
        let away = range((1 << 20) + 2 * GIB, 1024);
        a.offline(cache, away).expect("free");
        let part = range(away.start.number() + 8, 16);
        a.admit(part).expect("offline");
        validate_after(a, cache);
        assert_eq!(a.stats().managed_frames, total - 1024 + 16);
        assert_eq!(a.stats().free_frames, total - 1024, "they are the caller's");
        for frame in 8..24 {
            a.free(cache, away.start.offset(frame), Order::BASE);
        }
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total - 1024 + 16);
        // The frames that the call left out, and the other pageblock.
        a.admit(range(away.start.number(), 8)).expect("left out");
        a.admit(range(away.start.number() + 24, 1000))
            .expect("left out");
        assert_eq!(a.stats().managed_frames, total);
        for frame in (0..8).chain(24..1024) {
            a.free(cache, away.start.offset(frame), Order::BASE);
        }
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total);
        let request = Request::new(Order::GIB, Mobility::Movable);
        let whole: Vec<_> = core::iter::from_fn(|| a.allocate(cache, request).ok()).collect();
        let around = |gib: &Frame| range(gib.number(), GIB).contains(away.start);
        assert!(whole.iter().any(around), "the GiB is whole again");
        assert!(matches!(
            a.admit(range(0, 8)),
            Err(OnlineError::NotManaged(_))
        ));
    });
}
