//! Allocates and frees whole GiB regions of a zone, frees pageblocks in bulk, and splits allocated
//! blocks.

use crate::{
    Allocator, Frame, Mobility, Order,
    block::Watch,
    frame::PAGEBLOCK_FRAMES,
    gib::{GIB_BLOCKS, GIB_TREES, Gib},
    ids::{BlockId, GibId, Id, TreeId, each},
    run_bound::RunBound,
    state::Change,
    summary::TREE_FRAMES,
    zone::{FREE_GIBS, Wanted, ZoneRef},
};

impl ZoneRef<'_, '_> {
    /// Allocates an aligned GiB that is free as a whole for `mobility`. Returns its first frame, or
    /// `None` if the zone has none.
    pub(crate) fn take_gib(self, mobility: Mobility) -> Option<Frame> {
        let (map, gibs) = (&self.zone.arrays.gib_map, self.zone.arrays.gibs);
        let mut from = GibId::FIRST;
        while let Some(gib) = map.next(FREE_GIBS, from) {
            from = gib.next();
            // A GiB without all its trees counts the missing ones as used, so it is never taken.
            if gibs[gib].take(mobility)
                && let Some(tree) = self.zone.first_tree(gib)
            {
                return Some(self.zone.first_frame(tree.first_block()));
            }
            map.retire(FREE_GIBS, gib, || gibs[gib].load().is_free());
        }
        None
    }

    /// Frees pageblocks that are allocated as a whole: the first of `blocks` that are in one tree
    /// (64 MiB) and of one mobility. Returns their number, which is 0 if `blocks` is empty or its
    /// first frame is not in the zone. Updates the summary, the map and the GiB once for all of
    /// them.
    ///
    /// # Panics
    /// If one of them is not allocated as a whole.
    pub(crate) fn give_wholes(self, blocks: &[Frame]) -> usize {
        let Some(first) = blocks.first().and_then(|&frame| self.zone.block_of(frame)) else {
            return 0;
        };
        let tree = first.tree();
        let mobility = self.zone.arrays.states[first].load().mobility();
        let (mut given, mut freed): (u32, u32) = (0, 0);
        let mut changed = None;
        for &frame in blocks {
            let block = self
                .zone
                .block_of(frame)
                .filter(|block| block.tree() == tree);
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
            let gib = self.zone.gib_of(tree);
            if self.zone.arrays.gibs[gib].leave_many(freed) {
                self.zone.arrays.gib_map.announce(FREE_GIBS, gib);
            }
            self.shared
                .freed_blocks(&blocks[..crate::frame::index(given.into())]);
        }
        crate::frame::index(given.into())
    }

    /// Returns the GiB of `frame` and its first tree. Panics if the zone does not have the whole
    /// GiB.
    fn gib_at(self, frame: Frame) -> (GibId, TreeId) {
        let tree = self.zone.block_of(frame).map(BlockId::tree);
        let gib = tree.map(|tree| self.zone.gib_of(tree));
        let first = gib.and_then(|gib| self.zone.first_tree(gib));
        let (Some(gib), Some(first)) = (gib, first) else {
            panic!("{frame:?} is not of a whole GiB")
        };
        (gib, first)
    }

    /// Frees the GiB at `frame`, which is allocated as one block. Wakes the reporter, the hinter or
    /// the attached host.
    ///
    /// # Panics
    /// If the zone does not have the whole GiB, or it is not allocated as one block.
    pub(crate) fn give_gib(self, frame: Frame) {
        let (gib, first) = self.gib_at(frame);
        if !self.zone.arrays.touched.is_empty() {
            // The exact touched bits are older than this use of the GiB. The host may hold all of
            // it now.
            for block in each(first.blocks_of_gib()) {
                self.block(block).drop_exact_marks();
            }
        }
        self.zone.arrays.gibs[gib].give();
        self.zone
            .arrays
            .map
            .announce_all(Wanted::Touched.kind(), first.trees_of_gib());
        self.zone.arrays.gib_map.announce(FREE_GIBS, gib);
        self.shared.freed_gib(frame);
    }

    /// Marks the free pageblocks of `gib`, which was allocated as a whole, as touched. Does nothing
    /// if the zone lacks a part of the GiB. Any CPU may do so at any time: the mark is right, or
    /// was right a moment ago and costs one more report.
    #[cold]
    pub(crate) fn hand_down(self, gib: GibId) {
        let Some(first) = self.zone.first_tree(gib) else {
            return;
        };
        for block in each(first.blocks_of_gib()) {
            if let Some(change) = self.zone.arrays.states[block].set_touched() {
                self.count_free_class(block, change);
            }
        }
    }

    /// Counts a change of the state of a pageblock in its tree's summary, and announces the new
    /// class in the map. The GiB's count is not changed.
    pub(crate) fn count_free_class(self, block: BlockId, change: Change) {
        let tree = block.tree();
        let (old, new) = (change.old.class(), change.new.class());
        self.zone.arrays.summaries[tree].count(old, new);
        if let Some(wanted) = Wanted::of(change.new, RunBound::ALL) {
            self.zone.announce(wanted, tree);
        }
    }

    /// Moves the touched mark of the GiB that contains `tree` to the GiB's free pageblocks. Does
    /// nothing if the GiB has no such mark or is allocated as a whole.
    pub(crate) fn settle_tree(self, tree: TreeId) {
        let gib = self.zone.gib_of(tree);
        let word = &self.zone.arrays.gibs[gib];
        let seen: Gib = word.load();
        if seen.is_touched() && !seen.is_huge() {
            self.hand_down(gib);
            word.settled(seen);
        }
    }

    /// Turns a GiB that is allocated as one block into 512 pageblocks that are each allocated
    /// whole.
    fn split_gib(self, frame: Frame) {
        let (gib, first) = self.gib_at(frame);
        let word = &self.zone.arrays.gibs[gib];
        let seen = word.load();
        assert!(
            seen.is_huge(),
            "{frame:?} is split and is not allocated: {seen:?}"
        );
        for block in each(first.blocks_of_gib()) {
            let at = self.block(block);
            at.drop_exact_marks();
            if let Some(change) = at.state.take_whole(seen.mobility()) {
                at.watch.changed(change);
            }
        }
        word.split(GIB_BLOCKS);
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
        if order == Order::GIB {
            at.split_gib(frame);
        }
        if order >= Order::PAGEBLOCK && into < Order::PAGEBLOCK {
            let blocks = crate::frame::index(order.frames() / PAGEBLOCK_FRAMES);
            for block in each(first..first.offset(blocks)) {
                at.block(block).split();
            }
        }
    }
}

const _: () = assert!(TREE_FRAMES * GIB_TREES as u64 == Order::GIB.frames());
