//! The reporting queue (virtio 1.2, 5.5.6.7) and the ranges that the device holds.

use crate::batch::{MAX_RANGES, ReportBatch, ReturnedRanges};
use crate::error::{BalloonError, DeviceFault, QueueName};
use crate::queue::RequestQueue;
use thiserror::Error;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// The reason why free page reporting cannot be used with this device.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ReportingUnavailable {
    /// The device does not offer reporting (`free-page-reporting=on` in QEMU).
    #[error("the device does not offer free page reporting")]
    NotOffered,
    /// The guest expects a value in free pages, and the device does not take it, so it might change
    /// the pages.
    #[error("free pages are filled with {value:#010x}, and the device does not offer PAGE_POISON")]
    NotSafe {
        /// The value that fills free pages.
        value: u32,
    },
    /// The device offers reporting but has no queue for it.
    #[error("the device offers free page reporting, but has no queue for it")]
    NoQueue,
    /// The queue has fewer than 32 descriptors.
    #[error("the reporting queue has room for {entries} descriptors of 32")]
    QueueTooSmall {
        /// The number of its descriptors.
        entries: u32,
    },
    /// The device has been reset, and takes no more reports.
    #[error("the balloon device has been reset")]
    Reset,
}

/// The reason why a report was not made or is not finished.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ReportError {
    /// Reporting cannot be used with this device.
    #[error(transparent)]
    Unavailable(#[from] ReportingUnavailable),
    /// The batch has no range.
    #[error("the report is empty")]
    Empty,
    /// Another report is in flight. Only one is possible at a time.
    #[error("a report is under way")]
    Busy,
    /// No report is in flight.
    #[error("no report is under way")]
    NotSubmitted,
    /// The caller's `wait` returned `Break`. The device still holds the ranges until
    /// [`Balloon::report_done`] returns `Some`.
    ///
    /// [`Balloon::report_done`]: crate::Balloon::report_done
    #[error("the device has not finished the report")]
    StillPending,
    /// The device broke the protocol, the request could not be queued, or the device has been
    /// reset. If a report was in flight, [`Balloon::reset`] releases its ranges.
    ///
    /// [`Balloon::reset`]: crate::Balloon::reset
    #[error(transparent)]
    Device(#[from] BalloonError),
}

impl From<DeviceFault> for ReportError {
    fn from(fault: DeviceFault) -> Self {
        Self::Device(fault.into())
    }
}

/// The size of a finished report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reported {
    /// Number of ranges in the report.
    pub ranges: usize,
    /// Length of all ranges together in bytes.
    pub bytes: u64,
}

/// The reporting queue, and the ranges that the device holds.
pub(crate) struct ReportQueue<H: Hal> {
    requests: RequestQueue<H, MAX_RANGES>,
    /// The ranges of the last report. Empty before the first one, and after
    /// [`take_ranges`](Self::take_ranges).
    ranges: ReportBatch,
    /// Whether the device holds `ranges`: their report is in flight.
    is_held: bool,
}

impl<H: Hal> ReportQueue<H> {
    /// Sets up the queue `index` of the device, without a report. Fails if `virtio-drivers` cannot
    /// set it up.
    pub(crate) fn new(transport: &mut impl Transport, index: u16) -> virtio_drivers::Result<Self> {
        Ok(Self {
            requests: RequestQueue::new(transport, QueueName::Reporting, index)?,
            ranges: ReportBatch::new(),
            is_held: false,
        })
    }

    /// Returns the virtqueue of the reports and the state of its request.
    pub(crate) fn requests(&self) -> &RequestQueue<H, MAX_RANGES> {
        &self.requests
    }

    /// Returns the virtqueue of the reports and the state of its request.
    pub(crate) fn requests_mut(&mut self) -> &mut RequestQueue<H, MAX_RANGES> {
        &mut self.requests
    }

    /// Submits the ranges of `batch` as one request. On success the device holds the ranges and
    /// `batch` is empty. On an error `batch` is unchanged.
    ///
    /// Fails if the device broke the protocol, with [`ReportError::Busy`] if a report is in flight,
    /// with [`ReportError::Empty`] if `batch` is empty, or if the request cannot be queued.
    pub(crate) fn submit(
        &mut self,
        transport: &mut impl Transport,
        batch: &mut ReportBatch,
    ) -> Result<(), ReportError> {
        self.requests.check()?;
        if self.is_held {
            return Err(ReportError::Busy);
        }
        if batch.is_empty() {
            return Err(ReportError::Empty);
        }
        // SAFETY: the batch owns its memory, and the device does not hold it. The ranges move to
        // `self.ranges` below and stay there until the request has returned or the device has been
        // reset.
        unsafe { batch.with_slices(|ranges| self.requests.submit(transport, &[], ranges)) }?;
        core::mem::swap(&mut self.ranges, batch);
        // What is left of an earlier report, if its ranges were not taken.
        batch.clear();
        self.is_held = true;
        Ok(())
    }

    /// Returns the size of the report if the device has finished it, and `None` while the device
    /// works on it. With `Some` the memory of the ranges belongs to the caller again.
    ///
    /// Fails with [`ReportError::NotSubmitted`] if no report is in flight, or if the device broke
    /// the protocol. After that the queue keeps the ranges until [`release`](Self::release).
    pub(crate) fn done(&mut self) -> Result<Option<Reported>, ReportError> {
        self.requests.check()?;
        if !self.is_held {
            return Err(ReportError::NotSubmitted);
        }
        if !self.requests.has_returned() {
            return Ok(None);
        }
        let Self {
            requests, ranges, ..
        } = self;
        // SAFETY: the device has returned a request. If it is another one, `complete` only compares
        // and fails. The references to memory that a faulty device may still write are never used.
        let returned = unsafe { ranges.with_slices(|ranges| requests.complete(&[], ranges)) }?;
        if !returned {
            return Ok(None);
        }
        let reported = Reported {
            ranges: ranges.len(),
            bytes: ranges.bytes(),
        };
        self.is_held = false;
        Ok(Some(reported))
    }

    /// Returns the number of ranges that the device holds; 0 if no report is in flight.
    pub(crate) fn ranges_held(&self) -> usize {
        if self.is_held { self.ranges.len() } else { 0 }
    }

    /// Notes that the device holds no ranges any more, so that they belong to their owner again.
    /// Call this only after a confirmed reset.
    pub(crate) fn release(&mut self) {
        self.is_held = false;
    }

    /// Returns the ranges of the last report, once. Returns `None` if the device holds them, or if
    /// there are none.
    pub(crate) fn take_ranges(&mut self) -> Option<ReturnedRanges<'_>> {
        if self.is_held || self.ranges.is_empty() {
            return None;
        }
        Some(self.ranges.take_ranges())
    }
}
