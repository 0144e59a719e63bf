//! What a zone keeps from requests that a more general zone would have served: Linux's lowmem reserve.
//!
//! Memory that few requests can do without must not be eaten by those that can use any. So of each zone a request leaves,
//! above the marks, a part of what the zones between this one and the highest that it may use have: where those are
//! large, a small zone below them is all reserve. [`Reserve::Use`] goes below it as it does below `min`.
//!
//! A front hands out what is freed to it, whoever asks. So it must not keep frames of a zone with such a reserve: freed
//! one by one, they would pass to requests that may not have them.

use crate::{
    Allocator, Request, Reserve, ZoneKind,
    sync::{AtomicU64, Ordering},
    zone::Zone,
};

/// Linux's `lowmem_reserve_ratio` of ISA DMA: of the frames of more general zones one 256th. Holds until another is
/// set.
pub const DMA_RESERVE_RATIO: u64 = 256;

/// What a zone keeps, by the highest kind that a request may use, in frames.
///
/// `Relaxed`: each is a limit of its own.
#[derive(Debug)]
pub(crate) struct LowmemReserve([AtomicU64; ZoneKind::COUNT]);

impl LowmemReserve {
    /// Nothing is kept.
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// What is kept from requests that may use this kind.
    #[inline]
    pub(crate) fn from(&self, highest: ZoneKind) -> u64 {
        self.0[highest as usize].load(Ordering::Relaxed)
    }

    fn set(&self, highest: ZoneKind, frames: u64) {
        self.0[highest as usize].store(frames, Ordering::Relaxed);
    }
}

impl Zone<'_> {
    /// Frames that a request leaves: while it looks for a zone that is not low, and at last.
    #[inline]
    pub(crate) fn floor(&self, request: Request, low: bool) -> u64 {
        let mark = match (low, request.reserve) {
            (true, _) => self.marks.low(),
            (false, Reserve::Keep) => self.marks.min(),
            (false, Reserve::Use) => return 0,
        };
        mark.saturating_add(self.lowmem_reserve.from(request.zone))
    }

    /// Whether some requests that may use it must leave more of it than others.
    #[inline]
    pub(crate) fn is_protected(&self) -> bool {
        // The sum over the most zones: if this is 0, so are the others.
        self.lowmem_reserve.from(ZoneKind::Normal) != 0
    }
}

impl Allocator<'_> {
    /// Sets what zones of this kind keep from requests that may use a higher kind: one frame for each `ratio` frames that
    /// the zones above it on its node have, up to the highest that the request may use. 1 keeps as much as they have,
    /// 0 nothing: Linux's `lowmem_reserve_ratio`. A new allocator keeps [`DMA_RESERVE_RATIO`] of zones of kind
    /// [`Dma`](ZoneKind::Dma), and nothing of others.
    ///
    /// It counts the memory that there is: to be called again when some came or went.
    pub fn set_lowmem_reserve_ratio(&self, kind: ZoneKind, ratio: u64) {
        let zones = || (0..self.zones()).map(|zone| self.zone(zone).zone);
        for zone in zones().filter(|zone| zone.kind == kind) {
            for highest in ZoneKind::ALL {
                let above = zones().filter(|above| {
                    above.node == zone.node && above.kind > kind && above.kind <= highest
                });
                let frames: u64 = above.map(Zone::managed).sum();
                let kept = frames.checked_div(ratio).unwrap_or(0);
                zone.lowmem_reserve.set(highest, kept);
            }
        }
    }

    /// Frames of a zone that requests leave above its marks which may use zones up to this kind: a figure of
    /// `protection` in `/proc/zoneinfo`.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn lowmem_reserve(&self, zone: usize, highest: ZoneKind) -> u64 {
        self.zone(zone).zone.lowmem_reserve.from(highest)
    }
}
