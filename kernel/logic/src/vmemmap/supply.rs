//! Frames on which parts of the memmap are restored.

use super::machine::Machine;
use ebb_mm::{Frame, FrameRange};

/// The least number of blocks for which the frames are allocated by the pageblock.
const MANY: u64 = 32;

const NONE: FrameRange = FrameRange::new(Frame::new(0), 0);

/// Frames on which parts of the memmap are restored. For many blocks they are allocated by the
/// pageblock, because they may stay long and should not break up further pageblocks. For few blocks
/// they are allocated one by one.
#[derive(Debug)]
pub struct Supply<M: Machine> {
    machine: M,
    /// Allocated frames in a row that are not yet used.
    run: FrameRange,
    /// Number of blocks still to be restored.
    blocks: u64,
}

impl<M: Machine> Supply<M> {
    /// Returns a supply of memmap frames for `blocks` blocks of `machine`. It has no frames yet.
    #[inline]
    pub const fn new(machine: M, blocks: u64) -> Self {
        Self {
            machine,
            run: NONE,
            blocks,
        }
    }

    /// Fills `wanted` with frames for one block and returns `true`. Returns `false` if there are
    /// not enough frames; then none is allocated for `wanted`.
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

/// Fills `wanted` with any free frames of `machine` and returns `true`. Returns `false` if there
/// are not enough frames; then none is allocated.
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
