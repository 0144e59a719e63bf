//! What is asked of the allocator.

use crate::{Mobility, NodePolicy, Order, ZoneKind};

/// How far a request may go into a zone's last frames.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reserve {
    /// Fails rather than take a zone below its `min` watermark, or below what it
    /// [keeps](crate::Allocator::set_lowmem_reserve_ratio) for those who can use no other.
    Keep,
    /// May take the last frame: for those who free memory, and for faults that cannot fail.
    Use,
}

/// A request for one block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// How many frames, as a power of two; the block is aligned to its size.
    pub order: Order,
    /// What will be done with it.
    pub mobility: Mobility,
    /// The highest kind of zone that it may come from.
    pub zone: ZoneKind,
    /// Whether it may use the reserve.
    pub reserve: Reserve,
    /// The NUMA node that it should come from.
    pub node: NodePolicy,
}

impl Request {
    /// A block from any zone, near the front, above the reserve.
    #[inline]
    pub const fn new(order: Order, mobility: Mobility) -> Self {
        Self {
            order,
            mobility,
            zone: ZoneKind::Normal,
            reserve: Reserve::Keep,
            node: NodePolicy::Local,
        }
    }

    /// The same from zones of this kind or below only.
    #[inline]
    #[must_use]
    pub const fn zone(self, zone: ZoneKind) -> Self {
        Self { zone, ..self }
    }

    /// The same with this use of the reserve.
    #[inline]
    #[must_use]
    pub const fn reserve(self, reserve: Reserve) -> Self {
        Self { reserve, ..self }
    }

    /// The same from this node.
    #[inline]
    #[must_use]
    pub const fn node(self, node: NodePolicy) -> Self {
        Self { node, ..self }
    }

    /// Whether whatever a front holds will do: a block of any zone, near the front.
    #[inline]
    pub(crate) const fn takes_any(self) -> bool {
        matches!(
            (self.zone, self.node),
            (ZoneKind::Normal, NodePolicy::Local)
        )
    }
}
