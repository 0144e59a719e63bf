//! Tests of compaction that frees a whole GiB.

use std::time::Duration;

use crate::arena::{MIB, ZONE, one, range, validate_after, with_gibs};
use ebb_mm::{
    Allocator, Compactor, Compacts, CpuCache, EmptyingGib, Frame, FrameRange, Mobility, NoGib,
    Order, PAGEBLOCK_FRAMES, Request, StuckGibs,
};

const GIB: u64 = 1024 * MIB;
const NOW: Duration = Duration::from_secs(9);
/// The first frame of the first whole GiB.
const FIRST: u64 = (1 << 20) + GIB;

/// All memory of all GiBs may be migrated.
const NONE_STAYS: fn(Frame) -> bool = |_| false;

/// Allocates every `step`th of `frames` frames from `start` on.
fn hold(a: &Allocator<'_>, cache: &mut CpuCache, start: u64, frames: u64, step: u64) -> Vec<Frame> {
    let starts = (start..start + frames).step_by(usize::try_from(step).expect("small"));
    let take = |start| {
        a.allocate_range(cache, range(start, 1), Mobility::Movable)
            .expect("free");
        Frame::new(start)
    };
    starts.map(take).collect()
}

/// Migrates all frames for which `moves` returns `true` out of the GiB.
fn clear(
    (a, cache): (&Allocator<'_>, &mut CpuCache),
    compactor: &mut Compactor,
    gib: &EmptyingGib,
    held: &mut [(Frame, Order)],
    moves: impl Fn(Frame) -> bool,
) {
    for place in gib.blocks(a) {
        let (from, order): (Vec<_>, _) = if a.is_whole(place) {
            (vec![place.range().start], Order::PAGEBLOCK)
        } else {
            (a.frames_in_use(place).collect(), Order::BASE)
        };
        for from in from.into_iter().filter(|&from| moves(from)) {
            let mut to = [Frame::new(0)];
            if order != Order::BASE || compactor.targets(a, Compacts::Direct, &mut to) == 0 {
                to[0] = one(a, cache, order);
            }
            assert!(gib.blocks(a).all(|place| !place.range().contains(to[0])));
            let mut owned = held.iter_mut().filter(|held| held.0 == from);
            *owned.next().expect("a held frame") = (to[0], order);
            a.free(cache, from, order);
        }
    }
    a.drain(cache);
}

#[test]
fn the_cheapest_gib_is_made_of_memory_in_use() {
    with_gibs(|a, cache| {
        let total = a.stats().managed_frames;
        let mut held: Vec<_> = [
            hold(a, cache, FIRST, GIB, 100),
            hold(a, cache, FIRST + GIB, 9 * PAGEBLOCK_FRAMES, 7),
            hold(a, cache, FIRST + 2 * GIB, GIB, 1000),
        ]
        .concat()
        .into_iter()
        .map(|frame| (frame, Order::BASE))
        .collect();
        // The second GiB would be cheaper, but has a frame that does not move.
        a.claim(range(FIRST + GIB + 77 * PAGEBLOCK_FRAMES, 1))
            .expect("free");
        let request = Request::new(Order::GIB, Mobility::Movable);
        assert!(a.allocate(cache, request).is_err());
        let mut compactor = Compactor::new(ZONE);
        let plan = compactor
            .plan_gib(NOW, a, StuckGibs::Skip, &[], NONE_STAYS)
            .expect("room");
        assert_eq!((plan.frames, plan.wholes), (GIB.div_ceil(1000), 0));
        let free = a.stats().free_frames;
        let gib = compactor.begin_gib(a, plan).expect("movable");
        assert_eq!(a.stats().free_frames, free - GIB);
        assert_eq!(a.stats().isolated_frames, GIB);
        let gib = a
            .take_emptied_gib(gib, Mobility::Movable)
            .expect_err("in use");
        clear((a, cache), &mut compactor, &gib, &mut held, |_| true);
        let frame = a.take_emptied_gib(gib, Mobility::Movable).expect("empty");
        assert_eq!(frame, Frame::new(FIRST + 2 * GIB));
        validate_after(a, cache);
        assert_eq!(a.stats().isolated_frames, 0);
        assert_eq!(a.stats().free_frames, total - GIB - 1 - held.len() as u64);
        a.free(cache, frame, Order::GIB);
        validate_after(a, cache);
        assert_eq!(a.allocate(cache, request), Ok(frame));
        a.free(cache, frame, Order::GIB);
        for (frame, order) in held {
            a.free(cache, frame, order);
        }
        a.free(
            cache,
            Frame::new(FIRST + GIB + 77 * PAGEBLOCK_FRAMES),
            Order::BASE,
        );
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(a.zone_stats(ZONE).free_blocks, total / PAGEBLOCK_FRAMES);
    });
}

#[test]
fn whole_blocks_move_and_what_does_not_is_remembered() {
    with_gibs(|a, cache| {
        let claims = [FIRST + GIB + 5, FIRST + 2 * GIB + 5].map(|frame| {
            a.claim(range(frame, 1)).expect("free");
            Frame::new(frame)
        });
        let mut held = Vec::new();
        // The higher GiB regions are used before the lowest.
        let lowest = FrameRange::new(Frame::new(FIRST), GIB);
        while !held.iter().any(|&(frame, _)| lowest.contains(frame)) {
            held.push((one(a, cache, Order::PAGEBLOCK), Order::PAGEBLOCK));
        }
        for _ in 0..60 {
            let (frame, order) = held.remove(0);
            a.free(cache, frame, order);
        }
        a.drain(cache);
        let mut compactor = Compactor::new(ZONE);
        let plan = compactor
            .plan_gib(NOW, a, StuckGibs::Skip, &[], NONE_STAYS)
            .expect("room");
        assert_eq!((plan.frames, plan.wholes), (0, 1));
        let pinned = hold(a, cache, lowest.start.number() + 9 * PAGEBLOCK_FRAMES, 3, 1);
        held.extend(pinned.iter().map(|&frame| (frame, Order::BASE)));
        let plan = compactor
            .plan_gib(NOW, a, StuckGibs::Skip, &[], NONE_STAYS)
            .expect("room");
        assert_eq!((plan.frames, plan.wholes), (3, 1));
        let gib = compactor.begin_gib(a, plan).expect("movable");
        clear((a, cache), &mut compactor, &gib, &mut held, |frame| {
            frame != pinned[1]
        });
        let gib = a
            .take_emptied_gib(gib, Mobility::Movable)
            .expect_err("pinned");
        compactor.end_gib(NOW, a, gib, false);
        validate_after(a, cache);
        assert_eq!(a.stats().isolated_frames, 0);
        assert_eq!(
            compactor.plan_gib(NOW, a, StuckGibs::Skip, &[], NONE_STAYS),
            Err(NoGib::Nowhere),
            "it is known"
        );
        // Others have another frame: the kernel takes it if it tries again.
        let again = compactor.plan_gib(NOW, a, StuckGibs::Include, &[], NONE_STAYS);
        let again = again.expect("the frame may be unpinned by now");
        assert_eq!(
            compactor.plan_gib(NOW, a, StuckGibs::Include, &[Some(again)], NONE_STAYS),
            Err(NoGib::Nowhere),
            "it was tried"
        );
        assert_eq!((again.frames, again.wholes), (1, 0));
        assert_eq!(
            compactor.plan_gib(NOW, a, StuckGibs::Include, &[], |first| first
                == lowest.start),
            Err(NoGib::Nowhere),
            "the caller knows that it stays"
        );
        let gib = compactor.begin_gib(a, again).expect("movable");
        clear((a, cache), &mut compactor, &gib, &mut held, |_| true);
        let whole = a.take_emptied_gib(gib, Mobility::Movable);
        assert_eq!(whole.expect("empty"), lowest.start);
        a.free(cache, lowest.start, Order::GIB);
        for (frame, order) in held {
            a.free(cache, frame, order);
        }
        for frame in claims {
            a.free(cache, frame, Order::BASE);
        }
        validate_after(a, cache);
        assert!(
            compactor
                .plan_gib(NOW, a, StuckGibs::Skip, &[], NONE_STAYS)
                .is_ok()
        );
    });
}
