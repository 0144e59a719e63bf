//! Owner, mode and time of nodes, stored once for many nodes that share them.

use super::growth::push_all;
use std::hash::{BuildHasher, RandomState};

/// Number of recent facts in which equal ones are looked for. Nodes near each other often have the
/// same.
const RECENT: usize = 1 << 12;

/// Owner, mode and time of a node.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u16,
}

/// The facts of all nodes (owner, mode and time), each with a number. Nodes with equal facts can
/// share one number.
#[derive(Debug)]
pub(super) struct AllFacts {
    all: Vec<Facts>,
    /// Numbers of recent facts. The hash of the facts is the index.
    recent: Vec<u32>,
    hasher: RandomState,
}

impl AllFacts {
    /// Creates a store with one entry: the default facts, all zeros, have the number 0.
    pub(super) fn new() -> Self {
        Self {
            all: vec![Facts::default()],
            recent: vec![0; RECENT],
            hasher: RandomState::new(),
        }
    }

    /// Returns the number of `facts`. Stores them under a new number if they are not found among
    /// the recent ones, so equal facts may have several numbers.
    ///
    /// # Panics
    /// If there are 2^32 numbers. The limits of an index prevent that.
    pub(super) fn number(&mut self, facts: Facts) -> u32 {
        let hash = self.hasher.hash_one(facts);
        let place = usize::try_from(hash % RECENT as u64).unwrap_or(0);
        let known = self.recent[place];
        if self.get(known) == facts {
            return known;
        }
        let number = u32::try_from(self.all.len()).expect("an index has a bounded size");
        push_all(&mut self.all, &[facts]);
        self.recent[place] = number;
        number
    }

    /// Returns the facts with the number `number`.
    ///
    /// # Panics
    /// If [`Self::number`] has not returned this number.
    pub(super) fn get(&self, number: u32) -> Facts {
        self.all[number as usize]
    }

    /// Returns the number of bytes of memory that are reserved for the facts.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Facts>() * self.all.capacity() + size_of::<u32>() * self.recent.capacity()
    }
}
