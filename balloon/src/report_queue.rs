//! The reporting queue (virtio 1.2, 5.5.6.7), with the ranges that the device holds.

use crate::batch::{MAX_RANGES, ReportBatch};
use crate::error::{BalloonError, DeviceFault, QueueName};
use crate::queue::RequestQueue;
use thiserror::Error;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// Why free page reporting cannot be used with this device.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ReportingUnavailable {
    /// The device does not offer it (`free-page-reporting=on` in QEMU).
    #[error("the device does not offer free page reporting")]
    NotOffered,
    /// Free pages have a value, and the device cannot be told: it might change them.
    #[error("free pages are filled with {value:#010x}, and the device does not offer PAGE_POISON")]
    NotSafe {
        /// What free pages are filled with.
        value: u32,
    },
    /// The device offers it, but has no queue for it.
    #[error("the device offers free page reporting, but has no queue for it")]
    NoQueue,
    /// The queue is too small for a report.
    #[error("the reporting queue has room for {entries} descriptors of 32")]
    QueueTooSmall {
        /// Its size.
        entries: u32,
    },
}

/// A report was not made, or is not finished.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ReportError {
    /// Reporting cannot be used at all.
    #[error(transparent)]
    Unavailable(#[from] ReportingUnavailable),
    /// The batch is empty.
    #[error("the report is empty")]
    Empty,
    /// A report is under way; one is possible at a time.
    #[error("a report is under way")]
    Busy,
    /// No report is under way.
    #[error("no report is under way")]
    NotSubmitted,
    /// `wait` gave up. The device still holds the ranges: [`Balloon::report_done`] tells when it
    /// has returned them.
    ///
    /// [`Balloon::report_done`]: crate::Balloon::report_done
    #[error("the device has not finished the report")]
    StillPending,
    /// The device broke the protocol, the request could not be queued, or the device has been
    /// reset. If a report was under way, [`Balloon::reset`] gets its ranges back.
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

/// A finished report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reported {
    /// Its ranges.
    pub ranges: usize,
    /// The bytes in them.
    pub bytes: u64,
}

/// The queue, with the ranges that the device holds.
pub(crate) struct ReportQueue<H: Hal> {
    requests: RequestQueue<H, MAX_RANGES>,
    /// Empty unless a report is under way.
    held: ReportBatch,
}

impl<H: Hal> ReportQueue<H> {
    pub(crate) fn new(transport: &mut impl Transport, index: u16) -> virtio_drivers::Result<Self> {
        Ok(Self {
            requests: RequestQueue::new(transport, QueueName::Reporting, index)?,
            held: ReportBatch::new(),
        })
    }

    pub(crate) fn requests(&self) -> &RequestQueue<H, MAX_RANGES> {
        &self.requests
    }

    pub(crate) fn requests_mut(&mut self) -> &mut RequestQueue<H, MAX_RANGES> {
        &mut self.requests
    }

    /// Moves the ranges of `batch` to the device; see [`Balloon::submit_report`].
    ///
    /// [`Balloon::submit_report`]: crate::Balloon::submit_report
    pub(crate) fn submit(
        &mut self,
        transport: &mut impl Transport,
        batch: &mut ReportBatch,
    ) -> Result<(), ReportError> {
        self.requests.check()?;
        if !self.held.is_empty() {
            return Err(ReportError::Busy);
        }
        if batch.is_empty() {
            return Err(ReportError::Empty);
        }
        // SAFETY: the batch owns its memory, the device does not hold it. The ranges move to `held`
        // below, and are kept there until the request is back or the device has been reset.
        unsafe { batch.with_slices(|ranges| self.requests.submit(transport, &[], ranges)) }?;
        core::mem::swap(&mut self.held, batch);
        Ok(())
    }

    /// What was in the report that the device has finished; see [`Balloon::report_done`].
    ///
    /// [`Balloon::report_done`]: crate::Balloon::report_done
    pub(crate) fn done(&mut self) -> Result<Option<Reported>, ReportError> {
        self.requests.check()?;
        if self.held.is_empty() {
            return Err(ReportError::NotSubmitted);
        }
        if !self.requests.has_returned() {
            return Ok(None);
        }
        let Self { requests, held } = self;
        // SAFETY: the device has returned a request. If it is not this one, `complete` only
        // compares, and the references to memory that a device outside the protocol may still write
        // are never used.
        let returned = unsafe { held.with_slices(|ranges| requests.complete(&[], ranges)) }?;
        if !returned {
            return Ok(None);
        }
        let reported = Reported {
            ranges: held.len(),
            bytes: held.bytes(),
        };
        held.clear();
        Ok(Some(reported))
    }

    /// The number of ranges that the device holds.
    pub(crate) fn ranges_held(&self) -> usize {
        self.held.len()
    }

    /// After a reset: the ranges are their owner's again.
    pub(crate) fn release(&mut self) {
        self.held.clear();
    }
}
