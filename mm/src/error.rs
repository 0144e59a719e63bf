//! Why an allocation or a claim failed.

use core::{error, fmt};

use crate::{FrameRange, Order, ZoneKind};

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
