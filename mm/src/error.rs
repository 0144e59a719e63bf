//! Why an allocation, a claim or a setting failed.

use core::{error, fmt};

use crate::{FrameRange, Order, Watermarks, ZoneKind, hints::HINT_ENTRIES};

/// Why there is no block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// No zone that the request may use has a block of this order above the reserve that it must
    /// keep. Frames may still be in the fronts of other CPUs: the allocator has asked for them
    /// (see `Allocator::drain_requested`).
    Exhausted {
        /// The order asked for.
        order: Order,
        /// The highest zone asked for.
        zone: ZoneKind,
    },
    /// As `Exhausted`, but blocks are isolated at this moment, so the request can succeed once
    /// they are put back. The caller should let the thread that holds them run (it may wait on
    /// this very CPU, so spinning can dead-lock) and try again.
    Isolated {
        /// The order asked for.
        order: Order,
        /// The highest zone asked for.
        zone: ZoneKind,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (order, zone, why) = match self {
            Self::Exhausted { order, zone } => (order, zone, "the zones are exhausted"),
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

/// Why a range could not be claimed. Nothing of it is claimed then.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ClaimError {
    /// Some of its frames are not managed.
    NotManaged(FrameRange),
    /// Some of its frames are in use.
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

/// Why free memory cannot be given back from this order on. What held before still does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OrderError {
    /// Below order 9 the allocator must know what the host holds of single frames
    /// ([`Config::with_frame_marks`](crate::Config::with_frame_marks)), and was made without.
    NoFrameMarks(Order),
    /// Nothing is given back by orders above [`Order::MAX`].
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

/// These marks are not in their order: `min`, `low`, `high`. What held before still does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotWatermarks(pub Watermarks);

impl fmt::Display for NotWatermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Watermarks { min, low, high } = self.0;
        write!(f, "the marks min {min}, low {low}, high {high} do not rise")
    }
}

impl error::Error for NotWatermarks {}

/// This number of entries cannot make a list of hints full. What held before still does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotAHintLimit(pub usize);

impl fmt::Display for NotAHintLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a limit of {} entries, not 1 to {HINT_ENTRIES}", self.0)
    }
}

impl error::Error for NotAHintLimit {}
