//! Page shuffling: free pageblocks are handed out in random order, so that addresses do not tell
//! which block comes next. As in Linux, only blocks of the largest order (10) are shuffled: the
//! frames within such a block keep their order.
//!
//! The placement of memory stays as it is ([`placing`](crate::placing)): the GiB is chosen as
//! before, and within it any tree (64 MiB) and any pair of pageblocks of that tree.

// Not the types of `crate::sync`: any number will do, so models need not try them all.
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    Allocator,
    ids::{Id, TreeId, each},
    summary::TREE_BLOCKS,
};

/// The state of the generator of [`Turn`]s, which is odd while shuffling is on and 0 while it is
/// off.
#[derive(Debug)]
pub(crate) struct Shuffle(AtomicU64);

/// Where a search for a free pageblock starts: random bits, or 0 for the lowest address.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Turn(u32);

impl Shuffle {
    /// Returns the state while shuffling is off.
    pub(crate) const fn off() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the start of the next search.
    #[inline]
    pub(crate) fn turn(&self) -> Turn {
        // `Relaxed`, here and below: any number will do.
        if self.0.load(Ordering::Relaxed) == 0 {
            return Turn::NONE;
        }
        self.random_turn()
    }

    /// Returns a random start: SplitMix64 with a step that keeps the state odd.
    #[cold]
    fn random_turn(&self) -> Turn {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c16;
        let mut bits = self.0.fetch_add(STEP, Ordering::Relaxed);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Turn((bits >> 32) as u32)
    }
}

impl Turn {
    /// The start at the lowest address.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the tree of `trees` at which the search starts. An empty range gives its start.
    pub(crate) fn first_tree(self, trees: &Range<TreeId>) -> TreeId {
        let offset = (self.0 >> 8) as usize;
        let count = each(trees.clone()).len();
        trees.start.offset(offset.checked_rem(count).unwrap_or(0))
    }

    /// Returns the bits that stand for the pageblocks of a tree, in the order of the search. The
    /// two pageblocks of a block of order 10 follow each other.
    pub(crate) fn bits(self) -> impl Iterator<Item = usize> {
        let first = self.0 as usize & (TREE_BLOCKS - 2);
        (0..TREE_BLOCKS).map(move |step| (first + step) % TREE_BLOCKS)
    }
}

impl Allocator<'_> {
    /// Switches shuffling on: from here on free pageblocks are handed out in random order. `seed`
    /// should be unpredictable.
    pub fn shuffle(&self, seed: u64) {
        self.shared.shuffle.0.store(seed | 1, Ordering::Relaxed);
    }

    /// Returns `true` if free pageblocks are handed out in random order.
    pub fn is_shuffled(&self) -> bool {
        self.shared.shuffle.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, vec::Vec};

    #[test]
    fn every_turn_visits_each_pageblock_once_and_pairs_stay_together() {
        let shuffle = Shuffle::off();
        assert_eq!(shuffle.turn(), Turn::NONE);
        let range = |first: usize, end: usize| TreeId::new(first)..TreeId::new(end);
        assert!(Turn::NONE.bits().eq(0..TREE_BLOCKS));
        assert_eq!(Turn::NONE.first_tree(&range(3, 19)), TreeId::new(3));
        shuffle.0.store(5, Ordering::Relaxed);
        let (mut trees, mut pairs) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..1000 {
            let turn = shuffle.turn();
            let bits: Vec<_> = turn.bits().collect();
            assert_eq!(bits.iter().collect::<BTreeSet<_>>().len(), TREE_BLOCKS);
            assert!(
                bits.chunks(2)
                    .all(|pair| pair[0] % 2 == 0 && pair[1] == pair[0] + 1)
            );
            pairs.insert(bits[0]);
            trees.insert(turn.first_tree(&range(3, 19)));
            assert_eq!(turn.first_tree(&range(7, 7)), TreeId::new(7));
        }
        assert_eq!((trees.len(), pairs.len()), (16, TREE_BLOCKS / 2));
    }
}
