//! Estimates of how fragmented the free memory is, without reading the bitmap. [`FreeEstimate`] has
//! bounds that follow from the summaries, the state words and the run bounds (upper bounds of the
//! orders of free runs).

use core::ops::RangeInclusive;

use crate::{
    Allocator, Order, ZoneId,
    frame::{PAGEBLOCK_FRAMES, index},
    run_bound::RUN_ORDERS,
    state::BLOCK_FRAMES,
    summary::TREE_BLOCKS,
};

/// The result of [`Allocator::estimate`]: for each order, bounds of how many free frames of a zone
/// are in free blocks of that order or above.
///
/// For orders 0 and 9 the bounds are exact: they are what [`Allocator::free_areas`] counts. For
/// order 10 they are exact if all free pageblocks are in trees (64 MiB) that are completely free.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FreeEstimate {
    usable: [Bounds; Order::COUNT],
    /// Bounds of the number of free blocks below order 9, each counted at the largest order that it
    /// is aligned for.
    small_blocks: Bounds,
}

/// A lower and an upper bound.
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
    /// Returns the number of free frames of the zone.
    pub fn frames(&self) -> u64 {
        self.usable[0].least
    }

    /// Returns the bounds of the number of free frames that requests of `order` can use. An order
    /// above 10 counts as 10.
    pub fn usable(&self, order: Order) -> RangeInclusive<u64> {
        let Bounds { least, most } = self.bounds(order);
        least..=most
    }

    fn bounds(&self, order: Order) -> Bounds {
        // `Order::GIB` is not counted. Order 10 is the largest that is.
        self.usable[usize::from(order.get().min(Order::MAX.get()))]
    }

    /// Returns the bounds, in thousandths, of
    /// [`FreeAreas::unusable_index`](crate::FreeAreas::unusable_index) for `order`. Both are 1000
    /// if no frame is free.
    pub fn unusable_index(&self, order: Order) -> RangeInclusive<u32> {
        let free = self.frames();
        let of = |usable: u64| match ((free - usable) * 1000).checked_div(free) {
            Some(index) => u32::try_from(index).unwrap_or(1000),
            None => 1000,
        };
        let Bounds { least, most } = self.bounds(order);
        of(most)..=of(least)
    }

    /// Returns the bounds, in thousandths, of
    /// [`FreeAreas::fragmentation_index`](crate::FreeAreas::fragmentation_index) for `order`. Both
    /// are -1000 if a suitable block is certainly free. The lower one is -1000 if one may be free.
    pub fn fragmentation_index(&self, order: Order) -> RangeInclusive<i32> {
        const FITS: i32 = -1000;
        let Bounds { least, most } = self.bounds(order);
        if least != 0 {
            return FITS..=FITS;
        }
        let free = self.frames();
        // No block is usable. So if order 9 would do, no pageblock is free. Otherwise free
        // pageblocks count as blocks, too.
        let whole = self.bounds(Order::PAGEBLOCK).most / Order::PAGEBLOCK.frames();
        let index = |blocks: u64| {
            let wanted = (1000 + free * 1000 / order.frames()).checked_div(blocks);
            wanted.map_or(0, |wanted| 1000 - i32::try_from(wanted).unwrap_or(1000))
        };
        // The index rises with the number of blocks.
        let low = index(self.small_blocks.least + whole);
        let high = index(self.small_blocks.most + whole);
        if most != 0 { FITS..=high } else { low..=high }
    }

    /// Adds a pageblock with `free` free frames, whose largest free run has at most the order
    /// `largest`.
    fn count_partial(&mut self, free: u64, largest: u8) {
        let used = PAGEBLOCK_FRAMES - free;
        for order in 0..=largest {
            // Each frame in use lies in one run of the order at most.
            let least = (PAGEBLOCK_FRAMES >> order).saturating_sub(used) << order;
            let most = free >> order << order;
            self.usable[usize::from(order)].add(if order == 0 { free } else { least }, most);
        }
        // The buddy of each free block has a frame in use. A frame in use has one such buddy in
        // each order.
        let most = free.min(used * u64::from(RUN_ORDERS));
        self.small_blocks.add(free.div_ceil(1 << largest), most);
    }

    /// Adds the free pageblocks of a tree.
    fn count_free(&mut self, blocks: u64) {
        let frames = blocks * PAGEBLOCK_FRAMES;
        for usable in &mut self.usable[..=usize::from(Order::PAGEBLOCK.get())] {
            usable.add(frames, frames);
        }
        // At least this number of pairs is free: if more than half of the tree's blocks are free,
        // some of them are buddies.
        let pairs = blocks.saturating_sub(TREE_BLOCKS as u64 / 2);
        let size = Order::MAX.frames();
        self.usable[usize::from(Order::MAX.get())].add(pairs * size, blocks / 2 * size);
    }
}

impl Allocator<'_> {
    /// Estimates how fragmented the free memory of a zone is. Much cheaper than
    /// [`free_areas`](Self::free_areas): it reads 12 bytes for each 64 MiB, and 96 bytes more where
    /// a pageblock is in partial use.
    ///
    /// The number of free pageblocks is exact. Frames in per-CPU caches count as in use. While
    /// other CPUs allocate and free, some blocks may be counted in a state that they had a moment
    /// ago.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn estimate(&self, zone: ZoneId) -> FreeEstimate {
        let zone = self.zone(zone).zone;
        let mut estimate = FreeEstimate::default();
        for tree in zone.tree_ids() {
            let summary = zone.summary(tree);
            estimate.count_free(u64::from(summary.free()).min(TREE_BLOCKS as u64));
            if !summary.has_partial() {
                continue;
            }
            let run_bounds = zone.arrays.run_bounds.of_tree(tree);
            for (state, run_bound) in zone.arrays.states.of_tree(tree).iter().zip(run_bounds) {
                let state = state.load();
                let count = state.count();
                if !state.is_free() && count < BLOCK_FRAMES {
                    let free = u64::from(BLOCK_FRAMES - count);
                    // A run has at most as many frames as are free.
                    let largest = run_bound.load().largest().min(order_within(free));
                    estimate.count_partial(free, largest);
                }
            }
        }
        estimate
    }
}

/// Returns the largest order of a run of at most `frames` frames, which must not be 0.
fn order_within(frames: u64) -> u8 {
    u8::try_from(frames.ilog2()).unwrap_or(RUN_ORDERS - 1)
}

const _: () = assert!(index(PAGEBLOCK_FRAMES) == 1 << RUN_ORDERS);
