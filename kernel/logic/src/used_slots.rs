//! The set of used slots of a table whose lowest free slot is needed again and again.

use crate::errno::Errno;
use alloc::vec::Vec;

const BITS: usize = 64;

/// The set of the used slots of a table, with one bit for each slot. For each word of these bits
/// there are two more bits: all slots of the word are in use, and at least one is.
#[derive(Debug, Default)]
pub struct UsedSlots {
    used: Vec<u64>,
    full: Vec<u64>,
    any: Vec<u64>,
}

impl UsedSlots {
    /// Returns a set without used slots and without memory.
    pub const fn new() -> Self {
        Self {
            used: Vec::new(),
            full: Vec::new(),
            any: Vec::new(),
        }
    }

    /// Allocates memory for a total of `slots` slots. The new slots are free.
    ///
    /// # Errors
    /// `ENOMEM` if memory is short; the used slots are unchanged.
    pub fn grow_to(&mut self, slots: usize) -> Result<(), Errno> {
        let words = slots.div_ceil(BITS);
        let upper = words.div_ceil(BITS);
        for (bits, words) in [
            (&mut self.used, words),
            (&mut self.full, upper),
            (&mut self.any, upper),
        ] {
            let more = words.saturating_sub(bits.len());
            bits.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
            bits.resize(bits.len() + more, 0);
        }
        Ok(())
    }

    /// Copies the used slots of `other`, which are all below `end`, into this set, which must be
    /// empty.
    ///
    /// # Panics
    /// If one of the two sets has memory for fewer than `end` slots ([`Self::grow_to`]).
    pub fn copy_from(&mut self, other: &Self, end: usize) {
        let words = end.div_ceil(BITS);
        self.used[..words].copy_from_slice(&other.used[..words]);
        let words = words.div_ceil(BITS);
        self.full[..words].copy_from_slice(&other.full[..words]);
        self.any[..words].copy_from_slice(&other.any[..words]);
    }

    /// Marks `slot` as used.
    ///
    /// # Panics
    /// If [`Self::grow_to`] has allocated no memory for the slot.
    #[inline]
    pub fn set(&mut self, slot: usize) {
        let word = slot / BITS;
        self.used[word] |= 1 << (slot % BITS);
        self.any[word / BITS] |= 1 << (word % BITS);
        if self.used[word] == u64::MAX {
            self.full[word / BITS] |= 1 << (word % BITS);
        }
    }

    /// Marks `slot` as free.
    ///
    /// # Panics
    /// If [`Self::grow_to`] has allocated no memory for the slot.
    #[inline]
    pub fn clear(&mut self, slot: usize) {
        let word = slot / BITS;
        self.used[word] &= !(1 << (slot % BITS));
        self.full[word / BITS] &= !(1 << (word % BITS));
        if self.used[word] == 0 {
            self.any[word / BITS] &= !(1 << (word % BITS));
        }
    }

    /// Returns the lowest free slot that is not below `from`. It may have no memory yet, so that
    /// [`Self::grow_to`] must be called before [`Self::set`].
    pub fn first_free(&self, from: usize) -> usize {
        let free = |words: &[u64], at: usize| {
            let word = words.get(at / BITS).copied().unwrap_or(0);
            Some((!word & (u64::MAX << (at % BITS))).trailing_zeros() as usize)
                .filter(|bit| *bit < BITS)
                .map(|bit| at / BITS * BITS + bit)
        };
        if let Some(slot) = free(&self.used, from) {
            return slot;
        }
        // At most one iteration for each word of `full`.
        let mut word = from / BITS + 1;
        loop {
            match free(&self.full, word) {
                Some(word) => return free(&self.used, word * BITS).unwrap_or(word * BITS),
                None => word = (word / BITS + 1) * BITS,
            }
        }
    }

    /// Returns the lowest used slot that is not below `from`, or `None` if there is none.
    pub fn first_used(&self, from: usize) -> Option<usize> {
        first_bit(&self.used[..self.used.len().min(from / BITS + 1)], from).or_else(|| {
            let word = first_bit(&self.any, from / BITS + 1)?;
            first_bit(&self.used, word * BITS)
        })
    }

    /// Returns the number of the slot after the last used one, or 0 if no slot is in use.
    pub fn end(&self) -> usize {
        let after =
            |words: &[u64], last: usize| (last + 1) * BITS - words[last].leading_zeros() as usize;
        let last = self.any.iter().rposition(|word| *word != 0);
        last.map_or(0, |last| after(&self.used, after(&self.any, last) - 1))
    }
}

/// Returns the first set bit of `words` that is not below `from`, or `None` if there is none.
fn first_bit(words: &[u64], from: usize) -> Option<usize> {
    let mut mask = u64::MAX << (from % BITS);
    for (at, word) in words.iter().enumerate().skip(from / BITS) {
        let word = word & mask;
        if word != 0 {
            return Some(at * BITS + word.trailing_zeros() as usize);
        }
        mask = u64::MAX;
    }
    None
}
