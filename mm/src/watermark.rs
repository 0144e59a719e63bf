//! Watermarks: how many frames of a zone are kept for requests that must not fail.

use crate::sync::{AtomicU64, Ordering};

/// The watermarks of one zone, in frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// Requests that keep the reserve fail rather than take the zone below this number.
    pub min: u64,
    /// Below this number requests turn to other zones first, `Events::low_memory` is called once,
    /// and no memory is isolated for reports.
    pub low: u64,
    /// Reclaim of memory stops at this number. Once the zone has reached it, the next fall below
    /// `low` calls `Events::low_memory` again.
    pub high: u64,
}

/// Linux's lower and upper bound of `min_free_kbytes`, in KiB.
const MIN_FREE_KB: (u64, u64) = (128, 256 * 1024);
/// Linux's `watermark_scale_factor`: the distance between watermarks in ten thousandths of a zone.
const SCALE: u64 = 10;
const FRAME_KB: u64 = 4;

/// Returns Linux's `min_free_kbytes` in KiB for `managed` frames: 4 × the square root of the memory
/// in KiB, but at least 128 and at most 262,144.
#[must_use]
pub fn min_free_kbytes(managed: u64) -> u64 {
    (managed * FRAME_KB * 16)
        .isqrt()
        .clamp(MIN_FREE_KB.0, MIN_FREE_KB.1)
}

impl Watermarks {
    /// Returns Linux's watermarks for a zone of `managed` frames among `total` frames, where
    /// `min_free` frames are kept in all zones together. `min` is at most an eighth of the zone, so
    /// that a tiny zone is not all reserve.
    ///
    /// A zone of 16 MiB in a machine of 4 GiB has the watermarks 8, 12 and 16 frames. It is guarded
    /// from ordinary requests by its [lowmem reserve](crate::Allocator::set_lowmem_reserve_ratio).
    #[must_use]
    pub fn for_zone(min_free: u64, managed: u64, total: u64) -> Self {
        // 128 bits, as a user's `min_free_kbytes` times a zone's frames can exceed 64.
        let share = u128::from(min_free) * u128::from(managed) / u128::from(total.max(1));
        let min = u64::try_from(share).unwrap_or(u64::MAX).min(managed / 8);
        let step = (min / 4).max(managed * SCALE / 10_000);
        Self {
            min,
            low: min + step,
            high: min + 2 * step,
        }
    }
}

/// The watermarks of one zone in memory. `Relaxed`: each is a limit of its own.
#[derive(Debug)]
pub(crate) struct AtomicWatermarks {
    min: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
}

impl AtomicWatermarks {
    /// Returns watermarks with these values.
    pub(crate) fn new(marks: Watermarks) -> Self {
        Self {
            min: AtomicU64::new(marks.min),
            low: AtomicU64::new(marks.low),
            high: AtomicU64::new(marks.high),
        }
    }

    /// Returns all three watermarks.
    pub(crate) fn load(&self) -> Watermarks {
        let order = Ordering::Relaxed;
        Watermarks {
            min: self.min.load(order),
            low: self.low.load(order),
            high: self.high.load(order),
        }
    }

    /// Returns the `min` watermark in frames.
    #[inline]
    pub(crate) fn min(&self) -> u64 {
        self.min.load(Ordering::Relaxed)
    }

    /// Returns the `low` watermark in frames.
    #[inline]
    pub(crate) fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// Sets all three watermarks.
    pub(crate) fn store(&self, marks: Watermarks) {
        let order = Ordering::Relaxed;
        self.min.store(marks.min, order);
        self.low.store(marks.low, order);
        self.high.store(marks.high, order);
    }
}
