//! The allocation bitmap of a pageblock: [`Line`], one cache line with one bit for each frame, 1 =
//! in use.
//!
//! The CPU that sets a bit from 0 to 1 owns the frame. Bits are set only by an exchange that shows
//! that all of them were 0, and cleared only by an exchange that shows that all of them were 1.
//! Orders 7 and 8 span several `u64`s, which are taken one by one. If one of them is not free,
//! those taken before are given back before the call returns. So an aligned run of frames is owned
//! completely or not at all.
//!
//! In this module, a *run of order n* is `1 << n` adjacent free frames, aligned to their number: a
//! buddy block.

use crate::{
    Order,
    run_bound::RunBound,
    sync::{AtomicU64, Ordering},
};

/// Number of frames in one `u64` of a bitmap.
pub(crate) const WORD_FRAMES: u32 = u64::BITS;
/// Number of `u64`s in a [`Line`].
pub(crate) const WORDS: usize = 8;
/// The largest order of a run inside one `u64`.
const WORD_ORDER: u8 = 6;
/// How often all `u64`s are searched for a free bit that the count promises. Other CPUs may move
/// the free bit between them during the search. After this number of attempts the block is given
/// up.
const LOOKS: usize = 4;

/// Frames of a pageblock that lie in the same `u64` of its bitmap ([`Line`]).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// The index of the `u64`.
    pub(crate) word: usize,
    /// The frames, one bit for each.
    pub(crate) mask: u64,
}

/// The bitmap of a pageblock: 512 bits.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    words: [AtomicU64; WORDS],
}

/// Returns the lowest `n` bits that are set in `set`, or all if there are fewer.
pub(crate) fn lowest(mut set: u64, n: u32) -> u64 {
    let mut rest = set;
    for _ in 0..n.min(set.count_ones()) {
        rest &= rest - 1;
    }
    set &= !rest;
    set
}

/// Returns the bits at which an aligned run of `1 << order` set bits starts. `order` must be 0 to
/// 6.
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

/// Returns the bits at which a run of exactly this order starts: its buddy is not free, so it is
/// part of no larger run. For orders 0 to 6.
#[inline]
const fn tight(free: u64, order: u8) -> u64 {
    let starts = runs(free, order);
    if order == WORD_ORDER {
        return starts;
    }
    let larger = runs(free, order + 1);
    starts & !(larger | larger << (1 << order))
}

/// Returns all bits of the runs of this order that start at the bits `starts`.
#[inline]
const fn spread(mut starts: u64, order: u8) -> u64 {
    let mut k = 0;
    while k < order {
        starts |= starts << (1 << k);
        k += 1;
    }
    starts
}

/// Returns the smallest order of a run that is part of no larger run. At least one bit of `free`
/// must be set.
#[inline]
const fn smallest(free: u64) -> u8 {
    if free == !0 {
        return WORD_ORDER;
    }
    let mut starts = free;
    let mut order = 0;
    // If not all of these runs are part of a larger run, this order is the smallest.
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

/// Returns the bits of all runs of the order that [`smallest`] returns.
#[inline]
const fn least_runs(free: u64) -> u64 {
    if free == !0 {
        return free;
    }
    let order = smallest(free);
    spread(tight(free, order), order)
}

/// Returns a mask of the lowest `1 << order` bits, for orders 0 to 6.
#[inline]
pub(crate) const fn run(order: u8) -> u64 {
    !0 >> (WORD_FRAMES - (1 << order))
}

/// Returns the largest order of a run of set bits, or `None` if no bit is set.
fn largest(free: u64) -> Option<u8> {
    let orders = 0..=WORD_ORDER;
    orders.rev().find(|&order| runs(free, order) != 0)
}

impl Line {
    /// Returns a bitmap in which no frame is in use.
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self {
            words: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns the `u64` with index `word` (0 to 7) of the bitmap, 1 = in use.
    ///
    /// `Relaxed`: the value is a hint for an exchange that follows, or the bitmap is not in use.
    #[inline]
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    /// Returns the number of frames in use.
    pub(crate) fn count_ones(&self) -> u32 {
        (0..WORDS).map(|word| self.word(word).count_ones()).sum()
    }

    /// Takes exactly the frames `mask` of the `u64` with index `word`. Returns `true` if it took
    /// them, and `false`, without a change, if one of them is in use.
    ///
    /// `Acquire` pairs with the `Release` of `give`: the last owner's stores to the frames are
    /// complete.
    pub(crate) fn take_exactly(&self, word: usize, mask: u64) -> bool {
        let mut old = self.word(word);
        // Bounded by the progress of others: each retry means that another CPU took or freed a
        // frame of this `u64`.
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

    /// Frees the frames `mask` of the `u64` with index `word`, and returns the new value of that
    /// `u64`.
    ///
    /// `Release` pairs with the `Acquire` of the next owner. `SeqCst` is for [`AtomicRunBound`],
    /// which the caller reads next.
    ///
    /// [`AtomicRunBound`]: crate::run_bound::AtomicRunBound
    ///
    /// # Panics
    /// If one of the frames is not in use: the caller freed a frame that it did not own.
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

    /// Selects the `u64` of the bitmap from which to take single frames. Returns its index and the
    /// number of frames to take, which is 0 if no frame is free.
    ///
    /// This is the `u64` whose smallest aligned runs of free frames are the smallest, and of these
    /// the one with the most frames in such runs. So larger runs stay available for larger orders.
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

    /// Takes at least one and up to `most` single frames of one `u64` of the bitmap, from its
    /// smallest runs of free frames. Tries the `u64` with index `first` before the others. Returns
    /// the frames taken, or `None` if no free frame was found in a bounded number of attempts.
    ///
    /// The caller has reserved `most` frames in the block's count, and gives back those not taken.
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
                // `Acquire` pairs with the `Release` of `give`.
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

    /// Returns the `u64` with this index.
    ///
    /// `SeqCst`: the caller has lowered the block's run bound or cleared bits before. If two CPUs
    /// do this at once, at least one of them sees the change of the other.
    fn seen(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::SeqCst)
    }

    /// Returns the order of the largest aligned run of free frames that lies in, or contains, the
    /// `u64` with index `word`, or order 0 if none of its frames is free. `used` is the value of
    /// that `u64`.
    #[inline]
    pub(crate) fn run_bound_of(&self, word: usize, used: u64) -> RunBound {
        if used != 0 {
            return RunBound::of(largest(!used).unwrap_or(0));
        }
        let free =
            |first: usize, span: usize| (first..first + span).all(|word| self.seen(word) == 0);
        if !free(word & !1, 2) {
            RunBound::of(WORD_ORDER)
        } else if !free(word & !3, 4) {
            RunBound::of(WORD_ORDER + 1)
        } else {
            RunBound::ALL
        }
    }

    /// Returns the order of the largest aligned run of free frames in the pageblock, or order 0 if
    /// no frame is free.
    pub(crate) fn run_bound(&self) -> RunBound {
        let used: [u64; WORDS] = core::array::from_fn(|word| self.seen(word));
        let words = used.iter().enumerate();
        let free = words.fold(0_u64, |free, (word, &used)| {
            free | u64::from(used == 0) << word
        });
        // Each bit of `free` stands for a free `u64`, so their runs are found like runs of frames.
        if runs(free, 2) != 0 {
            return RunBound::ALL;
        }
        if free != 0 {
            return RunBound::of(WORD_ORDER + u8::from(runs(free, 1) != 0));
        }
        used.iter().fold(RunBound::of(0), |run_bound, &used| {
            // Skip the search if this `u64` has no larger run than those before.
            match largest(!used) {
                Some(order) if runs(!used, run_bound.largest() + 1) != 0 => RunBound::of(order),
                _ => run_bound,
            }
        })
    }

    /// Returns `true` if an aligned run of frames of this order is free. Always returns `false` for
    /// order 9 and above.
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

    /// Returns `true` if all frames of the `span` `u64`s from index `first` on are free.
    fn is_free(&self, first: usize, span: usize) -> bool {
        (first..first + span).all(|word| self.word(word) == 0)
    }

    /// Takes `1 << order` adjacent, aligned free frames, for an order below 9. Returns the index of
    /// the first frame in the pageblock. Returns `None` if no such frames were found, which other
    /// CPUs may have caused by changing the bitmap during the search.
    ///
    /// Takes them from the smallest free run that is large enough. The caller has reserved them in
    /// the block's count.
    pub(crate) fn take_run(&self, order: Order) -> Option<usize> {
        let order = order.get();
        debug_assert!(order < Order::PAGEBLOCK.get());
        (order..WORD_ORDER)
            .find_map(|of| self.take_in_words(order, |free| tight(free, of)))
            .or_else(|| self.take_of_words(order))
            // Another CPU may take or free a run's buddy during the search, which changes the run's
            // order. So search once more for any run that is large enough.
            .or_else(|| self.take_in_words(order, |free| runs(free, order)))
    }

    /// Takes a run of an order below 6 at one of the bits that `starts` selects among the free
    /// bits. Returns the index of its first frame, or `None` if there is no such run.
    fn take_in_words(&self, order: u8, starts: impl Fn(u64) -> u64) -> Option<usize> {
        if order >= WORD_ORDER {
            return None;
        }
        (0..WORDS).find_map(|word| {
            let bit = self.take_run_in(word, order, &starts)?;
            Some(word * WORD_FRAMES as usize + bit as usize)
        })
    }

    /// Takes a run of one or more whole `u64`s, or for an order below 6 the first part of one.
    /// Selects the smallest free run that is large enough. Returns the index of its first frame, or
    /// `None` if there is none.
    ///
    /// Each `u64` is read once. Runs of `u64`s are found like runs of bits.
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

    /// Takes a run of `order` at one of the bits of one `u64` that `starts` selects among the free
    /// bits. Returns its first bit, or `None` if there is no such run.
    fn take_run_in(&self, word: usize, order: u8, starts: impl Fn(u64) -> u64) -> Option<u32> {
        let mut old = self.word(word);
        // Bounded by the progress of others: each retry means that another CPU took or freed a
        // frame of this `u64`.
        loop {
            let starts = starts(!old);
            if starts == 0 {
                return None;
            }
            let bit = starts.trailing_zeros();
            // `Acquire` pairs with the `Release` of `give`.
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

    /// Takes all frames of `span` adjacent `u64`s of the bitmap, from index `first` on. Returns
    /// `true` if it took them. Returns `false` if one of the frames is in use. The frames that were
    /// taken before that one are given back, so other CPUs may see them as in use for a moment.
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

    /// Frees the `1 << order` frames from index `first` in the pageblock on, for an order below 9.
    /// Returns the index of the last `u64` of the bitmap that was changed, and the new value of
    /// that `u64`.
    ///
    /// # Panics
    /// If one of the frames is not in use.
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

    /// Marks all frames as in use. The caller owns the whole block. `Relaxed`: the block's state
    /// word publishes the bits.
    pub(crate) fn fill(&self) {
        for word in &self.words {
            word.store(!0, Ordering::Relaxed);
        }
    }

    /// Sets the bits `mask` of the `u64` with index `word`. Only for bits that only the owner of
    /// the frames changes: marks that the host may hold memory for the frames, or frames without
    /// memory before the first use. `Relaxed`: the frames' own bits order their owners.
    pub(crate) fn mark(&self, word: usize, mask: u64) {
        self.words[word].fetch_or(mask, Ordering::Relaxed);
    }

    /// Clears the bits `mask` of the `u64` with index `word`, which [`mark`](Self::mark) set.
    /// `Relaxed`, as there.
    pub(crate) fn unmark(&self, word: usize, mask: u64) {
        self.words[word].fetch_and(!mask, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(ebb_model)))]
#[path = "bitmap_tests.rs"]
mod tests;
