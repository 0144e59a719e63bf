//! A zone: where its frames are, and the search for some that are free.

use core::{array, ops::Range};

use crate::{
    Frame, Mobility, Order, ZoneKind,
    bitmap::{Taken, WORD_FRAMES},
    block::{Block, Watch},
    config::Extents,
    frame::{PAGEBLOCK_FRAMES, index},
    group::GROUP_TREES,
    header::ZoneRecord,
    hub::Hub,
    metadata::Arrays,
    state::{Admission, BLOCK_FRAMES, Change, Class},
    summary::{TREE_BLOCKS, TREE_FRAMES, TREE_FRAMES_SHIFT},
    sync::{AtomicU32, Ordering},
    watermark::AtomicWatermarks,
};

/// How many blocks in use an order above 0 is sought in before a free block is broken up for it.
const PARTIAL_ATTEMPTS: usize = 64;

/// One zone.
#[derive(Debug)]
pub(crate) struct Zone<'m> {
    pub(crate) kind: ZoneKind,
    pub(crate) node: u16,
    pub(crate) managed: u64,
    /// Blocks of its trees that have no memory at all.
    pub(crate) missing: u64,
    pub(crate) extents: Extents,
    pub(crate) arrays: Arrays<'m>,
    pub(crate) record: &'m ZoneRecord,
    pub(crate) marks: AtomicWatermarks,
    lowest: Lowest,
}

/// For each class that is searched for, a tree below which there is likely none. On a line of its
/// own: the rest of a zone is read by all and written by nobody.
#[derive(Debug)]
#[repr(align(64))]
struct Lowest([AtomicU32; 5]);

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
        managed: u64,
    ) -> Self {
        Self {
            kind,
            node,
            managed,
            missing: 0,
            extents,
            arrays,
            record,
            marks: AtomicWatermarks::new(crate::Watermarks::default()),
            lowest: Lowest(array::from_fn(|_| AtomicU32::new(0))),
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

    /// Counts a change in the levels above the block: its new class, if that is another.
    #[inline]
    pub(crate) fn count(&self, block: usize, change: Change) -> Option<Class> {
        let (old, new) = (change.old.class(), change.new.class());
        if old == new {
            return None;
        }
        let tree = block / TREE_BLOCKS;
        self.arrays.summaries[tree].count(old, new);
        self.arrays.groups[tree / GROUP_TREES].count(old, new);
        Some(new)
    }

    /// The first tree of these that may have a block of this class.
    #[inline]
    fn next_tree(&self, class: Class, trees: Range<usize>) -> Option<usize> {
        let summaries = self.arrays.summaries;
        let mut tree = trees.start;
        while tree < trees.end {
            let group = tree / GROUP_TREES;
            let of_group = summaries.len().min((group + 1) * GROUP_TREES);
            let size = of_group - group * GROUP_TREES;
            if self.arrays.groups[group].may_have(class, size) {
                let end = of_group.min(trees.end);
                let found = (tree..end).find(|&tree| summaries[tree].load().count(class) != 0);
                if found.is_some() {
                    return found;
                }
            }
            tree = of_group;
        }
        None
    }

    #[inline]
    fn lowest(&self, class: Class) -> Option<&AtomicU32> {
        match class {
            Class::Partial(mobility) => Some(&self.lowest.0[mobility.index()]),
            Class::Touched => Some(&self.lowest.0[3]),
            Class::Untouched => Some(&self.lowest.0[4]),
            Class::Full(_) | Class::Isolated => None,
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
    fn changed(&self, change: Change) {
        let ZoneRef { zone, hub } = self.at;
        let Some(class) = zone.count(self.block, change) else {
            return;
        };
        if let Some(lowest) = zone.lowest(class) {
            let tree = u32::try_from(self.block / TREE_BLOCKS).unwrap_or(u32::MAX);
            // `Relaxed`, and not one step: a hint that is too high costs placement, no frame.
            if tree < lowest.load(Ordering::Relaxed) {
                lowest.store(tree, Ordering::Relaxed);
            }
        }
        if class == Class::Touched {
            hub.freed_block();
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

impl<'a, 'm> ZoneRef<'a, 'm> {
    #[inline]
    pub(crate) fn block(self, block: usize) -> Block<'a, Seat<'a, 'm>> {
        let arrays = &self.zone.arrays;
        Block {
            state: &arrays.states[block],
            bits: &arrays.bits[block],
            touched: &arrays.touched[block],
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
            .or_else(|| self.place(1, mobility, attempt))
    }

    /// Takes one frame.
    pub(crate) fn take_frame(self, mobility: Mobility) -> Option<Frame> {
        self.place(1, mobility, |block, admit| {
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
        self.try_last(last, mobility, attempt)
            .or_else(|| self.place(1 << order.get(), mobility, attempt))
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
        room: u32,
        mobility: Mobility,
        attempt: impl Fn(usize, Admission) -> Option<T>,
    ) -> Option<T> {
        let own = self.admission(mobility);
        let any = Admission { any: true, ..own };
        let find = |class, prefer, attempts: usize| {
            let admit = if prefer == Prefer::Emptiest { any } else { own };
            let mut attempts = attempts;
            self.search(class, room, prefer, &mut attempts, |block| {
                attempt(block, admit)
            })
        };
        const ALL: usize = usize::MAX;
        let few = if room == 1 { ALL } else { PARTIAL_ATTEMPTS };
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
                if room != 1 {
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
                let block = self.search(
                    class,
                    BLOCK_FRAMES,
                    Prefer::Fullest,
                    &mut usize::MAX.clone(),
                    take,
                )?;
                Some(self.zone.first_frame(block))
            })
    }

    /// Tries blocks of a class, tree by tree, at most `attempts` of them.
    fn search<T>(
        self,
        class: Class,
        room: u32,
        prefer: Prefer,
        attempts: &mut usize,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let trees = self.zone.arrays.summaries.len();
        let lowest = self.zone.lowest(class)?;
        let start = (lowest.load(Ordering::Relaxed) as usize).min(trees - 1);
        let mut met = false;
        for part in [start..trees, 0..start] {
            let mut from = part.start;
            while let Some(tree) = self.zone.next_tree(class, from..part.end) {
                from = tree + 1;
                if !met {
                    met = true;
                    // Whoever lowers it at this moment may be overruled: it costs placement only.
                    lowest.store(u32::try_from(tree).unwrap_or(0), Ordering::Relaxed);
                }
                let found = self.search_tree(tree, class, room, prefer, attempts, &attempt);
                if found.is_some() || *attempts == 0 {
                    return found;
                }
            }
        }
        None
    }

    fn search_tree<T>(
        self,
        tree: usize,
        class: Class,
        room: u32,
        prefer: Prefer,
        attempts: &mut usize,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let mut untried = !0;
        // Bounded by the blocks of a tree: each turn tries one.
        while let Some(offset) = self.best_block(tree, class, room, prefer, untried) {
            if let Some(found) = attempt(tree * TREE_BLOCKS + offset) {
                return Some(found);
            }
            untried &= !(1 << offset);
            *attempts -= 1;
            if *attempts == 0 {
                break;
            }
        }
        None
    }

    /// The block of a tree that should be tried next. One of a free class is as good as another:
    /// the lowest.
    fn best_block(
        self,
        tree: usize,
        class: Class,
        room: u32,
        prefer: Prefer,
        untried: u32,
    ) -> Option<usize> {
        let first = tree * TREE_BLOCKS;
        let states = &self.zone.arrays.states[first..first + TREE_BLOCKS];
        let states = states
            .iter()
            .enumerate()
            .filter(|(offset, _)| untried & 1 << offset != 0);
        let mut states = states.map(|(offset, state)| (offset, state.load()));
        if matches!(class, Class::Touched | Class::Untouched) {
            return states
                .find(|(_, state)| state.is(class))
                .map(|(offset, _)| offset);
        }
        let most = BLOCK_FRAMES - room;
        let mut best = None;
        let mut best_worth = 0;
        for (offset, state) in states {
            let count = state.count();
            let unwanted = prefer == Prefer::Unheld && state.is_held();
            if count > most || unwanted || !state.is(class) {
                continue;
            }
            // Neither is 0: the count of a partial block is 1 to 511.
            let worth = match prefer {
                Prefer::Unheld | Prefer::Fullest => count,
                Prefer::Emptiest => BLOCK_FRAMES - count,
            };
            if worth > best_worth {
                best_worth = worth;
                best = Some(offset);
                if worth == BLOCK_FRAMES - 1 {
                    break;
                }
            }
        }
        best
    }
}
