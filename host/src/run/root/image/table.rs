//! Finds a file by its folder and its name.

use std::hash::{BuildHasher, RandomState};

/// Bits of a number; the others of a slot are of the hash.
const NUMBER_BITS: u32 = 22;
/// The most files.
pub(super) const NUMBERS_MAX: usize = 1 << NUMBER_BITS;
const NUMBERS: u32 = (1 << NUMBER_BITS) - 1;
/// The fewest slots.
const SLOTS_MIN: usize = 64;

/// A hash table with open addressing. The keys stand elsewhere; the hash is keyed at random, so an
/// image cannot choose names that meet.
#[derive(Debug)]
pub(super) struct Table {
    /// A number and some bits of the hash; 0 where there is none.
    slots: Vec<u32>,
    used: usize,
    hasher: RandomState,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![0; SLOTS_MIN],
            used: 0,
            hasher: RandomState::new(),
        }
    }

    /// Returns the slot at which to begin, and what slots for the key have besides a number.
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

    /// Returns the first number for a key that `is` it.
    pub(super) fn find(&self, folder: u32, name: &[u8], is: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut at, tag) = self.place(folder, name);
        // Ends: some slots are free.
        while self.slots[at] != 0 {
            let number = self.slots[at] & NUMBERS;
            if self.slots[at] & !NUMBERS == tag && is(number) {
                return Some(number);
            }
            at = self.after(at);
        }
        None
    }

    /// Returns whether there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.slots.len() / 8 * 7
    }

    /// Takes all numbers out, and makes room for `count` of them and some more.
    pub(super) fn clear_for(&mut self, count: usize) {
        let slots = (count + count / 3).max(SLOTS_MIN);
        // In its place where it grows: two at a time are too much.
        self.slots.clear();
        self.slots.shrink_to(slots);
        self.slots.reserve_exact(slots);
        self.slots.resize(slots, 0);
        self.used = 0;
    }

    /// Adds a number, which is not 0. There must be room, and none that is found by this key.
    pub(super) fn insert(&mut self, folder: u32, name: &[u8], number: u32) {
        let (mut at, tag) = self.place(folder, name);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = tag | number;
        self.used += 1;
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<u32>() * self.slots.capacity()
    }
}
