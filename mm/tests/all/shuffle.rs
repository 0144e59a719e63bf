//! Tests of page shuffling: all memory is handed out, once, in an order that cannot be told, and
//! the placement of memory stays as it is.

use std::{collections::BTreeSet, mem::ManuallyDrop};

use crate::arena::{order, range, with};
use ebb_mm::{
    Allocator, Config, Contents, CpuCache, Frame, Mobility, Order, PAGEBLOCK_FRAMES, Request,
    ZoneConfig, ZoneKind,
};

const GIB_FRAMES: u64 = 1 << 18;
const GIB_BLOCKS: u64 = GIB_FRAMES / PAGEBLOCK_FRAMES;
/// The first frame of the memory: two GiB from here on.
const BASE: u64 = 4 * GIB_FRAMES;

fn two_gib(test: impl FnOnce(&Allocator<'_>, &mut CpuCache)) {
    let ranges = [range(BASE, 2 * GIB_FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let mut cache = ManuallyDrop::new(CpuCache::new());
        assert!(!a.is_shuffled());
        test(a, &mut cache);
        a.validate().expect("valid");
    });
}

/// Allocates blocks of `order` until there are none.
fn take_all(
    a: &Allocator<'_>,
    cache: &mut CpuCache,
    order: Order,
    mobility: Mobility,
) -> Vec<Frame> {
    let request = Request::new(order, mobility);
    std::iter::from_fn(|| a.allocate(cache, request).ok()).collect()
}

/// Asserts that `blocks` of `order` are distinct and aligned.
fn assert_apart(blocks: &[Frame], order: Order) {
    let set: BTreeSet<_> = blocks.iter().copied().collect();
    assert_eq!(set.len(), blocks.len());
    assert!(blocks.iter().all(|block| block.is_aligned(order)));
}

/// Returns how many of `blocks` follow the one before them in memory.
fn in_a_row(blocks: &[Frame], order: Order) -> usize {
    let follows = |pair: &&[Frame]| pair[1] == pair[0].offset(order.frames());
    blocks.windows(2).filter(follows).count()
}

#[test]
fn all_blocks_come_once_and_in_random_order() {
    for of in [order(10), Order::PAGEBLOCK] {
        let mut orders = Vec::new();
        for seed in [None, Some(1), Some(2)] {
            two_gib(|a, cache| {
                if let Some(seed) = seed {
                    a.shuffle(seed);
                    assert!(a.is_shuffled());
                }
                a.set_min_free_frames(0);
                let blocks = take_all(a, cache, of, Mobility::Movable);
                assert_eq!(blocks.len() as u64, 2 * GIB_FRAMES / of.frames());
                assert_apart(&blocks, of);
                let high = |block: &&Frame| block.number() >= BASE + GIB_FRAMES;
                let first = &blocks[..blocks.len() / 2];
                assert!(
                    first.iter().all(|block| high(&block)),
                    "the high GiB comes first"
                );
                let row = in_a_row(&blocks, of);
                if seed.is_some() {
                    // Of order 9 the second of a pair follows the first in about half of all cases.
                    assert!(row < blocks.len() * 3 / 5, "{row} of {}", blocks.len());
                } else {
                    assert!(row > blocks.len() * 9 / 10);
                }
                for &block in &blocks {
                    a.free(cache, block, of);
                }
                a.drain(cache);
                assert_eq!(a.stats().free_frames, 2 * GIB_FRAMES);
                orders.push(blocks);
            });
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    }
}

#[test]
fn other_memory_stays_in_the_lowest_gib() {
    two_gib(|a, cache| {
        a.shuffle(7);
        let request = Request::new(Order::BASE, Mobility::Unmovable);
        let mut blocks = BTreeSet::new();
        let mut frames = Vec::new();
        for _ in 0..GIB_FRAMES / 2 {
            let frame = a.allocate(cache, request).expect("there is room");
            assert!(frame.number() < BASE + GIB_FRAMES);
            blocks.insert(frame.number() / PAGEBLOCK_FRAMES);
            frames.push(frame);
        }
        // Frames of one pageblock are used up before the next is broken up.
        assert!(blocks.len() as u64 <= GIB_BLOCKS / 2 + 1);
        assert_apart(&frames, Order::BASE);
        for frame in frames {
            a.free(cache, frame, Order::BASE);
        }
        a.drain(cache);
    });
}

#[test]
fn many_blocks_at_once_are_shuffled_too() {
    two_gib(|a, cache| {
        a.shuffle(3);
        a.set_min_free_frames(0);
        let all = usize::try_from(2 * GIB_BLOCKS).expect("some hundred blocks");
        let mut blocks = vec![(Frame::new(0), Contents::Unknown); all];
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        a.allocate_pageblocks(cache, request, &mut blocks)
            .expect("all is free");
        let frames: Vec<_> = blocks.iter().map(|block| block.0).collect();
        assert_apart(&frames, Order::PAGEBLOCK);
        let tree = |frame: &Frame| frame.number() / (32 * PAGEBLOCK_FRAMES);
        let trees: Vec<_> = frames.chunks(32).map(|chunk| tree(&chunk[0])).collect();
        assert!(!trees[..16].is_sorted() || frames[0].number() % (32 * PAGEBLOCK_FRAMES) != 0);
        a.free_bulk(cache, &frames, Order::PAGEBLOCK);
        a.drain(cache);
    });
}
