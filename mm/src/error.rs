//! The errors of allocations, boot-time reservations (claims) and settings.

use core::{error, fmt};

use crate::{FrameRange, Order, Watermarks, ZoneKind, hints::HINT_ENTRIES};

/// Why [`Allocator::allocate`](crate::Allocator::allocate) could not allocate a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// No zone that the request may use has a free block of this order above the reserve that the
    /// request must leave, such as the watermark `min`. So frames can be free: a request with
    /// [`Reserve::Use`](crate::Reserve::Use) could take them.
    ///
    /// Free frames may still be in the caches of other CPUs. The allocator has requested that these
    /// be drained (see [`Allocator::drain_requested`](crate::Allocator::drain_requested)).
    Exhausted {
        /// The requested order.
        order: Order,
        /// The highest kind of zone that the request may use.
        zone: ZoneKind,
    },
    /// No block is free, but blocks are isolated at the moment. The request can succeed after they
    /// are put back.
    ///
    /// Let the thread that holds the isolated blocks run, then try again. Do not spin: that thread
    /// may be waiting for this CPU, which would be a deadlock.
    Isolated {
        /// The requested order.
        order: Order,
        /// The highest kind of zone that the request may use.
        zone: ZoneKind,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (order, zone, why) = match self {
            Self::Exhausted { order, zone } => (
                order,
                zone,
                "none is free above the watermark `min` that the request must leave",
            ),
            Self::Isolated { order, zone } => (order, zone, "the free blocks are isolated"),
        };
        write!(
            f,
            "no block of order {} at or below zone {zone:?}: {why}",
            order.get()
        )
    }
}

impl error::Error for AllocError {}

/// Why [`Allocator::claim`](crate::Allocator::claim) could not reserve a range. No frame of the
/// range is reserved then.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ClaimError {
    /// At least one frame of this range is not managed by the allocator.
    NotManaged(FrameRange),
    /// At least one frame of this range is in use.
    InUse(FrameRange),
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (range, why) = match self {
            Self::NotManaged(range) => (range, "not managed"),
            Self::InUse(range) => (range, "in use"),
        };
        write!(
            f,
            "frames {:#x}..{:#x}: {why}",
            range.start.number(),
            range.end().number()
        )
    }
}

impl error::Error for ClaimError {}

/// Why an order cannot be the smallest order that is reported or hinted to the host. The previous
/// setting stays in effect.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OrderError {
    /// The order is below 9, but the configuration lacks
    /// [`with_frame_marks`](crate::Config::with_frame_marks).
    NoFrameMarks(Order),
    /// The order is above [`Order::MAX`].
    TooLarge(Order),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrameMarks(order) => write!(
                f,
                "order {} is below {}: the configuration has no frame marks",
                order.get(),
                Order::PAGEBLOCK.get()
            ),
            Self::TooLarge(order) => write!(
                f,
                "order {} is above {}, the largest that is given back",
                order.get(),
                Order::MAX.get()
            ),
        }
    }
}

impl error::Error for OrderError {}

/// These watermarks are not in ascending order: `min`, `low`, `high`. The previous watermarks stay
/// in effect.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotWatermarks(pub Watermarks);

impl fmt::Display for NotWatermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Watermarks { min, low, high } = self.0;
        write!(f, "the marks min {min}, low {low}, high {high} do not rise")
    }
}

impl error::Error for NotWatermarks {}

/// This limit of entries for a hint list is not between 1 and
/// [`HINT_ENTRIES`](crate::HINT_ENTRIES). The previous limit stays in effect.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotAHintLimit(pub usize);

impl fmt::Display for NotAHintLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a limit of {} entries, not 1 to {HINT_ENTRIES}", self.0)
    }
}

impl error::Error for NotAHintLimit {}
