//! Frames for the parts of the memmap that come back.

use super::machine::Machine;
use ebb_mm::{Frame, FrameRange};

/// From so many blocks on, frames for their parts of the memmap come by the pageblock.
const MANY: u64 = 32;

const NONE: FrameRange = FrameRange::new(Frame::new(0), 0);

/// Frames to restore parts of the memmap on. For many blocks they come by the pageblock, so that no other block is
/// broken up for what may stay long; for few of them as there are any.
#[derive(Debug)]
pub struct Supply<M: Machine> {
    machine: M,
    /// Frames that follow each other.
    run: FrameRange,
    /// Blocks that are still to come.
    blocks: u64,
}

impl<M: Machine> Supply<M> {
    /// Nothing yet, for so many blocks.
    #[inline]
    pub const fn new(machine: M, blocks: u64) -> Self {
        Self {
            machine,
            run: NONE,
            blocks,
        }
    }

    /// Fills a slice with frames, all or none.
    pub(super) fn get(&mut self, wanted: &mut [Frame]) -> bool {
        let count = wanted.len() as u64;
        if self.run.frames < count && self.blocks >= MANY {
            self.refill();
        }
        self.blocks = self.blocks.saturating_sub(1);
        if self.run.frames < count {
            return get_any(self.machine, wanted);
        }
        for (index, frame) in (0..).zip(wanted) {
            *frame = self.run.start.offset(index);
        }
        self.run = FrameRange::new(self.run.start.offset(count), self.run.frames - count);
        true
    }

    fn refill(&mut self) {
        if let Ok(block) = self.machine.allocate_block() {
            self.free();
            self.run = FrameRange::new(block, M::ENTRIES);
        }
    }

    fn free(&mut self) {
        let run = core::mem::replace(&mut self.run, NONE);
        if !run.is_empty() {
            self.machine.free(run);
        }
    }
}

impl<M: Machine> Drop for Supply<M> {
    fn drop(&mut self) {
        self.free();
    }
}

/// Fills a slice with whatever frames there are, all or none.
pub(super) fn get_any<M: Machine>(machine: M, wanted: &mut [Frame]) -> bool {
    let taken = machine.allocate_many(wanted);
    let all = taken == wanted.len();
    if !all {
        for &frame in &wanted[..taken] {
            machine.free(FrameRange::new(frame, 1));
        }
    }
    all
}
