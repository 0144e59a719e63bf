//! Reservation of frames that are in use before the first allocation, and marking of memory that
//! does not exist.

use crate::{
    Allocator, ClaimError, Frame, FrameRange, Mobility,
    bitmap::Taken,
    block::words,
    frame::{PAGEBLOCK_FRAMES, index},
    gib::{GIB_BLOCKS, GIB_TREES, GIB_TREES_SHIFT},
    ids::BlockId,
    state::Admission,
    summary::TREE_BLOCKS,
    zone::{Zone, ZoneRef},
};

impl Allocator<'_> {
    /// Marks all frames of `range` as in use: the kernel image, the initial file system, the
    /// metadata itself.
    ///
    /// The frames count as allocated at order 0 and unmovable, with memory of the host. They may be
    /// freed one by one. An empty range succeeds.
    ///
    /// # Errors
    /// Fails with `NotManaged` if a frame is in no pageblock of a zone. Fails with `InUse` if a
    /// frame is allocated, in a per-CPU cache, isolated, offline or without memory. No frame is
    /// marked then.
    pub fn claim(&self, range: FrameRange) -> Result<(), ClaimError> {
        let mut managed = true;
        self.for_each_word(range, |found| {
            managed &= found.is_some();
            managed
        });
        if !managed {
            return Err(ClaimError::NotManaged(range));
        }
        let admit = Admission {
            mobility: Mobility::Unmovable,
            any: true,
            exact_marks: self.shared.exact_marks(),
            hold: false,
            open: false,
        };
        let mut claimed = 0;
        let mut free = true;
        self.for_each_word(range, |found| {
            free &= found.is_some_and(|(at, block, word)| {
                let taken = at.block(block).take_exactly(word, admit);
                if taken {
                    at.zone.hand_out_words(block, 1 << word.word);
                    at.zone.count_free(-i64::from(word.mask.count_ones()));
                    claimed += u64::from(word.mask.count_ones());
                }
                taken
            });
            free
        });
        if free {
            return Ok(());
        }
        self.give_range(FrameRange::new(range.start, claimed));
        Err(ClaimError::InUse(range))
    }

    /// Calls `visit` for each `u64` of the bitmap that `range` spans, in ascending order, with its
    /// zone, its pageblock and the frames. Calls it with `None`, and stops, at the first frame that
    /// is in no pageblock of any zone. Also stops when `visit` returns `false`.
    pub(crate) fn for_each_word(
        &self,
        range: FrameRange,
        mut visit: impl FnMut(Option<(ZoneRef<'_, '_>, BlockId, Taken)>) -> bool,
    ) {
        let end = range.start.number().saturating_add(range.frames);
        let mut frame = range.start.number();
        while frame < end {
            let inside = frame % PAGEBLOCK_FRAMES;
            let next = end.min(frame - inside + PAGEBLOCK_FRAMES);
            let Some((zone, block)) = self.locate(Frame::new(frame)) else {
                visit(None);
                return;
            };
            let frames = u32::try_from(next - frame).unwrap_or(0);
            for word in words(index(inside), frames) {
                if !visit(Some((self.zone(zone), block, word))) {
                    return;
                }
            }
            frame = next;
        }
    }
}

impl Zone<'_> {
    /// Counts the pageblocks of the trees (64 MiB) that a GiB at the edge of an extent lacks as in
    /// use. So such a GiB is never allocated whole. Call this once, before the first use of the
    /// zone.
    pub(crate) fn mark_missing_trees(&self) {
        let mut gibs = self.arrays.gibs.iter();
        for extent in self.extents.as_slice() {
            for gib in 0..extent.gibs() {
                let first = (extent.first_gib() + gib) << GIB_TREES_SHIFT;
                let trees = extent.first_tree()..extent.first_tree() + extent.trees();
                let end = trees.end.min(first + GIB_TREES as u64);
                let lacking = GIB_TREES as u64 - (end - first.max(trees.start));
                if let (Some(word), lacking @ 1..) = (gibs.next(), lacking) {
                    let blocks = lacking * TREE_BLOCKS as u64;
                    word.set_missing(u32::try_from(blocks).unwrap_or(GIB_BLOCKS));
                }
            }
        }
    }
}

impl ZoneRef<'_, '_> {
    /// Marks `frames` frames of one block, from `start` on, as having no memory. Returns `true` if
    /// the block has no memory at all now. Call this only before the first use of the block.
    pub(crate) fn mark_missing(self, block: BlockId, start: Frame, frames: u64) -> bool {
        let at = self.block(block);
        let frames = u32::try_from(frames).unwrap_or(0);
        let change = at.set_missing(frames);
        if change.new.is_missing() {
            return true;
        }
        for word in words(index(start.number() % PAGEBLOCK_FRAMES), frames) {
            at.bits.mark(word.word, word.mask);
        }
        false
    }
}
