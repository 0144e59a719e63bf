//! [`ReportBatch`]: ranges of free memory that go to the device in one report.

use crate::page::PAGE_SIZE;
use core::ptr::NonNull;
use thiserror::Error;

/// The largest number of ranges in one report: the driver's ring size, and QEMU's queue size.
pub const MAX_RANGES: usize = 32;

/// The longest range in bytes: the length field of a descriptor has 32 bits.
const MAX_RANGE_BYTES: usize = 0xffff_f000;

/// The longest report in bytes: "The driver MUST NOT add a descriptor chain longer than 2^32 bytes
/// in total" (virtio 1.2, 2.7.5.2).
const MAX_REPORT_BYTES: u64 = 1 << 32;

/// Ranges of free memory for one report, at most [`MAX_RANGES`].
///
/// The batch owns the memory of its ranges: no other code may use it. [`Balloon::submit_report`]
/// moves the ranges into the driver and leaves the batch empty. The memory belongs to the caller
/// again when [`Balloon::report_done`] has returned `Some`. [`Balloon::take_ranges`] then returns
/// the ranges.
///
/// [`Balloon::submit_report`]: crate::Balloon::submit_report
/// [`Balloon::report_done`]: crate::Balloon::report_done
/// [`Balloon::take_ranges`]: crate::Balloon::take_ranges
#[derive(Debug)]
pub struct ReportBatch {
    ranges: [NonNull<[u8]>; MAX_RANGES],
    len: usize,
    bytes: u64,
}

// SAFETY: the batch alone owns the memory, which is not bound to a thread.
unsafe impl Send for ReportBatch {}
// SAFETY: a shared reference to the batch gives no access to the memory.
unsafe impl Sync for ReportBatch {}

impl Default for ReportBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl ReportBatch {
    /// Returns an empty batch.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = NonNull::slice_from_raw_parts(NonNull::<u8>::dangling(), 0);
        Self {
            ranges: [nothing; MAX_RANGES],
            len: 0,
            bytes: 0,
        }
    }

    /// Adds `len` bytes of free memory at `start`, the virtual address that the `Hal` translates. A
    /// host with larger pages ignores the parts of a range that do not fill one of its pages.
    ///
    /// # Errors
    /// Fails if `start` or `len` is not a multiple of [`PAGE_SIZE`], if `len` is 0 or at least 4
    /// GiB, if the batch has [`MAX_RANGES`] ranges already, or if all ranges together would be
    /// longer than 4 GiB. The batch is then unchanged.
    ///
    /// # Safety
    /// `start` must point to `len` bytes of mapped memory that only the caller owns and that are
    /// not in a batch yet. No code may read or write them, or have a reference to them, while they
    /// are in the batch, and, once [`Balloon::submit_report`] took them, until
    /// [`Balloon::report_done`] returned `Some` or the device has confirmed a reset
    /// ([`Balloon::reset`] returned `Ok`). Their contents are lost.
    ///
    /// [`Balloon::submit_report`]: crate::Balloon::submit_report
    /// [`Balloon::report_done`]: crate::Balloon::report_done
    /// [`Balloon::reset`]: crate::Balloon::reset
    pub unsafe fn push(&mut self, start: NonNull<u8>, len: usize) -> Result<(), RangeError> {
        let address = start.addr().get();
        if !address.is_multiple_of(PAGE_SIZE) {
            return Err(RangeError::Unaligned { address });
        }
        if len == 0 || !len.is_multiple_of(PAGE_SIZE) || len > MAX_RANGE_BYTES {
            return Err(RangeError::Length { address, len });
        }
        // The sum cannot overflow: it is at most 2^32 plus less than 2^32.
        let bytes = self.bytes + len as u64;
        if bytes > MAX_REPORT_BYTES {
            return Err(RangeError::ReportTooLong { bytes });
        }
        let Some(slot) = self.ranges.get_mut(self.len) else {
            return Err(RangeError::TooMany { address, len });
        };
        *slot = NonNull::slice_from_raw_parts(start, len);
        self.len += 1;
        self.bytes = bytes;
        Ok(())
    }

    /// Returns the number of ranges in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the batch has no range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the batch has [`MAX_RANGES`] ranges, so that no further one fits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == MAX_RANGES
    }

    /// Returns the length of all ranges together in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes all ranges without reporting them, and returns them. Their memory belongs to the
    /// caller again.
    pub fn take_ranges(&mut self) -> ReturnedRanges<'_> {
        self.bytes = 0;
        ReturnedRanges(&self.ranges[..core::mem::take(&mut self.len)])
    }

    /// Removes all ranges without reporting them. Their memory belongs to the caller again.
    pub fn clear(&mut self) {
        let _ = self.take_ranges();
    }

    /// Calls `with` with the ranges in the form that a virtqueue takes, and returns its result.
    ///
    /// # Safety
    /// The batch must own the memory, as promised in [`push`](Self::push). In particular the device
    /// must not be using it.
    pub(crate) unsafe fn with_slices<R>(
        &mut self,
        with: impl for<'a> FnOnce(&'a mut [&'a mut [u8]]) -> R,
    ) -> R {
        let mut slices: [&mut [u8]; MAX_RANGES] = core::array::from_fn(|_| &mut [][..]);
        for (slice, range) in slices.iter_mut().zip(&mut self.ranges[..self.len]) {
            // SAFETY: the caller of `push` promised mapped memory that the batch alone owns, and
            // the caller of this function that the device is not using it. No byte is read or
            // written through the reference: the queue only passes its address on.
            *slice = unsafe { range.as_mut() };
        }
        with(&mut slices[..self.len])
    }
}

/// Ranges of a [`ReportBatch`] that belong to their owner again: the device has finished their
/// report or was reset, or they were not reported. A value of this type proves that to code which
/// has lent the ranges.
#[derive(Debug)]
pub struct ReturnedRanges<'a>(&'a [NonNull<[u8]>]);

impl ReturnedRanges<'_> {
    /// Returns the start address and the length in bytes of each range, in the order of
    /// [`ReportBatch::push`].
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        let ranges = self.0.iter();
        ranges.map(|range| (range.addr().get(), range.len()))
    }
}

/// The reason why [`ReportBatch::push`] refused a range.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RangeError {
    /// The range does not start at a multiple of 4 KiB.
    #[error("the range at {address:#x} does not start on a page of 4096 bytes")]
    Unaligned {
        /// The start address of the range.
        address: usize,
    },
    /// The length is zero, not a multiple of 4 KiB, or 4 GiB or more.
    #[error(
        "the range at {address:#x} is {len:#x} bytes long: not a number of pages from 1 to 2^20 - 1"
    )]
    Length {
        /// The start address of the range.
        address: usize,
        /// The length of the range in bytes.
        len: usize,
    },
    /// The batch already has [`MAX_RANGES`] ranges.
    #[error("the range of {len:#x} bytes at {address:#x} is one too many for a report of 32")]
    TooMany {
        /// The start address of the range.
        address: usize,
        /// The length of the range in bytes.
        len: usize,
    },
    /// With this range the report would be longer than 4 GiB.
    #[error("a report of {bytes:#x} bytes is longer than 2^32")]
    ReportTooLong {
        /// The length that the report would have, in bytes.
        bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::{MAX_RANGES, RangeError, ReportBatch};
    use core::num::NonZero;
    use core::ptr::NonNull;

    /// Adds a range at any `address`: the memory is never accessed.
    fn push(batch: &mut ReportBatch, address: usize, len: usize) -> Result<(), RangeError> {
        let start = NonNull::without_provenance(NonZero::new(address).unwrap());
        // SAFETY: the batch is never submitted, so the memory is not accessed.
        unsafe { batch.push(start, len) }
    }

    #[test]
    fn bad_ranges_are_named() {
        let mut batch = ReportBatch::new();
        let unaligned = RangeError::Unaligned { address: 0x1800 };
        assert_eq!(push(&mut batch, 0x1800, 0x1000), Err(unaligned));
        for len in [
            0,
            1,
            0xfff,
            0x1001,
            0x1_0000_0000,
            usize::MAX,
            usize::MAX & !0xfff,
        ] {
            let wrong = RangeError::Length {
                address: 0x1000,
                len,
            };
            assert_eq!(push(&mut batch, 0x1000, len), Err(wrong));
        }
        assert!(batch.is_empty());
        assert_eq!(batch.bytes(), 0);
    }

    #[test]
    fn a_report_ends_at_32_ranges() {
        let mut batch = ReportBatch::new();
        for _ in 0..MAX_RANGES {
            assert!(!batch.is_full());
            push(&mut batch, 0x1000, 0x1000).unwrap();
        }
        assert!(batch.is_full());
        let too_many = RangeError::TooMany {
            address: 0x1000,
            len: 0x1000,
        };
        assert_eq!(push(&mut batch, 0x1000, 0x1000), Err(too_many));
        assert_eq!((batch.len(), batch.bytes()), (32, 32 * 4096));
        let returned = batch.take_ranges();
        assert!(returned.iter().eq([(0x1000, 0x1000); MAX_RANGES]));
        assert_eq!((batch.len(), batch.bytes()), (0, 0));
        assert_eq!(batch.take_ranges().iter().count(), 0);
    }

    #[test]
    fn a_report_ends_at_4_gib() {
        let mut batch = ReportBatch::new();
        for _ in 0..4 {
            push(&mut batch, 0x4000_0000, 0x4000_0000).unwrap();
        }
        let too_long = RangeError::ReportTooLong {
            bytes: (1 << 32) + 4096,
        };
        assert_eq!(push(&mut batch, 0x1000, 0x1000), Err(too_long));
        assert_eq!((batch.len(), batch.bytes()), (4, 1 << 32));
    }
}
