//! Tests of bulk calls and of allocations of a given range.

use std::collections::HashSet;

use crate::arena::{range, with};
use ebb_mm::{
    AllocError, Allocator, Config, Contents, CpuCache, Frame, FrameRange, Mobility, Order, PutBack,
    RangeError, Request, Reserve, ZoneConfig, ZoneKind,
};

const FRAMES: u64 = 8192;

fn memory(test: impl FnOnce(&Allocator<'_>)) {
    let ranges = [range(0, FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        test(a);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, FRAMES, "all was given back");
    });
}

fn request(order: Order) -> Request {
    Request::new(order, Mobility::Movable).reserve(Reserve::Use)
}

#[test]
fn a_bulk_is_as_many_single_frames() {
    memory(|a| {
        let mut cache = CpuCache::new();
        let mut frames = [Frame::new(0); 1000];
        a.allocate_bulk(&mut cache, request(Order::BASE), &mut frames)
            .expect("memory");
        let different: HashSet<_> = frames.iter().collect();
        assert_eq!(different.len(), frames.len());
        for &frame in &frames[..500] {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.free_bulk(&mut cache, &frames[500..], Order::BASE);
        a.drain(&mut cache);
    });
}

#[test]
fn what_a_failed_bulk_took_is_the_callers() {
    memory(|a| {
        let mut cache = CpuCache::new();
        for order in [
            Order::BASE,
            Order::new(3).expect("an order"),
            Order::PAGEBLOCK,
        ] {
            let most = usize::try_from(FRAMES >> order.get()).expect("small");
            let mut blocks = vec![Frame::new(0); most + 1];
            let error = a
                .allocate_bulk(&mut cache, request(order), &mut blocks)
                .expect_err("one more than there are");
            assert_eq!(error.taken, most);
            assert!(matches!(error.error, AllocError::Exhausted { .. }));
            a.free_bulk(&mut cache, &blocks[..most], order);
            a.drain(&mut cache);
        }
    });
}

#[test]
#[should_panic(expected = "was freed twice")]
fn a_frame_twice_in_a_bulk_is_a_panic() {
    memory(|a| {
        let mut cache = CpuCache::new();
        let frame = a
            .allocate(&mut cache, request(Order::BASE))
            .expect("memory");
        a.drain(&mut cache);
        a.free_bulk(&mut cache, &[frame, frame], Order::BASE);
    });
}

#[test]
fn a_range_is_had_whole_or_not_at_all() {
    memory(|a| {
        let mut cache = CpuCache::new();
        let wanted = range(100, 3000);
        a.allocate_range(&mut cache, wanted, Mobility::Movable)
            .expect("all is free");
        assert_eq!(a.stats().free_frames, FRAMES - 3000);
        // The second call fails and names the frame. It takes no frame.
        let overlap = FrameRange::new(Frame::new(0), 5000);
        assert_eq!(
            a.allocate_range(&mut cache, overlap, Mobility::Movable),
            Err(RangeError::InUse(Frame::new(100)))
        );
        assert_eq!(a.stats().free_frames, FRAMES - 3000);
        a.free(&mut cache, Frame::new(1000), Order::BASE);
        a.drain(&mut cache);
        a.allocate_range(&mut cache, range(1000, 1), Mobility::Unmovable)
            .expect("it was freed");
        a.free_range(&mut cache, wanted);
        a.drain(&mut cache);
    });
}

#[test]
fn a_range_says_why_it_is_refused() {
    memory(|a| {
        let mut cache = CpuCache::new();
        let movable = Mobility::Movable;
        assert_eq!(
            a.allocate_range(&mut cache, range(FRAMES - 10, 20), movable),
            Err(RangeError::NotManaged(Frame::new(FRAMES)))
        );
        let block = a.isolate(Frame::new(1024)).expect("free");
        assert_eq!(
            a.allocate_range(&mut cache, range(1000, 100), movable),
            Err(RangeError::Isolated(Frame::new(1024)))
        );
        a.put_back(block, PutBack::Unchanged);
        let huge = a
            .allocate(&mut cache, request(Order::PAGEBLOCK))
            .expect("memory");
        let around = range(huge.number() + 17, 64);
        assert_eq!(
            a.allocate_range(&mut cache, around, movable),
            Err(RangeError::InUse(huge.offset(17)))
        );
        a.free(&mut cache, huge, Order::PAGEBLOCK);
        // Frames in this CPU's own cache are no obstacle.
        let frame = a
            .allocate(&mut cache, request(Order::BASE))
            .expect("memory");
        a.free(&mut cache, frame, Order::BASE);
        a.allocate_range(&mut cache, range(0, FRAMES), movable)
            .expect("all is free");
        a.free_range(&mut cache, range(0, FRAMES));
        a.drain(&mut cache);
    });
}

#[test]
fn pageblocks_come_and_go_in_bulk() {
    memory(|a| {
        let mut cache = CpuCache::new();
        let blocks = usize::try_from(FRAMES / 512).expect("small");
        let mut taken = vec![(Frame::new(0), Contents::NeverUsed); blocks];
        // In between, one block is in use by another mobility, and one is partly used.
        let held = a
            .allocate(
                &mut cache,
                Request::new(Order::PAGEBLOCK, Mobility::Unmovable),
            )
            .expect("memory");
        let single = a
            .allocate(&mut cache, request(Order::BASE))
            .expect("memory");
        let error = a
            .allocate_pageblocks(&mut cache, request(Order::BASE), &mut taken)
            .expect_err("two are in use");
        assert_eq!(error.taken, blocks - 2);
        let mut all: Vec<_> = taken[..error.taken]
            .iter()
            .map(|&(frame, _)| frame)
            .collect();
        let different: HashSet<_> = all.iter().chain([&held]).collect();
        assert_eq!(different.len(), blocks - 1);
        assert!(all.iter().all(|frame| frame.is_aligned(Order::PAGEBLOCK)));
        all.insert(3, held);
        a.free_bulk(&mut cache, &all, Order::PAGEBLOCK);
        a.free(&mut cache, single, Order::BASE);
        a.drain(&mut cache);
        a.validate().expect("valid");
        let mut again = vec![(Frame::new(0), Contents::NeverUsed); blocks];
        a.allocate_pageblocks(&mut cache, request(Order::BASE), &mut again)
            .expect("all are free");
        let all: Vec<_> = again.iter().map(|&(frame, _)| frame).collect();
        a.free_bulk(&mut cache, &all, Order::PAGEBLOCK);
        a.drain(&mut cache);
    });
}

#[test]
#[should_panic(expected = "that is not allocated whole")]
fn a_pageblock_is_freed_once() {
    memory(|a| {
        let mut cache = CpuCache::new();
        let block = a
            .allocate(&mut cache, request(Order::PAGEBLOCK))
            .expect("memory");
        a.free_bulk(&mut cache, &[block, block], Order::PAGEBLOCK);
    });
}
