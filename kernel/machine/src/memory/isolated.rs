//! Frames that stay out of use while a device reports them to the host.

use crate::arch::phys_to_virt;
use core::ptr::NonNull;
use ebb_balloon::{RangeError, ReportBatch, ReturnedRanges};
use ebb_mm::FrameRange;

/// Ranges of frames that nothing uses during a report.
///
/// From [`lend`](Self::lend) on the device may have the ranges, until
/// [`take_back`](Self::take_back) gets the proof that it does not. If they are still lent when the
/// report has ended, the host may drop their memory at any time, and they are never used again.
#[derive(Debug)]
pub struct Isolated<'a> {
    ranges: &'a [FrameRange],
    is_lent: bool,
}

/// The error of a report.
pub(super) struct Failed<E> {
    /// The error of the function that sent the ranges.
    pub(super) error: E,
    /// Whether the host may still drop the ranges: they were still lent.
    pub(super) may_drop_later: bool,
}

impl Isolated<'_> {
    /// Returns the ranges.
    pub fn ranges(&self) -> &[FrameRange] {
        self.ranges
    }

    /// Makes a batch for the device from the ranges. They are lent from now on.
    ///
    /// # Errors
    /// Fails if the ranges cannot be in one report. They are not lent then.
    ///
    /// # Panics
    /// If the ranges are lent already.
    pub fn lend(&mut self) -> Result<ReportBatch, RangeError> {
        assert!(!self.is_lent, "the ranges are lent already");
        let mut batch = ReportBatch::new();
        for range in self.ranges {
            let (address, len) = place(range);
            let start = NonNull::new(address).unwrap_or(NonNull::dangling());
            // SAFETY: the caller of `report`, which alone makes this value, keeps the frames out of
            // use until they are not lent any more, and the ranges are lent once.
            unsafe { batch.push(start, len) }?;
        }
        self.is_lent = true;
        Ok(batch)
    }

    /// Ends the time for which the ranges are lent: `returned` are these ranges, and the device
    /// does not have them.
    ///
    /// # Panics
    /// If `returned` are other ranges.
    pub fn take_back(&mut self, returned: &ReturnedRanges<'_>) {
        let lent = self.ranges.iter().map(|range| {
            let (address, len) = place(range);
            (address.addr(), len)
        });
        assert!(returned.iter().eq(lent), "other ranges were returned");
        self.is_lent = false;
    }
}

/// Returns the address of the first byte of `range` in the physmap, and its length in bytes.
fn place(range: &FrameRange) -> (*mut u8, usize) {
    // A range is at most a huge page of 1 GiB.
    #[expect(clippy::cast_possible_truncation, reason = "usize is 64 bits wide")]
    let len = range.bytes() as usize;
    (phys_to_virt(range.start.address()), len)
}

/// Calls `send` with `ranges`. Fails if `send` does.
///
/// # Panics
/// If `send` returns `Ok` although the ranges are still lent.
///
/// # Safety
/// No code uses the memory of the frames during the call. If it fails and the host may still drop
/// the ranges, no code ever uses them again.
pub(super) unsafe fn report<E>(
    ranges: &[FrameRange],
    send: impl FnOnce(&mut Isolated<'_>) -> Result<(), E>,
) -> Result<(), Failed<E>> {
    let mut isolated = Isolated {
        ranges,
        is_lent: false,
    };
    let sent = send(&mut isolated);
    sent.map_err(|error| Failed {
        error,
        may_drop_later: isolated.is_lent,
    })?;
    assert!(!isolated.is_lent, "a report has ended before its device");
    Ok(())
}
