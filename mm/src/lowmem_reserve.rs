//! Linux's lowmem reserve: the frames of a zone that requests must leave if a higher zone could
//! serve them.
//!
//! Some requests can use only the memory of a low zone, such as that below 16 MiB. Requests that
//! can use any memory must not use that up. So, in addition to the watermark, a request leaves a
//! number of frames in each zone. That number is a fraction of the frames of the zones above, up to
//! the highest that the request may use. If those are large, all of a small zone is reserved.
//! Requests with [`Reserve::Use`] ignore the reserve, and the watermark, too.
//!
//! A per-CPU cache hands out freed frames to any request. So it must not keep frames of a zone with
//! such a reserve, or these would reach requests that may not have them.

use crate::{
    Allocator, Request, Reserve, ZoneId, ZoneKind,
    sync::{AtomicU64, Ordering},
    zone::Zone,
};

/// The initial `lowmem_reserve_ratio` of zones of kind [`ZoneKind::Dma`]: they keep one frame for
/// each 256 frames of the zones above. This is Linux's value.
pub const DMA_RESERVE_RATIO: u64 = 256;

/// The frames that a zone keeps, by the highest kind of zone that a request may use.
///
/// `Relaxed`: each value is a limit of its own.
#[derive(Debug)]
pub(crate) struct LowmemReserve([AtomicU64; ZoneKind::COUNT]);

impl LowmemReserve {
    /// Returns a reserve of 0 frames for all requests.
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns the number of frames that the zone keeps from requests whose highest kind is
    /// `highest`.
    #[inline]
    pub(crate) fn from(&self, highest: ZoneKind) -> u64 {
        self.0[highest as usize].load(Ordering::Relaxed)
    }

    /// Sets the number of frames that the zone keeps from requests whose highest kind is `highest`.
    fn set(&self, highest: ZoneKind, frames: u64) {
        self.0[highest as usize].store(frames, Ordering::Relaxed);
    }
}

impl Zone<'_> {
    /// Returns the number of free frames that `request` must leave in this zone.
    ///
    /// With `low` this is the `low` watermark and the lowmem reserve. Otherwise it is `min` and the
    /// lowmem reserve, or 0 for [`Reserve::Use`].
    #[inline]
    pub(crate) fn floor(&self, request: Request, low: bool) -> u64 {
        let mark = match (low, request.reserve) {
            (true, _) => self.marks.low(),
            (false, Reserve::Keep) => self.marks.min(),
            (false, Reserve::Use) => return 0,
        };
        mark.saturating_add(self.lowmem_reserve.from(request.zone))
    }

    /// Returns `true` if the zone keeps frames from some requests.
    #[inline]
    pub(crate) fn is_protected(&self) -> bool {
        // The reserve is largest for this kind. If it is 0, so are the others.
        self.lowmem_reserve.from(ZoneKind::Normal) != 0
    }
}

impl Allocator<'_> {
    /// Sets how many frames the zones of this kind keep from requests that may use a higher kind:
    /// one frame for each `ratio` frames of the higher zones on the same node, up to the highest
    /// kind that the request may use. Does nothing if there is no zone of this kind.
    ///
    /// This is Linux's `lowmem_reserve_ratio`. Ratio 1 keeps as many frames as the higher zones
    /// have, ratio 0 keeps none. A new allocator has [`DMA_RESERVE_RATIO`] for [`ZoneKind::Dma`],
    /// and 0 for the other kinds.
    ///
    /// The result follows from the current size of the zones. Call this again after memory went
    /// offline or came online.
    pub fn set_lowmem_reserve_ratio(&self, kind: ZoneKind, ratio: u64) {
        let zones = || self.zone_ids().map(|zone| self.zone(zone).zone);
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

    /// Returns the number of frames that a zone keeps, in addition to its watermark, from requests
    /// that may use zones up to the kind `highest`. It is a value of `protection` in
    /// `/proc/zoneinfo`.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn lowmem_reserve(&self, zone: ZoneId, highest: ZoneKind) -> u64 {
        self.zone(zone).zone.lowmem_reserve.from(highest)
    }
}
