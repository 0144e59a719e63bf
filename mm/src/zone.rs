//! A zone: where its frames are, and what a search for free ones goes by.

use crate::{
    Frame, Mobility, ZoneKind,
    block::{Block, Watch},
    config::{Extent, Extents},
    frame::{PAGEBLOCK_FRAMES, index},
    giant::{AtomicGiant, GIANT_TREES, GIANT_TREES_SHIFT},
    header::ZoneRecord,
    hub::Hub,
    low_memory::LowMemory,
    lowmem_reserve::LowmemReserve,
    map::Kind,
    metadata::Arrays,
    reach::{RUN_ORDERS, Reach},
    state::{Change, Class, State},
    summary::{Summary, TREE_BLOCKS},
    sync::Ordering,
    watermark::AtomicWatermarks,
};

/// One zone.
#[derive(Debug)]
pub(crate) struct Zone<'m> {
    pub(crate) kind: ZoneKind,
    pub(crate) node: u16,
    pub(crate) extents: Extents,
    pub(crate) arrays: Arrays<'m>,
    pub(crate) record: &'m ZoneRecord,
    pub(crate) marks: AtomicWatermarks,
    pub(crate) lowmem_reserve: LowmemReserve,
    pub(crate) low_memory: LowMemory,
}

/// What a search looks for: blocks that are as good as each other.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Free, and the host holds memory for it.
    Touched,
    /// Free, and nothing of it is on the host.
    Untouched,
    /// In partial use, its largest free runs of this order; no front takes its frames from it.
    Partial(Mobility, u8),
    /// In partial use, and a front takes its frames from it.
    Held(Mobility),
}

impl Wanted {
    /// What a block is good for, if anything.
    #[inline]
    pub(crate) const fn of(state: State, reach: Reach) -> Option<Self> {
        match state.class() {
            Class::Touched => Some(Self::Touched),
            Class::Untouched => Some(Self::Untouched),
            Class::Partial(mobility) if state.is_held() => Some(Self::Held(mobility)),
            Class::Partial(mobility) => Some(Self::Partial(mobility, reach.largest())),
            Class::Full(_) | Class::Isolated => None,
        }
    }

    /// The class of such blocks.
    #[inline]
    pub(crate) const fn class(self) -> Class {
        match self {
            Self::Touched => Class::Touched,
            Self::Untouched => Class::Untouched,
            Self::Partial(mobility, _) | Self::Held(mobility) => Class::Partial(mobility),
        }
    }

    /// Its place in the map of trees.
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

    /// Everything that is searched for.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let partial = Mobility::ALL
            .into_iter()
            .flat_map(|mobility| (0..RUN_ORDERS).map(move |order| Self::Partial(mobility, order)));
        let held = Mobility::ALL.map(Self::Held);
        partial.chain(held).chain([Self::Touched, Self::Untouched])
    }
}

/// The one kind of the map of giants.
pub(crate) const FREE_GIANTS: Kind = Kind {
    index: 0,
    inverted: true,
};

impl<'m> Zone<'m> {
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

    pub(crate) fn blocks(&self) -> usize {
        self.arrays.states.len()
    }

    /// The index of the block that holds this frame.
    #[inline]
    pub(crate) fn block_of(&self, frame: Frame) -> Option<usize> {
        let block = frame.number() / PAGEBLOCK_FRAMES;
        self.extents.as_slice().iter().find_map(|extent| {
            let inside = block.wrapping_sub(extent.first());
            (inside < extent.blocks()).then(|| index(extent.base() + inside))
        })
    }

    /// The first frame of a block. Of the first and the last tree of an extent it may be another zone's.
    #[inline]
    pub(crate) fn first_frame(&self, block: usize) -> Frame {
        let (block, trees) = (block as u64, TREE_BLOCKS as u64);
        for extent in self.extents.as_slice() {
            if (block / trees).wrapping_sub(extent.base_tree()) < extent.trees() {
                // Both are as far from the start of a tree, so this is not below 0.
                return Frame::new((extent.first() + block - extent.base()) * PAGEBLOCK_FRAMES);
            }
        }
        unreachable!("block {block} of {}", self.blocks())
    }

    /// Free frames by the shared count, which fronts tell late.
    #[inline]
    pub(crate) fn free_frames(&self) -> u64 {
        // `Relaxed`: a sum that is out of date at once anyway.
        u64::try_from(self.record.free.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Counts frames that became free (positive) or are free no longer; how many are free now.
    #[inline]
    pub(crate) fn count_free(&self, frames: i64) -> i64 {
        // `SeqCst` for `LowMemory::rose`, which comes after it.
        let free = self
            .record
            .free
            .fetch_add(frames, Ordering::SeqCst)
            .wrapping_add(frames);
        if frames > 0 {
            let frames = u64::try_from(free).unwrap_or(0);
            self.low_memory.rose(frames, || self.marks.load().high);
        }
        free
    }

    /// Looks whether it has as many free frames as its high mark, however it came by them.
    pub(crate) fn look_whether_it_rose(&self) {
        self.low_memory
            .rose(self.free_frames(), || self.marks.load().high);
    }

    /// Whether it is to be told that it ran low.
    pub(crate) fn fell(&self) -> bool {
        self.low_memory.fell(self.marks.load(), || {
            u64::try_from(self.record.free.load(Ordering::SeqCst)).unwrap_or(0)
        })
    }

    #[inline]
    pub(crate) fn count_isolated(&self, frames: i64) {
        // Wraps around for negative ones. `Relaxed`: who fails for want of these tries again.
        self.record
            .isolated
            .fetch_add(frames.cast_unsigned(), Ordering::Relaxed);
    }

    /// How often free frames were taken out. `Acquire` pairs with the `Release` of
    /// `count_isolation`: who finds frames isolated finds them counted.
    pub(crate) fn isolations(&self) -> u64 {
        self.record.isolations.load(Ordering::Acquire)
    }

    /// Counts a taking out, before it happens.
    pub(crate) fn count_isolation(&self) {
        self.record.isolations.fetch_add(1, Ordering::Release);
    }

    /// Forgets what the host holds of single frames of a block.
    pub(crate) fn forget_touched(&self, block: usize) {
        if let Some(touched) = self.arrays.touched.get(block) {
            for word in 0..crate::bitmap::WORDS {
                touched.unmark(word, !0);
            }
        }
    }

    /// Free frames that are taken out at this moment, by whomever.
    pub(crate) fn isolated_frames(&self) -> u64 {
        // Who finds what a host has taken is told so by `isolations`, if this was too early.
        let taken = self.record.taken.load(Ordering::Relaxed);
        let isolated = self.record.isolated.load(Ordering::Relaxed);
        isolated.saturating_add(taken).min(self.managed())
    }

    /// Frames that there are. `Relaxed`: changes only when memory goes offline or comes online.
    pub(crate) fn managed(&self) -> u64 {
        self.record.managed.load(Ordering::Relaxed)
    }

    pub(crate) fn trees(&self) -> usize {
        self.arrays.summaries.len()
    }

    /// The index of the giant that has this tree.
    #[inline]
    pub(crate) fn giant_of(&self, tree: usize) -> usize {
        let mut base = 0;
        for extent in self.extents.as_slice() {
            let inside = (tree as u64).wrapping_sub(extent.base_tree());
            if inside < extent.trees() {
                let giant = (extent.first_tree() + inside) >> GIANT_TREES_SHIFT;
                return index(base + giant - extent.first_giant());
            }
            base += extent.giants();
        }
        unreachable!("tree {tree} of {}", self.trees())
    }

    /// The giant that has this tree.
    #[inline]
    pub(crate) fn giant(&self, tree: usize) -> &'m AtomicGiant {
        &self.arrays.giants[self.giant_of(tree)]
    }

    /// The trees of the giant that has this tree, as many as there are.
    pub(crate) fn giant_trees(&self, tree: usize) -> core::ops::Range<usize> {
        let inside = |extent: &Extent| (tree as u64).wrapping_sub(extent.base_tree());
        let of = |extent: &&Extent| inside(extent) < extent.trees();
        let Some(extent) = self.extents.as_slice().iter().find(of) else {
            return tree..tree + 1;
        };
        let number = extent.first_tree() + inside(extent);
        let first = number >> GIANT_TREES_SHIFT << GIANT_TREES_SHIFT;
        let end = (first + GIANT_TREES as u64).min(extent.first_tree() + extent.trees());
        let at = |number: u64| index(extent.base_tree() + number - extent.first_tree());
        at(first.max(extent.first_tree()))..at(end)
    }

    /// The first tree of a giant that has all of its.
    pub(crate) fn first_tree(&self, giant: usize) -> Option<usize> {
        let mut base = 0;
        for extent in self.extents.as_slice() {
            let inside = (giant as u64).wrapping_sub(base);
            if inside < extent.giants() {
                let first = (extent.first_giant() + inside) << GIANT_TREES_SHIFT;
                let offset = first.checked_sub(extent.first_tree())?;
                let whole = offset + GIANT_TREES as u64 <= extent.trees();
                return whole.then_some(index(extent.base_tree() + offset));
            }
            base += extent.giants();
        }
        None
    }

    /// What a tree has. Where a giant is, or was, used as a whole, its word overrules those below.
    #[inline]
    pub(crate) fn summary(&self, tree: usize) -> Summary {
        let giant = self.giant(tree).load();
        if giant.is_huge() {
            Summary::all(Class::Full(giant.mobility()))
        } else if giant.is_touched() {
            Summary::all(Class::Touched)
        } else {
            self.arrays.summaries[tree].load()
        }
    }

    /// Says that a tree may have what is wanted.
    #[inline]
    pub(crate) fn announce(&self, wanted: Wanted, tree: usize) {
        self.arrays.map.announce(wanted.kind(), tree);
    }

    /// Whether a search for it would come to the tree.
    pub(crate) fn shows(&self, wanted: Wanted, tree: usize) -> bool {
        self.arrays.map.shows(wanted.kind(), tree)
    }

    /// Whether a tree has a block that may be what is wanted.
    pub(crate) fn has(&self, wanted: Wanted, tree: usize) -> bool {
        if self.summary(tree).count(wanted.class()) == 0 {
            return false;
        }
        let first = tree * TREE_BLOCKS;
        !matches!(wanted.class(), Class::Partial(_))
            || (first..first + TREE_BLOCKS).any(|block| self.offers(block) == Some(wanted))
    }

    /// What a block is good for.
    fn offers(&self, block: usize) -> Option<Wanted> {
        let state = self.arrays.states[block].load();
        Wanted::of(state, self.arrays.reaches[block].load())
    }

    /// Notes that a search for it found nothing in the tree, if that is how it is.
    #[cold]
    pub(crate) fn retire(&self, wanted: Wanted, tree: usize) {
        if !self.has(wanted, tree) {
            self.arrays
                .map
                .retire(wanted.kind(), tree, || self.has(wanted, tree));
        }
    }
}

/// A zone and those who must hear of what happens in it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ZoneRef<'a, 'm> {
    pub(crate) zone: &'a Zone<'m>,
    pub(crate) hub: &'a Hub<'m>,
}

/// A block's place: hears of changes of its state and tells the summary, the search and the
/// reporter.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Seat<'a, 'm> {
    at: ZoneRef<'a, 'm>,
    block: usize,
}

impl Watch for Seat<'_, '_> {
    #[inline]
    fn enter(&self) -> bool {
        let tree = self.block / TREE_BLOCKS;
        let giant = self.at.zone.giant_of(tree);
        self.at.zone.arrays.giants[giant].enter(|| self.at.hand_down(giant))
    }

    #[inline]
    fn leave(&self) {
        let zone = self.at.zone;
        let giant = zone.giant_of(self.block / TREE_BLOCKS);
        if zone.arrays.giants[giant].leave() {
            zone.arrays.giant_map.announce(FREE_GIANTS, giant);
        }
    }

    #[inline]
    fn changed(&self, change: Change) {
        let ZoneRef { zone, hub } = self.at;
        let (old, new) = (change.old.class(), change.new.class());
        if old == new && change.old.is_held() == change.new.is_held() {
            return;
        }
        let tree = self.block / TREE_BLOCKS;
        if old != new {
            zone.arrays.summaries[tree].count(old, new);
        }
        let reach = zone.arrays.reaches[self.block].load();
        if let Some(wanted) = Wanted::of(change.new, reach) {
            zone.announce(wanted, tree);
        }
        if old != new && change.new.is_free() {
            self.leave();
            if new == Class::Touched {
                hub.freed_block(|| zone.first_frame(self.block));
            }
        }
    }

    fn reaches(&self, reach: Reach) {
        let zone = self.at.zone;
        let state = zone.arrays.states[self.block].load_after_reach();
        if let Some(wanted @ (Wanted::Partial(..) | Wanted::Held(_))) = Wanted::of(state, reach) {
            zone.announce(wanted, self.block / TREE_BLOCKS);
        }
    }
}

impl<'a, 'm> ZoneRef<'a, 'm> {
    #[inline]
    pub(crate) fn block(self, block: usize) -> Block<'a, Seat<'a, 'm>> {
        let arrays = &self.zone.arrays;
        Block {
            state: &arrays.states[block],
            bits: &arrays.bits[block],
            reach: &arrays.reaches[block],
            touched: arrays.touched.get(block),
            watch: Seat { at: self, block },
        }
    }
}
