//! The level above the pageblocks: an aligned GiB, in the code *gib*.
//!
//! [`AtomicGib`] is one 32-bit state for each GiB, so that a free GiB is allocated and freed by
//! one exchange.

use core::fmt;

use crate::{
    Mobility,
    summary::TREE_BLOCKS,
    sync::{AtomicU32, Ordering},
};

/// Number of trees (64 MiB) in a GiB.
pub(crate) const GIB_TREES: usize = 16;
/// Binary logarithm of [`GIB_TREES`].
pub(crate) const GIB_TREES_SHIFT: u32 = GIB_TREES.trailing_zeros();
/// Number of pageblocks in a GiB.
pub(crate) const GIB_BLOCKS: u32 = 512;
const _: () = assert!(GIB_BLOCKS as usize == GIB_TREES * TREE_BLOCKS);
const _: () = assert!(1 << crate::Order::GIB.get() == GIB_BLOCKS << crate::Order::PAGEBLOCK.get());

const COUNT: u32 = 0x3ff;
const HUGE: u32 = 1 << 10;
const TOUCHED: u32 = 1 << 11;
const MOBILITY_SHIFT: u32 = 12;
const MOBILITY: u32 = 3 << MOBILITY_SHIFT;
const HOST: u32 = 1 << 14;
const USE: u32 = 1 << 16;

/// A value of a GiB's state.
///
/// | bits | field | values |
/// |---|---|---|
/// | 0–9 | count | pageblocks not free or about to be used; 0 = the GiB can be taken |
/// | 10 | huge | 1 = allocated as a whole; the count is 0, and the pageblocks' states say free |
/// | 11 | touched | 1 = was allocated as a whole, so the host may hold memory for all of it |
/// | 12–13 | mobility | the mobility of the allocation while the GiB is huge |
/// | 14 | host | 1 = an attached host is counted, too, and may take free pageblocks out |
/// | 16–31 | uses | how often the GiB was freed as a whole, modulo 2^16 |
///
/// A CPU raises the count before it uses a free pageblock, and lowers the count after it has freed
/// one. So a count of 0 means that all pageblocks are free and that no CPU is about to use one.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Gib(u32);

impl Gib {
    /// Returns the value with these bits. Any bits are valid.
    #[cfg(not(ebb_model))]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the GiB's state after an attached host has entered the GiB. Returns `None` if a host
    /// is in it already, or if the count is at its maximum.
    #[cfg(not(ebb_model))]
    pub(crate) const fn entered_by_host(self) -> Option<Self> {
        if self.count() == COUNT || self.has_host() {
            None
        } else {
            Some(Self((self.0 + 1) | HOST))
        }
    }

    /// Returns the GiB's state after the attached host has left the GiB. Returns `None` if no host
    /// is in it.
    #[cfg(not(ebb_model))]
    pub(crate) const fn left_by_host(self) -> Option<Self> {
        if self.count() == 0 || !self.has_host() {
            None
        } else {
            Some(Self((self.0 - 1) & !HOST))
        }
    }

    /// Returns `true` if an attached host is in the GiB.
    pub(crate) const fn has_host(self) -> bool {
        self.0 & HOST != 0
    }

    /// Returns the number of pageblocks of the GiB that are not free or about to be used, plus 1 if
    /// an attached host is in it.
    pub(crate) const fn count(self) -> u32 {
        self.0 & COUNT
    }

    /// Returns `true` if the GiB is allocated as a whole.
    pub(crate) const fn is_huge(self) -> bool {
        self.0 & HUGE != 0
    }

    /// Returns `true` if the GiB was allocated as a whole, and its pageblocks are not yet marked as
    /// touched (backed by host memory).
    pub(crate) const fn is_touched(self) -> bool {
        self.0 & TOUCHED != 0
    }

    /// Returns `true` if all of the GiB is free and no CPU or attached host is about to use a part
    /// of it, so it can be allocated as a whole.
    pub(crate) const fn is_free(self) -> bool {
        self.0 & (COUNT | HUGE) == 0
    }

    /// Returns the mobility of the allocation of the whole GiB. Without meaning if the GiB is not
    /// allocated as a whole.
    pub(crate) const fn mobility(self) -> Mobility {
        match (self.0 & MOBILITY) >> MOBILITY_SHIFT {
            0 => Mobility::Unmovable,
            1 => Mobility::Movable,
            _ => Mobility::Reclaimable,
        }
    }
}

impl fmt::Debug for Gib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gib")
            .field("count", &self.count())
            .field("huge", &self.is_huge())
            .field("touched", &self.is_touched())
            .finish()
    }
}

/// A GiB's state in memory.
///
/// Every change is one atomic read-modify-write with `AcqRel`. The `Release` of the CPU that lowers
/// the count to 0 pairs with the `Acquire` of the CPU that then takes the GiB. So the latter sees
/// all pageblocks as they were left.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicGib(AtomicU32);

impl AtomicGib {
    /// Returns the state of a free GiB that was never used.
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns the state. `Acquire`: a caller that sees a lowered count sees the pageblocks as they
    /// were left.
    #[inline]
    pub(crate) fn load(&self) -> Gib {
        Gib(self.0.load(Ordering::Acquire))
    }

    /// Replaces `old` by `new` with one compare-and-swap. Returns `true` if it succeeded, and
    /// `false` if the value was not `old`. For callers that bound their number of attempts.
    #[cfg(not(ebb_model))]
    pub(crate) fn exchange(&self, old: Gib, new: Gib) -> bool {
        self.0
            .compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Applies `step` until the exchange succeeds, and returns the old value. Returns `None` if
    /// `step` refuses a value. Bounded by the progress of others.
    fn update(&self, step: impl Fn(Gib) -> Option<Gib>) -> Option<Gib> {
        let mut old = self.load();
        loop {
            let new = step(old)?;
            match self
                .0
                .compare_exchange_weak(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(old),
                Err(now) => old = Gib(now),
            }
        }
    }

    /// Raises the GiB's count of used pageblocks by one, for a CPU that is about to use a free
    /// pageblock. Returns `true` if it did, and `false` if the GiB is allocated as a whole.
    ///
    /// If the GiB is touched, calls `settle` first, which marks its pageblocks as touched. Several
    /// CPUs may do this at once.
    #[inline]
    pub(crate) fn enter(&self, settle: impl Fn()) -> bool {
        self.enter_many(1, settle)
    }

    /// Raises the GiB's count of used pageblocks by `blocks`, for a CPU that is about to use that
    /// number of free pageblocks of one tree. Returns `false` if the GiB is allocated as a whole.
    /// Otherwise like [`enter`](Self::enter).
    ///
    /// The caller calls [`leave_many`](Self::leave_many) for pageblocks that it does not use after
    /// all.
    #[inline]
    pub(crate) fn enter_many(&self, blocks: u32, settle: impl Fn()) -> bool {
        // Bounded by how often the GiB is freed: each further iteration clears the mark of one such
        // free.
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

    /// Clears the flag `touched` if the state is still `seen`. The caller has marked the GiB's
    /// pageblocks as touched.
    pub(crate) fn settled(&self, seen: Gib) {
        // If this fails, another CPU has done it, or the GiB was used again.
        let _ = self.0.compare_exchange(
            seen.0,
            seen.0 & !TOUCHED,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Lowers the GiB's count of used pageblocks by one, for a pageblock that is free now. Returns
    /// `true` if the count is 0 now: the caller announces that the GiB is free.
    ///
    /// # Panics
    /// If the count is 0.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        self.leave_many(1)
    }

    /// Lowers the GiB's count of used pageblocks by `blocks`, for pageblocks that are free now.
    /// Returns `true` if the count is 0 now.
    ///
    /// # Panics
    /// If the count is lower than `blocks`.
    #[inline]
    pub(crate) fn leave_many(&self, blocks: u32) -> bool {
        let old = Gib(self.0.fetch_sub(blocks, Ordering::AcqRel));
        assert!(
            old.count() >= blocks,
            "{blocks} blocks left a GiB that fewer are in: {old:?}"
        );
        old.count() == blocks
    }

    /// Counts `blocks` pageblocks without memory as in use, before the GiB is first used.
    pub(crate) fn set_missing(&self, blocks: u32) {
        self.0.fetch_add(blocks, Ordering::AcqRel);
    }

    /// Allocates the whole GiB for `mobility`. Returns `false` if it is not completely free.
    pub(crate) fn take(&self, mobility: Mobility) -> bool {
        self.update(|old| {
            let taken = old.0 & !MOBILITY | HUGE | (mobility as u32) << MOBILITY_SHIFT;
            old.is_free().then_some(Gib(taken))
        })
        .is_some()
    }

    /// Frees the whole GiB and marks it as touched: the host may hold memory for all of it.
    ///
    /// # Panics
    /// If it is not allocated as a whole.
    pub(crate) fn give(&self) {
        self.update(|old| {
            assert!(
                old.is_huge(),
                "freed a GiB that is not allocated whole: {old:?}"
            );
            Some(Gib((old.0 & !HUGE | TOUCHED).wrapping_add(USE)))
        });
    }

    /// Marks this GiB as one allocation of `mobility`. The caller must own all of its pageblocks,
    /// whose number is `blocks`. Returns `true` if it did.
    ///
    /// Returns `false` if another CPU is about to use one of them, or if the GiB is allocated as a
    /// whole already.
    pub(crate) fn join(&self, blocks: u32, mobility: Mobility) -> bool {
        self.update(|old| {
            let joined = old.0 & !(COUNT | MOBILITY) | HUGE | (mobility as u32) << MOBILITY_SHIFT;
            (old.count() == blocks && !old.is_huge()).then_some(Gib(joined))
        })
        .is_some()
    }

    /// Turns an allocation of the whole GiB into allocations of its `blocks` pageblocks, whose
    /// states the caller has marked as allocated. The GiB must be allocated as a whole; this is not
    /// checked.
    pub(crate) fn split(&self, blocks: u32) {
        self.update(|old| Some(Gib(old.0 & !(HUGE | TOUCHED) | blocks)));
    }
}
