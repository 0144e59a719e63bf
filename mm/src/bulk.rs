//! Allocation and freeing of many blocks in one call, for code that fills page tables, rings and
//! page caches.

use core::{error, fmt};

use crate::{
    AllocError, Allocator, Contents, CpuCache, Frame, Order, Request,
    frame::{PAGEBLOCK_FRAMES, index},
    group_cache::{GroupMask, freed_twice},
};

/// Why a bulk allocation could not allocate all blocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BulkError {
    /// Number of blocks that were allocated: the first ones of the slice. They belong to the
    /// caller, which may use or free them.
    pub taken: usize,
    /// Why the next block could not be allocated.
    pub error: AllocError,
}

impl fmt::Display for BulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (after {} blocks)", self.error, self.taken)
    }
}

impl error::Error for BulkError {}

impl Allocator<'_> {
    /// Fills the slice `blocks` with allocated blocks, each as `request` describes. Previous values
    /// in the slice are overwritten.
    ///
    /// At order 0, single frames that the cache has ready are taken first, without a call of
    /// [`allocate`](Self::allocate) for each.
    ///
    /// # Errors
    /// Fails with the error of `allocate` for the first block that it cannot allocate. The first
    /// [`BulkError::taken`] entries of `blocks` are allocated then and belong to the caller.
    pub fn allocate_bulk(
        &self,
        cache: &mut CpuCache,
        request: Request,
        blocks: &mut [Frame],
    ) -> Result<(), BulkError> {
        let from_word = request.order == Order::BASE && request.takes_any();
        let mut taken = 0;
        while taken < blocks.len() {
            if from_word {
                for block in &mut blocks[taken..] {
                    let Some(frame) = cache.groups.pop(request.mobility) else {
                        break;
                    };
                    *block = frame;
                    taken += 1;
                }
                if taken == blocks.len() {
                    break;
                }
            }
            // This also takes the next group of 64 frames into the cache.
            match self.allocate(cache, request) {
                Ok(frame) => blocks[taken] = frame,
                Err(error) => return Err(BulkError { taken, error }),
            }
            taken += 1;
        }
        Ok(())
    }

    /// Fills the slice `blocks` with allocated pageblocks and their known [`Contents`]. Previous
    /// values in the slice are overwritten. The order in `request` is ignored.
    ///
    /// Pageblocks of one tree (64 MiB) are taken in one pass over the tree.
    ///
    /// # Errors
    /// Fails with the error of [`allocate_known`](Self::allocate_known) for the first pageblock
    /// that it cannot allocate. The first [`BulkError::taken`] entries of `blocks` are allocated
    /// then and belong to the caller.
    pub fn allocate_pageblocks(
        &self,
        cache: &mut CpuCache,
        request: Request,
        blocks: &mut [(Frame, Contents)],
    ) -> Result<(), BulkError> {
        let request = Request {
            order: Order::PAGEBLOCK,
            ..request
        };
        let mut taken = 0;
        while taken < blocks.len() {
            taken += self.take_pageblocks(cache, request, &mut blocks[taken..]);
            if taken == blocks.len() {
                break;
            }
            // The slow path may still find one. If not, it has the reason.
            match self.allocate_known(cache, request) {
                Ok(known) => blocks[taken] = known,
                Err(error) => return Err(BulkError { taken, error }),
            }
            taken += 1;
        }
        Ok(())
    }

    /// Takes pageblocks while zones are above their `low` watermarks. Returns the number of blocks
    /// filled in.
    fn take_pageblocks(
        &self,
        cache: &mut CpuCache,
        request: Request,
        blocks: &mut [(Frame, Contents)],
    ) -> usize {
        let mut taken = 0_usize;
        for zone in self.candidates(cache.node, request) {
            let at = self.zone(zone);
            let spare = self.spare(zone, at.zone.floor(request, true), cache) / PAGEBLOCK_FRAMES;
            let most = blocks.len().min(taken.saturating_add(index(spare)));
            let first = taken;
            taken += at.take_wholes(request.mobility, &mut blocks[taken..most]);
            let frames = (taken - first) as u64 * PAGEBLOCK_FRAMES;
            self.count(zone, cache, -frames.cast_signed());
        }
        taken
    }

    /// Frees all blocks in the slice `blocks`, which have the same order.
    ///
    /// At order 0, adjacent entries of the slice that belong to the same group of 64 frames are
    /// freed together. Complete groups and pageblocks go back to the zone at once, without staying
    /// in the cache.
    ///
    /// # Panics
    /// Panics like [`free`](Self::free). Blocks before the faulty one may be freed then.
    pub fn free_bulk(&self, cache: &mut CpuCache, blocks: &[Frame], order: Order) {
        if order == Order::PAGEBLOCK {
            self.give_pageblocks(cache, blocks);
            return;
        }
        if order != Order::BASE {
            for &block in blocks {
                self.free(cache, block, order);
            }
            return;
        }
        let mut batch = FreeBatch::new();
        for &frame in blocks {
            batch.free(self, cache, frame);
        }
        batch.finish(self, cache);
    }

    /// Frees pageblocks to the zone. The cache does not keep them.
    fn give_pageblocks(&self, cache: &mut CpuCache, blocks: &[Frame]) {
        let cached = cache.cached_pageblock();
        for &frame in blocks {
            assert!(
                frame.is_aligned(Order::PAGEBLOCK),
                "{frame:?} freed as a pageblock"
            );
            if cached == Some(frame) {
                freed_twice(frame);
            }
        }
        let mut rest = blocks;
        while let Some(&first) = rest.first() {
            let (zone, _) = self.locate_managed(first);
            let given = self.zone(zone).give_wholes(rest);
            let frames = given as u64 * PAGEBLOCK_FRAMES;
            self.count(zone, cache, frames.cast_signed());
            rest = &rest[given..];
        }
    }

    /// Frees frames of one group of 64.
    #[inline(never)]
    fn free_run(&self, cache: &mut CpuCache, run: GroupMask) {
        match run.mask {
            0 => {}
            u64::MAX => self.give_word(cache, run),
            _ => self.free_group(cache, run),
        }
    }
}

/// Collects single frames that are freed one after the other. Consecutive frames of the same group
/// of 64 are freed together, and complete groups go back to the zone at once.
///
/// Use this if the frames come one by one. [`Allocator::free_bulk`] takes a slice. If a batch is
/// dropped without [`finish`](Self::finish), the frames in it stay allocated.
#[derive(Debug)]
#[must_use = "frames are in it until it is finished"]
pub struct FreeBatch {
    run: GroupMask,
}

impl FreeBatch {
    /// Returns an empty batch.
    pub const fn new() -> Self {
        Self {
            run: GroupMask::NONE,
        }
    }

    /// Frees a frame, now or when the batch is finished. All calls for a batch must name the same
    /// allocator.
    ///
    /// # Panics
    /// Panics like [`Allocator::free`], for this frame or an earlier one.
    #[inline]
    pub fn free(&mut self, allocator: &Allocator<'_>, cache: &mut CpuCache, frame: Frame) {
        let freed = GroupMask::of(frame);
        if freed.word != self.run.word {
            let run = core::mem::replace(&mut self.run, freed);
            allocator.free_run(cache, run);
        } else {
            self.run.check_without(freed.mask);
            self.run.mask |= freed.mask;
        }
    }

    /// Frees the frames that are still in the batch.
    ///
    /// # Panics
    /// Panics like [`Allocator::free`].
    pub fn finish(self, allocator: &Allocator<'_>, cache: &mut CpuCache) {
        allocator.free_run(cache, self.run);
    }
}

impl Default for FreeBatch {
    fn default() -> Self {
        Self::new()
    }
}
