//! The *run bound* of a pageblock: an upper bound on the order of its free runs. With it a search
//! skips pageblocks without reading their bitmaps.

use crate::{
    Order,
    sync::{AtomicU8, Ordering},
};

/// The number of orders of runs inside a pageblock: orders 0 to 8.
pub(crate) const RUN_ORDERS: u8 = Order::PAGEBLOCK.get();

/// The upper bound on the order of free runs in a pageblock: a run of an order below this number
/// may be free. 1 allows single frames only, 9 runs of every order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RunBound(u8);

impl RunBound {
    /// Returns the run bound (upper bound) of a pageblock whose largest free run has order
    /// `largest`, 0 to 8.
    pub(crate) const fn of(largest: u8) -> Self {
        Self(largest + 1)
    }

    /// The run bound that allows every order: the bitmap has not been examined.
    pub(crate) const ALL: Self = Self(RUN_ORDERS);

    /// Returns whether a run of `order` may be free. Always `false` for order 9 and above.
    #[inline]
    pub(crate) const fn allows(self, order: u8) -> bool {
        order < self.0
    }

    /// Returns the number of orders from 0 to 8 that this run bound rules out: 0 to 8.
    #[inline]
    pub(crate) const fn tightness(self) -> u32 {
        (RUN_ORDERS - self.0) as u32
    }

    /// Returns the largest order that this run bound allows.
    #[inline]
    pub(crate) const fn largest(self) -> u8 {
        self.0 - 1
    }
}

/// The run bound of a pageblock in memory. It is stored as the distance from [`RunBound::ALL`], so
/// zero says that every order may be free.
///
/// The run bound is a hint that is too low only for an instant. A CPU that clears bits of the
/// bitmap reads the run bound afterwards and raises it. A CPU that lowers the run bound reads the
/// bits afterwards and raises the run bound again if they need it. If two CPUs do so at the same
/// time, one of them sees the other: all four accesses are `SeqCst`, which orders a store before a
/// later load of another location.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicRunBound(AtomicU8);

impl AtomicRunBound {
    /// Returns the run bound [`RunBound::ALL`].
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Returns the upper bound on the order of the pageblock's free runs. `SeqCst`, see the type.
    #[inline]
    pub(crate) fn load(&self) -> RunBound {
        RunBound(RUN_ORDERS - self.0.load(Ordering::SeqCst).min(RUN_ORDERS - 1))
    }

    /// Raises the upper bound to `to` if it is lower. Returns the value from before.
    pub(crate) fn raise(&self, to: RunBound) -> RunBound {
        let old = self.0.fetch_min(RUN_ORDERS - to.0, Ordering::SeqCst);
        RunBound(RUN_ORDERS - old.min(RUN_ORDERS - 1))
    }

    /// Lowers the upper bound to `to` if it is higher, otherwise changes nothing. The caller must
    /// then read the bitmap again and raise the bound if it shows larger runs.
    pub(crate) fn lower(&self, to: RunBound) {
        self.0.fetch_max(RUN_ORDERS - to.0, Ordering::SeqCst);
    }
}
