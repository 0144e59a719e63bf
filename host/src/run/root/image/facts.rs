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

/// All facts, each with a number.
#[derive(Debug)]
pub(super) struct AllFacts {
    all: Vec<Facts>,
    /// Numbers of recent facts. The hash of the facts is the index.
    recent: Vec<u32>,
    hasher: RandomState,
}

impl AllFacts {
    /// Creates a store without facts.
    pub(super) fn new() -> Self {
        Self {
            all: vec![Facts::default()],
            recent: vec![0; RECENT],
            hasher: RandomState::new(),
        }
    }

    /// Returns the number of `facts`. Adds them with a new number if they are not among the recent
    /// ones.
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

    /// Returns the facts with `number`, which [`Self::number`] has returned.
    pub(super) fn get(&self, number: u32) -> Facts {
        self.all[number as usize]
    }

    /// Returns the number of bytes of memory that are reserved.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Facts>() * self.all.capacity() + size_of::<u32>() * self.recent.capacity()
    }
}
