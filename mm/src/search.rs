//! The search for free frames.
//!
//! Small blocks go where they fit most tightly, so that what is whole stays whole: into a pageblock
//! in use whose largest free runs are as small as will do, the fullest of a tree. Only then is a
//! free pageblock broken up, and held by the front that does so: while others are to be had no
//! other front takes frames from it, nor breaks up one in the same two trees, whose words share
//! cache lines.

use core::{cell::Cell, ops::Range};

use crate::{
    Contents, Frame, Mobility, Order,
    bitmap::{Taken, WORD_FRAMES},
    placing::{FreePart, FreeTrees},
    reach::RUN_ORDERS,
    state::{Admission, BLOCK_FRAMES, Class},
    summary::TREE_BLOCKS,
    zone::{Wanted, ZoneRef},
};

/// How many blocks in use are tried before a free block is broken up.
const PARTIAL_ATTEMPTS: usize = 64;
/// How many pairs of trees are looked at for one in which no other front holds a block.
const APART_ATTEMPTS: usize = 8;

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

/// Where a front breaks up free blocks.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Near {
    /// The tree in which it last did: with its neighbour the first choice for the next. None if
    /// another front does there.
    pub(crate) home: Option<usize>,
    /// The block that it broke up now, if it did.
    pub(crate) opened: Option<usize>,
}

/// Which of several blocks to take frames from.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Prefer {
    /// Of those whose largest runs are of the order sought the one with the fewest free frames: the
    /// others may become free.
    Fullest,
    /// One whose largest runs are as small as will do, whatever order was sought: one that was
    /// lowered a moment ago is one too.
    Tightest,
    /// The one with the most: for taking a block over from another mobility.
    Emptiest,
}

/// What a search is for, and how it chooses.
#[derive(Copy, Clone)]
struct Sought {
    wanted: Wanted,
    /// The order that is to be taken.
    order: Order,
    prefer: Prefer,
}

impl Sought {
    const fn fullest(wanted: Wanted, order: Order) -> Self {
        Self {
            wanted,
            order,
            prefer: Prefer::Fullest,
        }
    }
}

impl ZoneRef<'_, '_> {
    #[inline]
    fn admission(self, mobility: Mobility) -> Admission {
        Admission {
            mobility,
            any: false,
            fine: self.hub.fine(),
            hold: false,
            open: false,
        }
    }

    /// Takes up to `most` frames of one word for a front, which holds their block from then on. Of
    /// the block that the last came from if it has any, unless a block that no front holds has only
    /// smaller runs.
    pub(crate) fn take_word(
        self,
        last: Option<usize>,
        near: &mut Near,
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
        // Mostly there is none, so that is found out first, for all orders at once.
        let smaller = || {
            let largest = self.zone.arrays.reaches[last?].load().largest();
            if !self.may_have_runs(mobility, 0..largest) {
                return None;
            }
            let own = self.admission(mobility);
            let wanted = |largest| Wanted::Partial(mobility, largest);
            let sought = (0..largest).map(|largest| Sought::fullest(wanted(largest), Order::BASE));
            self.best_fit(sought, &unlimited(), |block| attempt(block, own))
        };
        smaller()
            .or_else(|| self.try_last(last, mobility, attempt))
            .or_else(|| self.place(Order::BASE, mobility, [None; 2], near, attempt))
    }

    /// Whether a block in use that no front holds may have free runs of which the largest are of one
    /// of these orders: a look at the map's top, for all of them at once.
    #[inline]
    fn may_have_runs(self, mobility: Mobility, orders: Range<u8>) -> bool {
        let from = Wanted::Partial(mobility, orders.start).kind();
        self.zone.arrays.map.may_have(from, orders.len())
    }

    /// Takes from the first of these that there is, in blocks that no front holds. With those whose
    /// largest runs are as small as will do first, that is the best fit.
    #[inline]
    fn best_fit<T>(
        self,
        mut sought: impl Iterator<Item = Sought>,
        attempts: &Cell<usize>,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        sought.find_map(|sought| self.search(sought, attempts, &attempt))
    }

    /// Takes one frame, for a front that holds no block for such.
    pub(crate) fn take_frame(self, near: &mut Near, mobility: Mobility) -> Option<Frame> {
        let attempt = |block: usize, admit: Admission| {
            let admit = Admission {
                hold: false,
                ..admit
            };
            let taken = self.block(block).take_word(1, admit)?;
            let word = self.word(block, taken);
            Some(Frame::new(
                word.base + u64::from(word.mask.trailing_zeros()),
            ))
        };
        self.place(Order::BASE, mobility, [None; 2], near, attempt)
    }

    fn word(self, block: usize, taken: Taken) -> Word {
        let first = self.zone.first_frame(block).number();
        Word {
            block,
            base: first + taken.word as u64 * u64::from(WORD_FRAMES),
            mask: taken.mask,
        }
    }

    /// Takes a run below the order of a pageblock, for a front that holds `held` of this mobility.
    /// If it breaks a block up it holds that from then on.
    pub(crate) fn take_run(
        self,
        held: [Option<usize>; 2],
        near: &mut Near,
        order: Order,
        mobility: Mobility,
    ) -> Option<Frame> {
        let attempt = |block: usize, admit: Admission| {
            let first = self.block(block).take_run(order, admit)?;
            Some(self.zone.first_frame(block).offset(first as u64))
        };
        self.place(order, mobility, held, near, attempt)
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

    /// Finds a block for frames of this mobility: one in use by it that no front holds, else one
    /// that the front holds (of `held`), else a free one that the host already has memory for, else
    /// one that it has not, else one that another front holds, else one of another mobility.
    fn place<T>(
        self,
        order: Order,
        mobility: Mobility,
        held: [Option<usize>; 2],
        near: &mut Near,
        attempt: impl Fn(usize, Admission) -> Option<T>,
    ) -> Option<T> {
        let own = self.admission(mobility);
        let any = Admission { any: true, ..own };
        // Mostly there is none, as in `take_word`.
        let runs = |of: Mobility| self.may_have_runs(of, order.get()..RUN_ORDERS);
        let best_fit = |prefer, attempts: usize| {
            if !runs(mobility) {
                return None;
            }
            let sought = (order.get()..RUN_ORDERS).map(|largest| Sought {
                wanted: Wanted::Partial(mobility, largest),
                order,
                prefer,
            });
            self.best_fit(sought, &Cell::new(attempts), |block| attempt(block, own))
        };
        let free = |near: &mut Near| {
            // Not one that another front has broken up meanwhile: the two would share its lines.
            let open = Admission {
                hold: true,
                open: true,
                ..own
            };
            self.zone
                .free_parts(mobility)
                .find_map(|part| self.search_free(&part, order, near, |block| attempt(block, open)))
        };
        // The worst fit for taking a block over: it is to be as free as there is.
        let take_over = |other: Mobility| {
            let some = runs(other);
            let partial = (order.get()..RUN_ORDERS)
                .rev()
                .map(|largest| Wanted::Partial(other, largest));
            let partial = partial.filter(|_| some);
            partial.chain([Wanted::Held(other)]).find_map(|wanted| {
                let sought = Sought {
                    wanted,
                    order,
                    prefer: Prefer::Emptiest,
                };
                self.search(sought, &unlimited(), |block| attempt(block, any))
            })
        };
        best_fit(Prefer::Fullest, PARTIAL_ATTEMPTS)
            .or_else(|| {
                held.into_iter().find_map(|held| {
                    let fits = |&block: &usize| {
                        let reach = self.zone.arrays.reaches[block].load();
                        reach.allows(order.get())
                    };
                    self.try_last(held.filter(fits), mobility, &attempt)
                })
            })
            .or_else(|| free(near))
            .or_else(|| best_fit(Prefer::Tightest, usize::MAX))
            .or_else(|| {
                let sought = Sought::fullest(Wanted::Held(mobility), order);
                self.search(sought, &unlimited(), |block| attempt(block, own))
            })
            .or_else(|| mobility.fallbacks().into_iter().find_map(take_over))
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
        self.zone.free_parts(mobility).find_map(|part| {
            let sought = Sought::fullest(part.wanted, Order::PAGEBLOCK);
            let trees = self.zone.free_trees(&part);
            let block = self.search_trees(trees, sought, &unlimited(), take)?;
            Some(self.zone.first_frame(block))
        })
    }

    /// Takes whole pageblocks, all that are free of one tree before those of the next; how many.
    pub(crate) fn take_wholes(self, mobility: Mobility, blocks: &mut [(Frame, Contents)]) -> usize {
        let mut taken = 0;
        for part in self.zone.free_parts(mobility) {
            let wanted = part.wanted;
            let class = wanted.class();
            for tree in self.zone.free_trees(&part) {
                if wanted == Wanted::Touched {
                    self.settle_tree(tree);
                }
                let first = tree * TREE_BLOCKS;
                for block in first..first + TREE_BLOCKS {
                    if taken == blocks.len() {
                        return taken;
                    }
                    let free = self.zone.arrays.states[block].load().is(class);
                    if free && self.block(block).take_whole(mobility) {
                        let frame = self.zone.first_frame(block);
                        let contents = if self.zone.hand_out_words(block, !0) {
                            Contents::Fresh
                        } else {
                            Contents::Unknown
                        };
                        blocks[taken] = (frame, contents);
                        taken += 1;
                    }
                }
                self.zone.retire(wanted, tree);
            }
        }
        taken
    }

    /// Tries free blocks of a part: those of the two trees around the home of a front first, then those of
    /// trees that are no other's, then all. Where one was found is its home from then on.
    fn search_free<T>(
        self,
        part: &FreePart,
        order: Order,
        near: &mut Near,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let sought = Sought::fullest(part.wanted, order);
        let trees = || self.zone.free_trees(part);
        let attempt = |block: usize| Some((block, attempt(block)?));
        let at_home = || {
            let home = near.home?;
            let mut trees = [home, home ^ 1].into_iter();
            trees.find_map(|tree| {
                // Not by its summary, which others write to as well.
                part.has(tree)
                    .then(|| self.try_blocks(tree, sought, &unlimited(), attempt))?
            })
        };
        let stays = |(block, found)| (block, true, found);
        let (block, stays, found) = at_home()
            .map(stays)
            .or_else(|| {
                let (block, found) = self.search_apart(trees(), sought, attempt)?;
                // Of two that came at once, neither of which saw the other hold a block before, the
                // one that was later has the higher one, and goes elsewhere for the next.
                Some((block, !self.is_held_below(block), found))
            })
            .or_else(|| {
                self.search_trees(trees(), sought, &unlimited(), attempt)
                    .map(stays)
            })?;
        *near = Near {
            home: stays.then_some(block / TREE_BLOCKS),
            opened: Some(block),
        };
        Some(found)
    }

    /// Tries blocks of the first trees around which no front holds any.
    fn search_apart<T>(
        self,
        trees: FreeTrees<'_, '_>,
        sought: Sought,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let mut seen = None;
        // The first of each two trees speaks for both.
        let mut firsts = trees.filter(|tree| seen.replace(tree / 2) != Some(tree / 2));
        firsts.by_ref().take(APART_ATTEMPTS).find_map(|tree| {
            if self.is_held_around(tree) {
                return None;
            }
            self.search_tree(tree, sought, &unlimited(), &attempt)
        })
    }

    /// Whether a front holds a block in one of the two trees whose words share cache lines.
    fn is_held_around(self, tree: usize) -> bool {
        let first = (tree & !1) * TREE_BLOCKS;
        let end = (first + 2 * TREE_BLOCKS).min(self.zone.blocks());
        self.is_held_among(first..end)
    }

    /// Whether a front holds a lower block of those two trees.
    fn is_held_below(self, block: usize) -> bool {
        let first = ((block / TREE_BLOCKS) & !1) * TREE_BLOCKS;
        self.is_held_among(first..block)
    }

    fn is_held_among(self, blocks: Range<usize>) -> bool {
        let mut states = self.zone.arrays.states[blocks].iter();
        states.any(|state| state.load().is_held())
    }

    /// Tries blocks in use that are wanted, tree by tree, at most `attempts` of them.
    fn search<T>(
        self,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        let mut from = 0;
        let trees = core::iter::from_fn(|| {
            let tree = self.zone.arrays.map.next(sought.wanted.kind(), from)?;
            from = tree + 1;
            Some(tree)
        });
        self.search_trees(trees, sought, attempts, attempt)
    }

    /// Tries blocks that are wanted, of these trees.
    fn search_trees<T>(
        self,
        mut trees: impl Iterator<Item = usize>,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        while attempts.get() != 0
            && let Some(tree) = trees.next()
        {
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
        if self.zone.summary(tree).count(sought.wanted.class()) == 0 {
            return None;
        }
        self.try_blocks(tree, sought, attempts, attempt)
    }

    /// Tries the blocks of a tree that are wanted, the best first.
    fn try_blocks<T>(
        self,
        tree: usize,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(usize) -> Option<T>,
    ) -> Option<T> {
        if sought.wanted == Wanted::Touched {
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
        let (class, free) = (
            wanted.class(),
            matches!(wanted, Wanted::Touched | Wanted::Untouched),
        );
        let first = tree * TREE_BLOCKS;
        let states = &self.zone.arrays.states[first..first + TREE_BLOCKS];
        let reaches = &self.zone.arrays.reaches[first..first + TREE_BLOCKS];
        let states = states
            .iter()
            .enumerate()
            .filter(|(offset, _)| untried & 1 << offset != 0);
        let mut states = states.map(|(offset, state)| (offset, state.load()));
        if free {
            return states
                .find(|(_, state)| state.is(class))
                .map(|(offset, _)| offset);
        }
        let mut best = None;
        let mut best_worth = 0;
        for (offset, state) in states {
            let unwanted = matches!(wanted, Wanted::Partial(..)) && state.is_held();
            if unwanted || !state.is(class) {
                continue;
            }
            let reach = reaches[offset].load();
            if !reach.allows(order.get()) {
                continue;
            }
            let count = state.count();
            // Never 0: the count of a partial block is 1 to 511.
            let worth = match (sought.prefer, wanted) {
                // Not others of this tree in its place: another tree may have one that fits.
                (Prefer::Fullest, Wanted::Partial(_, largest)) if reach.largest() != largest => 0,
                (Prefer::Fullest, _) => count,
                (Prefer::Tightest, _) => reach.tightness() * BLOCK_FRAMES + count,
                (Prefer::Emptiest, _) => BLOCK_FRAMES - count,
            };
            if worth > best_worth {
                best_worth = worth;
                best = Some(offset);
            }
        }
        best
    }
}

const fn unlimited() -> Cell<usize> {
    Cell::new(usize::MAX)
}
