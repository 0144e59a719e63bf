//! How free memory is split up, without looking at a single bit of it: bounds that follow from the
//! summaries, the state words and the reaches.

use core::ops::RangeInclusive;

use crate::{
    Allocator, Order,
    frame::{PAGEBLOCK_FRAMES, index},
    reach::RUN_ORDERS,
    state::BLOCK_FRAMES,
    summary::TREE_BLOCKS,
};

/// What [`Allocator::estimate`] knows of a zone's free blocks: for each order at least and at most
/// how much of the free memory lies in blocks of that order or above.
///
/// For orders 0 and 9 both are the same: what [`Allocator::free_areas`] counts. So is order 10
/// where free pageblocks make up whole trees of 64 MiB.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FreeEstimate {
    usable: [Bounds; Order::COUNT],
    /// Free blocks, each counted at the largest order that it is aligned for, but for those of
    /// order 9 and above.
    small_blocks: Bounds,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Bounds {
    least: u64,
    most: u64,
}

impl Bounds {
    fn add(&mut self, least: u64, most: u64) {
        self.least += least;
        self.most += most;
    }
}

impl FreeEstimate {
    /// Free frames.
    pub fn frames(&self) -> u64 {
        self.usable[0].least
    }

    /// Free frames that requests of this order can use.
    pub fn usable(&self, order: Order) -> RangeInclusive<u64> {
        let Bounds { least, most } = self.bounds(order);
        least..=most
    }

    fn bounds(&self, order: Order) -> Bounds {
        // A GiB is not counted by: as many as there may be in the largest order that is.
        self.usable[usize::from(order.get().min(Order::MAX.get()))]
    }

    /// [`FreeAreas::unusable_index`](crate::FreeAreas::unusable_index) is in this range.
    pub fn unusable_index(&self, order: Order) -> RangeInclusive<u32> {
        let free = self.frames();
        let of = |usable: u64| match ((free - usable) * 1000).checked_div(free) {
            Some(index) => u32::try_from(index).unwrap_or(1000),
            None => 1000,
        };
        let Bounds { least, most } = self.bounds(order);
        of(most)..=of(least)
    }

    /// [`FreeAreas::fragmentation_index`](crate::FreeAreas::fragmentation_index) is in this range.
    pub fn fragmentation_index(&self, order: Order) -> RangeInclusive<i32> {
        const FITS: i32 = -1000;
        let Bounds { least, most } = self.bounds(order);
        if least != 0 {
            return FITS..=FITS;
        }
        let free = self.frames();
        // As none is usable, no block is of order 9 if that would do; else those count as well.
        let whole = self.bounds(Order::PAGEBLOCK).most / Order::PAGEBLOCK.frames();
        let index = |blocks: u64| {
            let wanted = (1000 + free * 1000 / order.frames()).checked_div(blocks);
            wanted.map_or(0, |wanted| 1000 - i32::try_from(wanted).unwrap_or(1000))
        };
        // Rises with the number of blocks.
        let low = index(self.small_blocks.least + whole);
        let high = index(self.small_blocks.most + whole);
        if most != 0 { FITS..=high } else { low..=high }
    }

    /// Counts a block of whose frames so many are free, in runs up to this order.
    fn count_partial(&mut self, free: u64, largest: u8) {
        let used = PAGEBLOCK_FRAMES - free;
        for order in 0..=largest {
            // Each frame in use spoils one run at the most.
            let least = (PAGEBLOCK_FRAMES >> order).saturating_sub(used) << order;
            let most = free >> order << order;
            self.usable[usize::from(order)].add(if order == 0 { free } else { least }, most);
        }
        // Each free block's buddy has a frame in use, which has one such buddy in each order.
        let most = free.min(used * u64::from(RUN_ORDERS));
        self.small_blocks.add(free.div_ceil(1 << largest), most);
    }

    /// Counts free pageblocks of a tree.
    fn count_free(&mut self, blocks: u64) {
        let frames = blocks * PAGEBLOCK_FRAMES;
        for usable in &mut self.usable[..=usize::from(Order::PAGEBLOCK.get())] {
            usable.add(frames, frames);
        }
        // By pairs: more than half of the tree's blocks cannot all be apart.
        let pairs = blocks.saturating_sub(TREE_BLOCKS as u64 / 2);
        let size = Order::MAX.frames();
        self.usable[usize::from(Order::MAX.get())].add(pairs * size, blocks / 2 * size);
    }
}

impl Allocator<'_> {
    /// How the free memory of a zone is split up, within bounds, and by far cheaper than
    /// [`free_areas`](Self::free_areas): reads 12 bytes for each 64 MiB, and 96 more where a
    /// pageblock is in partial use. Whether large blocks are to be had is exact. Frames in fronts
    /// count as in use.
    ///
    /// While others use the allocator a few blocks may be counted as they were a moment ago.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn estimate(&self, zone: usize) -> FreeEstimate {
        let zone = self.zone(zone).zone;
        let mut estimate = FreeEstimate::default();
        for tree in 0..zone.trees() {
            let summary = zone.summary(tree);
            estimate.count_free(u64::from(summary.free()).min(TREE_BLOCKS as u64));
            if !summary.has_partial() {
                continue;
            }
            let blocks = tree * TREE_BLOCKS..(tree + 1) * TREE_BLOCKS;
            let states = &zone.arrays.states[blocks.clone()];
            for (state, reach) in states.iter().zip(&zone.arrays.reaches[blocks]) {
                let state = state.load();
                let count = state.count();
                if !state.is_free() && count < BLOCK_FRAMES {
                    let free = u64::from(BLOCK_FRAMES - count);
                    // No run can be longer than what is free.
                    let largest = reach.load().largest().min(order_within(free));
                    estimate.count_partial(free, largest);
                }
            }
        }
        estimate
    }
}

/// The largest order of a run of so many frames, at least one.
fn order_within(frames: u64) -> u8 {
    u8::try_from(frames.ilog2()).unwrap_or(RUN_ORDERS - 1)
}

const _: () = assert!(index(PAGEBLOCK_FRAMES) == 1 << RUN_ORDERS);
