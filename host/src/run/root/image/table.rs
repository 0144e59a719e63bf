//! A hash table that finds a node by its directory and its name.

use std::hash::{BuildHasher, RandomState};

/// Bits of a slot that hold a node's number. The other bits hold a part of the hash.
const NUMBER_BITS: u32 = 22;
/// The number of different node numbers that a [`Table`] can store, 0 included.
pub(super) const NUMBERS_MAX: usize = 1 << NUMBER_BITS;
const NUMBERS: u32 = (1 << NUMBER_BITS) - 1;
/// The least number of slots.
const SLOTS_MIN: usize = 64;

/// A hash table from a directory's number and a name to a node number. It uses open addressing and
/// does not store the keys. The hash has a random key, so an image cannot choose names that
/// collide.
#[derive(Debug)]
pub(super) struct Table {
    /// The number of a node and some bits of its hash. 0 for a free slot.
    slots: Vec<u32>,
    used: usize,
    hasher: RandomState,
}

impl Table {
    /// Creates an empty table with 64 slots.
    pub(super) fn new() -> Self {
        Self {
            slots: vec![0; SLOTS_MIN],
            used: 0,
            hasher: RandomState::new(),
        }
    }

    /// Returns the first slot to look at for a key, and the hash bits that its slot has.
    fn place(&self, folder: u32, name: &[u8]) -> (usize, u32) {
        let hash = self.hasher.hash_one((folder, name));
        let high = (u128::from(hash) * self.slots.len() as u128) >> 64;
        let low = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0);
        (usize::try_from(high).unwrap_or(0), low & !NUMBERS)
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() {
            0
        } else {
            slot + 1
        }
    }

    /// Returns the number stored for the name `name` in the directory `folder`. Several keys may
    /// share hash bits, so the caller's `is` decides whether a number is the right one. Returns
    /// `None` if `is` accepts none.
    pub(super) fn find(&self, folder: u32, name: &[u8], is: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut at, tag) = self.place(folder, name);
        // Ends, because some slots are always free.
        while self.slots[at] != 0 {
            let number = self.slots[at] & NUMBERS;
            if self.slots[at] & !NUMBERS == tag && is(number) {
                return Some(number);
            }
            at = self.after(at);
        }
        None
    }

    /// Returns whether seven eighths of the slots are used. [`Self::clear_for`] must then come
    /// before an insertion.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.slots.len() / 8 * 7
    }

    /// Removes all numbers, and resizes the table so that `count` numbers and some more fit. The
    /// caller inserts the numbers again.
    pub(super) fn clear_for(&mut self, count: usize) {
        let slots = (count + count / 3).max(SLOTS_MIN);
        // The old slots are freed first, since two tables at a time would take too much memory.
        self.slots.clear();
        self.slots.shrink_to(slots);
        self.slots.reserve_exact(slots);
        self.slots.resize(slots, 0);
        self.used = 0;
    }

    /// Adds `number` for the name `name` in the directory `folder`. `number` must not be 0, the
    /// table must not be full, and the key must not be in use.
    pub(super) fn insert(&mut self, folder: u32, name: &[u8], number: u32) {
        let (mut at, tag) = self.place(folder, name);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = tag | number;
        self.used += 1;
    }

    /// Returns the number of bytes of memory that are reserved for the slots.
    pub(super) fn bytes(&self) -> usize {
        size_of::<u32>() * self.slots.capacity()
    }
}
