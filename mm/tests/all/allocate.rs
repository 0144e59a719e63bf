//! Tests of the allocator by example.

use crate::arena::{
    MIB, ZONE, in_small_memory, one, order, range, validate_after, with, with_gibs, words,
};
use ebb_mm::{
    AllocError, ClaimError, Config, CpuCache, Frame, Mobility, Order, PutBack, Request, Reserve,
    ZoneConfig, ZoneId, ZoneKind,
};

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
        let mut cache = CpuCache::new();
        let request = Request::new(Order::BASE, Mobility::Movable).reserve(Reserve::Use);
        let mut seen = std::collections::HashSet::new();
        loop {
            match a.allocate(&mut cache, request) {
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
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        a.validate().expect("valid when all is freed");
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(a.free_areas(ZONE).frames(), total);
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
        let mut cache = CpuCache::new();
        let mut used = vec![false; 1 << 16];
        let mut held = Vec::new();
        for round in 0..40u8 {
            let order = order(round % 11);
            let mobility = Mobility::ALL[usize::from(round % 3)];
            let frame = a
                .allocate(&mut cache, Request::new(order, mobility))
                .expect("memory");
            assert!(frame.is_aligned(order), "{frame:?} of {order:?}");
            for number in frame.number()..frame.offset(order.frames()).number() {
                let used = &mut used[usize::try_from(number).expect("small")];
                assert!(!std::mem::replace(used, true), "frame {number:#x} twice");
            }
            held.push((frame, order));
        }
        for (frame, order) in held {
            a.free(&mut cache, frame, order);
        }
        a.drain(&mut cache);
        a.validate().expect("valid");
        assert_eq!(a.free_blocks(ZONE, Order::MAX, None), 256 / 4);
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
        let mut cache = CpuCache::new();
        let request = Request::new(Order::BASE, Mobility::Movable);
        let mut held = Vec::new();
        while let Ok(frame) = a.allocate(&mut cache, request) {
            held.push(frame);
        }
        assert!(high[0].contains(held[0]), "the highest zone comes first");
        let min = a.watermarks(ZONE).min + a.watermarks(ZoneId::new(1)).min;
        assert!(min > 0);
        let left = 128 * MIB - held.len() as u64;
        assert!(
            (min..min + 64).contains(&left),
            "{left} frames are left, {min} are to be kept"
        );
        let last = request.reserve(Reserve::Use).zone(ZoneKind::Dma32);
        let frame = a.allocate(&mut cache, last).expect("the reserve");
        assert!(low[0].contains(frame));
        held.push(frame);
        for frame in held {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
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
        let mut cache = CpuCache::new();
        for frame in 0..1500 {
            a.free(&mut cache, Frame::new(300 + frame), Order::BASE);
        }
        a.drain(&mut cache);
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
        let mut cache = CpuCache::new();
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
        assert_eq!(a.allocate(&mut cache, request), Err(error));
        a.validate().expect("valid");
        let one = isolated.remove(7);
        let start = one.range().start;
        a.put_back(one, PutBack::Unchanged);
        let whole = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Use);
        assert_eq!(a.allocate(&mut cache, whole), Ok(start));
        a.free(&mut cache, start, Order::PAGEBLOCK);
        for block in isolated {
            a.put_back(block, PutBack::Reported);
        }
        a.drain(&mut cache);
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
        let mut cache = CpuCache::new();
        let mut held = Vec::new();
        let mut owner = std::collections::HashMap::new();
        for round in 0..3000usize {
            let mobility = Mobility::ALL[round % 3];
            let frame = a
                .allocate(&mut cache, Request::new(Order::BASE, mobility))
                .expect("memory");
            let of = *owner.entry(frame.number() / 512).or_insert(mobility);
            assert_eq!(of, mobility, "{frame:?}");
            held.push(frame);
        }
        for frame in held {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        a.validate().expect("valid");
    });
}

/// Returns the number of metadata pages that are not zero after `run`, in a guest of `gib` GiB.
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
            let mut cache = std::mem::ManuallyDrop::new(CpuCache::new());
            for _ in 0..10_000 {
                for mobility in Mobility::ALL {
                    a.allocate(&mut cache, Request::new(Order::BASE, mobility))
                        .expect("memory");
                }
            }
        });
        // Movable and unmovable frames are in different pages.
        assert!(
            pages <= 10,
            "{pages} pages at {gib} GiB with 117 MiB in use"
        );
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

#[test]
fn a_cache_hands_the_block_out_again_that_it_freed_whole() {
    in_small_memory(|a, cache| {
        let frame = one(a, cache, Order::PAGEBLOCK);
        a.free(cache, frame, Order::PAGEBLOCK);
        assert_eq!(cache.held(), 512);
        assert!(a.isolate(frame).is_none(), "to others it is in use");
        assert_eq!(one(a, cache, Order::PAGEBLOCK), frame);
        assert_eq!(cache.held(), 0);
        a.free(cache, frame, Order::PAGEBLOCK);
        a.drain(cache);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, 64 * MIB);
        assert_eq!(a.stats().unreported_free_frames, 512);
        // A reporter that waits for a block is called at once.
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let other = one(a, cache, Order::PAGEBLOCK);
        a.free(cache, other, Order::PAGEBLOCK);
        assert_eq!(cache.held(), 512, "a pass is due anyway");
        // A request of another mobility, or for the last frame, gets the block all the same.
        let mut held: Vec<_> = (0..31 * 512).map(|_| one(a, cache, Order::BASE)).collect();
        let last = Request::new(Order::PAGEBLOCK, Mobility::Unmovable).reserve(Reserve::Use);
        held.push(a.allocate(cache, last).expect("it was drained"));
        assert_eq!(held.pop(), Some(other));
        a.free(cache, other, Order::PAGEBLOCK);
        for frame in held {
            a.free(cache, frame, Order::BASE);
        }
        a.drain(cache);
        a.validate().expect("valid");
    });
}

#[test]
fn an_order_that_no_block_can_serve_is_refused_until_one_can() {
    with_gibs(|a, cache| {
        let held: Vec<_> = std::iter::from_fn(|| {
            let request = Request::new(Order::BASE, Mobility::Movable);
            a.allocate(cache, request).ok()
        })
        .collect();
        for frame in held.iter().filter(|frame| frame.number() % 2 == 0) {
            a.free(cache, *frame, Order::BASE);
        }
        validate_after(a, cache);
        for of in 1..=9 {
            let request = Request::new(order(of), Mobility::Movable);
            assert!(a.allocate(cache, request).is_err(), "order {of}");
            validate_after(a, cache);
        }
        // One run of eight frames in the middle is found, by its order and those below.
        let middle = held[held.len() / 2].number() / 8 * 8;
        for frame in (middle..middle + 8).filter(|frame| frame % 2 == 1) {
            a.free(cache, Frame::new(frame), Order::BASE);
        }
        validate_after(a, cache);
        for of in [1, 2, 3] {
            let frame = one(a, cache, order(of));
            assert!(range(middle, 8).contains(frame));
            a.free(cache, frame, order(of));
        }
        for frame in held.iter().filter(|frame| frame.number() % 2 == 1) {
            if !range(middle, 8).contains(*frame) {
                a.free(cache, *frame, Order::BASE);
            }
        }
        validate_after(a, cache);
    });
}
