//! Allocates and frees whole GiB regions of a zone, frees pageblocks in bulk, and splits allocated
//! blocks.

use crate::{
    Allocator, Frame, Mobility, Order,
    block::Watch,
    frame::PAGEBLOCK_FRAMES,
    giant::{GIANT_BLOCKS, GIANT_TREES, Giant},
    reach::Reach,
    state::Change,
    summary::{TREE_BLOCKS, TREE_FRAMES},
    zone::{FREE_GIANTS, Wanted, ZoneRef},
};

/// Returns the indices of the 512 pageblocks of the GiB whose first tree is `first_tree`.
pub(crate) fn blocks_from(first_tree: usize) -> core::ops::Range<usize> {
    let first = first_tree * TREE_BLOCKS;
    first..first + GIANT_BLOCKS as usize
}

impl ZoneRef<'_, '_> {
    /// Allocates an aligned GiB that is free as a whole. Returns its first frame, or `None` if
    /// there is none.
    pub(crate) fn take_giant(self, mobility: Mobility) -> Option<Frame> {
        let (map, giants) = (&self.zone.arrays.giant_map, self.zone.arrays.giants);
        let mut from = 0;
        while let Some(giant) = map.next(FREE_GIANTS, from) {
            from = giant + 1;
            // A GiB without all its trees counts the missing ones as used, so it is never taken.
            if giants[giant].take(mobility)
                && let Some(tree) = self.zone.first_tree(giant)
            {
                return Some(self.zone.first_frame(tree * TREE_BLOCKS));
            }
            map.retire(FREE_GIANTS, giant, || giants[giant].load().is_free());
        }
        None
    }

    /// Frees pageblocks that are allocated whole: the first of `blocks` that are in one tree and of
    /// one mobility. Returns their number. Updates the summary, the map and the GiB once for all of
    /// them.
    pub(crate) fn give_wholes(self, blocks: &[Frame]) -> usize {
        let Some(first) = blocks.first().and_then(|&frame| self.zone.block_of(frame)) else {
            return 0;
        };
        let tree = first / TREE_BLOCKS;
        let mobility = self.zone.arrays.states[first].load().mobility();
        let (mut given, mut freed): (u32, u32) = (0, 0);
        let mut changed = None;
        for &frame in blocks {
            let block = self
                .zone
                .block_of(frame)
                .filter(|block| block / TREE_BLOCKS == tree);
            let Some(block) = block else { break };
            let state = &self.zone.arrays.states[block];
            if state.load().mobility() != mobility {
                break;
            }
            let change = state.free_whole();
            given += 1;
            // A pageblock that is being emptied is not free yet.
            if change.new.is_free() {
                changed = Some(change);
                freed += 1;
            }
        }
        if let Some(change) = changed {
            let (old, new) = (change.old.class(), change.new.class());
            self.zone.arrays.summaries[tree].count_many(old, new, freed.into());
            self.zone.announce(Wanted::Touched, tree);
            let giant = self.zone.giant_of(tree);
            if self.zone.arrays.giants[giant].leave_many(freed) {
                self.zone.arrays.giant_map.announce(FREE_GIANTS, giant);
            }
            self.hub
                .freed_blocks(&blocks[..crate::frame::index(given.into())]);
        }
        crate::frame::index(given.into())
    }

    /// Returns the index of the GiB of `frame` and its first tree. Panics if the zone does not have
    /// the whole GiB.
    fn giant_at(self, frame: Frame) -> (usize, usize) {
        let tree = self.zone.block_of(frame).map(|block| block / TREE_BLOCKS);
        let giant = tree.map(|tree| self.zone.giant_of(tree));
        let first = giant.and_then(|giant| self.zone.first_tree(giant));
        let (Some(giant), Some(first)) = (giant, first) else {
            panic!("{frame:?} is not of a whole GiB")
        };
        (giant, first)
    }

    /// Frees a GiB that is allocated as one block. Panics if it is not.
    pub(crate) fn give_giant(self, frame: Frame) {
        let (giant, first) = self.giant_at(frame);
        if !self.zone.arrays.touched.is_empty() {
            // The exact touched bits are older than this use of the GiB. The host may hold all of
            // it now.
            for block in blocks_from(first) {
                self.block(block).coarsen();
            }
        }
        self.zone.arrays.giants[giant].give();
        self.zone
            .arrays
            .map
            .announce_all(Wanted::Touched.kind(), first..first + GIANT_TREES);
        self.zone.arrays.giant_map.announce(FREE_GIANTS, giant);
        self.hub.freed_giant(frame);
    }

    /// Marks the free pageblocks of a GiB that was allocated whole as touched. Any CPU may do so at
    /// any time: the mark is right, or was right a moment ago and costs one more report.
    #[cold]
    pub(crate) fn hand_down(self, giant: usize) {
        let Some(first) = self.zone.first_tree(giant) else {
            return;
        };
        for block in blocks_from(first) {
            if let Some(change) = self.zone.arrays.states[block].set_touched() {
                self.count_free_class(block, change);
            }
        }
    }

    /// Counts a change of a free pageblock's class in the summary and the map.
    pub(crate) fn count_free_class(self, block: usize, change: Change) {
        let tree = block / TREE_BLOCKS;
        let (old, new) = (change.old.class(), change.new.class());
        self.zone.arrays.summaries[tree].count(old, new);
        if let Some(wanted) = Wanted::of(change.new, Reach::ALL) {
            self.zone.announce(wanted, tree);
        }
    }

    /// Copies the touched mark of the GiB of `tree` to the GiB's pageblocks, if the GiB has one.
    pub(crate) fn settle_tree(self, tree: usize) {
        let giant = self.zone.giant_of(tree);
        let word = &self.zone.arrays.giants[giant];
        let seen: Giant = word.load();
        if seen.is_touched() && !seen.is_huge() {
            self.hand_down(giant);
            word.settled(seen);
        }
    }

    /// Turns a GiB that is allocated as one block into 512 pageblocks that are each allocated
    /// whole.
    fn split_giant(self, frame: Frame) {
        let (giant, first) = self.giant_at(frame);
        let word = &self.zone.arrays.giants[giant];
        let seen = word.load();
        assert!(
            seen.is_huge(),
            "{frame:?} is split and is not allocated: {seen:?}"
        );
        for block in blocks_from(first) {
            let at = self.block(block);
            at.coarsen();
            if let Some(change) = at.state.take_whole(seen.mobility()) {
                at.watch.changed(change);
            }
        }
        word.split(GIANT_BLOCKS);
    }
}

impl Allocator<'_> {
    /// Splits an allocated block of `order`, so that it may be freed in blocks of order `into`.
    ///
    /// Costs nothing below the order of a pageblock, as such runs may be freed in parts in any
    /// case. Costs one cache line and one exchange for each pageblock that is split, and an
    /// exchange and an addition for each pageblock of a GiB.
    ///
    /// # Panics
    /// If `frame` is not aligned to `order`, or `into` is not below `order`. Also if the block is
    /// not allocated at this order, as far as the metadata shows that.
    pub fn split(&self, frame: Frame, order: Order, into: Order) {
        assert!(
            into < order && frame.is_aligned(order),
            "{frame:?} of order {} split into order {}",
            order.get(),
            into.get()
        );
        let (zone, first) = self.locate_managed(frame);
        let at = self.zone(zone);
        if order == Order::GIANT {
            at.split_giant(frame);
        }
        if order >= Order::PAGEBLOCK && into < Order::PAGEBLOCK {
            let blocks = order.frames() / PAGEBLOCK_FRAMES;
            for block in first..first + crate::frame::index(blocks) {
                at.block(block).split();
            }
        }
    }
}

const _: () = assert!(TREE_FRAMES * GIANT_TREES as u64 == Order::GIANT.frames());
