//! How large the free runs of a pageblock may be: what spares a search its bits.

use crate::{
    Order,
    sync::{AtomicU8, Ordering},
};

/// Orders of runs inside a block: 0 to 8.
pub(crate) const RUN_ORDERS: u8 = Order::PAGEBLOCK.get();

/// The orders below which a run may be free: 1 = single frames only, 9 = runs of any order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Reach(u8);

impl Reach {
    /// A run of this order was seen, and none of a larger.
    pub(crate) const fn of(largest: u8) -> Self {
        Self(largest + 1)
    }

    /// Nothing is known.
    pub(crate) const ALL: Self = Self(RUN_ORDERS);

    #[inline]
    pub(crate) const fn allows(self, order: u8) -> bool {
        order < self.0
    }

    /// How many orders it does not allow.
    #[inline]
    pub(crate) const fn tightness(self) -> u32 {
        (RUN_ORDERS - self.0) as u32
    }

    /// The largest order that it allows.
    #[inline]
    pub(crate) const fn largest(self) -> u8 {
        self.0 - 1
    }
}

/// The reach of a block in memory, stored as its distance from [`Reach::ALL`] so that zero says
/// that nothing is known.
///
/// It is never below what the bits have, but while somebody is about to raise it: who clears bits
/// then looks at it and raises it; who lowers it then looks at the bits and raises it again. Of two
/// who do so at once one sees the other: all four accesses are `SeqCst`, which is what orders a
/// store before a later load of another place.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicReach(AtomicU8);

impl AtomicReach {
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self(AtomicU8::new(0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Reach {
        Reach(RUN_ORDERS - self.0.load(Ordering::SeqCst).min(RUN_ORDERS - 1))
    }

    /// Raises it to this if it is lower; what it was before.
    pub(crate) fn raise(&self, to: Reach) -> Reach {
        let old = self.0.fetch_min(RUN_ORDERS - to.0, Ordering::SeqCst);
        Reach(RUN_ORDERS - old.min(RUN_ORDERS - 1))
    }

    /// Lowers it to this if it is higher. The caller looks at the bits again.
    pub(crate) fn lower(&self, to: Reach) {
        self.0.fetch_max(RUN_ORDERS - to.0, Ordering::SeqCst);
    }
}
