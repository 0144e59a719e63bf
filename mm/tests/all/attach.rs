//! Tests of an attached host over the same metadata: correct on valid bytes, harmless on any bytes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::arena::{ZONE, range, words};
use crate::exercise::{Memory, exercise};
use ebb_mm::{
    AllocError, Allocator, Config, CpuCache, Frame, FrameRange, Mobility, Order, PutBack, Request,
    Reserve, TAKE_BLOCKS, TakeError, ZoneConfig, ZoneKind,
    attach::{AttachError, Attached, Usage},
};
use proptest::prelude::*;

const FRAMES: u64 = 2 << 18;

fn request(order: Order) -> Request {
    Request::new(order, Mobility::Movable).reserve(Reserve::Use)
}

/// Calls `test` with an allocator and an attachment to it.
fn both(test: impl FnOnce(&Allocator<'_>, &Attached<'_>)) {
    let ranges = [range(0, FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    let config = Config::new(&zones);
    let layout = ebb_mm::metadata_layout(&config).expect("a valid configuration");
    let memory = Memory::new(layout.size());
    // SAFETY: zeroed memory of this layout, and longer-lived than both.
    let allocator = unsafe { Allocator::new(memory.base(), &config, &()) }.expect("valid");
    // SAFETY: the same memory, changed by atomics only.
    let attached = unsafe { Attached::new(memory.base(), memory.bytes()) }.expect("metadata");
    test(&allocator, &attached);
    allocator.validate().expect("valid");
}

fn usage(attached: &Attached<'_>, frame: Frame) -> Usage {
    attached.block(frame).expect("managed").usage
}

/// The runs of free frames in partly used blocks are complete, and contain no other frame.
#[test]
fn it_sees_what_is_free_in_pieces() {
    both(|a, attached| {
        let free_runs = || {
            let blocks = attached.blocks();
            blocks.flat_map(|block| attached.free_runs(&block).collect::<Vec<_>>())
        };
        assert_eq!(free_runs().count(), 0, "all blocks are whole");
        let mut cache = CpuCache::new();
        let huge = a
            .allocate(&mut cache, request(Order::PAGEBLOCK))
            .expect("memory");
        let orders = [0, 3, 0, 7, 1, 8, 5, 0, 2, 6].map(|order| Order::new(order).expect("valid"));
        let mut kept = Vec::new();
        for round in 0..200 {
            for order in orders {
                let frame = a.allocate(&mut cache, request(order)).expect("memory");
                if round % 3 == 0 {
                    kept.push(FrameRange::new(frame, order.frames()));
                } else {
                    a.free(&mut cache, frame, order);
                }
            }
        }
        a.drain(&mut cache);
        let free: Vec<_> = free_runs().collect();
        assert!(free.is_sorted_by(|one, next| one.end() <= next.start));
        for piece in &free {
            assert!(matches!(
                usage(attached, piece.start),
                Usage::Partial(used) if u64::from(used) + piece.frames <= 512
            ));
            for used in kept.iter().chain([&FrameRange::new(huge, 512)]) {
                assert!(used.end() <= piece.start || piece.end() <= used.start);
            }
        }
        let whole = attached
            .blocks()
            .filter(|block| matches!(block.usage, Usage::Free { .. }));
        let frames: u64 = free.iter().map(|piece| piece.frames).sum();
        let zone = attached.zones().next().expect("one zone");
        assert_eq!(frames + whole.count() as u64 * 512, zone.free_frames);
        assert!(frames > 0);
        for used in kept {
            let order = Order::at_least(used.frames).expect("valid");
            a.free(&mut cache, used.start, order);
        }
        a.free(&mut cache, huge, Order::PAGEBLOCK);
        a.drain(&mut cache);
        assert_eq!(free_runs().count(), 0);
    });
}

#[test]
fn it_sees_what_the_allocator_does() {
    both(|a, attached| {
        let untouched = Usage::Free { unreported: false };
        assert!(attached.blocks().all(|block| block.usage == untouched));
        assert_eq!(attached.blocks().count() as u64, FRAMES / 512);
        let mut cache = CpuCache::new();
        let small = a
            .allocate(&mut cache, request(Order::BASE))
            .expect("memory");
        let huge = a
            .allocate(&mut cache, request(Order::PAGEBLOCK))
            .expect("memory");
        assert_eq!(usage(attached, small), Usage::Partial(64));
        assert_eq!(usage(attached, huge), Usage::Whole);
        a.free(&mut cache, small, Order::BASE);
        a.free(&mut cache, huge, Order::PAGEBLOCK);
        a.drain(&mut cache);
        assert_eq!(usage(attached, huge), Usage::Free { unreported: true });
        let gib = a.allocate(&mut cache, request(Order::GIB)).expect("memory");
        assert_eq!(usage(attached, gib.offset(5000)), Usage::Whole);
        a.free(&mut cache, gib, Order::GIB);
        a.drain(&mut cache);
        let zone = attached.zones().next().expect("one zone");
        assert_eq!((zone.free_frames, zone.blocks), (FRAMES, FRAMES / 512));
    });
}

#[test]
fn a_block_that_it_takes_out_is_not_allocated() {
    both(|a, attached| {
        let mut cache = CpuCache::new();
        // Through a GiB that was allocated whole, whose state words are not settled yet.
        let gib = a.allocate(&mut cache, request(Order::GIB)).expect("memory");
        assert_eq!(attached.open(gib).err(), Some(TakeError::State));
        a.free(&mut cache, gib, Order::GIB);
        a.drain(&mut cache);
        // All blocks are in use except those of one GiB.
        let first = FRAMES / 2 / 512;
        let other = a.allocate(&mut cache, request(Order::GIB)).expect("memory");
        let start = if other.number() == 0 { first * 512 } else { 0 };
        for batch in (0..first).step_by(TAKE_BLOCKS) {
            let frame = |block: u64| Frame::new(start + block * 512);
            let mut open = attached.open(frame(batch)).expect("free");
            for block in batch..batch + TAKE_BLOCKS as u64 {
                open.take(frame(block)).expect("free");
            }
            assert_eq!(open.take(frame(0)), Err(TakeError::Full));
            assert_eq!(attached.open(frame(batch)).err(), Some(TakeError::State));
            assert_eq!(usage(attached, frame(batch)), Usage::Isolated);
            let error = a
                .allocate(&mut cache, request(Order::GIB))
                .expect_err("none");
            assert!(matches!(error, AllocError::Isolated { .. }), "{error}");
            assert_eq!(a.stats().isolated_frames, TAKE_BLOCKS as u64 * 512);
            assert_eq!(open.close(PutBack::Reported), TAKE_BLOCKS);
        }
        a.free(&mut cache, other, Order::GIB);
        a.drain(&mut cache);
        assert_eq!(a.stats().unreported_free_frames, FRAMES / 2);
        assert_eq!(a.stats().free_frames, FRAMES);
        let gib = a.allocate(&mut cache, request(Order::GIB)).expect("memory");
        a.free(&mut cache, gib, Order::GIB);
        a.drain(&mut cache);
    });
}

#[test]
fn a_guest_that_meddles_is_refused() {
    both(|a, attached| {
        let mut open = attached.open(Frame::new(512)).expect("free");
        open.take(Frame::new(512)).expect("free");
        let zone = a.fragmentation(ZONE);
        assert_eq!(zone.free_frames, FRAMES - 512, "it is not free in pieces");
        assert_eq!((zone.percent(), zone.scattered_frames()), (0, 0));
        assert_eq!(open.take(Frame::new(512)), Err(TakeError::State));
        assert_eq!(
            open.take(Frame::new(FRAMES / 2)),
            Err(TakeError::NotManaged)
        );
        assert_eq!(
            attached.open(Frame::new(FRAMES)).err(),
            Some(TakeError::NotManaged)
        );
        let own = a.isolate(Frame::new(1024)).expect("free");
        assert_eq!(open.take(Frame::new(1024)), Err(TakeError::State));
        a.put_back(own, PutBack::Unchanged);
        assert_eq!(open.close(PutBack::Unchanged), 1);
        assert_eq!(a.fragmentation(ZONE).free_frames, FRAMES);
    });
}

/// Guest and host allocate and free at once. Every block has one owner.
#[test]
fn both_take_part_at_once() {
    both(|a, attached| {
        let owned: Vec<AtomicBool> = (0..FRAMES / 512).map(|_| AtomicBool::new(false)).collect();
        let own = |frame: Frame, taken: bool| {
            let block = usize::try_from(frame.number() / 512).expect("small");
            let before = owned[block].swap(taken, Ordering::AcqRel);
            assert_ne!(before, taken, "{frame:?} has two owners");
        };
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut cache = CpuCache::new();
                for round in 0..30_000u64 {
                    let order = if round % 64 == 0 {
                        Order::GIB
                    } else {
                        Order::PAGEBLOCK
                    };
                    if let Ok(frame) = a.allocate(&mut cache, request(order)) {
                        let blocks = || (0..order.frames()).step_by(512);
                        blocks().for_each(|offset| own(frame.offset(offset), true));
                        blocks().for_each(|offset| own(frame.offset(offset), false));
                        a.free(&mut cache, frame, order);
                    }
                }
                a.drain(&mut cache);
                done.store(true, Ordering::Release);
            });
            let mut next = 0;
            while !done.load(Ordering::Acquire) {
                next = (next + 7) % (FRAMES / 512);
                let start = Frame::new(next * 512);
                let Ok(mut open) = attached.open(start) else {
                    continue;
                };
                for block in next..(next + 3).min(FRAMES / 512) {
                    let _ = open.take(Frame::new(block * 512));
                }
                let taken: Vec<_> = open.blocks().collect();
                taken.iter().for_each(|&start| own(start, true));
                taken.iter().for_each(|&start| own(start, false));
                assert_eq!(
                    open.close(PutBack::Reported),
                    taken.len(),
                    "all are left alone"
                );
            }
        });
        assert_eq!(a.stats().free_frames, FRAMES);
    });
}

#[test]
fn bytes_that_are_no_metadata_are_refused() {
    let memory = Memory::new(4096);
    // SAFETY: the memory is valid for `bytes` bytes.
    let attach = |bytes| unsafe { Attached::new(memory.base(), bytes) }.err();
    assert_eq!(attach(4096), Some(AttachError::Magic(0)));
    assert_eq!(attach(4095), Some(AttachError::Misplaced));
    let ranges = [range(0, 1 << 18)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    let metadata = words(&Config::new(&zones), |_| ());
    // The header alone.
    let short = Memory::new(4096);
    short.fill(&metadata[..512]);
    // SAFETY: the memory is valid for this number of bytes.
    let attached = unsafe { Attached::new(short.base(), short.bytes()) };
    assert!(matches!(attached.err(), Some(AttachError::Length(_))));
}

proptest! {
    /// Runs the same code as `fuzz/fuzz_targets/attach.rs`.
    #[test]
    fn no_bytes_make_it_panic_or_leave_its_memory(
        input in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        exercise(&input);
    }

    /// Changes the words behind a valid header: maps, summaries, states and bits.
    #[test]
    fn no_body_makes_it_panic_or_leave_its_memory(
        patches in prop::collection::vec((any::<u16>(), any::<u64>(), any::<u64>()), 1..200),
        operations in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut input = Vec::new();
        for (word, value, mask) in patches {
            // Most words that are read are near the start. Half of the changes set no bits, the
            // likely value.
            let word = 512 + u32::from(word) % crate::exercise::BODY_WORDS;
            input.extend(u16::try_from(word).expect("few words").to_le_bytes());
            input.extend((value & mask).to_le_bytes());
        }
        input.extend([0xff, 0xff]);
        input.extend(operations);
        exercise(&input);
    }

    #[test]
    fn no_header_makes_it_panic_or_leave_its_memory(
        patches in prop::collection::vec((0..512u16, 0..5u8, any::<u64>()), 1..12),
        operations in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut input = Vec::new();
        for (word, shift, value) in patches {
            // The magic, the version and the length stay, so that the rest is read. Small numbers
            // are more interesting than large ones.
            input.extend(word.max(3).to_le_bytes());
            input.extend((value >> (15 * u32::from(shift))).to_le_bytes());
        }
        input.extend([0xff, 0xff]);
        input.extend(operations);
        exercise(&input);
    }
}
