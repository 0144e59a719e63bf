//! Which trees may have what is searched for: a bit for each tree, one for each 64 of those bits,
//! and so on, so that finding the first, or that there is none, costs the logarithm.
//!
//! A bit that is set is a hint: it may be wrong. One that is not is never wrong for long: who makes
//! something available then announces it; who finds nothing retires the bit, then looks again and
//! announces what has come meanwhile. As with [`Reach`](crate::reach::Reach), `SeqCst` sees to it
//! that one of two who do so at once sees the other.

use core::ops::Range;

use crate::sync::{AtomicU64, Ordering};

/// Levels above the trees: 64 trees (4 GiB), 4096, 262144 (16 TiB). More are looked through word
/// by word.
pub(crate) const LEVELS: usize = 3;
const FAN: usize = 64;

/// What can be searched for in a map: its place in each group of words.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    /// Which word of a group.
    pub(crate) index: usize,
    /// Whether a bit that is zero says that there may be some: so that zeroed memory is right
    /// where all is free.
    pub(crate) inverted: bool,
}

/// The words of a map, for a number of kinds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Map<'m> {
    /// Level by level; in each the words of one group of 64 for all kinds, then those of the next.
    pub(crate) levels: [&'m [AtomicU64]; LEVELS],
    /// Words of a group.
    pub(crate) kinds: usize,
    /// Items of the lowest level.
    pub(crate) items: usize,
}

/// Words of each level for so many items.
pub(crate) const fn lengths(items: usize, kinds: usize) -> [usize; LEVELS] {
    let low = items.div_ceil(FAN);
    let middle = low.div_ceil(FAN);
    [low * kinds, middle * kinds, middle.div_ceil(FAN) * kinds]
}

impl Map<'_> {
    #[inline]
    fn word(&self, kind: Kind, level: usize, group: usize) -> &AtomicU64 {
        &self.levels[level][group * self.kinds + kind.index]
    }

    /// The bits of a group that say that there may be some.
    #[inline]
    fn present(&self, kind: Kind, level: usize, group: usize) -> u64 {
        let raw = self.word(kind, level, group).load(Ordering::SeqCst);
        if !kind.inverted {
            return raw;
        }
        let here = (self.items_at(level) - group * FAN).min(FAN);
        !raw & (!0 >> (FAN - here))
    }

    /// Whether some item may have one of so many kinds from this one on: a look at the top.
    #[inline]
    pub(crate) fn may_have(&self, from: Kind, kinds: usize) -> bool {
        debug_assert!(!from.inverted, "a bit that is zero says nothing of these");
        let mut groups = self.levels[LEVELS - 1].chunks(self.kinds);
        groups.any(|group| {
            let words = group[from.index..from.index + kinds].iter();
            words.fold(0, |all, word| all | word.load(Ordering::SeqCst)) != 0
        })
    }

    fn set(&self, kind: Kind, level: usize, group: usize, bit: u64, present: bool) {
        let word = self.word(kind, level, group);
        if present != kind.inverted {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// The first item from this one on that may have some.
    #[inline]
    pub(crate) fn next(&self, kind: Kind, from: usize) -> Option<usize> {
        // From the start, the top says at once if there is none.
        let (mut level, mut at) = if from == 0 {
            (LEVELS - 1, 0)
        } else {
            (0, from)
        };
        // Bounded: `at` only moves on, by 64^level each time that it goes up.
        loop {
            let group = at / FAN;
            if group * self.kinds >= self.levels[level].len() {
                return None;
            }
            let found = self.present(kind, level, group) & (!0 << (at % FAN));
            if found != 0 {
                at = group * FAN + found.trailing_zeros() as usize;
                if level == 0 {
                    return Some(at);
                }
                (level, at) = (level - 1, at * FAN);
            } else if level + 1 < LEVELS {
                (level, at) = (level + 1, group + 1);
            } else {
                at = (group + 1) * FAN;
            }
        }
    }

    /// The last item before this one that may have some.
    pub(crate) fn last(&self, kind: Kind, before: usize) -> Option<usize> {
        let (mut level, mut end) = (0, before.min(self.items));
        // Bounded: `end` only moves down, by 64^level each time that it goes up.
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
                    return Some(at);
                }
                (level, end) = (level - 1, ((at + 1) * FAN).min(self.items_at(level - 1)));
            } else if level + 1 < LEVELS {
                (level, end) = (level + 1, group);
            } else {
                end = group * FAN;
            }
        }
    }

    /// Items of a level: of the lowest those of the map, of one above the groups below.
    fn items_at(&self, level: usize) -> usize {
        let below = u32::try_from(level).unwrap_or(0);
        self.items.div_ceil(FAN.pow(below))
    }

    /// Says that the item may have some.
    #[inline]
    pub(crate) fn announce(&self, kind: Kind, item: usize) {
        self.announce_all(kind, item..item + 1);
    }

    /// Says that each of these items may have some.
    pub(crate) fn announce_all(&self, kind: Kind, items: Range<usize>) {
        let mut items = items;
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

    /// Says that the item has none, unless `has` finds some after all.
    pub(crate) fn retire(&self, kind: Kind, item: usize, has: impl Fn() -> bool) {
        let mut at = item;
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

    /// Whether a search would come to the item.
    pub(crate) fn shows(&self, kind: Kind, item: usize) -> bool {
        let mut at = item;
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
