//! Taking a free block out and putting it back: the one way in which free memory is used without
//! being allocated (to report it, to hint it, to compact into it).

use crate::{
    Allocator, Frame, FrameRange, ZoneKind,
    frame::PAGEBLOCK_FRAMES,
    state::{Class, State},
    summary::TREE_BLOCKS,
    zone::ZoneRef,
};

/// A free pageblock that was taken out. Nobody can allocate it until it is put back; dropping this
/// loses the block and nothing else.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the block is lost unless it is put back"]
pub struct IsolatedBlock {
    pub(crate) zone: usize,
    pub(crate) block: usize,
    pub(crate) start: Frame,
}

impl IsolatedBlock {
    /// Its frames.
    pub fn range(&self) -> FrameRange {
        FrameRange::new(self.start, PAGEBLOCK_FRAMES)
    }

    /// The zone that it is of.
    pub fn zone(&self) -> usize {
        self.zone
    }
}

/// What became of a block while it was isolated.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PutBack {
    /// Nothing: if it was to be reported, it still is.
    Unchanged,
    /// The host has dropped its memory: it is not reported again before it was used.
    Reported,
}

impl Allocator<'_> {
    /// Takes the pageblock of this frame out, if all of it is free.
    pub fn isolate(&self, frame: Frame) -> Option<IsolatedBlock> {
        let (zone, block) = self.locate(frame)?;
        self.isolate_block(zone, block, |_| true)
    }

    pub(crate) fn isolate_block(
        &self,
        zone: usize,
        block: usize,
        wanted: impl Fn(State) -> bool,
    ) -> Option<IsolatedBlock> {
        let at = self.zone(zone);
        self.hub.count_isolation();
        if !at.block(block).isolate(wanted) {
            return None;
        }
        at.zone.count_free(-(PAGEBLOCK_FRAMES.cast_signed()));
        Some(IsolatedBlock {
            zone,
            block,
            start: at.zone.first_frame(block),
        })
    }

    /// Puts an isolated block back.
    pub fn put_back(&self, block: IsolatedBlock, how: PutBack) {
        let at = self.zone(block.zone);
        at.block(block.block).put_back(how == PutBack::Reported);
        at.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
    }

    /// Frames that are isolated at this moment in zones up to this kind.
    pub(crate) fn isolated_frames(&self, highest: ZoneKind) -> u64 {
        (0..self.zones())
            .map(|zone| self.zone(zone))
            .filter(|at| at.zone.kind <= highest)
            .map(|at| at.isolated_frames())
            .sum()
    }
}

impl ZoneRef<'_, '_> {
    pub(crate) fn isolated_frames(self) -> u64 {
        let blocks: u64 = self
            .zone
            .arrays
            .summaries
            .iter()
            .map(|summary| u64::from(summary.load().count(Class::Isolated)).min(TREE_BLOCKS as u64))
            .sum();
        // `Relaxed`: a hint; who fails for its want tries again.
        let borrowed = self
            .zone
            .record
            .borrowed
            .load(crate::sync::Ordering::Relaxed);
        blocks * PAGEBLOCK_FRAMES + borrowed
    }
}
