//! The driver: start, interrupts, end.

use crate::batch::MAX_RANGES;
use crate::config::{FreePages, Options, write_actual, write_poison};
use crate::dma::DmaPage;
use crate::error::{BalloonError, QueueName, ResetTimeout, SetupError};
use crate::features::Features;
use crate::negotiate::{Negotiated, negotiate, reset};
use crate::numbering::{DEFLATE, INFLATE, STATS, reporting_queue};
use crate::page::{PAGE_SIZE, PageSource};
use crate::report_queue::{ReportQueue, ReportingUnavailable};
use crate::stats::Stats;
use crate::stats_queue::{STATS_BUFFER_BYTES, StatsQueue};
use crate::transfer::{PFN_BUFFER_BYTES, Transfer};
use bitflags::bitflags;
use core::fmt;
use virtio_drivers::Hal;
use virtio_drivers::transport::{DeviceStatus, InterruptStatus, Transport};

/// Where the request buffers lie in their page.
const INFLATE_BUFFER: usize = 0;
const DEFLATE_BUFFER: usize = INFLATE_BUFFER + PFN_BUFFER_BYTES;
const STATS_BUFFER: usize = DEFLATE_BUFFER + PFN_BUFFER_BYTES;
const _: () = assert!(STATS_BUFFER + STATS_BUFFER_BYTES <= PAGE_SIZE);

bitflags! {
    /// What there is to do.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Work: u8 {
        /// Pages have reached the balloon: [`Balloon::step`].
        const INFLATE = 1 << 0;
        /// Pages have left the balloon: [`Balloon::step`].
        const DEFLATE = 1 << 1;
        /// The device asks for statistics: [`Balloon::answer_stats`].
        const STATS = 1 << 2;
        /// The device has finished a report: [`Balloon::report_done`].
        const REPORT = 1 << 3;
        /// The configuration changed, perhaps [`Balloon::target_pages`]: [`Balloon::step`].
        const TARGET = 1 << 4;
        /// The device has given up: [`Balloon::reset`].
        const NEEDS_RESET = 1 << 5;
    }
}

/// A virtio-balloon device and its driver.
///
/// The methods change the driver, so several threads share it behind a lock; none of them waits,
/// but [`deflate`](Self::deflate) and [`report`](Self::report), which call back to wait.
///
/// Dropping it resets the device. Pages that are in the balloon, and ranges of a report under way,
/// then are the guest's again.
pub struct Balloon<H: Hal, T: Transport> {
    // First: dropping the transport resets the device, before the memory of the queues is freed.
    pub(crate) transport: T,
    pub(crate) inflate: Transfer<H>,
    pub(crate) deflate: Transfer<H>,
    stats: Option<StatsQueue<H>>,
    pub(crate) reporting: Result<ReportQueue<H>, ReportingUnavailable>,
    /// What `inflate`, `deflate` and `stats` point into.
    _buffers: DmaPage<H>,
    pub(crate) features: Features,
    pub(crate) free_pages: FreePages,
    /// Pages in the balloon: acknowledged by the device, and not yet acknowledged to have left.
    pub(crate) actual: u32,
    has_been_reset: bool,
}

// SAFETY: the queues and the buffers that they point to belong to the driver alone and are not
// bound to a thread; `Hal` has no state of its own that a thread could own.
unsafe impl<H: Hal, T: Transport + Send> Send for Balloon<H, T> {}
// SAFETY: a shared reference only reads: numbers of the driver, the used rings with atomic loads,
// and the configuration space through the transport, which is `Sync`.
unsafe impl<H: Hal, T: Transport + Sync> Sync for Balloon<H, T> {}

impl<H: Hal, T: Transport> Balloon<H, T> {
    /// Starts the device behind `transport`: resets it, negotiates features, sets up the queues.
    /// Afterwards the balloon is empty; a first [`step`](Self::step) takes up the target that the
    /// device may already have.
    ///
    /// # Errors
    /// See [`SetupError`]; the device is then marked as failed. That free page reporting cannot be
    /// used is no error here: see [`reporting`](Self::reporting).
    pub fn new(mut transport: T, options: Options) -> Result<Self, SetupError> {
        match Self::set_up(&mut transport, &options) {
            Ok(parts) => Self::start(transport, parts),
            Err(error) => {
                transport.set_status(DeviceStatus::FAILED);
                Err(error)
            }
        }
    }

    fn set_up(transport: &mut T, options: &Options) -> Result<Parts<H>, SetupError> {
        let negotiated = negotiate(transport, options)?;
        let buffers = DmaPage::new().ok_or(SetupError::NoDmaMemory)?;
        let inflate = {
            let shared = buffers.part(INFLATE_BUFFER, PFN_BUFFER_BYTES);
            Transfer::new(transport, QueueName::Inflate, INFLATE, shared)
        }
        .map_err(|error| failed(QueueName::Inflate, INFLATE, error))?;
        let deflate = {
            let shared = buffers.part(DEFLATE_BUFFER, PFN_BUFFER_BYTES);
            Transfer::new(transport, QueueName::Deflate, DEFLATE, shared)
        }
        .map_err(|error| failed(QueueName::Deflate, DEFLATE, error))?;
        let stats = match &options.stats {
            Some(first) if negotiated.accepted.contains(Features::STATS_VQ) => {
                let shared = buffers.part(STATS_BUFFER, STATS_BUFFER_BYTES);
                let queue = StatsQueue::new(transport, STATS, shared, first);
                Some(queue.map_err(|error| failed(QueueName::Stats, STATS, error))?)
            }
            _ => None,
        };
        let reporting = set_up_reporting(transport, &negotiated, options.free_pages)?;
        if let FreePages::Filled(value) = options.free_pages
            && negotiated.accepted.contains(Features::PAGE_POISON)
        {
            write_poison(transport, value)?;
        }
        Ok(Parts {
            buffers,
            inflate,
            deflate,
            stats,
            reporting,
            features: negotiated.accepted,
            free_pages: options.free_pages,
        })
    }

    fn start(mut transport: T, parts: Parts<H>) -> Result<Self, SetupError> {
        transport.finish_init();
        let mut balloon = Self {
            transport,
            inflate: parts.inflate,
            deflate: parts.deflate,
            stats: parts.stats,
            reporting: parts.reporting,
            _buffers: parts.buffers,
            features: parts.features,
            free_pages: parts.free_pages,
            actual: 0,
            has_been_reset: false,
        };
        // A device that was driven before may still show the balloon of then.
        write_actual(&mut balloon.transport, 0)?;
        if let Some(stats) = &mut balloon.stats {
            stats
                .offer(&mut balloon.transport)
                .map_err(|error| match error {
                    BalloonError::Queue { queue, error } => failed(queue, STATS, error),
                    // The device has not had anything to return yet.
                    _ => failed(QueueName::Stats, STATS, virtio_drivers::Error::IoError),
                })?;
        }
        Ok(balloon)
    }

    /// The features in use.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Acknowledges an interrupt and says what there is to do; empty when the interrupt was not
    /// this device's. Short enough for an interrupt handler.
    pub fn ack_interrupt(&mut self) -> Work {
        let status = self.transport.ack_interrupt();
        let mut work = Work::empty();
        if status.contains(InterruptStatus::QUEUE_INTERRUPT) {
            work |= self.completed();
        }
        if status.contains(InterruptStatus::DEVICE_CONFIGURATION_INTERRUPT) {
            work |= Work::TARGET;
            if self
                .transport
                .get_status()
                .contains(DeviceStatus::DEVICE_NEEDS_RESET)
            {
                work |= Work::NEEDS_RESET;
            }
        }
        work
    }

    /// What the device has returned so far: for callers that poll. Reads memory only, and so does
    /// not see [`Work::TARGET`].
    #[must_use]
    pub fn completed(&self) -> Work {
        let mut work = Work::empty();
        if self.has_been_reset {
            return work;
        }
        work.set(Work::INFLATE, self.inflate.requests().has_returned());
        work.set(Work::DEFLATE, self.deflate.requests().has_returned());
        work.set(
            Work::STATS,
            self.stats
                .as_ref()
                .is_some_and(|queue| queue.requests().has_returned()),
        );
        work.set(
            Work::REPORT,
            self.reporting
                .as_ref()
                .is_ok_and(|queue| queue.requests().has_returned()),
        );
        work
    }

    /// Asks the device to interrupt when it returns requests (as it does from the start), or not to
    /// for a caller that polls. Requests for statistics and changes of the target interrupt anyway.
    pub fn set_completion_interrupts(&mut self, enable: bool) {
        self.inflate.requests_mut().set_interrupts(enable);
        self.deflate.requests_mut().set_interrupts(enable);
        if let Ok(queue) = &mut self.reporting {
            queue.requests_mut().set_interrupts(enable);
        }
    }

    /// Answers the device if it asks for statistics: whether it did. `collect` is called only then.
    ///
    /// The statistics sent are those that had a value in [`Options::stats`]; where `collect` leaves
    /// one of them out, its last value is sent again.
    ///
    /// [`Options::stats`]: crate::Options::stats
    ///
    /// # Errors
    /// The device broke the protocol, or has been reset.
    pub fn answer_stats(&mut self, collect: impl FnOnce() -> Stats) -> Result<bool, BalloonError> {
        self.check_alive()?;
        match &mut self.stats {
            Some(stats) => stats.answer(&mut self.transport, collect),
            None => Ok(false),
        }
    }

    /// Whether reports can be made, or why not.
    ///
    /// # Errors
    /// The reason why not.
    pub fn reporting(&self) -> Result<(), ReportingUnavailable> {
        match &self.reporting {
            Ok(_) => Ok(()),
            Err(reason) => Err(*reason),
        }
    }

    /// The number of ranges that the device holds for a report.
    #[must_use]
    pub fn ranges_held(&self) -> usize {
        self.reporting
            .as_ref()
            .map_or(0, |queue| queue.ranges_held())
    }

    /// Ends all work of the device: it holds no memory of the guest any more. All pages of the
    /// balloon go back to their source, the ranges of a report under way to their owner. Everything
    /// but this answers [`BalloonError::DeviceReset`] from now on.
    ///
    /// # Errors
    /// The device did not confirm the reset. Nothing was given back, as the device may still be at
    /// it; calling again is possible.
    pub fn reset(&mut self, pages: &mut impl PageSource) -> Result<(), ResetTimeout> {
        self.has_been_reset = true;
        reset(&mut self.transport)?;
        self.release_pages(pages);
        if let Ok(queue) = &mut self.reporting {
            queue.release();
        }
        Ok(())
    }

    /// After a reset: the device holds nothing, all pages are the guest's again.
    fn release_pages(&mut self, pages: &mut impl PageSource) {
        self.inflate.take_batch(|page| pages.give_back(page));
        let leaving = self.deflate.take_batch(|page| pages.give_back(page));
        for _ in leaving..self.actual {
            let Some(page) = pages.recall() else { break };
            pages.give_back(page);
        }
        self.actual = 0;
    }

    pub(crate) fn check_alive(&self) -> Result<(), BalloonError> {
        if self.has_been_reset {
            return Err(BalloonError::DeviceReset);
        }
        Ok(())
    }
}

impl<H: Hal, T: Transport> Drop for Balloon<H, T> {
    fn drop(&mut self) {
        // Before the queues and the buffers are freed. A device that does not confirm cannot be
        // waited for: there is nobody to tell.
        let _ = reset(&mut self.transport);
    }
}

impl<H: Hal, T: Transport> fmt::Debug for Balloon<H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balloon")
            .field("features", &self.features)
            .field("free_pages", &self.free_pages)
            .field("actual", &self.actual)
            .field("reporting", &self.reporting())
            .field("ranges_held", &self.ranges_held())
            .field("has_been_reset", &self.has_been_reset)
            .finish_non_exhaustive()
    }
}

/// A driver before `DRIVER_OK`.
struct Parts<H: Hal> {
    inflate: Transfer<H>,
    deflate: Transfer<H>,
    stats: Option<StatsQueue<H>>,
    reporting: Result<ReportQueue<H>, ReportingUnavailable>,
    buffers: DmaPage<H>,
    features: Features,
    free_pages: FreePages,
}

fn failed(queue: QueueName, index: u16, error: virtio_drivers::Error) -> SetupError {
    SetupError::Queue {
        queue,
        index,
        error,
    }
}

/// The reporting queue, or why there is none: that does not keep the rest from working.
fn set_up_reporting<H: Hal>(
    transport: &mut impl Transport,
    negotiated: &Negotiated,
    free_pages: FreePages,
) -> Result<Result<ReportQueue<H>, ReportingUnavailable>, SetupError> {
    let Negotiated { offered, accepted } = *negotiated;
    if !accepted.contains(Features::REPORTING) {
        return Ok(Err(match free_pages {
            FreePages::Filled(value) if offered.contains(Features::REPORTING) => {
                ReportingUnavailable::NotSafe { value }
            }
            _ => ReportingUnavailable::NotOffered,
        }));
    }
    let exists = |index| transport.max_queue_size(index) > 0;
    let Some(index) = reporting_queue(offered, accepted, exists) else {
        return Ok(Err(ReportingUnavailable::NoQueue));
    };
    let entries = transport.max_queue_size(index);
    if usize::try_from(entries).is_ok_and(|entries| entries < MAX_RANGES) {
        return Ok(Err(ReportingUnavailable::QueueTooSmall { entries }));
    }
    match ReportQueue::new(transport, index) {
        Ok(queue) => Ok(Ok(queue)),
        Err(error) => Err(failed(QueueName::Reporting, index, error)),
    }
}
