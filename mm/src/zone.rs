//! A zone: where its frames are, and the search for some that are free.

use core::cell::Cell;

use crate::{
    Frame, Mobility, Order, ZoneKind,
    bitmap::{Taken, WORD_FRAMES},
    block::{Block, Watch},
    config::Extents,
    frame::{PAGEBLOCK_FRAMES, index},
    giant::{AtomicGiant, GIANT_TREES, GIANT_TREES_SHIFT},
    header::ZoneRecord,
    hub::Hub,
    map::Kind,
    metadata::Arrays,
    reach::{RUN_ORDERS, Reach},
    state::{Admission, BLOCK_FRAMES, Change, Class},
    summary::{Summary, TREE_BLOCKS, TREE_FRAMES, TREE_FRAMES_SHIFT},
    sync::Ordering,
    watermark::AtomicWatermarks,
};

/// How many blocks in use an order above 0 is sought in before a free block is broken up for it.
const PARTIAL_ATTEMPTS: usize = 64;

/// One zone.
#[derive(Debug)]
pub(crate) struct Zone<'m> {
    pub(crate) kind: ZoneKind,
    pub(crate) node: u16,
    pub(crate) extents: Extents,
    pub(crate) arrays: Arrays<'m>,
    pub(crate) record: &'m ZoneRecord,
    pub(crate) marks: AtomicWatermarks,
}

/// What a search looks for: a block of a class, and if that is in partial use, one whose largest
/// runs are of this order.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) class: Class,
    pub(crate) largest: u8,
}

impl Wanted {
    #[inline]
    pub(crate) const fn new(class: Class, largest: u8) -> Self {
        Self { class, largest }
    }

    /// Its place in the map of trees: nine orders for each mobility, then the two free classes.
    #[inline]
    const fn kind(self) -> Option<Kind> {
        const FREE: usize = Mobility::COUNT * RUN_ORDERS as usize;
        let (index, inverted) = match self.class {
            Class::Partial(mobility) => (
                mobility.index() * RUN_ORDERS as usize + self.largest as usize,
                false,
            ),
            Class::Touched => (FREE, false),
            Class::Untouched => (FREE + 1, true),
            Class::Full(_) | Class::Isolated => return None,
        };
        Some(Kind { index, inverted })
    }

    /// Everything that is searched for.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let partial = Mobility::ALL.into_iter().flat_map(|mobility| {
            (0..RUN_ORDERS).map(move |order| Self::new(Class::Partial(mobility), order))
        });
        let free = [Class::Touched, Class::Untouched].map(|class| Self::new(class, 0));
        partial.chain(free)
    }
}

/// The one kind of the map of giants.
pub(crate) const FREE_GIANTS: Kind = Kind {
    index: 0,
    inverted: true,
};

/// Frames of one word of a zone's bitmap.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Word {
    /// The block that they are in.
    pub(crate) block: usize,
    /// Number of the frame of bit 0.
    pub(crate) base: u64,
    /// Which of the 64 frames from there.
    pub(crate) mask: u64,
}

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
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.arrays.states.len()
    }

    /// The index of the block that holds this frame.
    #[inline]
    pub(crate) fn block_of(&self, frame: Frame) -> Option<usize> {
        let tree = frame.number() >> TREE_FRAMES_SHIFT;
        self.extents.as_slice().iter().find_map(|extent| {
            let inside = tree.wrapping_sub(extent.first);
            (inside < extent.trees).then(|| {
                let offset = frame.number() % TREE_FRAMES / PAGEBLOCK_FRAMES;
                index(extent.base + inside) * TREE_BLOCKS + index(offset)
            })
        })
    }

    /// The first frame of a block.
    #[inline]
    pub(crate) fn first_frame(&self, block: usize) -> Frame {
        let tree = (block / TREE_BLOCKS) as u64;
        let offset = (block % TREE_BLOCKS) as u64 * PAGEBLOCK_FRAMES;
        for extent in self.extents.as_slice() {
            let inside = tree.wrapping_sub(extent.base);
            if inside < extent.trees {
                return Frame::new((extent.first + inside) * TREE_FRAMES + offset);
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

    #[inline]
    pub(crate) fn count_free(&self, frames: i64) {
        self.record.free.fetch_add(frames, Ordering::Relaxed);
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
    #[cfg(not(loom))]
    pub(crate) fn forget_touched(&self, block: usize) {
        if let Some(touched) = self.arrays.touched.get(block) {
            for word in 0..crate::bitmap::WORDS {
                touched.unmark(word, !0);
            }
        }
    }

    /// Free frames that are taken out at this moment.
    pub(crate) fn isolated_frames(&self) -> u64 {
        self.record
            .isolated
            .load(Ordering::Relaxed)
            .min(self.managed())
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
            let inside = (tree as u64).wrapping_sub(extent.base);
            if inside < extent.trees {
                let giant = (extent.first + inside) >> GIANT_TREES_SHIFT;
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

    /// The first tree of a giant that has all of its.
    pub(crate) fn first_tree(&self, giant: usize) -> Option<usize> {
        let mut base = 0;
        for extent in self.extents.as_slice() {
            let inside = (giant as u64).wrapping_sub(base);
            if inside < extent.giants() {
                let first = (extent.first_giant() + inside) << GIANT_TREES_SHIFT;
                let offset = first.checked_sub(extent.first)?;
                let whole = offset + GIANT_TREES as u64 <= extent.trees;
                return whole.then_some(index(extent.base + offset));
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
        if let Some(kind) = wanted.kind() {
            self.arrays.map.announce(kind, tree);
        }
    }

    /// Whether a search for it would come to the tree.
    pub(crate) fn shows(&self, wanted: Wanted, tree: usize) -> bool {
        wanted
            .kind()
            .is_none_or(|kind| self.arrays.map.shows(kind, tree))
    }

    /// Whether a tree has a block that may be what is wanted.
    pub(crate) fn has(&self, wanted: Wanted, tree: usize) -> bool {
        if self.summary(tree).count(wanted.class) == 0 {
            return false;
        }
        let first = tree * TREE_BLOCKS;
        !matches!(wanted.class, Class::Partial(_))
            || (first..first + TREE_BLOCKS).any(|block| {
                self.arrays.states[block].load().is(wanted.class)
                    && self.arrays.reaches[block].load().largest() == wanted.largest
            })
    }

    /// Notes that a search for it found nothing in the tree, if that is how it is.
    #[cold]
    fn retire(&self, wanted: Wanted, tree: usize) {
        if let Some(kind) = wanted.kind()
            && !self.has(wanted, tree)
        {
            self.arrays
                .map
                .retire(kind, tree, || self.has(wanted, tree));
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
        if old == new {
            return;
        }
        let tree = self.block / TREE_BLOCKS;
        zone.arrays.summaries[tree].count(old, new);
        let reach = zone.arrays.reaches[self.block].load();
        zone.announce(Wanted::new(new, reach.largest()), tree);
        if change.new.is_free() {
            self.leave();
            if new == Class::Touched {
                hub.freed_block();
            }
        }
    }

    fn reaches(&self, reach: Reach) {
        let zone = self.at.zone;
        let class = zone.arrays.states[self.block].load().class();
        if let Class::Partial(_) = class {
            let tree = self.block / TREE_BLOCKS;
            zone.announce(Wanted::new(class, reach.largest()), tree);
        }
    }
}

/// Which of several blocks to take frames from.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Prefer {
    /// The one with the fewest free frames of those that no front takes its frames from.
    Unheld,
    /// The one with the fewest free frames: the others may become free.
    Fullest,
    /// The one with the most: for taking a block over from another mobility.
    Emptiest,
}

/// What a search is for, and how it chooses.
#[derive(Copy, Clone)]
struct Sought {
    wanted: Wanted,
    /// The order that is to be taken.
    order: u8,
    prefer: Prefer,
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

    #[inline]
    pub(crate) fn admission(self, mobility: Mobility) -> Admission {
        Admission {
            mobility,
            any: false,
            fine: self.hub.fine(),
            hold: false,
        }
    }

    /// Takes up to `most` frames of one word, of the block that the last came from if it has any,
    /// for a front, which holds the block from then on.
    pub(crate) fn take_word(
        self,
        last: Option<usize>,
        mobility: Mobility,
        most: u32,
    ) -> Option<Word> {
        let attempt = |block: usize, admit: Admission| {
            let admit = Admission {
                hold: true,
                ..admit
            };
            let taken = self.block(block).take_word(most, admit)?;
            Some(self.word(block, taken))
        };
        self.try_last(last, mobility, attempt)
            .or_else(|| self.place(Order::BASE, mobility, attempt))
    }

    /// Takes one frame.
    pub(crate) fn take_frame(self, mobility: Mobility) -> Option<Frame> {
        self.place(Order::BASE, mobility, |block, admit| {
            let taken = self.block(block).take_word(1, admit)?;
            let word = self.word(block, taken);
            Some(Frame::new(
                word.base + u64::from(word.mask.trailing_zeros()),
            ))
        })
    }

    fn word(self, block: usize, taken: Taken) -> Word {
        let first = self.zone.first_frame(block).number();
        Word {
            block,
            base: first + taken.word as u64 * u64::from(WORD_FRAMES),
            mask: taken.mask,
        }
    }

    /// Takes a run below the order of a pageblock, from the block that the last came from if it
    /// has one.
    pub(crate) fn take_run(
        self,
        last: Option<usize>,
        order: Order,
        mobility: Mobility,
    ) -> Option<Frame> {
        let attempt = |block: usize, admit: Admission| {
            let first = self.block(block).take_run(order, admit)?;
            Some(self.zone.first_frame(block).offset(first as u64))
        };
        let last = last.filter(|&block| self.zone.arrays.reaches[block].load().allows(order.get()));
        self.try_last(last, mobility, attempt)
            .or_else(|| self.place(order, mobility, attempt))
    }

    /// Tries the block that the last frames came from. Not if it is free: the search chooses
    /// which free block is to be used.
    #[inline]
    fn try_last<T>(
        self,
        last: Option<usize>,
        mobility: Mobility,
        attempt: impl Fn(usize, Admission) -> Option<T>,
    ) -> Option<T> {
        let block = last?;
        let partial = self.zone.arrays.states[block]
            .load()
            .is(Class::Partial(mobility));
        if partial {
            attempt(block, self.admission(mobility))
        } else {
            None
        }
    }

    /// Finds a block for frames of this mobility: one in use by it, else a free one that the host
    /// already holds memory for, else one that it does not, else one that a front takes its frames
    /// from, else one of another mobility.
    fn place<T>(
        self,
        order: Order,
        mobility: Mobility,
        attempt: impl Fn(usize, Admission) -> Option<T>,
    ) -> Option<T> {
        let own = self.admission(mobility);
        let any = Admission { any: true, ..own };
        let find = |class, prefer, attempts: usize| {
            let admit = if prefer == Prefer::Emptiest { any } else { own };
            let attempts = Cell::new(attempts);
            let search = |largest| {
                let sought = Sought {
                    wanted: Wanted::new(class, largest),
                    order: order.get(),
                    prefer,
                };
                self.search(sought, &attempts, |block| attempt(block, admit))
            };
            let mut orders = order.get()..RUN_ORDERS;
            match class {
                // The worst fit for taking a block over: it is to be as free as there is.
                Class::Partial(_) if prefer == Prefer::Emptiest => orders.rev().find_map(search),
                // The best fit: blocks whose largest runs are as small as will do.
                Class::Partial(_) => orders.find_map(search),
                _ => search(0),
            }
        };
        const ALL: usize = usize::MAX;
        let few = if order == Order::BASE {
            ALL
        } else {
            PARTIAL_ATTEMPTS
        };
        find(Class::Partial(mobility), Prefer::Unheld, few)
            .or_else(|| find(Class::Touched, Prefer::Fullest, ALL))
            .or_else(|| find(Class::Untouched, Prefer::Fullest, ALL))
            .or_else(|| find(Class::Partial(mobility), Prefer::Fullest, ALL))
            .or_else(|| {
                let mut others = mobility.fallbacks().into_iter();
                others.find_map(|other| find(Class::Partial(other), Prefer::Emptiest, ALL))
            })
            .or_else(|| {
                // Counts of classes are out for an instant while blocks change. A single frame
                // must not be missed for that: the state words are not.
                if order != Order::BASE {
                    return None;
                }
                (0..self.zone.blocks()).find_map(|block| attempt(block, any))
            })
    }

    /// Takes a whole pageblock, or two.
    pub(crate) fn take_whole(self, order: Order, mobility: Mobility) -> Option<Frame> {
        let take = |block: usize| {
            if order == Order::PAGEBLOCK {
                return self.block(block).take_whole(mobility).then_some(block);
            }
            // A tree is aligned, so the lower of two buddies has an even index.
            let (low, high) = (block & !1, block | 1);
            let states = self.zone.arrays.states;
            if !states[low].load().is_free() || !states[high].load().is_free() {
                return None;
            }
            if !self.block(low).take_whole(mobility) {
                return None;
            }
            if !self.block(high).take_whole(mobility) {
                self.block(low).give_whole();
                return None;
            }
            Some(low)
        };
        [Class::Touched, Class::Untouched]
            .into_iter()
            .find_map(|class| {
                let sought = Sought {
                    wanted: Wanted::new(class, 0),
                    order: Order::PAGEBLOCK.get(),
                    prefer: Prefer::Fullest,
                };
                let block = self.search(sought, &Cell::new(usize::MAX), take)?;
                Some(self.zone.first_frame(block))
            })
    }

    /// Tries blocks of a class, tree by tree, at most `attempts` of them.
    fn search<T>(
        self,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let kind = sought.wanted.kind()?;
        let mut from = 0;
        while attempts.get() != 0
            && let Some(tree) = self.zone.arrays.map.next(kind, from)
        {
            from = tree + 1;
            let found = self.search_tree(tree, sought, attempts, &attempt);
            if found.is_some() {
                return found;
            }
            self.zone.retire(sought.wanted, tree);
        }
        None
    }

    fn search_tree<T>(
        self,
        tree: usize,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let class = sought.wanted.class;
        if self.zone.summary(tree).count(class) == 0 {
            return None;
        }
        if class == Class::Touched {
            self.settle_tree(tree);
        }
        let mut untried = !0;
        // Bounded by the blocks of a tree: each turn tries one.
        while attempts.get() != 0
            && let Some(offset) = self.best_block(tree, sought, untried)
        {
            if let Some(found) = attempt(tree * TREE_BLOCKS + offset) {
                return Some(found);
            }
            untried &= !(1 << offset);
            attempts.set(attempts.get() - 1);
        }
        None
    }

    /// The block of a tree that should be tried next. One of a free class is as good as another:
    /// the lowest.
    fn best_block(self, tree: usize, sought: Sought, untried: u32) -> Option<usize> {
        let Sought { wanted, order, .. } = sought;
        let first = tree * TREE_BLOCKS;
        let states = &self.zone.arrays.states[first..first + TREE_BLOCKS];
        let reaches = &self.zone.arrays.reaches[first..first + TREE_BLOCKS];
        let states = states
            .iter()
            .enumerate()
            .filter(|(offset, _)| untried & 1 << offset != 0);
        let mut states = states.map(|(offset, state)| (offset, state.load()));
        if matches!(wanted.class, Class::Touched | Class::Untouched) {
            return states
                .find(|(_, state)| state.is(wanted.class))
                .map(|(offset, _)| offset);
        }
        let mut best = None;
        let mut best_worth = 0;
        for (offset, state) in states {
            let unwanted = sought.prefer == Prefer::Unheld && state.is_held();
            if unwanted || !state.is(wanted.class) {
                continue;
            }
            // Not only those of the order wanted: one that was lowered a moment ago is one too.
            let reach = reaches[offset].load();
            if !reach.allows(order) {
                continue;
            }
            let count = state.count();
            // Never 0: the count of a partial block is 1 to 511.
            let worth = match sought.prefer {
                Prefer::Unheld | Prefer::Fullest => reach.tightness() * BLOCK_FRAMES + count,
                Prefer::Emptiest => BLOCK_FRAMES - count,
            };
            if worth > best_worth {
                best_worth = worth;
                best = Some(offset);
            }
        }
        best
    }
}
