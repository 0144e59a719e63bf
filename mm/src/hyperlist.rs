//! The hinter's merged list of all CPUs' freed pageblocks: [`HyperList`], sorted ranges without
//! duplicates. The name is that of the Linux patches.

/// The maximum threshold of [`Hinter::poll`](crate::Hinter::poll): the number of ranges for which
/// the hinter has room.
pub const HINT_THRESHOLD_MAX: usize = 256;

/// Adjacent pageblocks, by their numbers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Run {
    first: u32,
    end: u32,
}

/// The result of adding pageblocks to the merged list of freed pageblocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    /// They became a range of their own.
    Apart,
    /// They were merged with a range that they touch or overlap.
    Merged,
    /// The list has no room for another range. Nothing was added.
    NoRoom,
}

/// The merged list of freed pageblocks: ranges in ascending order. No two of them touch.
#[derive(Debug)]
pub(crate) struct HyperList {
    runs: [Run; HINT_THRESHOLD_MAX],
    len: usize,
}

impl HyperList {
    /// Returns an empty list.
    pub(crate) const fn new() -> Self {
        Self {
            runs: [Run { first: 0, end: 0 }; HINT_THRESHOLD_MAX],
            len: 0,
        }
    }

    /// Returns the ranges.
    fn runs(&self) -> &[Run] {
        &self.runs[..self.len]
    }

    /// Returns the number of ranges in the list.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the list has no pageblock.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all ranges.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the number of pageblocks in all ranges.
    #[cfg(all(test, not(ebb_model)))]
    fn blocks(&self) -> u64 {
        let sizes = self.runs().iter().map(|run| u64::from(run.end - run.first));
        sizes.sum()
    }

    /// Adds `count` pageblocks, at least one, from number `first` on to the list. Returns whether
    /// they became a range of their own ([`Added::Apart`]) or were merged with ranges that they
    /// touch or overlap ([`Added::Merged`]). Returns [`Added::NoRoom`], and adds nothing, if they
    /// need a range of their own and the list has [`HINT_THRESHOLD_MAX`] ranges.
    pub(crate) fn add(&mut self, first: u32, count: u32) -> Added {
        let new = Run {
            first,
            end: first.saturating_add(count),
        };
        // The ranges that the new one touches or overlaps.
        let from = self.runs().partition_point(|run| run.end < new.first);
        let touched = self.runs()[from..].iter();
        let to = from + touched.take_while(|run| run.first <= new.end).count();
        if from == to {
            if self.len == HINT_THRESHOLD_MAX {
                return Added::NoRoom;
            }
            self.runs.copy_within(from..self.len, from + 1);
            self.runs[from] = new;
            self.len += 1;
            return Added::Apart;
        }
        self.runs[from] = Run {
            first: self.runs[from].first.min(new.first),
            end: self.runs[to - 1].end.max(new.end),
        };
        if to != from + 1 {
            self.runs.copy_within(to..self.len, from + 1);
            self.len -= to - from - 1;
        }
        Added::Merged
    }

    /// Returns the number of the first pageblock in the list, or `None` if the list is empty.
    pub(crate) fn first(&self) -> Option<u32> {
        self.runs().first().map(|run| run.first)
    }

    /// Removes the first pageblock from the list. Does nothing if the list is empty.
    pub(crate) fn pop(&mut self) {
        if let Some(run) = self.runs[..self.len].first_mut() {
            run.first += 1;
            if run.first == run.end {
                self.runs.copy_within(1..self.len, 0);
                self.len -= 1;
            }
        }
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeSet, vec::Vec};

    /// Returns the number of ranges that a set of blocks forms.
    fn ranges(set: &BTreeSet<u32>) -> usize {
        set.iter()
            .filter(|&&block| block == 0 || !set.contains(&(block - 1)))
            .count()
    }

    fn drain(mut list: HyperList) -> Vec<u32> {
        let mut blocks = Vec::new();
        while let Some(block) = list.first() {
            blocks.push(block);
            list.pop();
        }
        assert!(list.is_empty());
        blocks
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_blocks_in_as_few_ranges_as_can_be(
            adds in proptest::collection::vec((0_u32..300, 1_u32..9), 0..200)
        ) {
            let (mut list, mut set) = (HyperList::new(), BTreeSet::new());
            for (first, count) in adds {
                let before = list.len();
                let touches = (first.saturating_sub(1)..=first + count).any(|block| set.contains(&block));
                let added = list.add(first, count);
                prop_assert_eq!(added == Added::Merged, touches);
                prop_assert!(added == Added::Merged || list.len() == before + 1);
                set.extend(first..first + count);
                prop_assert_eq!(list.len(), ranges(&set));
                prop_assert_eq!(list.blocks(), set.len() as u64);
            }
            prop_assert_eq!(drain(list), set.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_list_takes_what_merges_and_nothing_else() {
        let mut list = HyperList::new();
        for range in (0_u32..).take(HINT_THRESHOLD_MAX) {
            assert_eq!(list.add(3 * range, 1), Added::Apart);
        }
        assert_eq!(list.add(2_000_000_000, 512), Added::NoRoom);
        assert_eq!(list.add(1, 2), Added::Merged);
        assert_eq!(list.len(), HINT_THRESHOLD_MAX - 1);
        assert_eq!(list.add(2_000_000_000, 512), Added::Apart);
        assert_eq!(list.add(u32::MAX, 1), Added::NoRoom);
        list.clear();
        assert!(list.is_empty() && list.first().is_none());
    }
}
