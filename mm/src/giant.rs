//! The level above the pageblocks: an aligned GiB in one word, so that it is taken and given back
//! by one exchange.

use core::fmt;

use crate::{
    Mobility,
    summary::TREE_BLOCKS,
    sync::{AtomicU32, Ordering},
};

/// Trees in a giant.
pub(crate) const GIANT_TREES: usize = 16;
/// Its binary logarithm.
pub(crate) const GIANT_TREES_SHIFT: u32 = GIANT_TREES.trailing_zeros();
/// Pageblocks in a giant.
pub(crate) const GIANT_BLOCKS: u32 = 512;
const _: () = assert!(GIANT_BLOCKS as usize == GIANT_TREES * TREE_BLOCKS);
const _: () =
    assert!(1 << crate::Order::GIANT.get() == GIANT_BLOCKS << crate::Order::PAGEBLOCK.get());

const COUNT: u32 = 0x3ff;
const HUGE: u32 = 1 << 10;
const TOUCHED: u32 = 1 << 11;
const MOBILITY_SHIFT: u32 = 12;
const MOBILITY: u32 = 3 << MOBILITY_SHIFT;
const HOST: u32 = 1 << 14;
const USE: u32 = 1 << 16;

/// A value of a giant's word.
///
/// | bits | field | values |
/// |---|---|---|
/// | 0–9 | count | blocks that are not free, or that somebody is about to use: 0 = it can be taken |
/// | 10 | huge | 1 = allocated whole; its count is 0 and its blocks' words say free |
/// | 11 | touched | 1 = it was used whole: its blocks are touched, whatever their words say |
/// | 12–13 | mobility | that of its use while it is huge |
/// | 14 | host | 1 = an attached host is one of those that the count has: it may take free blocks out |
/// | 16–31 | uses | how often it was given back whole, modulo 2^16 |
///
/// Who is about to use a free block of it raises the count first, and who has freed a block lowers
/// it after: a count of 0 means that all its blocks are free and nobody is at any of them.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Giant(u32);

impl Giant {
    #[cfg(not(ebb_model))]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The same with an attached host in it; none if one is, or if it counts as many as it can.
    #[cfg(not(ebb_model))]
    pub(crate) const fn entered_by_host(self) -> Option<Self> {
        if self.count() == COUNT || self.has_host() {
            None
        } else {
            Some(Self((self.0 + 1) | HOST))
        }
    }

    /// The same without the host; none if it is not in it.
    #[cfg(not(ebb_model))]
    pub(crate) const fn left_by_host(self) -> Option<Self> {
        if self.count() == 0 || !self.has_host() {
            None
        } else {
            Some(Self((self.0 - 1) & !HOST))
        }
    }

    /// Whether an attached host is in it.
    #[cfg(not(ebb_model))]
    pub(crate) const fn has_host(self) -> bool {
        self.0 & HOST != 0
    }

    pub(crate) const fn count(self) -> u32 {
        self.0 & COUNT
    }

    pub(crate) const fn is_huge(self) -> bool {
        self.0 & HUGE != 0
    }

    pub(crate) const fn is_touched(self) -> bool {
        self.0 & TOUCHED != 0
    }

    pub(crate) const fn is_free(self) -> bool {
        self.0 & (COUNT | HUGE) == 0
    }

    pub(crate) const fn mobility(self) -> Mobility {
        match (self.0 & MOBILITY) >> MOBILITY_SHIFT {
            0 => Mobility::Unmovable,
            1 => Mobility::Movable,
            _ => Mobility::Reclaimable,
        }
    }
}

impl fmt::Debug for Giant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Giant")
            .field("count", &self.count())
            .field("huge", &self.is_huge())
            .field("touched", &self.is_touched())
            .finish()
    }
}

/// A giant's word in memory. Every change is one atomic read-modify-write of `AcqRel`: the
/// `Release` of one who lowers the count to 0 pairs with the `Acquire` of one who then takes the
/// giant, so he finds all its blocks as they were left.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicGiant(AtomicU32);

impl AtomicGiant {
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self(AtomicU32::new(0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Giant {
        Giant(self.0.load(Ordering::Acquire))
    }

    /// One exchange, for one who bounds how often he tries.
    #[cfg(not(ebb_model))]
    pub(crate) fn exchange(&self, old: Giant, new: Giant) -> bool {
        self.0
            .compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Retries until `step` refuses. Bounded by the progress of others.
    fn update(&self, step: impl Fn(Giant) -> Option<Giant>) -> Option<Giant> {
        let mut old = self.load();
        loop {
            let new = step(old)?;
            match self
                .0
                .compare_exchange_weak(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(old),
                Err(now) => old = Giant(now),
            }
        }
    }

    /// Raises the count for one who is about to use a free block. `settle` hands the touched mark
    /// down to the blocks; several may do so at once.
    ///
    /// Returns false if the giant is in use as a whole.
    #[inline]
    pub(crate) fn enter(&self, settle: impl Fn()) -> bool {
        self.enter_many(1, settle)
    }

    /// Does what [`Self::enter`] does, for `blocks` free blocks of one tree. The caller leaves with
    /// those that it does not use after all.
    #[inline]
    pub(crate) fn enter_many(&self, blocks: u32, settle: impl Fn()) -> bool {
        // Bounded by the giant's frees: each turn after the first clears the mark of one.
        loop {
            let old = self.load();
            if old.is_huge() {
                return false;
            }
            if old.is_touched() {
                settle();
                self.settled(old);
                continue;
            }
            let entered = self.0.compare_exchange_weak(
                old.0,
                old.0 + blocks,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if entered.is_ok() {
                return true;
            }
        }
    }

    /// The blocks know that they are touched, if this is what the giant still says.
    pub(crate) fn settled(&self, seen: Giant) {
        // Whoever fails here finds that another has done it, or that there was another use.
        let _ = self.0.compare_exchange(
            seen.0,
            seen.0 & !TOUCHED,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Lowers the count for a block that is free; true if that was the last.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        self.leave_many(1)
    }

    /// The same for so many blocks.
    #[inline]
    pub(crate) fn leave_many(&self, blocks: u32) -> bool {
        let old = Giant(self.0.fetch_sub(blocks, Ordering::AcqRel));
        assert!(
            old.count() >= blocks,
            "{blocks} blocks left a giant that fewer are in: {old:?}"
        );
        old.count() == blocks
    }

    /// Counts blocks for which there is no memory, before anybody uses the giant.
    pub(crate) fn set_missing(&self, blocks: u32) {
        self.0.fetch_add(blocks, Ordering::AcqRel);
    }

    /// Takes it whole, if all of it is free.
    pub(crate) fn take(&self, mobility: Mobility) -> bool {
        self.update(|old| {
            let taken = old.0 & !MOBILITY | HUGE | (mobility as u32) << MOBILITY_SHIFT;
            old.is_free().then_some(Giant(taken))
        })
        .is_some()
    }

    /// Gives it back.
    ///
    /// # Panics
    /// If it is not allocated whole.
    pub(crate) fn give(&self) {
        self.update(|old| {
            assert!(
                old.is_huge(),
                "freed a giant that is not allocated whole: {old:?}"
            );
            Some(Giant((old.0 & !HUGE | TOUCHED).wrapping_add(USE)))
        });
    }

    /// Takes it whole, all of whose blocks are the caller's: so many. False if somebody else is about
    /// to look at one, or if it is in use as a whole.
    pub(crate) fn join(&self, blocks: u32, mobility: Mobility) -> bool {
        self.update(|old| {
            let joined = old.0 & !(COUNT | MOBILITY) | HUGE | (mobility as u32) << MOBILITY_SHIFT;
            (old.count() == blocks && !old.is_huge()).then_some(Giant(joined))
        })
        .is_some()
    }

    /// It is in use block by block from here on, all of which the caller has taken: so many.
    pub(crate) fn split(&self, blocks: u32) {
        self.update(|old| Some(Giant(old.0 & !(HUGE | TOUCHED) | blocks)));
    }
}
