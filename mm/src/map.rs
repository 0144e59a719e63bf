//! Search hints: bitmaps that say which trees (or GiBs) may have blocks of a kind. Above the bits
//! of the items there is one bit for each 64 of them, and so on. So a search for the first item, or
//! the result that there is none, costs the logarithm of their number.
//!
//! A bit that says *present* is a hint and may be wrong. A bit that says *absent* is never wrong
//! for long:
//!
//! - A CPU that makes an item available announces it after that.
//! - A CPU that finds nothing clears the bit, then looks at the item again, and announces it if
//!   something was freed.
//!
//! As with [`RunBound`](crate::run_bound::RunBound), `SeqCst` ensures that at least one of two CPUs
//! that do this at once sees the other.

use core::{marker::PhantomData, ops::Range};

use crate::{
    ids::Id,
    sync::{AtomicU64, Ordering},
};

/// Number of levels of the search hints. With items of 64 MiB, a bit stands for 64 MiB, 4 GiB or
/// 256 GiB, depending on its level. The `u64`s of the highest level are searched one by one.
pub(crate) const LEVELS: usize = 3;
/// Number of items in a group: the bits of one `u64`.
const FAN: usize = 64;

/// A kind of blocks to search for: its position in each group of `u64`s.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    /// The index of its `u64` in a group.
    pub(crate) index: usize,
    /// Whether a bit of 0 says *present*, so that zeroed memory is right if everything is free.
    pub(crate) inverted: bool,
}

/// The search hints for all kinds of blocks: which items may have blocks of a kind. The items are
/// the trees or the GiBs of a zone, whose ids have the type `I`.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Map<'m, I> {
    /// The bits, level by level. Each level has, for each group of 64 items, one `u64` for each
    /// kind.
    levels: [&'m [AtomicU64]; LEVELS],
    /// Number of kinds, which is the number of `u64`s of a group.
    kinds: usize,
    /// Number of items of the lowest level.
    items: usize,
    by: PhantomData<fn(I)>,
}

/// Returns the number of `u64`s of each level, the lowest level first, for this number of items and
/// kinds.
pub(crate) const fn lengths(items: usize, kinds: usize) -> [usize; LEVELS] {
    let low = items.div_ceil(FAN);
    let middle = low.div_ceil(FAN);
    [low * kinds, middle * kinds, middle.div_ceil(FAN) * kinds]
}

impl<'m, I: Id> Map<'m, I> {
    /// Returns the hints for `items` items and `kinds` kinds, whose bits are in `levels`. The
    /// lengths of the levels are those that [`lengths`] returns.
    pub(crate) const fn new(levels: [&'m [AtomicU64]; LEVELS], kinds: usize, items: usize) -> Self {
        Self {
            levels,
            kinds,
            items,
            by: PhantomData,
        }
    }

    /// Returns the `u64` of a kind for a group of a level.
    #[inline]
    fn word(&self, kind: Kind, level: usize, group: usize) -> &AtomicU64 {
        &self.levels[level][group * self.kinds + kind.index]
    }

    /// Returns the bits of a group that say *present*.
    #[inline]
    fn present(&self, kind: Kind, level: usize, group: usize) -> u64 {
        let raw = self.word(kind, level, group).load(Ordering::SeqCst);
        if !kind.inverted {
            return raw;
        }
        let here = (self.items_at(level) - group * FAN).min(FAN);
        !raw & (!0 >> (FAN - here))
    }

    /// Returns `true` if some item may have one of `kinds` kinds, from the kind `from` on. Reads
    /// the highest level only. `from` must not be an inverted kind.
    #[inline]
    pub(crate) fn may_have(&self, from: Kind, kinds: usize) -> bool {
        debug_assert!(!from.inverted, "a bit that is zero says nothing of these");
        let mut groups = self.levels[LEVELS - 1].chunks(self.kinds);
        groups.any(|group| {
            let words = group[from.index..from.index + kinds].iter();
            words.fold(0, |all, word| all | word.load(Ordering::SeqCst)) != 0
        })
    }

    /// Sets the bits `bit` of a group to *present* or *absent*.
    fn set(&self, kind: Kind, level: usize, group: usize, bit: u64, present: bool) {
        let word = self.word(kind, level, group);
        if present != kind.inverted {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Returns the first item from `from` on that may have blocks of this kind, or `None` if there
    /// is none. The result is a hint: the item may have none.
    #[inline]
    pub(crate) fn next(&self, kind: Kind, from: I) -> Option<I> {
        let from = from.index();
        // If `from` is 0, the highest level says at once if there is none.
        let (mut level, mut at) = if from == 0 {
            (LEVELS - 1, 0)
        } else {
            (0, from)
        };
        // Bounded: `at` only moves up, by 64^level each time that it goes up a level.
        loop {
            let group = at / FAN;
            if group * self.kinds >= self.levels[level].len() {
                return None;
            }
            let found = self.present(kind, level, group) & (!0 << (at % FAN));
            if found != 0 {
                at = group * FAN + found.trailing_zeros() as usize;
                if level == 0 {
                    return Some(I::new(at));
                }
                (level, at) = (level - 1, at * FAN);
            } else if level + 1 < LEVELS {
                (level, at) = (level + 1, group + 1);
            } else {
                at = (group + 1) * FAN;
            }
        }
    }

    /// Returns the last item below `before` that may have blocks of this kind, or `None` if there
    /// is none. The result is a hint: the item may have none.
    pub(crate) fn last(&self, kind: Kind, before: I) -> Option<I> {
        let (mut level, mut end) = (0, before.index().min(self.items));
        // Bounded: `end` only moves down, by 64^level each time that it goes up a level.
        loop {
            if end == 0 {
                return None;
            }
            let group = (end - 1) / FAN;
            let here = end - group * FAN;
            let found = self.present(kind, level, group) & (!0 >> (FAN - here));
            if found != 0 {
                let at = group * FAN + found.ilog2() as usize;
                if level == 0 {
                    return Some(I::new(at));
                }
                (level, end) = (level - 1, ((at + 1) * FAN).min(self.items_at(level - 1)));
            } else if level + 1 < LEVELS {
                (level, end) = (level + 1, group);
            } else {
                end = group * FAN;
            }
        }
    }

    /// Returns the number of items of a level: of the lowest level those of the map, above that the
    /// groups of the level below.
    fn items_at(&self, level: usize) -> usize {
        let below = u32::try_from(level).unwrap_or(0);
        self.items.div_ceil(FAN.pow(below))
    }

    /// Marks the item as having blocks of this kind.
    #[inline]
    pub(crate) fn announce(&self, kind: Kind, item: I) {
        self.announce_all(kind, item..item.next());
    }

    /// Marks each of these items as having blocks of this kind. The range must not be empty.
    pub(crate) fn announce_all(&self, kind: Kind, items: Range<I>) {
        let mut items = items.start.index()..items.end.index();
        for level in 0..LEVELS {
            let (first, last) = (items.start / FAN, (items.end - 1) / FAN);
            for group in first..=last {
                let from = items.start.max(group * FAN) % FAN;
                let count = items.end.min((group + 1) * FAN) - items.start.max(group * FAN);
                let bits = (!0 >> (FAN - count)) << from;
                if self.present(kind, level, group) & bits != bits {
                    self.set(kind, level, group, bits, true);
                }
            }
            items = first..last + 1;
        }
    }

    /// Marks the item as having no blocks of this kind. Calls `has` after that, and undoes the mark
    /// if it returns `true`.
    pub(crate) fn retire(&self, kind: Kind, item: I, has: impl Fn() -> bool) {
        let mut at = item.index();
        for level in 0..LEVELS {
            let (group, bit) = (at / FAN, 1 << (at % FAN));
            self.set(kind, level, group, bit, false);
            let came = if level == 0 {
                has()
            } else {
                self.present(kind, level - 1, at) != 0
            };
            if came {
                self.announce(kind, item);
                return;
            }
            if self.present(kind, level, group) != 0 {
                return;
            }
            at = group;
        }
    }

    /// Returns `true` if a search for this kind would find the item.
    pub(crate) fn shows(&self, kind: Kind, item: I) -> bool {
        let mut at = item.index();
        (0..LEVELS).all(|level| {
            let (group, bit) = (at / FAN, 1 << (at % FAN));
            at = group;
            self.present(kind, level, group) & bit != 0
        })
    }
}

#[cfg(all(test, not(ebb_model)))]
#[path = "map_tests.rs"]
mod tests;
