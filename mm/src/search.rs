//! The search for free frames.
//!
//! A request smaller than a pageblock goes to the tightest fit, so that large free runs stay whole:
//! to a pageblock in use whose largest free runs are as small as possible, and to the fullest such
//! pageblock of its tree (32 pageblocks). Only if there is none is a free pageblock broken up. The
//! per-CPU cache that breaks it up holds it from then on: while there are others, no other cache
//! takes frames from it, nor breaks up a pageblock of the same two trees, whose state words share
//! cache lines.

use core::{cell::Cell, ops::Range};

use crate::{
    Contents, Frame, Mobility, Order,
    bitmap::{Taken, WORD_FRAMES},
    ids::{BlockId, Id, TreeId},
    placing::{FreePart, FreeTrees},
    run_bound::RUN_ORDERS,
    shuffle::Turn,
    state::{Admission, BLOCK_FRAMES, Class},
    zone::{Wanted, ZoneRef},
};

/// The most pageblocks in use that are tried before a free one is broken up.
const PARTIAL_ATTEMPTS: usize = 64;
/// The most pairs of trees that are examined for one in which no other cache holds a pageblock.
const APART_ATTEMPTS: usize = 8;

/// Frames of one word of a zone's bitmap.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Word {
    /// Their pageblock.
    pub(crate) block: BlockId,
    /// The number of the frame of bit 0.
    pub(crate) base: u64,
    /// A bit for each of the 64 frames from `base`; 1 = taken.
    pub(crate) mask: u64,
}

/// Where a per-CPU cache breaks up free pageblocks.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct OpenHint {
    /// The tree in which the cache last broke up a pageblock. This tree and the other one of its
    /// pair are the first choice for the next. `None` if another cache does so there.
    pub(crate) home: Option<TreeId>,
    /// The pageblock that this search broke up, if any.
    pub(crate) opened: Option<BlockId>,
}

/// Which of several pageblocks a search prefers.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Prefer {
    /// The pageblock with the fewest free frames, among those whose largest free runs have exactly
    /// the order searched for. The others may become free as a whole.
    Fullest,
    /// The pageblock whose largest free runs are smallest, even if their order is not the one
    /// searched for. That includes a pageblock whose run bound was lowered a moment ago.
    Tightest,
    /// The pageblock with the most free frames. For taking over a pageblock of another mobility.
    Emptiest,
}

/// The target of a search, and how it chooses.
#[derive(Copy, Clone)]
struct Sought {
    wanted: Wanted,
    /// The order of the block to allocate.
    order: Order,
    prefer: Prefer,
    /// Where the search for free pageblocks starts.
    turn: Turn,
}

impl Sought {
    /// Returns a search for `wanted` that prefers the fullest pageblock.
    const fn fullest(wanted: Wanted, order: Order) -> Self {
        Self {
            wanted,
            order,
            prefer: Prefer::Fullest,
            turn: Turn::NONE,
        }
    }
}

impl ZoneRef<'_, '_> {
    /// Returns the conditions under which frames of `mobility` may be allocated from a pageblock:
    /// of the same mobility or free, and not held afterwards.
    #[inline]
    fn admission(self, mobility: Mobility) -> Admission {
        Admission {
            mobility,
            any: false,
            exact_marks: self.shared.exact_marks(),
            hold: false,
            open: false,
        }
    }

    /// Allocates up to `most` frames of one bitmap word for a per-CPU cache, which holds their
    /// pageblock from then on. Takes them from `last`, the pageblock that the cache holds, unless a
    /// pageblock that no cache holds has only smaller runs. Sets `hint` if it breaks up a free
    /// pageblock. Returns `None` if the zone has no free frame.
    pub(crate) fn take_word(
        self,
        last: Option<BlockId>,
        hint: &mut OpenHint,
        mobility: Mobility,
        most: u32,
    ) -> Option<Word> {
        let attempt = |block: BlockId, admit: Admission| {
            let admit = Admission {
                hold: true,
                ..admit
            };
            let taken = self.block(block).take_word(most, admit)?;
            Some(self.word(block, taken))
        };
        // Mostly there is none, so that is checked first, for all orders at once.
        let smaller = || {
            let largest = self.zone.arrays.run_bounds[last?].load().largest();
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
            .or_else(|| self.place(Order::BASE, mobility, [None; 2], hint, attempt))
    }

    /// Returns whether a pageblock in use that no cache holds may have largest free runs of one of
    /// `orders`. Reads only the top level of the map.
    #[inline]
    fn may_have_runs(self, mobility: Mobility, orders: Range<u8>) -> bool {
        let from = Wanted::Partial(mobility, orders.start).kind();
        self.zone.arrays.map.may_have(from, orders.len())
    }

    /// Tries the searches in `sought` in order and returns the first result, in pageblocks that no
    /// cache holds. If the searches for smaller runs come first, that is the best fit.
    #[inline]
    fn best_fit<T>(
        self,
        mut sought: impl Iterator<Item = Sought>,
        attempts: &Cell<usize>,
        attempt: impl Fn(BlockId) -> Option<T>,
    ) -> Option<T> {
        sought.find_map(|sought| self.search(sought, attempts, &attempt))
    }

    /// Allocates one frame, for a request whose pageblock the cache does not hold afterwards. Sets
    /// `hint` if it breaks up a free pageblock. Returns `None` if the zone has no free frame.
    pub(crate) fn take_frame(self, hint: &mut OpenHint, mobility: Mobility) -> Option<Frame> {
        let attempt = |block: BlockId, admit: Admission| {
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
        self.place(Order::BASE, mobility, [None; 2], hint, attempt)
    }

    /// Returns the frames of `taken` with their frame numbers.
    fn word(self, block: BlockId, taken: Taken) -> Word {
        let first = self.zone.first_frame(block).number();
        Word {
            block,
            base: first + taken.word as u64 * u64::from(WORD_FRAMES),
            mask: taken.mask,
        }
    }

    /// Allocates a free run of `order`, from 1 to 8, for a cache that holds the pageblocks `held`,
    /// and returns its first frame. If the search breaks up a free pageblock, the cache holds that
    /// from then on (`hint.opened`). Returns `None` if the zone has no such run.
    pub(crate) fn take_run(
        self,
        held: [Option<BlockId>; 2],
        hint: &mut OpenHint,
        order: Order,
        mobility: Mobility,
    ) -> Option<Frame> {
        let attempt = |block: BlockId, admit: Admission| {
            let first = self.block(block).take_run(order, admit)?;
            Some(self.zone.first_frame(block).offset(first as u64))
        };
        self.place(order, mobility, held, hint, attempt)
    }

    /// Calls `attempt` for `last`, the pageblock that the last frames came from, if it is partly
    /// used. Not if it is free: the search chooses which free pageblock to use.
    #[inline]
    fn try_last<T>(
        self,
        last: Option<BlockId>,
        mobility: Mobility,
        attempt: impl Fn(BlockId, Admission) -> Option<T>,
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

    /// Finds a pageblock for a block of `order` and calls `attempt` for it. The candidates in
    /// order: pageblocks in use by `mobility` that no cache holds, those in `held`, free ones that
    /// the host has memory for, other free ones, those that other caches hold, and those of another
    /// mobility. Returns `None` if no attempt succeeded.
    fn place<T>(
        self,
        order: Order,
        mobility: Mobility,
        held: [Option<BlockId>; 2],
        hint: &mut OpenHint,
        attempt: impl Fn(BlockId, Admission) -> Option<T>,
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
                turn: Turn::NONE,
            });
            self.best_fit(sought, &Cell::new(attempts), |block| attempt(block, own))
        };
        let free = |hint: &mut OpenHint| {
            // Not a pageblock that another cache has broken up since: the two would share its cache
            // lines.
            let open = Admission {
                hold: true,
                open: true,
                ..own
            };
            self.zone
                .free_parts(mobility)
                .find_map(|part| self.search_free(&part, order, hint, |block| attempt(block, open)))
        };
        // To take a pageblock over, use the worst fit: the pageblock with the most free frames.
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
                    turn: Turn::NONE,
                };
                self.search(sought, &unlimited(), |block| attempt(block, any))
            })
        };
        best_fit(Prefer::Fullest, PARTIAL_ATTEMPTS)
            .or_else(|| {
                held.into_iter().find_map(|held| {
                    let fits = |&block: &BlockId| {
                        let run_bound = self.zone.arrays.run_bounds[block].load();
                        run_bound.allows(order.get())
                    };
                    self.try_last(held.filter(fits), mobility, &attempt)
                })
            })
            .or_else(|| free(hint))
            .or_else(|| best_fit(Prefer::Tightest, usize::MAX))
            .or_else(|| {
                let sought = Sought::fullest(Wanted::Held(mobility), order);
                self.search(sought, &unlimited(), |block| attempt(block, own))
            })
            .or_else(|| mobility.fallbacks().into_iter().find_map(take_over))
            .or_else(|| {
                // Counts of classes are wrong for an instant while pageblocks change, and state
                // words are not. A single frame must not be missed for that.
                if order != Order::BASE {
                    return None;
                }
                self.zone.block_ids().find_map(|block| attempt(block, any))
            })
    }

    /// Allocates a free pageblock (order 9) or an aligned pair (order 10) for `mobility`. Returns
    /// its first frame, or `None` if the zone has none.
    pub(crate) fn take_whole(self, order: Order, mobility: Mobility) -> Option<Frame> {
        let take = |block: BlockId| {
            if order == Order::PAGEBLOCK {
                return self.block(block).take_whole(mobility).then_some(block);
            }
            let [low, high] = block.pair();
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
        let turn = self.shared.shuffle.turn();
        self.zone.free_parts(mobility).find_map(|part| {
            let sought = Sought {
                turn,
                ..Sought::fullest(part.wanted, Order::PAGEBLOCK)
            };
            let trees = self.zone.free_trees(&part, turn);
            let block = self.search_trees(trees, sought, &unlimited(), take)?;
            Some(self.zone.first_frame(block))
        })
    }

    /// Allocates free pageblocks for `mobility` into `blocks`, with their known contents, all of
    /// one tree (64 MiB) before those of the next. Returns the number allocated, which is smaller
    /// than the length of `blocks` if the zone has no more.
    pub(crate) fn take_wholes(self, mobility: Mobility, blocks: &mut [(Frame, Contents)]) -> usize {
        let mut taken = 0;
        for part in self.zone.free_parts(mobility) {
            let wanted = part.wanted;
            let class = wanted.class();
            let turn = self.shared.shuffle.turn();
            for tree in self.zone.free_trees(&part, turn) {
                if wanted == Wanted::Touched {
                    self.settle_tree(tree);
                }
                for block in turn.bits().map(|bit| tree.block(bit)) {
                    if taken == blocks.len() {
                        return taken;
                    }
                    let free = self.zone.arrays.states[block].load().is(class);
                    if free && self.block(block).take_whole(mobility) {
                        let frame = self.zone.first_frame(block);
                        let contents = if self.zone.hand_out_words(block, !0) {
                            Contents::NeverUsed
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

    /// Calls `attempt` for free pageblocks of `part`: first in the pair of trees around
    /// `hint.home`, then in trees in which no other cache holds a pageblock, then in all. Stores in
    /// `hint` where it was successful.
    fn search_free<T>(
        self,
        part: &FreePart,
        order: Order,
        hint: &mut OpenHint,
        attempt: impl Fn(BlockId) -> Option<T>,
    ) -> Option<T> {
        let turn = self.shared.shuffle.turn();
        let sought = Sought {
            turn,
            ..Sought::fullest(part.wanted, order)
        };
        let trees = || self.zone.free_trees(part, turn);
        let attempt = |block: BlockId| Some((block, attempt(block)?));
        let at_home = || {
            let home = hint.home?;
            let mut trees = [home, home.pair_other()].into_iter();
            trees.find_map(|tree| {
                // Does not read the tree's summary, as other CPUs write to it.
                part.has(tree)
                    .then(|| self.try_blocks(tree, sought, &unlimited(), attempt))?
            })
        };
        let stays = |(block, found)| (block, true, found);
        let (block, stays, found) = at_home()
            .map(stays)
            .or_else(|| {
                let (block, found) = self.search_apart(trees(), sought, attempt)?;
                // Two caches may come at the same time and not see each other hold a pageblock.
                // Then the later one has the higher pageblock, and goes elsewhere for the next.
                Some((block, !self.is_held_below(block), found))
            })
            .or_else(|| {
                self.search_trees(trees(), sought, &unlimited(), attempt)
                    .map(stays)
            })?;
        *hint = OpenHint {
            home: stays.then_some(block.tree()),
            opened: Some(block),
        };
        Some(found)
    }

    /// Calls `attempt` for pageblocks of the first trees in whose pair no cache holds a pageblock.
    fn search_apart<T>(
        self,
        trees: FreeTrees<'_, '_>,
        sought: Sought,
        attempt: impl Fn(BlockId) -> Option<T>,
    ) -> Option<T> {
        let mut seen = None;
        // The first tree of each pair represents both.
        let mut firsts = trees.filter(|tree| {
            let pair = tree.pair_start();
            seen.replace(pair) != Some(pair)
        });
        firsts.by_ref().take(APART_ATTEMPTS).find_map(|tree| {
            if self.is_held_around(tree) {
                return None;
            }
            self.search_tree(tree, sought, &unlimited(), &attempt)
        })
    }

    /// Returns whether a cache holds a pageblock in the pair of trees of `tree`, whose state words
    /// share cache lines.
    fn is_held_around(self, tree: TreeId) -> bool {
        let first = tree.pair_start();
        let end = first.offset(2).min(self.zone.arrays.summaries.end());
        self.is_held_among(first.first_block()..end.first_block())
    }

    /// Returns whether a cache holds a pageblock below `block` in its pair of trees.
    fn is_held_below(self, block: BlockId) -> bool {
        let first = block.tree().pair_start().first_block();
        self.is_held_among(first..block)
    }

    /// Returns whether a cache holds one of `blocks`.
    fn is_held_among(self, blocks: Range<BlockId>) -> bool {
        let mut states = self.zone.arrays.states.slice(blocks).iter();
        states.any(|state| state.load().is_held())
    }

    /// Calls `attempt` for the pageblocks in use that `sought` wants, tree by tree, at most
    /// `attempts` times. Returns the first result.
    fn search<T>(
        self,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(BlockId) -> Option<T>,
    ) -> Option<T> {
        let mut from = TreeId::FIRST;
        let trees = core::iter::from_fn(|| {
            let tree = self.zone.arrays.map.next(sought.wanted.kind(), from)?;
            from = tree.next();
            Some(tree)
        });
        self.search_trees(trees, sought, attempts, attempt)
    }

    /// Calls `attempt` for the wanted pageblocks of `trees`, at most `attempts` times, and corrects
    /// the map for trees without any. Returns the first result.
    fn search_trees<T>(
        self,
        mut trees: impl Iterator<Item = TreeId>,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(BlockId) -> Option<T>,
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

    /// Calls `attempt` for the wanted pageblocks of `tree` if its summary counts any.
    fn search_tree<T>(
        self,
        tree: TreeId,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(BlockId) -> Option<T>,
    ) -> Option<T> {
        if self.zone.summary(tree).count(sought.wanted.class()) == 0 {
            return None;
        }
        self.try_blocks(tree, sought, attempts, attempt)
    }

    /// Calls `attempt` for the wanted pageblocks of `tree`, the best first. Returns the first
    /// result.
    fn try_blocks<T>(
        self,
        tree: TreeId,
        sought: Sought,
        attempts: &Cell<usize>,
        attempt: impl Fn(BlockId) -> Option<T>,
    ) -> Option<T> {
        if sought.wanted == Wanted::Touched {
            self.settle_tree(tree);
        }
        let mut untried = !0;
        // Bounded by the pageblocks of a tree: each turn tries one.
        while attempts.get() != 0
            && let Some(bit) = self.best_block(tree, sought, untried)
        {
            if let Some(found) = attempt(tree.block(bit)) {
                return Some(found);
            }
            untried &= !(1 << bit);
            attempts.set(attempts.get() - 1);
        }
        None
    }

    /// Returns the bit of the best pageblock of `tree` among `untried` (a bit for each). Of free
    /// ones the first from the search's start on is as good as any. Returns `None` if no pageblock
    /// is wanted.
    fn best_block(self, tree: TreeId, sought: Sought, untried: u32) -> Option<usize> {
        let Sought { wanted, order, .. } = sought;
        let (class, free) = (
            wanted.class(),
            matches!(wanted, Wanted::Touched | Wanted::Untouched),
        );
        let states = self.zone.arrays.states.of_tree(tree);
        let run_bounds = self.zone.arrays.run_bounds.of_tree(tree);
        let is_untried = |bit: usize| untried & 1 << bit != 0;
        if free {
            let mut bits = sought.turn.bits();
            return bits.find(|&bit| is_untried(bit) && states[bit].load().is(class));
        }
        let states = states
            .iter()
            .enumerate()
            .filter(|&(bit, _)| is_untried(bit));
        let states = states.map(|(bit, state)| (bit, state.load()));
        let mut best = None;
        let mut best_worth = 0;
        for (bit, state) in states {
            let unwanted = matches!(wanted, Wanted::Partial(..)) && state.is_held();
            if unwanted || !state.is(class) {
                continue;
            }
            let run_bound = run_bounds[bit].load();
            if !run_bound.allows(order.get()) {
                continue;
            }
            let count = state.count();
            // Never 0: a partly used pageblock counts 1 to 511 frames.
            let worth = match (sought.prefer, wanted) {
                // Other pageblocks of this tree are no substitute, as another tree may have one
                // that fits.
                (Prefer::Fullest, Wanted::Partial(_, largest))
                    if run_bound.largest() != largest =>
                {
                    0
                }
                (Prefer::Fullest, _) => count,
                (Prefer::Tightest, _) => run_bound.tightness() * BLOCK_FRAMES + count,
                (Prefer::Emptiest, _) => BLOCK_FRAMES - count,
            };
            if worth > best_worth {
                best_worth = worth;
                best = Some(bit);
            }
        }
        best
    }
}

/// Returns a count of attempts without a limit.
const fn unlimited() -> Cell<usize> {
    Cell::new(usize::MAX)
}
