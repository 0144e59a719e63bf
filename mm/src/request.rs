//! The parameters of an allocation.

use crate::{Mobility, NodePolicy, Order, ZoneKind};

/// Whether a request may use the last frames of a zone.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reserve {
    /// The request fails rather than take a zone below its `min` watermark, or below the [lowmem
    /// reserve](crate::Allocator::set_lowmem_reserve_ratio) that the zone keeps from it.
    Keep,
    /// The request may take the last frame. For tasks that free memory, and for faults that cannot
    /// fail.
    Use,
}

/// The parameters of an allocation of one block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The size of the block. The block is aligned to its size.
    pub order: Order,
    /// The mobility of the block: whether its contents can be moved or dropped.
    pub mobility: Mobility,
    /// The highest kind of zone that the block may come from.
    pub zone: ZoneKind,
    /// Whether the request may use a zone's reserve.
    pub reserve: Reserve,
    /// The NUMA node that the block should come from.
    pub node: NodePolicy,
}

impl Request {
    /// Returns a request for a block from any zone, on the node of the per-CPU cache or the nearest
    /// that has one. It leaves the reserve untouched.
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

    /// Returns the same request, restricted to zones of the kind `zone` or below.
    #[inline]
    #[must_use]
    pub const fn zone(self, zone: ZoneKind) -> Self {
        Self { zone, ..self }
    }

    /// Returns the same request, but with `reserve`, which says whether it may use the zones'
    /// reserves.
    #[inline]
    #[must_use]
    pub const fn reserve(self, reserve: Reserve) -> Self {
        Self { reserve, ..self }
    }

    /// Returns the same request, but with the choice of NUMA nodes in `node`.
    #[inline]
    #[must_use]
    pub const fn node(self, node: NodePolicy) -> Self {
        Self { node, ..self }
    }

    /// Returns whether any frame in the per-CPU cache will do: the request accepts every kind of
    /// zone and prefers the node of the cache. The order and the reserve do not matter.
    #[inline]
    pub(crate) const fn takes_any(self) -> bool {
        matches!(
            (self.zone, self.node),
            (ZoneKind::Normal, NodePolicy::Local)
        )
    }
}
