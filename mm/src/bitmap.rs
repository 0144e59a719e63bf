//! The bits of a pageblock: one cache line, one bit a frame, 1 = in use.
//!
//! Who sets a bit from 0 to 1 owns the frame. Bits are only ever taken by an exchange that shows
//! that each of them was 0, and given back by one that shows that each was 1. An order that spans
//! words (7, 8) takes them one by one, and what it has taken when one fails it gives back before
//! it says so: a run is either owned whole or not at all.

use crate::{
    Order,
    reach::Reach,
    sync::{AtomicU64, Ordering},
};

/// Bits in a word.
pub(crate) const WORD_FRAMES: u32 = u64::BITS;
/// Words in a line.
pub(crate) const WORDS: usize = 8;
/// The largest order that fits a word.
const WORD_ORDER: u8 = 6;
/// How often the words are looked through for a free bit that the count promises. Others may move
/// it between the words meanwhile; then this block is given up for another.
const LOOKS: usize = 4;

/// Frames taken from one word of a line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Which word.
    pub(crate) word: usize,
    /// Which of its frames.
    pub(crate) mask: u64,
}

/// 512 bits.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    words: [AtomicU64; WORDS],
}

/// The lowest `n` bits of those set.
pub(crate) fn lowest(mut set: u64, n: u32) -> u64 {
    let mut rest = set;
    for _ in 0..n.min(set.count_ones()) {
        rest &= rest - 1;
    }
    set &= !rest;
    set
}

/// The bits at which an aligned run of `1 << order` set bits starts, for orders of a word.
#[inline]
pub(crate) const fn runs(mut set: u64, order: u8) -> u64 {
    const STARTS: [u64; 7] = [
        !0,
        0x5555_5555_5555_5555,
        0x1111_1111_1111_1111,
        0x0101_0101_0101_0101,
        0x0001_0001_0001_0001,
        0x0000_0001_0000_0001,
        0x0000_0000_0000_0001,
    ];
    let mut k = 0;
    while k < order {
        set &= set >> (1 << k);
        k += 1;
    }
    set & STARTS[order as usize]
}

/// The bits at which such a run starts whose buddy is not free: one that is part of no larger run.
#[inline]
const fn tight(free: u64, order: u8) -> u64 {
    let starts = runs(free, order);
    if order == WORD_ORDER {
        return starts;
    }
    let larger = runs(free, order + 1);
    starts & !(larger | larger << (1 << order))
}

/// All bits of the runs of this order that start at these.
#[inline]
const fn spread(mut starts: u64, order: u8) -> u64 {
    let mut k = 0;
    while k < order {
        starts |= starts << (1 << k);
        k += 1;
    }
    starts
}

/// The smallest order of which such a run is among these bits, of which some are set.
#[inline]
const fn smallest(free: u64) -> u8 {
    if free == !0 {
        return WORD_ORDER;
    }
    let mut starts = free;
    let mut order = 0;
    // Bits that are part of no pair are singles, pairs that are part of no quadruple pairs, ...
    while order < WORD_ORDER {
        let larger = runs(free, order + 1);
        if larger | larger << (1 << order) != starts {
            return order;
        }
        starts = larger;
        order += 1;
    }
    WORD_ORDER
}

/// The bits of all runs of that order.
#[inline]
const fn least_runs(free: u64) -> u64 {
    if free == !0 {
        return free;
    }
    let order = smallest(free);
    spread(tight(free, order), order)
}

/// `1 << order` bits from the lowest, for orders of a word.
#[inline]
pub(crate) const fn run(order: u8) -> u64 {
    !0 >> (WORD_FRAMES - (1 << order))
}

/// The largest order of which a run is among these bits.
fn largest(free: u64) -> Option<u8> {
    let orders = 0..=WORD_ORDER;
    orders.rev().find(|&order| runs(free, order) != 0)
}

impl Line {
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self {
            words: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// `Relaxed`: a hint for an exchange that follows, or a look at rest.
    #[inline]
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    pub(crate) fn count_ones(&self) -> u32 {
        (0..WORDS).map(|word| self.word(word).count_ones()).sum()
    }

    /// Takes exactly these bits, if all are free. `Acquire` pairs with the `Release` of `give`:
    /// the last owner's stores to the frames are over.
    pub(crate) fn take_exactly(&self, word: usize, mask: u64) -> bool {
        let mut old = self.word(word);
        // Bounded by the progress of others: each retry means that a bit of the word changed hands.
        while old & mask == 0 {
            match self.words[word].compare_exchange_weak(
                old,
                old | mask,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Gives these bits back and says what is set in the word after. `Release` pairs with the
    /// `Acquire` of who takes them next; `SeqCst` for the sake of [`AtomicReach`], which the caller
    /// looks at next.
    ///
    /// [`AtomicReach`]: crate::reach::AtomicReach
    ///
    /// # Panics
    /// If one of them is not in use: the caller freed what it did not own.
    #[inline]
    pub(crate) fn give(&self, word: usize, mask: u64) -> u64 {
        let old = self.words[word].fetch_and(!mask, Ordering::SeqCst);
        assert!(
            old & mask == mask,
            "freed frames that are free: {:#x} of {old:#x}",
            mask & !old
        );
        old & !mask
    }

    /// The word to take single frames from, and how many: one whose smallest runs are as small as
    /// there are, and of those the one with most frames in such. Larger runs stay for larger orders.
    #[inline]
    pub(crate) fn best_word(&self) -> (usize, u32) {
        let mut best = (0, 0);
        let mut least = u8::MAX;
        for word in 0..WORDS {
            let free = !self.word(word);
            if free == 0 {
                continue;
            }
            let order = smallest(free);
            if order > least {
                continue;
            }
            let frames = if free == !0 {
                WORD_FRAMES
            } else {
                least_runs(free).count_ones()
            };
            if order < least || frames > best.1 {
                (least, best) = (order, (word, frames));
            }
        }
        best
    }

    /// Takes up to `most` frames of the smallest runs of one word, `first` if it has any. The caller
    /// has reserved them in the count.
    #[inline]
    pub(crate) fn take_some(&self, first: usize, most: u32) -> Option<Taken> {
        for look in 0..LOOKS * WORDS {
            let word = (first + look) % WORDS;
            let mut old = self.word(word);
            while old != !0 {
                let mask = least_runs(!old);
                let mask = if mask.count_ones() <= most {
                    mask
                } else {
                    lowest(mask, most)
                };
                // `Acquire` as in `take_exactly`.
                match self.words[word].compare_exchange_weak(
                    old,
                    old | mask,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Some(Taken { word, mask }),
                    Err(now) => old = now,
                }
            }
        }
        None
    }

    /// `SeqCst`: for one who has lowered the block's reach, or cleared bits of it, before.
    fn seen(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::SeqCst)
    }

    /// The order of the largest run that this word is part of, of which `used` bits are set.
    #[inline]
    pub(crate) fn reach_of(&self, word: usize, used: u64) -> Reach {
        if used != 0 {
            return Reach::of(largest(!used).unwrap_or(0));
        }
        let free =
            |first: usize, span: usize| (first..first + span).all(|word| self.seen(word) == 0);
        if !free(word & !1, 2) {
            Reach::of(WORD_ORDER)
        } else if !free(word & !3, 4) {
            Reach::of(WORD_ORDER + 1)
        } else {
            Reach::ALL
        }
    }

    /// The order of the largest run of the line.
    pub(crate) fn reach(&self) -> Reach {
        let used: [u64; WORDS] = core::array::from_fn(|word| self.seen(word));
        let words = used.iter().enumerate();
        let free = words.fold(0_u64, |free, (word, &used)| {
            free | u64::from(used == 0) << word
        });
        // Runs of words are found as runs of bits are.
        if runs(free, 2) != 0 {
            return Reach::ALL;
        }
        if free != 0 {
            return Reach::of(WORD_ORDER + u8::from(runs(free, 1) != 0));
        }
        used.iter().fold(Reach::of(0), |reach, &used| {
            // Only what is larger than the last found is of interest.
            match largest(!used) {
                Some(order) if runs(!used, reach.largest() + 1) != 0 => Reach::of(order),
                _ => reach,
            }
        })
    }

    /// Whether an aligned run of this order is free; false for the order of a block and above.
    pub(crate) fn has_run(&self, order: Order) -> bool {
        let order = order.get();
        if order <= WORD_ORDER {
            return (0..WORDS).any(|word| runs(!self.word(word), order) != 0);
        }
        if order >= Order::PAGEBLOCK.get() {
            return false;
        }
        let span = 1 << (order - WORD_ORDER);
        (0..WORDS)
            .step_by(span)
            .any(|first| self.is_free(first, span))
    }

    fn is_free(&self, first: usize, span: usize) -> bool {
        (first..first + span).all(|word| self.word(word) == 0)
    }

    /// Takes an aligned run of an order below that of a block: its first frame's index. It is the
    /// smallest that will do, or part of it. The caller has reserved it in the count.
    pub(crate) fn take_run(&self, order: Order) -> Option<usize> {
        let order = order.get();
        debug_assert!(order < Order::PAGEBLOCK.get());
        (order..WORD_ORDER)
            .find_map(|of| self.take_in_words(order, |free| tight(free, of)))
            .or_else(|| self.take_of_words(order))
            // Others may take or free a run's buddy meanwhile, which makes it one of another order.
            .or_else(|| self.take_in_words(order, |free| runs(free, order)))
    }

    /// Takes a run of an order below that of a word where one of these starts.
    fn take_in_words(&self, order: u8, starts: impl Fn(u64) -> u64) -> Option<usize> {
        if order >= WORD_ORDER {
            return None;
        }
        (0..WORDS).find_map(|word| {
            let bit = self.take_run_in(word, order, &starts)?;
            Some(word * WORD_FRAMES as usize + bit as usize)
        })
    }

    /// Takes a run of whole words, the smallest that will do, or the first part of one. Each word is
    /// looked at once, and runs of words are found as runs of bits are.
    fn take_of_words(&self, order: u8) -> Option<usize> {
        let unit = order.max(WORD_ORDER);
        let span = 1 << (unit - WORD_ORDER);
        let units = 0..WORDS / span;
        let free = units.fold(0, |free, at| {
            free | u64::from(self.is_free(at * span, span)) << at
        });
        let largest = Order::PAGEBLOCK.get() - 1 - unit;
        (0..=largest).find_map(|of| {
            let mut starts = if of < largest {
                tight(free, of)
            } else {
                runs(free, of)
            };
            while starts != 0 {
                let first = starts.trailing_zeros() as usize * span;
                starts &= starts - 1;
                let taken = if order <= WORD_ORDER {
                    self.take_exactly(first, run(order))
                } else {
                    self.take_words(first, span)
                };
                if taken {
                    return Some(first * WORD_FRAMES as usize);
                }
            }
            None
        })
    }

    fn take_run_in(&self, word: usize, order: u8, starts: impl Fn(u64) -> u64) -> Option<u32> {
        let mut old = self.word(word);
        // Bounded by the progress of others: each retry means that a bit of the word changed hands.
        loop {
            let starts = starts(!old);
            if starts == 0 {
                return None;
            }
            let bit = starts.trailing_zeros();
            // `Acquire` as in `take_exactly`.
            match self.words[word].compare_exchange_weak(
                old,
                old | run(order) << bit,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(bit),
                Err(now) => old = now,
            }
        }
    }

    /// Takes adjacent words whole, or none.
    pub(crate) fn take_words(&self, first: usize, span: usize) -> bool {
        for word in first..first + span {
            if !self.take_exactly(word, !0) {
                for taken in first..word {
                    self.give(taken, !0);
                }
                return false;
            }
        }
        true
    }

    /// Gives an aligned run of an order below that of a block back. Its last word, and what is set
    /// in it after.
    ///
    /// # Panics
    /// If a frame of it is not in use.
    pub(crate) fn give_run(&self, first: usize, order: Order) -> (usize, u64) {
        let order = order.get();
        let word = first / WORD_FRAMES as usize;
        if order <= WORD_ORDER {
            return (
                word,
                self.give(word, run(order) << (first % WORD_FRAMES as usize)),
            );
        }
        let last = word + (1 << (order - WORD_ORDER)) - 1;
        for word in word..last {
            self.give(word, !0);
        }
        (last, self.give(last, !0))
    }

    /// Sets all bits, of a block that the caller has whole. `Relaxed`: published by the state word.
    pub(crate) fn fill(&self) {
        for word in &self.words {
            word.store(!0, Ordering::Relaxed);
        }
    }

    /// Sets bits that only their owner changes: touched marks of frames that he holds. `Relaxed`:
    /// the frame's bit orders its owners.
    pub(crate) fn mark(&self, word: usize, mask: u64) {
        self.words[word].fetch_or(mask, Ordering::Relaxed);
    }

    /// Clears such bits.
    pub(crate) fn unmark(&self, word: usize, mask: u64) {
        self.words[word].fetch_and(!mask, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(ebb_model)))]
#[path = "bitmap_tests.rs"]
mod tests;
