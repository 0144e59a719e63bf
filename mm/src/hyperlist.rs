//! What all CPUs freed, looked at again: ranges of pageblocks in order, neighbours and duplicates merged (the seed's
//! hyperlist).

/// Ranges that it has room for: the most that the threshold can be.
pub const HINT_THRESHOLD_MAX: usize = 256;

/// Pageblocks that follow each other, by their numbers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Run {
    first: u32,
    end: u32,
}

/// What became of an entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    /// It is a range of its own.
    Apart,
    /// It has become part of others, or was there.
    Merged,
    /// There is no room for it.
    NoRoom,
}

/// The ranges: in order, and no two of them touch.
#[derive(Debug)]
pub(crate) struct HyperList {
    runs: [Run; HINT_THRESHOLD_MAX],
    len: usize,
}

impl HyperList {
    pub(crate) const fn new() -> Self {
        Self {
            runs: [Run { first: 0, end: 0 }; HINT_THRESHOLD_MAX],
            len: 0,
        }
    }

    fn runs(&self) -> &[Run] {
        &self.runs[..self.len]
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[cfg(all(test, not(ebb_model)))]
    fn blocks(&self) -> u64 {
        let sizes = self.runs().iter().map(|run| u64::from(run.end - run.first));
        sizes.sum()
    }

    /// Adds `count` pageblocks.
    pub(crate) fn add(&mut self, first: u32, count: u32) -> Added {
        let new = Run {
            first,
            end: first.saturating_add(count),
        };
        // Those that it touches or overlaps.
        let from = self.runs().partition_point(|run| run.end < new.first);
        let to = self.runs().partition_point(|run| run.first <= new.end);
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
        self.runs.copy_within(to..self.len, from + 1);
        self.len -= to - from - 1;
        Added::Merged
    }

    /// The first pageblock.
    pub(crate) fn first(&self) -> Option<u32> {
        self.runs().first().map(|run| run.first)
    }

    /// Removes the first pageblock.
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

    /// What ranges a set of blocks makes.
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
