//! Tests that a frame reported as never handed out was indeed never handed out.

use std::collections::HashSet;

use crate::arena::{range, with};
use ebb_mm::{
    Allocator, Config, Contents, CpuCache, Frame, Mobility, Order, PutBack, Request, Reserve,
    ZoneConfig, ZoneKind,
};
use proptest::prelude::*;

const FRAMES: u64 = 1 << 16;

fn memory(test: impl FnOnce(&Allocator<'_>)) {
    let ranges = [range(0, FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones).with_use_marks(), &(), |a| {
        test(a);
        a.validate().expect("valid");
    });
}

fn request(order: u8) -> Request {
    let order = Order::new(order).expect("an order");
    Request::new(order, Mobility::Movable).reserve(Reserve::Use)
}

#[test]
fn memory_never_used_before_is_unused_once() {
    memory(|a| {
        let mut cache = CpuCache::new();
        for expected in [Contents::NeverUsed, Contents::Unknown] {
            let frames: Vec<_> = (0..FRAMES)
                .map(|_| a.allocate_known(&mut cache, request(0)).expect("memory"))
                .collect();
            assert!(frames.iter().all(|&(_, contents)| contents == expected));
            for (frame, _) in frames {
                a.free(&mut cache, frame, Order::BASE);
            }
            a.drain(&mut cache);
        }
    });
}

#[test]
fn a_report_makes_nothing_unused() {
    memory(|a| {
        let mut cache = CpuCache::new();
        let (frame, contents) = a.allocate_known(&mut cache, request(9)).expect("memory");
        assert_eq!(contents, Contents::NeverUsed);
        a.free(&mut cache, frame, Order::PAGEBLOCK);
        a.drain(&mut cache);
        let block = a.isolate(frame).expect("free");
        a.put_back(block, PutBack::Reported);
        let taken: Vec<_> = (0..FRAMES / 512)
            .map(|_| a.allocate_known(&mut cache, request(9)).expect("memory"))
            .collect();
        for (block, contents) in taken {
            assert_eq!(contents == Contents::Unknown, block == frame);
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
    });
}

#[test]
fn claimed_memory_is_not_unused() {
    memory(|a| {
        a.claim(range(1000, 600)).expect("free");
        let mut cache = CpuCache::new();
        a.free_range(&mut cache, range(1000, 600));
        a.drain(&mut cache);
        for _ in 0..FRAMES {
            let (frame, contents) = a.allocate_known(&mut cache, request(0)).expect("memory");
            let was_claimed = range(1000, 600).contains(frame);
            assert!(!was_claimed || contents == Contents::Unknown);
        }
        a.drain(&mut cache);
    });
}

proptest! {
    #[test]
    fn never_used_is_never_false(
        events in prop::collection::vec((0..11u8, any::<prop::sample::Index>(), 0..6u8), 1..400),
    ) {
        memory(|a| {
            let (mut cache, mut ever, mut held) = (CpuCache::new(), HashSet::new(), Vec::new());
            for (order, index, event) in events {
                if event == 0 && !held.is_empty() {
                    let (frame, order): (Frame, u8) = held.swap_remove(index.index(held.len()));
                    a.free(&mut cache, frame, Order::new(order).expect("an order"));
                } else if event == 1 {
                    a.drain(&mut cache);
                } else if event == 2 {
                    // A request that does not ask may get such frames too.
                    if let Ok(frame) = a.allocate(&mut cache, request(order)) {
                        ever.extend((0..1 << order).map(|offset| frame.offset(offset)));
                        held.push((frame, order));
                    }
                } else if let Ok((frame, contents)) = a.allocate_known(&mut cache, request(order)) {
                    let unused = contents == Contents::NeverUsed;
                    for offset in 0..1 << order {
                        let first = ever.insert(frame.offset(offset));
                        assert!(first || !unused, "{frame:?} was handed out before");
                    }
                    held.push((frame, order));
                }
            }
            for (frame, order) in held {
                a.free(&mut cache, frame, Order::new(order).expect("an order"));
            }
            a.drain(&mut cache);
        });
    }
}
