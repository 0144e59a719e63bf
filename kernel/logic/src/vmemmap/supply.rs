//! Frames on which parts of the memmap are restored.

use super::machine::Machine;
use ebb_mm::{Frame, FrameRange};

/// The least number of blocks for which the frames are allocated by the pageblock.
const MANY: u64 = 32;

const NONE: FrameRange = FrameRange::new(Frame::new(0), 0);

/// Frames on which parts of the memmap are restored. For many blocks they are allocated by the
/// pageblock, because they may stay long and should not break up further pageblocks. For few blocks
/// they are allocated one by one.
///
/// Tables are allocated elsewhere. So when all blocks described in such a pageblock are free, the
/// host can take it as a whole.
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

    /// Fills `wanted` with frames for one block, first its pages and then its tables, and returns
    /// `true`. Returns `false` if there are not enough frames; then none is allocated for `wanted`.
    pub(super) fn get(&mut self, wanted: &mut [Frame]) -> bool {
        let (pages, tables) = wanted.split_at_mut(M::PAGES);
        // If no frame is left elsewhere, the tables are taken from the run, too.
        if tables.is_empty() || !get_any(self.machine, tables) {
            return self.take(wanted);
        }
        let found = self.take(pages);
        if !found {
            for &table in &*tables {
                self.machine.free(FrameRange::new(table, 1));
            }
        }
        found
    }

    /// Fills `wanted` with frames of the run, or else with any free frames, and returns `true`.
    /// Returns `false` if there are not enough frames; then none is allocated for `wanted`.
    #[inline]
    fn take(&mut self, wanted: &mut [Frame]) -> bool {
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

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::super::simulated::Simulated;
    use super::super::{Exchange, Restored};
    use super::*;
    use std::vec::Vec;

    /// A table stays while any of its blocks is in use, and would keep a page of the block.
    #[test]
    fn a_block_of_restored_pages_contains_no_table() {
        let machine = &Simulated::<8, 2>::new(256, 0);
        let huge = machine.take_aligned(64).expect("frames are free");
        let blocks = || (0..64).step_by(8).map(|first| huge.offset(first));
        let mut shared = None;
        machine.set_locked(true);
        let mut exchange = Exchange::begin(machine, &mut shared);
        for block in blocks() {
            exchange.share(block).expect("frames are free");
        }
        exchange.end();
        let mut supply = Supply::new(machine, 2 * MANY);
        let mut exchange = Exchange::begin(machine, &mut shared);
        for block in blocks() {
            assert_eq!(exchange.restore(block, &mut supply), Restored::Elsewhere);
        }
        exchange.end();
        let block_of = |frame: Frame| frame.number() / 8;
        let slots = machine.reached();
        for (table, pages) in &slots[..2] {
            let table = block_of(table.expect("single pages"));
            let pages: Vec<_> = pages.iter().map(|&page| block_of(page)).collect();
            assert_eq!(pages, [pages[0]; 8]);
            assert_ne!(table, pages[0]);
        }
    }
}
