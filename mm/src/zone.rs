//! A zone: where its frames are, and the summaries that a search for free frames uses.
//!
//! Two zones may meet at any pageblock. Each then has the trees and GiBs that they share, in which
//! the blocks of the other zone count as missing.

use crate::{
    Frame, Mobility, ZoneKind,
    block::{Block, Watch},
    config::{Extent, Extents},
    frame::{PAGEBLOCK_FRAMES, index},
    gib::{AtomicGib, GIB_TREES, GIB_TREES_SHIFT},
    header::ZoneRecord,
    ids::{BlockId, GibId, Id, TreeId},
    low_memory::LowMemory,
    lowmem_reserve::LowmemReserve,
    map::Kind,
    metadata::Arrays,
    run_bound::{RUN_ORDERS, RunBound},
    shared::Shared,
    state::{Change, Class, State},
    summary::{Summary, TREE_BLOCKS},
    sync::Ordering,
    watermark::AtomicWatermarks,
};

/// One zone of the allocator, with its metadata.
#[derive(Debug)]
pub(crate) struct Zone<'m> {
    pub(crate) kind: ZoneKind,
    pub(crate) node: u16,
    /// The ranges of trees that the zone has.
    pub(crate) extents: Extents,
    pub(crate) arrays: Arrays<'m>,
    /// The zone's counters, which other address spaces share.
    pub(crate) record: &'m ZoneRecord,
    /// The watermarks.
    pub(crate) marks: AtomicWatermarks,
    /// The frames kept from requests that can use more general zones.
    pub(crate) lowmem_reserve: LowmemReserve,
    /// Whether the zone is low on memory.
    pub(crate) low_memory: LowMemory,
}

/// The kind of pageblock that a search looks for. Pageblocks of one kind are equally good.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Free, and the host may hold memory for it.
    Touched,
    /// Free, and the host holds no memory for it.
    Untouched,
    /// Partly used by this mobility, with largest free runs of this order. No per-CPU cache holds
    /// it.
    Partial(Mobility, u8),
    /// Partly used by this mobility, and held: a per-CPU cache takes frames from it.
    Held(Mobility),
}

impl Wanted {
    /// Returns the kind of a pageblock in this state and with this run bound. Returns `None` if it
    /// is full, isolated or being emptied.
    #[inline]
    pub(crate) const fn of(state: State, run_bound: RunBound) -> Option<Self> {
        match state.class() {
            Class::Touched => Some(Self::Touched),
            Class::Untouched => Some(Self::Untouched),
            Class::Partial(mobility) if state.is_held() => Some(Self::Held(mobility)),
            Class::Partial(mobility) => Some(Self::Partial(mobility, run_bound.largest())),
            Class::Full(_) | Class::Isolated => None,
        }
    }

    /// Returns the state class of pageblocks of this kind.
    #[inline]
    pub(crate) const fn class(self) -> Class {
        match self {
            Self::Touched => Class::Touched,
            Self::Untouched => Class::Untouched,
            Self::Partial(mobility, _) | Self::Held(mobility) => Class::Partial(mobility),
        }
    }

    /// Returns the words of the map that stand for this kind.
    #[inline]
    pub(crate) const fn kind(self) -> Kind {
        const HELD: usize = Mobility::COUNT * RUN_ORDERS as usize;
        const FREE: usize = HELD + Mobility::COUNT;
        let index = match self {
            Self::Partial(mobility, largest) => {
                mobility.index() * RUN_ORDERS as usize + largest as usize
            }
            Self::Held(mobility) => HELD + mobility.index(),
            Self::Touched => FREE,
            Self::Untouched => FREE + 1,
        };
        Kind {
            index,
            inverted: matches!(self, Self::Untouched),
        }
    }

    /// Returns all kinds.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let partial = Mobility::ALL
            .into_iter()
            .flat_map(|mobility| (0..RUN_ORDERS).map(move |order| Self::Partial(mobility, order)));
        let held = Mobility::ALL.map(Self::Held);
        partial.chain(held).chain([Self::Touched, Self::Untouched])
    }
}

/// The only kind of item in the search hints of GiBs: a GiB that is free as a whole.
pub(crate) const FREE_GIBS: Kind = Kind {
    index: 0,
    inverted: true,
};

impl<'m> Zone<'m> {
    /// Returns a zone with these arrays, without watermarks and lowmem reserve.
    pub(crate) fn new(
        (kind, node): (ZoneKind, u16),
        extents: Extents,
        arrays: Arrays<'m>,
        record: &'m ZoneRecord,
    ) -> Self {
        Self {
            kind,
            node,
            extents,
            arrays,
            record,
            marks: AtomicWatermarks::new(crate::Watermarks::default()),
            lowmem_reserve: LowmemReserve::new(),
            low_memory: LowMemory::new(),
        }
    }

    /// Returns the number of pageblocks that the zone's trees have.
    pub(crate) fn blocks(&self) -> usize {
        self.arrays.states.len()
    }

    /// Iterates over the pageblocks of the zone's trees, in ascending order. Some of them may have
    /// no memory.
    pub(crate) fn block_ids(&self) -> impl Iterator<Item = BlockId> {
        self.arrays.states.ids()
    }

    /// Returns the pageblock that contains `frame`, or `None` if no extent of the zone has it.
    #[inline]
    pub(crate) fn block_of(&self, frame: Frame) -> Option<BlockId> {
        let block = frame.number() / PAGEBLOCK_FRAMES;
        self.extents.as_slice().iter().find_map(|extent| {
            let inside = block.wrapping_sub(extent.first());
            (inside < extent.blocks()).then(|| BlockId::new(index(extent.base() + inside)))
        })
    }

    /// Returns the first frame of `block`. In the first and the last tree of an extent the frame
    /// may belong to another zone.
    ///
    /// # Panics
    /// If there is no such pageblock.
    #[inline]
    pub(crate) fn first_frame(&self, block: BlockId) -> Frame {
        let (block, trees) = (block.index() as u64, TREE_BLOCKS as u64);
        for extent in self.extents.as_slice() {
            if (block / trees).wrapping_sub(extent.base_tree()) < extent.trees() {
                // Both are equally far from the start of a tree, so this is not below 0.
                return Frame::new((extent.first() + block - extent.base()) * PAGEBLOCK_FRAMES);
            }
        }
        unreachable!("block {block} of {}", self.blocks())
    }

    /// Returns the number of free frames by the zone's shared count, which per-CPU caches update
    /// late.
    #[inline]
    pub(crate) fn free_frames(&self) -> u64 {
        // `Relaxed`: the sum may be out of date at once in any case.
        u64::try_from(self.record.free.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Adds `frames` to the zone's shared count of free frames: positive for frees, negative for
    /// allocations. Returns the new count. If it rises to the `high` watermark, the zone no longer
    /// counts as low on memory.
    #[inline]
    pub(crate) fn count_free(&self, frames: i64) -> i64 {
        // `SeqCst` for `LowMemory::clear_low`, which comes after it.
        let free = self
            .record
            .free
            .fetch_add(frames, Ordering::SeqCst)
            .wrapping_add(frames);
        if frames > 0 {
            let frames = u64::try_from(free).unwrap_or(0);
            self.low_memory.clear_low(frames, || self.marks.load().high);
        }
        free
    }

    /// Ends the zone's state of low memory if its free frames have reached the `high` watermark.
    /// Otherwise does nothing. Needed for frames that another address space has put back.
    pub(crate) fn check_high_watermark(&self) {
        self.low_memory
            .clear_low(self.free_frames(), || self.marks.load().high);
    }

    /// Marks the zone as low on memory if its free frames are below the low watermark. Returns
    /// `true` if the caller must call `Events::low_memory`: the zone was not marked before, and has
    /// not reached its high watermark since.
    pub(crate) fn mark_low(&self) -> bool {
        self.low_memory.mark_low(self.marks.load(), || {
            u64::try_from(self.record.free.load(Ordering::SeqCst)).unwrap_or(0)
        })
    }

    /// Adds `frames` to the count of isolated frames. Negative for frames that were put back.
    #[inline]
    pub(crate) fn count_isolated(&self, frames: i64) {
        // Wraps around for negative numbers. `Relaxed`: an allocation that fails for lack of these
        // frames tries again.
        self.record
            .isolated
            .fetch_add(frames.cast_unsigned(), Ordering::Relaxed);
    }

    /// Returns how often free frames were isolated. `Acquire` pairs with the `Release` of
    /// `count_isolation`: a CPU that finds frames isolated finds the isolation counted.
    pub(crate) fn isolations(&self) -> u64 {
        self.record.isolations.load(Ordering::Acquire)
    }

    /// Counts an isolation. Call it before the frames are isolated.
    pub(crate) fn count_isolation(&self) {
        self.record.isolations.fetch_add(1, Ordering::Release);
    }

    /// Clears the touched bits of the single frames of a pageblock. Does nothing without frame
    /// marks.
    pub(crate) fn forget_touched(&self, block: BlockId) {
        if let Some(touched) = self.arrays.touched.get(block) {
            for word in 0..crate::bitmap::WORDS {
                touched.unmark(word, !0);
            }
        }
    }

    /// Returns the number of free frames that are isolated or taken out by a host at this moment.
    pub(crate) fn isolated_frames(&self) -> u64 {
        // If this value is too old, `isolations` shows the failing allocation that a host took
        // frames.
        let taken = self.record.taken.load(Ordering::Relaxed);
        let isolated = self.record.isolated.load(Ordering::Relaxed);
        isolated.saturating_add(taken).min(self.managed())
    }

    /// Returns the number of pageblocks that an attached host has taken out. They are in no class
    /// of a summary, but count as free frames.
    pub(crate) fn taken_blocks(&self) -> u64 {
        // Relaxed: an upper bound, and 0 while no host is in a GiB.
        if self.record.taken.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let blocks = self
            .tree_ids()
            .filter(|&tree| self.gib(tree).load().has_host())
            .flat_map(TreeId::blocks);
        blocks
            .filter(|&block| self.arrays.states[block].load().is_taken())
            .count() as u64
    }

    /// Returns the number of frames that have memory and are not offline. `Relaxed`: it changes
    /// only when memory goes offline or comes online.
    pub(crate) fn managed(&self) -> u64 {
        self.record.managed.load(Ordering::Relaxed)
    }

    /// Returns the number of trees (32 pageblocks each).
    pub(crate) fn trees(&self) -> usize {
        self.arrays.summaries.len()
    }

    /// Iterates over the trees (32 pageblocks each) of the zone, in ascending order.
    pub(crate) fn tree_ids(&self) -> impl Iterator<Item = TreeId> {
        self.arrays.summaries.ids()
    }

    /// Returns the GiB that contains `tree` (32 pageblocks).
    ///
    /// # Panics
    /// If there is no such tree.
    #[inline]
    pub(crate) fn gib_of(&self, tree: TreeId) -> GibId {
        let mut base = 0;
        for extent in self.extents.as_slice() {
            let inside = (tree.index() as u64).wrapping_sub(extent.base_tree());
            if inside < extent.trees() {
                let gib = (extent.first_tree() + inside) >> GIB_TREES_SHIFT;
                return GibId::new(index(base + gib - extent.first_gib()));
            }
            base += extent.gibs();
        }
        unreachable!("tree {} of {}", tree.index(), self.trees())
    }

    /// Returns the word of the GiB that contains `tree` (32 pageblocks).
    #[inline]
    pub(crate) fn gib(&self, tree: TreeId) -> &AtomicGib {
        &self.arrays.gibs[self.gib_of(tree)]
    }

    /// Returns the trees (32 pageblocks each) of the zone that are in the same GiB as `tree`. They
    /// may be fewer than a GiB has.
    pub(crate) fn gib_trees(&self, tree: TreeId) -> core::ops::Range<TreeId> {
        let inside = |extent: &Extent| (tree.index() as u64).wrapping_sub(extent.base_tree());
        let of = |extent: &&Extent| inside(extent) < extent.trees();
        let Some(extent) = self.extents.as_slice().iter().find(of) else {
            return tree..tree.next();
        };
        let number = extent.first_tree() + inside(extent);
        let first = number >> GIB_TREES_SHIFT << GIB_TREES_SHIFT;
        let end = (first + GIB_TREES as u64).min(extent.first_tree() + extent.trees());
        let at =
            |number: u64| TreeId::new(index(extent.base_tree() + number - extent.first_tree()));
        at(first.max(extent.first_tree()))..at(end)
    }

    /// Returns the first tree (32 pageblocks) of `gib`. Returns `None` if the zone lacks a tree of
    /// it.
    pub(crate) fn first_tree(&self, gib: GibId) -> Option<TreeId> {
        let mut base = 0;
        for extent in self.extents.as_slice() {
            let inside = (gib.index() as u64).wrapping_sub(base);
            if inside < extent.gibs() {
                let first = (extent.first_gib() + inside) << GIB_TREES_SHIFT;
                let offset = first.checked_sub(extent.first_tree())?;
                let whole = offset + GIB_TREES as u64 <= extent.trees();
                return whole.then_some(TreeId::new(index(extent.base_tree() + offset)));
            }
            base += extent.gibs();
        }
        None
    }

    /// Returns how many of the 32 pageblocks of `tree` are in each class. If the tree's GiB is
    /// allocated as a whole, all count as full. If it was and its pageblocks are not yet marked as
    /// touched, all count as touched and free.
    #[inline]
    pub(crate) fn summary(&self, tree: TreeId) -> Summary {
        let gib = self.gib(tree).load();
        if gib.is_huge() {
            Summary::all(Class::Full(gib.mobility()))
        } else if gib.is_touched() {
            Summary::all(Class::Touched)
        } else {
            self.arrays.summaries[tree].load()
        }
    }

    /// Notes in the map that `tree` may have a pageblock of the kind `wanted`, so that searches
    /// find it.
    #[inline]
    pub(crate) fn announce(&self, wanted: Wanted, tree: TreeId) {
        self.arrays.map.announce(wanted.kind(), tree);
    }

    /// Returns whether the map leads a search for `wanted` to `tree`.
    pub(crate) fn shows(&self, wanted: Wanted, tree: TreeId) -> bool {
        self.arrays.map.shows(wanted.kind(), tree)
    }

    /// Returns whether `tree` (32 pageblocks) has a pageblock of the kind `wanted`. For free
    /// pageblocks only its summary is read, otherwise the state words, too.
    pub(crate) fn has(&self, wanted: Wanted, tree: TreeId) -> bool {
        if self.summary(tree).count(wanted.class()) == 0 {
            return false;
        }
        !matches!(wanted.class(), Class::Partial(_))
            || tree
                .blocks()
                .any(|block| self.offers(block) == Some(wanted))
    }

    /// Returns the kind of a pageblock, or `None` if no search looks for it.
    fn offers(&self, block: BlockId) -> Option<Wanted> {
        let state = self.arrays.states[block].load();
        Wanted::of(state, self.arrays.run_bounds[block].load())
    }

    /// Removes `tree` from the map for `wanted`, if it has no such pageblock. If it gets one at the
    /// same time, it stays in the map.
    #[cold]
    pub(crate) fn retire(&self, wanted: Wanted, tree: TreeId) {
        if !self.has(wanted, tree) {
            self.arrays
                .map
                .retire(wanted.kind(), tree, || self.has(wanted, tree));
        }
    }
}

/// A zone, with the state that all zones share.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ZoneRef<'a, 'm> {
    pub(crate) zone: &'a Zone<'m>,
    pub(crate) shared: &'a Shared<'m>,
}

/// The [`Watch`] of a pageblock in a zone: passes changes of its state on to the summary, the map,
/// the GiB and the reporter.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BlockObserver<'a, 'm> {
    at: ZoneRef<'a, 'm>,
    block: BlockId,
}

impl Watch for BlockObserver<'_, '_> {
    #[inline]
    fn enter(&self) -> bool {
        let gib = self.at.zone.gib_of(self.block.tree());
        self.at.zone.arrays.gibs[gib].enter(|| self.at.hand_down(gib))
    }

    #[inline]
    fn leave(&self) {
        let zone = self.at.zone;
        let gib = zone.gib_of(self.block.tree());
        if zone.arrays.gibs[gib].leave() {
            zone.arrays.gib_map.announce(FREE_GIBS, gib);
        }
    }

    #[inline]
    fn changed(&self, change: Change) {
        let ZoneRef { zone, shared } = self.at;
        let (old, new) = (change.old.class(), change.new.class());
        if old == new && change.old.is_held() == change.new.is_held() {
            return;
        }
        let tree = self.block.tree();
        if old != new {
            zone.arrays.summaries[tree].count(old, new);
        }
        let run_bound = zone.arrays.run_bounds[self.block].load();
        if let Some(wanted) = Wanted::of(change.new, run_bound) {
            zone.announce(wanted, tree);
        }
        if old != new && change.new.is_free() {
            self.leave();
            if new == Class::Touched {
                shared.freed_block(|| zone.first_frame(self.block));
            }
        }
    }

    fn run_bound_changed(&self, run_bound: RunBound) {
        let zone = self.at.zone;
        let state = zone.arrays.states[self.block].load_after_run_bound();
        if let Some(wanted @ (Wanted::Partial(..) | Wanted::Held(_))) = Wanted::of(state, run_bound)
        {
            zone.announce(wanted, self.block.tree());
        }
    }
}

impl<'a, 'm> ZoneRef<'a, 'm> {
    /// Returns the pageblock.
    #[inline]
    pub(crate) fn block(self, block: BlockId) -> Block<'a, BlockObserver<'a, 'm>> {
        let arrays = &self.zone.arrays;
        Block {
            state: &arrays.states[block],
            bits: &arrays.bits[block],
            run_bound: &arrays.run_bounds[block],
            touched: arrays.touched.get(block),
            watch: BlockObserver { at: self, block },
        }
    }
}
