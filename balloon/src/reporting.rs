//! Free page reporting (virtio 1.2, 5.5.6.7): the guest tells the host which memory is free. The
//! host takes that memory back until the guest touches it again.

use crate::balloon::Balloon;
use crate::batch::{ReportBatch, ReturnedRanges};
use crate::config::FreePages;
use crate::features::Features;
use crate::page::OwnedPage;
use crate::report_queue::{ReportError, Reported};
use core::ops::ControlFlow;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

impl<H: Hal, T: Transport, P: OwnedPage> Balloon<H, T, P> {
    /// Returns whether a report leaves free pages as the guest expects them: it expects no value,
    /// or the device was given the value ([`FreePages::Filled`]). Does not say whether reporting is
    /// available.
    #[must_use]
    pub fn reporting_is_safe(&self) -> bool {
        self.free_pages == FreePages::Arbitrary || self.features.contains(Features::PAGE_POISON)
    }

    /// Submits the ranges of `batch` as one report and does not wait. On success the device holds
    /// the ranges and `batch` is empty. On an error `batch` is unchanged.
    ///
    /// # Errors
    /// Fails if reporting is unavailable, `batch` is empty, another report is in flight, the
    /// request cannot be queued, the device broke the protocol, or it has been reset. See
    /// [`ReportError`].
    pub fn submit_report(&mut self, batch: &mut ReportBatch) -> Result<(), ReportError> {
        self.check_alive()?;
        let Self {
            transport,
            reporting,
            ..
        } = self;
        let queue = reporting.as_mut().map_err(|reason| *reason)?;
        queue.submit(transport, batch)
    }

    /// Returns the size of the report if the device has finished it, and `None` while it works on
    /// it. After `Some` the memory of the ranges belongs to the caller again.
    ///
    /// # Errors
    /// Fails with [`ReportError::NotSubmitted`] if no report is in flight, with
    /// [`ReportError::Unavailable`] if reporting cannot be used, and with [`ReportError::Device`]
    /// if the device broke the protocol or has been reset. After a broken protocol the driver keeps
    /// the ranges until [`reset`](Self::reset).
    pub fn report_done(&mut self) -> Result<Option<Reported>, ReportError> {
        self.check_alive()?;
        let queue = self.reporting.as_mut().map_err(|reason| *reason)?;
        queue.done()
    }

    /// Returns the ranges of the last report, which belong to their owner again because
    /// [`report_done`](Self::report_done) has returned `Some`, or because the device has confirmed
    /// a [`reset`](Self::reset). Returns `None` if the device still holds the ranges, or if there
    /// are none: they were returned before, or nothing was reported.
    pub fn take_ranges(&mut self) -> Option<ReturnedRanges<'_>> {
        let queue = self.reporting.as_mut().ok()?;
        queue.take_ranges()
    }

    /// Reports the ranges of `batch` and waits until the device has finished. Returns the size of
    /// the report. Calls `wait` again and again until then, and gives up if `wait` returns `Break`.
    ///
    /// # Errors
    /// Fails like [`submit_report`](Self::submit_report) and [`report_done`](Self::report_done),
    /// and with [`ReportError::StillPending`] if `wait` returned `Break`. After `StillPending`, and
    /// after [`ReportError::Device`] with an empty `batch`, the device still holds the ranges.
    pub fn report(
        &mut self,
        batch: &mut ReportBatch,
        mut wait: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Reported, ReportError> {
        self.submit_report(batch)?;
        loop {
            if let Some(reported) = self.report_done()? {
                return Ok(reported);
            }
            if wait().is_break() {
                return Err(ReportError::StillPending);
            }
        }
    }
}
