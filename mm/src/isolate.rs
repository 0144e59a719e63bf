//! Taking a free block out and putting it back: the one way in which free memory is used without
//! being allocated (to report it, to hint it, to compact into it).

use crate::{Allocator, Frame, FrameRange, Request, frame::PAGEBLOCK_FRAMES, state::State};

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

    /// Puts an isolated block back.
    pub fn put_back(&self, block: IsolatedBlock, how: PutBack) {
        let at = self.zone(block.zone);
        at.block(block.block).put_back(how == PutBack::Reported);
        at.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
        at.zone.count_isolated(-(PAGEBLOCK_FRAMES.cast_signed()));
    }

    /// What a request that fails must know of the isolated: how often frames of the zones that it
    /// may use were taken out (a sum that only tells whether it has changed), and how many are at
    /// this moment.
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
