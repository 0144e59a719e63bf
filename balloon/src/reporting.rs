//! Free page reporting (virtio 1.2, 5.5.6.7): telling the host which memory is free, so that it can
//! take it back until it is touched again.

use crate::balloon::Balloon;
use crate::batch::ReportBatch;
use crate::config::FreePages;
use crate::features::Features;
use crate::report_queue::{ReportError, Reported};
use core::ops::ControlFlow;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

impl<H: Hal, T: Transport> Balloon<H, T> {
    /// Whether reported pages still hold what the guest expects of a free page: it expects nothing,
    /// or the device knows what.
    #[must_use]
    pub fn reporting_is_safe(&self) -> bool {
        self.free_pages == FreePages::Arbitrary || self.features.contains(Features::PAGE_POISON)
    }

    /// Reports the ranges of `batch` and does not wait. On success the device holds them and
    /// `batch` is empty; on an error `batch` is unchanged.
    ///
    /// # Errors
    /// See [`ReportError`].
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

    /// Whether the device has finished the report: what was in it, or `None` while it works on it.
    /// With `Some` the memory is the caller's again.
    ///
    /// # Errors
    /// [`ReportError::NotSubmitted`], or [`ReportError::Device`] when the device broke the protocol:
    /// it then keeps the ranges until [`reset`](Self::reset).
    pub fn report_done(&mut self) -> Result<Option<Reported>, ReportError> {
        self.check_alive()?;
        let queue = self.reporting.as_mut().map_err(|reason| *reason)?;
        queue.done()
    }

    /// Reports the ranges of `batch` and waits until the device has finished: `wait` is called as
    /// long as it has not, and gives up by breaking.
    ///
    /// # Errors
    /// See [`ReportError`]. After [`ReportError::StillPending`], and after [`ReportError::Device`]
    /// with an empty `batch`, the device still holds the ranges.
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
