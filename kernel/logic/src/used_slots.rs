//! Which slots of a table are in use, of which the lowest free one is wanted again and again.

use crate::errno::Errno;
use alloc::vec::Vec;

const BITS: usize = 64;

/// A set of slots with a bit each, and a bit for each full word of those.
#[derive(Debug, Default)]
pub struct UsedSlots {
    used: Vec<u64>,
    full: Vec<u64>,
}

impl UsedSlots {
    /// None is in use.
    pub const fn new() -> Self {
        Self {
            used: Vec::new(),
            full: Vec::new(),
        }
    }

    /// Gets the memory for so many slots in all.
    ///
    /// # Errors
    /// `ENOMEM`; the set is unchanged.
    pub fn grow_to(&mut self, slots: usize) -> Result<(), Errno> {
        let words = slots.div_ceil(BITS);
        for (bits, words) in [
            (&mut self.used, words),
            (&mut self.full, words.div_ceil(BITS)),
        ] {
            let more = words.saturating_sub(bits.len());
            bits.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
            bits.resize(bits.len() + more, 0);
        }
        Ok(())
    }

    /// Takes over the slots of another set, which end with `end`; there is memory for so many.
    pub fn copy_from(&mut self, other: &Self, end: usize) {
        let words = end.div_ceil(BITS);
        self.used[..words].copy_from_slice(&other.used[..words]);
        let words = words.div_ceil(BITS);
        self.full[..words].copy_from_slice(&other.full[..words]);
    }

    /// A slot for which there is memory is in use from here on.
    pub fn set(&mut self, slot: usize) {
        let word = slot / BITS;
        self.used[word] |= 1 << (slot % BITS);
        if self.used[word] == u64::MAX {
            self.full[word / BITS] |= 1 << (word % BITS);
        }
    }

    /// It is free again.
    pub fn clear(&mut self, slot: usize) {
        let word = slot / BITS;
        self.used[word] &= !(1 << (slot % BITS));
        self.full[word / BITS] &= !(1 << (word % BITS));
    }

    /// The lowest free slot that is not below `from`; there may be no memory for it yet.
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
        // A turn for each word of full words at most.
        let mut word = from / BITS + 1;
        loop {
            match free(&self.full, word) {
                Some(word) => return free(&self.used, word * BITS).unwrap_or(word * BITS),
                None => word = (word / BITS + 1) * BITS,
            }
        }
    }

    /// The lowest slot in use that is not below `from`.
    pub fn first_used(&self, from: usize) -> Option<usize> {
        let first = from / BITS;
        let mut mask = u64::MAX << (from % BITS);
        for (at, word) in self.used.iter().enumerate().skip(first) {
            let word = word & mask;
            if word != 0 {
                return Some(at * BITS + word.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The slot after the last in use.
    pub fn end(&self) -> usize {
        let last = self.used.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| {
            (at + 1) * BITS - self.used[at].leading_zeros() as usize
        })
    }
}
