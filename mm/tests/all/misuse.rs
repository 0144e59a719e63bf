//! Tests that frees of frames that are not in use are noticed.

use std::mem::ManuallyDrop;

use crate::arena::{
    MIB, ZONE, in_small_memory, one, order, range, take, validate_after, with, with_gibs,
};
use ebb_mm::{
    Config, ConfigError, CpuCache, Frame, HINT_ENTRIES, MAX_EXTENTS, Mobility, NotAHintLimit,
    NotWatermarks, Order, OrderError, Request, Watermarks, ZoneConfig, ZoneKind, metadata_layout,
};

/// Calls `test` with an allocator of 64 MiB and a cache that the caller has to drain.
fn with_own_cache(test: impl FnOnce(&ebb_mm::Allocator<'_>, CpuCache)) {
    let ranges = [range(0, 64 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| test(a, CpuCache::new()));
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_panic_with_frames_in_the_cache_does_not_abort() {
    with_own_cache(|a, mut cache| {
        let frame = one(a, &mut cache, Order::BASE);
        a.free(&mut cache, frame, Order::BASE);
        a.free(&mut cache, frame, Order::BASE);
    });
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a per-CPU cache was dropped with")]
fn a_cache_that_is_dropped_with_frames_is_seen() {
    with_own_cache(|a, mut cache| {
        one(a, &mut cache, Order::BASE);
    });
}

#[test]
fn an_exhausted_request_tells_of_the_watermark() {
    in_small_memory(|a, cache| {
        let request = Request::new(Order::BASE, Mobility::Movable);
        let error = loop {
            match a.allocate(cache, request) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        let text = error.to_string();
        assert!(text.contains("above the watermark `min`"), "{text}");
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_freed_twice_in_a_row_is_seen() {
    in_small_memory(|a, cache| {
        let frame = one(a, cache, Order::BASE);
        a.free(cache, frame, Order::BASE);
        a.free(cache, frame, Order::BASE);
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_freed_twice_with_others_between_is_seen() {
    in_small_memory(|a, cache| {
        let [first, second, third] = [(); 3].map(|()| one(a, cache, Order::BASE));
        for frame in [first, second, third, second] {
            a.free(cache, frame, Order::BASE);
        }
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_freed_twice_with_one_of_another_mobility_taken_between_is_seen() {
    in_small_memory(|a, cache| {
        let other = Request::new(Order::BASE, Mobility::Unmovable);
        a.allocate(cache, other).expect("memory");
        let frame = one(a, cache, Order::BASE);
        a.free(cache, frame, Order::BASE);
        a.allocate(cache, other).expect("memory");
        a.free(cache, frame, Order::BASE);
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_freed_twice_with_both_mobilities_taken_between_is_seen() {
    in_small_memory(|a, cache| {
        let other = Request::new(Order::BASE, Mobility::Unmovable);
        a.allocate(cache, other).expect("memory");
        let frame = one(a, cache, Order::BASE);
        a.allocate(cache, other).expect("memory");
        a.free(cache, frame, Order::BASE);
        assert_ne!(one(a, cache, Order::BASE), frame);
        a.free(cache, frame, Order::BASE);
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_that_waits_to_be_handed_out_may_not_be_freed() {
    in_small_memory(|a, cache| {
        let first = one(a, cache, Order::BASE);
        a.free(cache, first.offset(5), Order::BASE);
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_that_is_twice_in_a_bulk_is_seen() {
    in_small_memory(|a, cache| {
        let [first, second] = [(); 2].map(|()| one(a, cache, Order::BASE));
        a.free_bulk(cache, &[first, second, first], Order::BASE);
    });
}

#[test]
#[should_panic(expected = "freed frames that are free")]
fn a_frame_freed_twice_is_seen_when_it_goes_back() {
    in_small_memory(|a, cache| {
        let frame = one(a, cache, Order::BASE);
        a.free(cache, frame, Order::BASE);
        a.drain(cache);
        a.free(cache, frame, Order::BASE);
        a.drain(cache);
    });
}

#[test]
#[should_panic(expected = "freed frames that are free")]
fn a_run_freed_twice_is_seen() {
    in_small_memory(|a, cache| {
        let frame = one(a, cache, order(8));
        a.free(cache, frame, order(8));
        a.drain(cache);
        a.free(cache, frame, order(8));
        a.drain(cache);
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_run_freed_twice_in_a_row_is_seen() {
    in_small_memory(|a, cache| {
        let frame = one(a, cache, order(3));
        a.free(cache, frame, order(3));
        a.free(cache, frame, order(3));
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_block_freed_twice_in_a_row_is_seen() {
    in_small_memory(|a, cache| {
        let frame = one(a, cache, Order::PAGEBLOCK);
        a.free(cache, frame, Order::PAGEBLOCK);
        a.free(cache, frame, Order::PAGEBLOCK);
    });
}

#[test]
#[should_panic(expected = "not allocated whole")]
fn a_block_freed_twice_is_seen() {
    in_small_memory(|a, cache| {
        let frame = one(a, cache, Order::PAGEBLOCK);
        a.free(cache, frame, Order::PAGEBLOCK);
        a.drain(cache);
        a.free(cache, frame, Order::PAGEBLOCK);
    });
}

#[test]
#[should_panic(expected = "is not managed")]
fn a_frame_of_nowhere_is_seen() {
    in_small_memory(|a, cache| {
        a.free(cache, Frame::new(1 << 30), Order::BASE);
        a.drain(cache);
    });
}

#[test]
#[should_panic(expected = "not allocated whole")]
fn a_gib_freed_twice_is_seen() {
    with_gibs(|a, cache| {
        let frame = one(a, cache, Order::GIB);
        a.free(cache, frame, Order::GIB);
        a.free(cache, frame, Order::GIB);
    });
}

#[test]
fn a_setting_that_cannot_hold_is_refused_and_changes_nothing() {
    in_small_memory(|a, _| {
        assert_eq!(a.set_reporting_order(Some(Order::PAGEBLOCK)), Ok(()));
        for low in 0..9 {
            let refused = Err(OrderError::NoFrameMarks(order(low)));
            assert_eq!(a.set_reporting_order(Some(order(low))), refused);
            assert_eq!(a.set_hinting_order(order(low)), refused);
        }
        let gib = Err(OrderError::TooLarge(Order::GIB));
        assert_eq!(a.set_reporting_order(Some(Order::GIB)), gib);
        assert_eq!(a.set_hinting_order(Order::GIB), gib);
        assert_eq!(a.reporting_order(), Some(Order::PAGEBLOCK));
        assert!(!a.is_hinting());

        let before = a.watermarks(ZONE);
        for (min, low, high) in [(2, 1, 3), (1, 3, 2), (3, 2, 1)] {
            let marks = Watermarks { min, low, high };
            assert_eq!(a.set_watermarks(ZONE, marks), Err(NotWatermarks(marks)));
        }
        assert_eq!(a.watermarks(ZONE), before);

        for entries in [0, HINT_ENTRIES + 1, usize::MAX] {
            assert_eq!(a.set_hint_limit(entries), Err(NotAHintLimit(entries)));
        }
        assert_eq!(a.set_hint_limit(HINT_ENTRIES), Ok(()));
    });
    with_gibs(|a, _| {
        assert_eq!(a.set_reporting_order(Some(Order::BASE)), Ok(()));
        assert_eq!(a.reporting_order(), Some(Order::BASE));
        let text = OrderError::TooLarge(Order::GIB).to_string();
        assert_eq!(text, "order 18 is above 10, the largest that is given back");
    });
}

#[test]
fn a_zone_of_many_pieces_is_one_up_to_its_limit() {
    // Every second tree of 64 MiB.
    let pieces: Vec<_> = (0..MAX_EXTENTS as u64 + 1)
        .map(|piece| range(piece * 128 * MIB, 64 * MIB))
        .collect();
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &pieces[..MAX_EXTENTS],
    }];
    with(&Config::new(&zones), &(), |a| {
        let cache = &mut *ManuallyDrop::new(CpuCache::new());
        let blocks = take(a, cache, Order::PAGEBLOCK, 32 * MAX_EXTENTS as u64);
        assert!(
            blocks
                .iter()
                .all(|&block| pieces.iter().any(|piece| piece.contains(block)))
        );
        assert_eq!(a.stats().free_frames, 0);
        for block in blocks {
            a.free(cache, block, Order::PAGEBLOCK);
        }
        validate_after(a, cache);
    });
    let zones = [ZoneConfig {
        ranges: &pieces,
        ..zones[0]
    }];
    let refused = metadata_layout(&Config::new(&zones));
    assert_eq!(refused, Err(ConfigError::TooManyExtents(ZONE)));
}
