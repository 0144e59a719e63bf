//! Isolation of free pageblocks: taking them out of the allocator and putting them back.
//!
//! This is the one way in which free memory is used without being allocated: to report it, to hint
//! it, or to migrate frames into it.

use crate::{
    Allocator, Frame, FrameRange, Request, ZoneId,
    frame::PAGEBLOCK_FRAMES,
    ids::{BlockId, GibId, TreeId},
    state::{Class, State},
    zone::{FREE_GIBS, Wanted, ZoneRef},
};

/// A free pageblock that is isolated: it cannot be allocated until [`Allocator::put_back`] puts it
/// back.
///
/// If this value is dropped, the pageblock is lost, and nothing else.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the block is lost unless it is put back"]
pub struct IsolatedBlock {
    /// Its zone.
    pub(crate) zone: ZoneId,
    /// The pageblock in that zone.
    pub(crate) block: BlockId,
    /// Its first frame.
    pub(crate) start: Frame,
}

impl IsolatedBlock {
    /// Returns the frames of the pageblock.
    pub fn range(&self) -> FrameRange {
        FrameRange::new(self.start, PAGEBLOCK_FRAMES)
    }

    /// Returns the zone that contains the pageblock.
    pub fn zone(&self) -> ZoneId {
        self.zone
    }
}

/// What happened to a pageblock while it was isolated.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PutBack {
    /// Nothing. If the pageblock was to be reported, it still is.
    Unchanged,
    /// The host has dropped its memory. It is not reported again until it has been used.
    Reported,
}

impl Allocator<'_> {
    /// Isolates the pageblock that contains `frame`. Returns `None` if the frame is in no pageblock
    /// of a zone, or not all of the pageblock is free. A pageblock is not free either if it is
    /// isolated, offline, or allocated with its GiB. Frames in per-CPU caches are not free.
    pub fn isolate(&self, frame: Frame) -> Option<IsolatedBlock> {
        let (zone, block) = self.locate(frame)?;
        self.isolate_block(zone, block, |_| true)
    }

    /// Isolates a pageblock of the zone, and updates the zone's counts. Returns `None` if it is not
    /// free or `wanted` refuses its state.
    pub(crate) fn isolate_block(
        &self,
        zone: ZoneId,
        block: BlockId,
        wanted: impl Fn(State) -> bool,
    ) -> Option<IsolatedBlock> {
        let at = self.zone(zone);
        at.zone.count_isolation();
        at.zone.count_isolated(PAGEBLOCK_FRAMES.cast_signed());
        if !at.block(block).isolate(wanted) {
            at.zone.count_isolated(-(PAGEBLOCK_FRAMES.cast_signed()));
            return None;
        }
        at.zone.count_free(-(PAGEBLOCK_FRAMES.cast_signed()));
        Some(IsolatedBlock {
            zone,
            block,
            start: at.zone.first_frame(block),
        })
    }

    /// Puts an isolated pageblock back, so that it can be allocated again. `how` says whether the
    /// host has dropped its memory. If the host may hold memory for it, this may call
    /// [`Events::report_requested`](crate::Events::report_requested).
    pub fn put_back(&self, block: IsolatedBlock, how: PutBack) {
        let at = self.zone(block.zone);
        at.block(block.block).put_back(how == PutBack::Reported);
        at.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
        at.zone.count_isolated(-(PAGEBLOCK_FRAMES.cast_signed()));
    }

    /// Returns two sums over the zones that `request` may use, from a cache on node `local`: how
    /// often frames were isolated, and the number of frames that are isolated now. The first sum
    /// wraps around and is only compared with its earlier value.
    pub(crate) fn isolated(&self, local: u16, request: Request) -> (u64, u64) {
        self.candidates(local, request)
            .map(|zone| self.zone(zone).zone)
            .fold((0, 0), |(isolations, frames): (u64, u64), zone| {
                (
                    isolations.wrapping_add(zone.isolations()),
                    frames + zone.isolated_frames(),
                )
            })
    }
}

impl ZoneRef<'_, '_> {
    /// Isolates pageblocks of `tree` (64 MiB): those in the mask `blocks`, one bit for each of its
    /// 32 pageblocks, that are free and [touched as a whole](State::is_touched_whole). Returns the
    /// mask of the isolated ones, which is 0 if the GiB is allocated as a whole.
    ///
    /// The GiB's count and the tree's summary are updated once for all of them.
    pub(crate) fn isolate_in_tree(self, tree: TreeId, blocks: u32) -> u32 {
        let zone = self.zone;
        let wanted = blocks.count_ones();
        zone.count_isolation();
        zone.count_isolated(frames_of(wanted));
        let gib = zone.gib_of(tree);
        if !zone.arrays.gibs[gib].enter_many(wanted, || self.hand_down(gib)) {
            zone.count_isolated(-frames_of(wanted));
            return 0;
        }
        let states = zone.arrays.states.of_tree(tree);
        let mut taken = 0_u32;
        for bit in bits(blocks) {
            if states[bit].isolate(State::is_touched_whole).is_some() {
                taken |= 1 << bit;
            }
        }
        let count = taken.count_ones();
        let lost = wanted - count;
        if count != 0 {
            let summary = &zone.arrays.summaries[tree];
            summary.count_many(Class::Touched, Class::Isolated, count.into());
            zone.count_free(-frames_of(count));
        }
        if lost != 0 {
            self.leave_gib(gib, lost);
            zone.count_isolated(-frames_of(lost));
        }
        taken
    }

    /// Puts the pageblocks in the mask `blocks` of one tree back, all of which must be isolated.
    /// `how` says whether the host has dropped their memory. Wakes the reporter, the hinter or the
    /// attached host for those that stay touched. The GiB's count and the tree's summary are
    /// updated once for all of them.
    ///
    /// # Panics
    /// If one of them is not isolated.
    pub(crate) fn put_back_in_tree(self, tree: TreeId, blocks: u32, how: PutBack) {
        let zone = self.zone;
        let states = zone.arrays.states.of_tree(tree);
        let reported = how == PutBack::Reported;
        let mut touched = 0_u32;
        for bit in bits(blocks) {
            let state = &states[bit];
            if reported && state.load().has_exact_marks() {
                zone.forget_touched(tree.block(bit));
            }
            if state.put_back(reported).new.is_touched() {
                touched |= 1 << bit;
            }
        }
        let parts = [
            (touched, Class::Touched, Wanted::Touched),
            (blocks & !touched, Class::Untouched, Wanted::Untouched),
        ];
        for (part, class, wanted) in parts {
            if part != 0 {
                let summary = &zone.arrays.summaries[tree];
                summary.count_many(Class::Isolated, class, part.count_ones().into());
                zone.announce(wanted, tree);
            }
        }
        let count = blocks.count_ones();
        self.leave_gib(zone.gib_of(tree), count);
        for bit in bits(touched) {
            self.shared
                .freed_block(|| zone.first_frame(tree.block(bit)));
        }
        zone.count_free(frames_of(count));
        zone.count_isolated(-frames_of(count));
    }

    /// Lowers the count of a GiB by `blocks` pageblocks that are free now.
    fn leave_gib(self, gib: GibId, blocks: u32) {
        if self.zone.arrays.gibs[gib].leave_many(blocks) {
            self.zone.arrays.gib_map.announce(FREE_GIBS, gib);
        }
    }
}

/// Returns the number of frames in `blocks` pageblocks.
fn frames_of(blocks: u32) -> i64 {
    i64::from(blocks) * PAGEBLOCK_FRAMES.cast_signed()
}

/// Iterates over the positions of the bits that are set in `mask`.
fn bits(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    core::iter::from_fn(move || {
        let lowest = (left != 0).then(|| left.trailing_zeros() as usize);
        left &= left.wrapping_sub(1);
        lowest
    })
}
