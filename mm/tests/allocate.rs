//! The allocator by example.
#![cfg(not(loom))]

mod arena;

use std::mem::ManuallyDrop;

use arena::{range, with, words};
use ebb_mm::{
    AllocError, ClaimError, Config, Frame, Front, Mobility, OnlineError, Order, PutBack, Request,
    Reserve, ZoneConfig, ZoneKind,
};

/// Frames of a MiB.
const MIB: u64 = 256;

fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

#[test]
fn every_frame_is_handed_out_once_and_comes_back() {
    let ranges = [range(0, 160), range(MIB, 127 * MIB + 77)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        a.validate().expect("valid when new");
        let total = a.stats().managed_frames;
        assert_eq!(total, 160 + 127 * MIB + 77);
        assert_eq!(a.stats().free_frames, total);
        let mut front = Front::new();
        let request = Request::new(Order::BASE, Mobility::Movable).reserve(Reserve::Use);
        let mut seen = std::collections::HashSet::new();
        loop {
            match a.allocate(&mut front, request) {
                Ok(frame) => {
                    assert!(
                        ranges.iter().any(|range| range.contains(frame)),
                        "{frame:?}"
                    );
                    assert!(seen.insert(frame), "{frame:?} was handed out twice");
                }
                Err(error) => {
                    let zone = ZoneKind::Normal;
                    assert_eq!(
                        error,
                        AllocError::Exhausted {
                            order: Order::BASE,
                            zone
                        }
                    );
                    break;
                }
            }
        }
        assert_eq!(seen.len() as u64, total);
        for frame in seen {
            a.free(&mut front, frame, Order::BASE);
        }
        a.drain(&mut front);
        a.validate().expect("valid when all is freed");
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(a.free_areas(0).frames(), total);
    });
}

#[test]
fn each_order_is_aligned_and_apart() {
    let ranges = [range(0, 256 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let mut front = Front::new();
        let mut used = vec![false; 1 << 16];
        let mut held = Vec::new();
        for round in 0..40u8 {
            let order = order(round % 11);
            let mobility = Mobility::ALL[usize::from(round % 3)];
            let frame = a
                .allocate(&mut front, Request::new(order, mobility))
                .expect("memory");
            assert!(frame.is_aligned(order), "{frame:?} of {order:?}");
            for number in frame.number()..frame.offset(order.frames()).number() {
                let used = &mut used[usize::try_from(number).expect("small")];
                assert!(!std::mem::replace(used, true), "frame {number:#x} twice");
            }
            held.push((frame, order));
        }
        for (frame, order) in held {
            a.free(&mut front, frame, order);
        }
        a.drain(&mut front);
        a.validate().expect("valid");
        assert_eq!(a.free_blocks(0, Order::MAX, None), 256 / 4);
    });
}

#[test]
fn zones_fall_back_and_keep_their_reserve() {
    let low = [range(0, 64 * MIB)];
    let high = [range(1 << 20, 64 * MIB)];
    let zones = [
        ZoneConfig {
            kind: ZoneKind::Dma32,
            node: 0,
            ranges: &low,
        },
        ZoneConfig {
            kind: ZoneKind::Normal,
            node: 0,
            ranges: &high,
        },
    ];
    with(&Config::new(&zones), &(), |a| {
        let mut front = Front::new();
        let request = Request::new(Order::BASE, Mobility::Movable);
        let mut held = Vec::new();
        while let Ok(frame) = a.allocate(&mut front, request) {
            held.push(frame);
        }
        assert!(high[0].contains(held[0]), "the highest zone comes first");
        let min = a.watermarks(0).min + a.watermarks(1).min;
        assert!(min > 0);
        let left = 128 * MIB - held.len() as u64;
        assert!(
            (min..min + 64).contains(&left),
            "{left} frames are left, {min} are to be kept"
        );
        let last = request.reserve(Reserve::Use).zone(ZoneKind::Dma32);
        let frame = a.allocate(&mut front, last).expect("the reserve");
        assert!(low[0].contains(frame));
        held.push(frame);
        for frame in held {
            a.free(&mut front, frame, Order::BASE);
        }
        a.drain(&mut front);
        a.validate().expect("valid");
    });
}

#[test]
fn claimed_frames_are_in_use_until_freed() {
    let ranges = [range(0, 64 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let image = range(300, 1500);
        a.claim(image).expect("free");
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, 64 * MIB - 1500);
        assert_eq!(
            a.claim(range(1799, 2)),
            Err(ClaimError::InUse(range(1799, 2)))
        );
        assert_eq!(
            a.claim(range(64 * MIB - 1, 2)),
            Err(ClaimError::NotManaged(range(64 * MIB - 1, 2)))
        );
        a.validate().expect("valid");
        let mut front = Front::new();
        for frame in 0..1500 {
            a.free(&mut front, Frame::new(300 + frame), Order::BASE);
        }
        a.drain(&mut front);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, 64 * MIB);
        assert_eq!(a.stats().unreported_free_frames, 4 * 512);
    });
}

#[test]
fn an_isolated_block_is_not_handed_out() {
    let ranges = [range(0, 64 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let mut front = Front::new();
        let mut isolated: Vec<_> = (0..32)
            .map(|block| a.isolate(Frame::new(block * 512)).expect("free"))
            .collect();
        assert!(a.isolate(Frame::new(0)).is_none());
        let request = Request::new(Order::BASE, Mobility::Movable);
        let zone = ZoneKind::Normal;
        let error = AllocError::Isolated {
            order: Order::BASE,
            zone,
        };
        assert_eq!(a.allocate(&mut front, request), Err(error));
        a.validate().expect("valid");
        let one = isolated.remove(7);
        let start = one.range().start;
        a.put_back(one, PutBack::Unchanged);
        let whole = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Use);
        assert_eq!(a.allocate(&mut front, whole), Ok(start));
        a.free(&mut front, start, Order::PAGEBLOCK);
        for block in isolated {
            a.put_back(block, PutBack::Reported);
        }
        a.drain(&mut front);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, 64 * MIB);
        assert_eq!(a.stats().unreported_free_frames, 512);
    });
}

#[test]
fn mobilities_do_not_share_a_block_while_others_are_free() {
    let ranges = [range(0, 64 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let mut front = Front::new();
        let mut held = Vec::new();
        let mut owner = std::collections::HashMap::new();
        for round in 0..3000usize {
            let mobility = Mobility::ALL[round % 3];
            let frame = a
                .allocate(&mut front, Request::new(Order::BASE, mobility))
                .expect("memory");
            let of = *owner.entry(frame.number() / 512).or_insert(mobility);
            assert_eq!(of, mobility, "{frame:?}");
            held.push(frame);
        }
        for frame in held {
            a.free(&mut front, frame, Order::BASE);
        }
        a.drain(&mut front);
        a.validate().expect("valid");
    });
}

/// Pages of metadata that are not zero after `run`, in a guest of so many GiB.
fn pages_written(gib: u64, run: impl FnOnce(&ebb_mm::Allocator<'_>)) -> usize {
    let low = [range(0, 160), range(MIB, 3071 * MIB)];
    let high = [range(1 << 20, (gib - 3) * 1024 * MIB)];
    let zones = [
        ZoneConfig {
            kind: ZoneKind::Dma32,
            node: 0,
            ranges: &low,
        },
        ZoneConfig {
            kind: ZoneKind::Normal,
            node: 0,
            ranges: &high,
        },
    ];
    let metadata = words(&Config::new(&zones), run);
    let written = |page: &&[std::sync::atomic::AtomicU64]| {
        page.iter()
            .any(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0)
    };
    metadata.chunks(512).filter(written).count()
}

#[test]
fn a_large_guest_starts_in_the_metadata_of_a_small_one() {
    for gib in [4, 64] {
        let pages = pages_written(gib, |_| ());
        assert!(pages <= 4, "{pages} pages at {gib} GiB");
        let pages = pages_written(gib, |a| {
            let mut front = ManuallyDrop::new(Front::new());
            for _ in 0..10_000 {
                for mobility in Mobility::ALL {
                    a.allocate(&mut front, Request::new(Order::BASE, mobility))
                        .expect("memory");
                }
            }
        });
        assert!(pages <= 9, "{pages} pages at {gib} GiB with 117 MiB in use");
    }
}

#[test]
fn metadata_is_small() {
    let ranges = [range(1 << 20, 1024 * 1024 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    let bytes = ebb_mm::metadata_layout(&Config::new(&zones))
        .expect("a layout")
        .size();
    let a_gib = bytes / 1024;
    assert!(a_gib <= 34 * 1024, "{a_gib} bytes a GiB");
    let marked = ebb_mm::metadata_layout(&Config::new(&zones).with_frame_marks());
    let marks = marked.expect("a layout").size() - bytes;
    assert_eq!(marks, 32 * 1024 * 1024, "one bit a frame");
}

fn in_small_memory(test: impl FnOnce(&ebb_mm::Allocator<'_>, &mut Front)) {
    let ranges = [range(0, 64 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    // A front that is dropped while a test panics would end the test in an abort.
    with(&Config::new(&zones), &(), |a| {
        test(a, &mut ManuallyDrop::new(Front::new()))
    });
}

fn one(a: &ebb_mm::Allocator<'_>, front: &mut Front, of: Order) -> Frame {
    a.allocate(front, Request::new(of, Mobility::Movable))
        .expect("memory")
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_freed_twice_in_a_row_is_seen() {
    in_small_memory(|a, front| {
        let frame = one(a, front, Order::BASE);
        a.free(front, frame, Order::BASE);
        a.free(front, frame, Order::BASE);
    });
}

#[test]
#[should_panic(expected = "freed frames that are free")]
fn a_frame_freed_twice_is_seen_when_it_goes_back() {
    in_small_memory(|a, front| {
        let frame = one(a, front, Order::BASE);
        a.free(front, frame, Order::BASE);
        a.drain(front);
        a.free(front, frame, Order::BASE);
        a.drain(front);
    });
}

#[test]
#[should_panic(expected = "freed frames that are free")]
fn a_run_freed_twice_is_seen() {
    in_small_memory(|a, front| {
        let frame = one(a, front, order(8));
        a.free(front, frame, order(8));
        a.drain(front);
        a.free(front, frame, order(8));
        a.drain(front);
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_run_freed_twice_in_a_row_is_seen() {
    in_small_memory(|a, front| {
        let frame = one(a, front, order(3));
        a.free(front, frame, order(3));
        a.free(front, frame, order(3));
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_block_freed_twice_in_a_row_is_seen() {
    in_small_memory(|a, front| {
        let frame = one(a, front, Order::PAGEBLOCK);
        a.free(front, frame, Order::PAGEBLOCK);
        a.free(front, frame, Order::PAGEBLOCK);
    });
}

#[test]
#[should_panic(expected = "not allocated whole")]
fn a_block_freed_twice_is_seen() {
    in_small_memory(|a, front| {
        let frame = one(a, front, Order::PAGEBLOCK);
        a.free(front, frame, Order::PAGEBLOCK);
        a.drain(front);
        a.free(front, frame, Order::PAGEBLOCK);
    });
}

#[test]
fn a_front_hands_the_block_out_again_that_it_freed_whole() {
    in_small_memory(|a, front| {
        let frame = one(a, front, Order::PAGEBLOCK);
        a.free(front, frame, Order::PAGEBLOCK);
        assert_eq!(front.held(), 512);
        assert!(a.isolate(frame).is_none(), "to others it is in use");
        assert_eq!(one(a, front, Order::PAGEBLOCK), frame);
        assert_eq!(front.held(), 0);
        a.free(front, frame, Order::PAGEBLOCK);
        a.drain(front);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, 64 * MIB);
        assert_eq!(a.stats().unreported_free_frames, 512);
        // One that waits for a block to be reported is told at once.
        a.set_reporting_order(Some(Order::PAGEBLOCK));
        let other = one(a, front, Order::PAGEBLOCK);
        a.free(front, other, Order::PAGEBLOCK);
        assert_eq!(front.held(), 512, "a pass is due anyway");
        // A request of another mobility, or for the last frame, is not kept from it.
        let mut held: Vec<_> = (0..31 * 512).map(|_| one(a, front, Order::BASE)).collect();
        let last = Request::new(Order::PAGEBLOCK, Mobility::Unmovable).reserve(Reserve::Use);
        held.push(a.allocate(front, last).expect("it was drained"));
        assert_eq!(held.pop(), Some(other));
        a.free(front, other, Order::PAGEBLOCK);
        for frame in held {
            a.free(front, frame, Order::BASE);
        }
        a.drain(front);
        a.validate().expect("valid");
    });
}

#[test]
#[should_panic(expected = "is not managed")]
fn a_frame_of_nowhere_is_seen() {
    in_small_memory(|a, front| {
        a.free(front, Frame::new(1 << 30), Order::BASE);
        a.drain(front);
    });
}

/// Two GiB whose first half is a tree short of a GiB, then two whole ones.
fn with_giants(test: impl FnOnce(&ebb_mm::Allocator<'_>, &mut Front)) {
    let ranges = [range((1 << 20) + 64 * MIB, 4032 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    let config = Config::new(&zones).with_frame_marks();
    with(&config, &(), |a| {
        a.set_watermarks(0, ebb_mm::Watermarks::default());
        test(a, &mut ManuallyDrop::new(Front::new()))
    });
}

const GIB: u64 = 1024 * MIB;

#[test]
fn a_gib_is_taken_whole_and_given_back() {
    with_giants(|a, front| {
        let total = a.stats().managed_frames;
        let mut held: Vec<_> = (0..3).map(|_| one(a, front, Order::GIANT)).collect();
        for (number, frame) in held.iter().enumerate() {
            assert_eq!(frame.number(), (1 << 20) + GIB * (number as u64 + 1));
        }
        let request = Request::new(Order::GIANT, Mobility::Movable);
        assert!(
            a.allocate(front, request).is_err(),
            "the first lacks a tree"
        );
        assert!(a.isolate(held[1]).is_none(), "it is in use");
        a.drain(front);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, total - 3 * GIB);
        assert_eq!(a.zone_stats(0).blocks_of[1], 3 * 512);
        assert_eq!(a.zone_stats(0).free_blocks, 15 * 32);
        assert_eq!(a.free_areas(0).frames(), total - 3 * GIB);
        // What is left is handed out, and no frame of the three.
        let mut rest = Vec::new();
        while let Ok(frame) = a.allocate(front, Request::new(Order::PAGEBLOCK, Mobility::Movable)) {
            assert!(
                held.iter()
                    .all(|&giant| !ebb_mm::FrameRange::new(giant, GIB).contains(frame))
            );
            rest.push(frame);
        }
        assert_eq!(rest.len(), 15 * 32);
        a.free(front, held.remove(1), Order::GIANT);
        assert_eq!(a.stats().unreported_free_frames, GIB);
        assert_eq!(a.zone_stats(0).free_blocks, 512);
        rest.push(one(a, front, Order::PAGEBLOCK));
        rest.push(one(a, front, Order::BASE));
        a.validate_after(front);
        a.free(front, rest.pop().expect("a frame"), Order::BASE);
        for frame in rest {
            a.free(front, frame, Order::PAGEBLOCK);
        }
        for frame in held {
            a.free(front, frame, Order::GIANT);
        }
        a.validate_after(front);
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(a.stats().unreported_free_frames, total);
        assert_eq!(one(a, front, Order::GIANT).number(), (1 << 20) + GIB);
    });
}

trait ValidateAfter {
    fn validate_after(&self, front: &mut Front);
}

impl ValidateAfter for ebb_mm::Allocator<'_> {
    fn validate_after(&self, front: &mut Front) {
        self.drain(front);
        self.validate().expect("valid");
    }
}

#[test]
fn a_gib_in_use_in_part_is_not_taken_whole() {
    with_giants(|a, front| {
        let request = Request::new(Order::GIANT, Mobility::Movable);
        let giants: Vec<_> = (0..3).map(|_| one(a, front, Order::GIANT)).collect();
        a.free(front, giants[2], Order::GIANT);
        a.claim(range(giants[2].number() + 77, 1)).expect("free");
        assert!(a.allocate(front, request).is_err());
        a.free(front, giants[2].offset(77), Order::BASE);
        a.drain(front);
        assert_eq!(a.allocate(front, request), Ok(giants[2]));
        for giant in giants {
            a.free(front, giant, Order::GIANT);
        }
        a.validate_after(front);
    });
}

#[test]
fn a_block_is_split_and_freed_in_parts() {
    with_giants(|a, front| {
        a.set_reporting_order(Some(order(3)));
        let total = a.stats().free_frames;
        let giant = one(a, front, Order::GIANT);
        a.split(giant, Order::GIANT, Order::PAGEBLOCK);
        a.validate_after(front);
        let block = |number: u64| giant.offset(number * 512);
        a.split(block(1), Order::PAGEBLOCK, Order::BASE);
        a.split(block(2), Order::MAX, order(4));
        a.validate_after(front);
        assert_eq!(a.stats().free_frames, total - GIB);
        for frame in 0..512 {
            a.free(front, block(1).offset(frame), Order::BASE);
        }
        for run in 0..64 {
            a.free(front, block(2).offset(run * 16), order(4));
        }
        for number in (0..512).filter(|number| !(1..4).contains(number)) {
            a.free(front, block(number), Order::PAGEBLOCK);
        }
        a.validate_after(front);
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(one(a, front, Order::GIANT), giant);
        a.split(giant, Order::GIANT, Order::BASE);
        for frame in 0..GIB {
            a.free(front, giant.offset(frame), Order::BASE);
        }
        a.validate_after(front);
        assert_eq!(a.stats().free_frames, total);
    });
}

#[test]
#[should_panic(expected = "not allocated whole")]
fn a_gib_freed_twice_is_seen() {
    with_giants(|a, front| {
        let frame = one(a, front, Order::GIANT);
        a.free(front, frame, Order::GIANT);
        a.free(front, frame, Order::GIANT);
    });
}

#[test]
fn memory_goes_offline_and_comes_back() {
    with_giants(|a, front| {
        let total = a.stats().managed_frames;
        let held: Vec<_> = (0..600).map(|_| one(a, front, Order::BASE)).collect();
        let first = held[0].number() / 512 * 512;
        let all = range((1 << 20) + 64 * MIB, 4032 * MIB);
        let error = a.offline(front, all).expect_err("in use");
        let OnlineError::InUse(used) = error else {
            panic!("{error}")
        };
        assert!(
            used.contains(held[0]) && used.start.number() >= first,
            "{error}"
        );
        a.validate_after(front);
        let high = range((1 << 20) + 2 * GIB + 512, 2 * GIB - 512);
        a.offline(front, high).expect("free");
        a.validate_after(front);
        assert_eq!(a.stats().managed_frames, total - high.frames);
        assert_eq!(a.stats().free_frames, total - high.frames - 600);
        assert_eq!(
            a.offline(front, range(high.start.number(), 512)),
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
            a.offline(front, range(0, 512)),
            Err(OnlineError::NotManaged(_))
        ));
        let mut rest = Vec::new();
        while let Ok(frame) = a.allocate(front, Request::new(Order::PAGEBLOCK, Mobility::Movable)) {
            assert!(!high.contains(frame), "{frame:?} is offline");
            rest.push(frame);
        }
        a.online(high, PutBack::Reported).expect("offline");
        a.validate_after(front);
        assert_eq!(a.stats().managed_frames, total);
        let giant = one(a, front, Order::GIANT);
        assert!(high.contains(giant));
        a.free(front, giant, Order::GIANT);
        for frame in rest {
            a.free(front, frame, Order::PAGEBLOCK);
        }
        for frame in held {
            a.free(front, frame, Order::BASE);
        }
        a.validate_after(front);
        assert_eq!(a.stats().free_frames, total);
    });
}

#[test]
fn an_order_that_no_block_can_serve_is_refused_until_one_can() {
    with_giants(|a, front| {
        let held: Vec<_> = std::iter::from_fn(|| {
            let request = Request::new(Order::BASE, Mobility::Movable);
            a.allocate(front, request).ok()
        })
        .collect();
        for frame in held.iter().filter(|frame| frame.number() % 2 == 0) {
            a.free(front, *frame, Order::BASE);
        }
        a.validate_after(front);
        for of in 1..=9 {
            let request = Request::new(order(of), Mobility::Movable);
            assert!(a.allocate(front, request).is_err(), "order {of}");
            a.validate_after(front);
        }
        // One run of eight in the middle is found, by its order and those below.
        let middle = held[held.len() / 2].number() / 8 * 8;
        for frame in (middle..middle + 8).filter(|frame| frame % 2 == 1) {
            a.free(front, Frame::new(frame), Order::BASE);
        }
        a.validate_after(front);
        for of in [1, 2, 3] {
            let frame = one(a, front, order(of));
            assert!(range(middle, 8).contains(frame));
            a.free(front, frame, order(of));
        }
        for frame in held.iter().filter(|frame| frame.number() % 2 == 1) {
            if !range(middle, 8).contains(*frame) {
                a.free(front, *frame, Order::BASE);
            }
        }
        a.validate_after(front);
    });
}
