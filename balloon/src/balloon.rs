//! [`Balloon`], the driver of one device: start, interrupts, statistics, reset. [`Balloon::step`]
//! and [`Balloon::deflate`] are in `inflate.rs`, exchanges of pages in `exchange.rs`, free page
//! reporting in `reporting.rs`.

use crate::batch::MAX_RANGES;
use crate::config::{FreePages, Options, write_actual, write_poison};
use crate::dma::DmaPage;
use crate::error::{BalloonError, QueueName, ResetTimeout, SetupError};
use crate::features::Features;
use crate::negotiate::{Negotiated, negotiate, reset};
use crate::numbering::{DEFLATE, INFLATE, STATS, reporting_queue};
use crate::page::{Ballooned, OwnedPage, PAGE_SIZE, PageSource};
use crate::report_queue::{ReportQueue, ReportingUnavailable};
use crate::stats::Stats;
use crate::stats_queue::{STATS_BUFFER_BYTES, StatsQueue};
use crate::transfer::{PFN_BUFFER_BYTES, Transfer};
use bitflags::bitflags;
use core::cmp::min;
use core::fmt;
use virtio_drivers::Hal;
use virtio_drivers::transport::{DeviceStatus, InterruptStatus, Transport};

/// Byte offsets of the request buffers in the one DMA page that they share.
const INFLATE_BUFFER: usize = 0;
const DEFLATE_BUFFER: usize = INFLATE_BUFFER + PFN_BUFFER_BYTES;
const STATS_BUFFER: usize = DEFLATE_BUFFER + PFN_BUFFER_BYTES;
const _: () = assert!(STATS_BUFFER + STATS_BUFFER_BYTES <= PAGE_SIZE);

bitflags! {
    /// Events of the device that the driver's owner has to handle. Each flag's documentation names
    /// the method to call.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Work: u8 {
        /// The device has acknowledged pages that went into the balloon. Call [`Balloon::step`].
        const INFLATE = 1 << 0;
        /// The device has acknowledged pages that left the balloon. Call [`Balloon::step`].
        const DEFLATE = 1 << 1;
        /// The device asks for statistics. Call [`Balloon::answer_stats`].
        const STATS = 1 << 2;
        /// The device has finished a report. Call [`Balloon::report_done`].
        const REPORT = 1 << 3;
        /// The device changed its configuration, perhaps [`Balloon::target_pages`]. Call
        /// [`Balloon::step`].
        const TARGET = 1 << 4;
        /// The device has met an error from which it cannot recover (`DEVICE_NEEDS_RESET`). Call
        /// [`Balloon::reset`].
        const NEEDS_RESET = 1 << 5;
    }
}

/// A virtio-balloon device and its driver. `P` is the type of the guest's pages.
///
/// The methods take `&mut self`, so threads that share a `Balloon` need a lock around it. No method
/// waits for the device except [`deflate`](Self::deflate) and [`report`](Self::report), which call
/// a function of the caller while they wait, and [`reset`](Self::reset) and [`stop`](Self::stop),
/// which read the device's status a bounded number of times.
///
/// Dropping a `Balloon` resets the device, and drops the pages of unfinished requests. If the
/// device does not confirm the reset, these are lost. Whether it did, only [`reset`](Self::reset)
/// tells: call it first where ranges of an unfinished report, or pages in the balloon, are used
/// again.
pub struct Balloon<H: Hal, T: Transport, P: OwnedPage> {
    // The first field, so it is dropped first. Dropping the transport resets the device before the
    // memory of the queues is freed.
    pub(crate) transport: T,
    pub(crate) inflate: Transfer<H, P>,
    pub(crate) deflate: Transfer<H, P>,
    stats: Option<StatsQueue<H>>,
    pub(crate) reporting: Result<ReportQueue<H>, ReportingUnavailable>,
    /// The memory of the request buffers of `inflate`, `deflate` and `stats`.
    _buffers: DmaPage<H>,
    pub(crate) features: Features,
    pub(crate) free_pages: FreePages,
    /// Pages in the balloon, as last written to the device: each page counts from the device's
    /// acknowledgement of its inflation to the acknowledgement of its deflation.
    pub(crate) actual: u32,
    /// [`Balloon::stop`] was called.
    has_been_reset: bool,
    /// The device has confirmed the reset.
    is_stopped: bool,
}

// SAFETY: the driver alone owns the queues and their buffers, and they are not bound to a thread.
// `Hal` has no per-thread state. The pages in flight are `Send`.
unsafe impl<H: Hal, T: Transport + Send, P: OwnedPage + Send> Send for Balloon<H, T, P> {}
// SAFETY: methods with `&self` only read: the driver's own fields, the used rings by atomic loads,
// and the configuration space through the transport, which is `Sync`. They reach no page.
unsafe impl<H: Hal, T: Transport + Sync, P: OwnedPage> Sync for Balloon<H, T, P> {}

impl<H: Hal, T: Transport, P: OwnedPage> Balloon<H, T, P> {
    /// Starts the device behind `transport`: resets it, negotiates features, sets up the queues,
    /// sets `DRIVER_OK` and writes a balloon size of 0. If statistics are negotiated, submits the
    /// first values. Call [`step`](Self::step) once afterwards, since the device may already have a
    /// target size.
    ///
    /// If free page reporting is not offered, is not safe, or has no queue or too small a queue,
    /// the driver starts without it. See [`reporting`](Self::reporting).
    ///
    /// # Errors
    /// Fails if the device is no balloon, does not confirm the reset or refuses the features, if a
    /// queue cannot be set up, if the `Hal` has no memory, or if the configuration space cannot be
    /// accessed. See [`SetupError`]. Before `DRIVER_OK` the device is then marked as failed, after
    /// it the device is reset.
    pub fn new(mut transport: T, options: Options) -> Result<Self, SetupError> {
        match Self::set_up(&mut transport, &options) {
            Ok(parts) => Self::start(transport, parts),
            Err(error) => {
                transport.set_status(DeviceStatus::FAILED);
                Err(error)
            }
        }
    }

    fn set_up(transport: &mut T, options: &Options) -> Result<Parts<H, P>, SetupError> {
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

    fn start(mut transport: T, parts: Parts<H, P>) -> Result<Self, SetupError> {
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
            is_stopped: false,
        };
        // A device that another driver used before may still show that driver's balloon size.
        write_actual(&mut balloon.transport, 0)?;
        if let Some(stats) = &mut balloon.stats {
            stats
                .offer(&mut balloon.transport)
                .map_err(|error| match error {
                    BalloonError::Queue { queue, error } => failed(queue, STATS, error),
                    // No other error is possible: the device holds no buffer yet that it could
                    // return.
                    _ => failed(QueueName::Stats, STATS, virtio_drivers::Error::IoError),
                })?;
        }
        Ok(balloon)
    }

    /// Returns the feature bits in use: offered by the device and accepted by this driver.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Acknowledges an interrupt and returns the events to handle. Returns no event if the
    /// interrupt came from another device, or if the returned requests were handled before. Does
    /// not handle the events and is short enough for an interrupt handler.
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

    /// Returns the events of the queues on which the device has returned a request, for callers
    /// that poll. Reads memory only and no device register, so the result never contains
    /// [`Work::TARGET`] or [`Work::NEEDS_RESET`]. Empty after [`reset`](Self::reset). A queue on
    /// which the device broke the protocol adds no event.
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

    /// Asks the device to interrupt when it returns a request (`true`, the state after the start),
    /// or not to (`false`, for a caller that polls [`completed`](Self::completed)). Holds for
    /// inflation, deflation and reports. Requests for statistics and changes of the target
    /// interrupt in either case.
    pub fn set_completion_interrupts(&mut self, enable: bool) {
        self.inflate.requests_mut().set_interrupts(enable);
        self.deflate.requests_mut().set_interrupts(enable);
        if let Ok(queue) = &mut self.reporting {
            queue.requests_mut().set_interrupts(enable);
        }
    }

    /// Answers the device's request for statistics, if there is one, by sending it new values.
    /// Calls `collect` only then. Returns whether the device had asked, which is always `false`
    /// without a statistics queue.
    ///
    /// The values sent are those that were `Some` in [`Options::stats`]. If `collect` leaves one of
    /// them out, its last value is sent again.
    ///
    /// [`Options::stats`]: crate::Options::stats
    ///
    /// # Errors
    /// Fails if the device broke the protocol, the answer could not be queued, or the device has
    /// been reset.
    pub fn answer_stats(&mut self, collect: impl FnOnce() -> Stats) -> Result<bool, BalloonError> {
        self.check_alive()?;
        match &mut self.stats {
            Some(stats) => stats.answer(&mut self.transport, collect),
            None => Ok(false),
        }
    }

    /// Returns `Ok` if free page reporting was set up with this device and [`reset`](Self::reset)
    /// has not been called.
    ///
    /// # Errors
    /// Returns the reason why reporting cannot be used.
    pub fn reporting(&self) -> Result<(), ReportingUnavailable> {
        match &self.reporting {
            Ok(_) if self.has_been_reset => Err(ReportingUnavailable::Reset),
            Ok(_) => Ok(()),
            Err(reason) => Err(*reason),
        }
    }

    /// Returns the number of ranges that the device holds for the report in flight; 0 if there is
    /// none or reporting cannot be used.
    #[must_use]
    pub fn ranges_held(&self) -> usize {
        self.reporting
            .as_ref()
            .map_or(0, |queue| queue.ranges_held())
    }

    /// Resets the device, so that it no longer uses any memory of the guest. Gives all pages of the
    /// balloon back to `pages`. The ranges of a report in flight belong to their owner again. From
    /// now on, also if this call fails, inflation, deflation, reports and statistics fail with
    /// [`BalloonError::DeviceReset`].
    ///
    /// Giving a large balloon back takes long. A caller with a lock calls [`stop`](Self::stop) and
    /// then [`release`](Self::release) instead.
    ///
    /// # Errors
    /// Fails if the device did not confirm the reset in time. No page was given back then, as the
    /// device may still use them. The call may be repeated.
    pub fn reset(&mut self, pages: &mut impl PageSource<Page = P>) -> Result<(), ResetTimeout> {
        self.stop()?;
        self.release(pages, u32::MAX);
        Ok(())
    }

    /// Does what [`reset`](Self::reset) does, but gives no page back. [`release`](Self::release)
    /// does.
    ///
    /// # Errors
    /// Fails as [`reset`](Self::reset) does.
    pub fn stop(&mut self) -> Result<(), ResetTimeout> {
        self.has_been_reset = true;
        reset(&mut self.transport)?;
        self.is_stopped = true;
        if let Ok(queue) = &mut self.reporting {
            queue.release();
        }
        Ok(())
    }

    /// Gives the pages in flight and up to `budget` other pages of the balloon back to `pages`, if
    /// the device has confirmed a reset. Returns `true` if pages are left, so that the caller calls
    /// this again. Returns `false` without a confirmed reset, since the device may still use the
    /// pages.
    pub fn release(&mut self, pages: &mut impl PageSource<Page = P>, budget: u32) -> bool {
        if !self.is_stopped {
            return false;
        }
        let mut give_back = |page: Ballooned<P>| pages.give_back(page.into_page());
        self.inflate.take_batch(&mut give_back);
        let leaving = self.deflate.take_batch(&mut give_back);
        self.actual = self.actual.saturating_sub(leaving);
        for _ in 0..min(budget, self.actual) {
            let Some(page) = pages.recall() else {
                self.actual = 0;
                break;
            };
            pages.give_back(page.into_page());
            self.actual -= 1;
        }
        self.actual != 0
    }

    /// Checks that [`reset`](Self::reset) has not been called. Fails with
    /// [`BalloonError::DeviceReset`] otherwise, even if that reset was not confirmed.
    pub(crate) fn check_alive(&self) -> Result<(), BalloonError> {
        if self.has_been_reset {
            return Err(BalloonError::DeviceReset);
        }
        Ok(())
    }
}

impl<H: Hal, T: Transport, P: OwnedPage> Drop for Balloon<H, T, P> {
    fn drop(&mut self) {
        // The device must stop using the queues and buffers before they are freed. If it does not
        // confirm the reset, a drop can neither wait longer nor return an error.
        if reset(&mut self.transport).is_ok() {
            self.inflate.take_batch(|page| drop(page.into_page()));
            self.deflate.take_batch(|page| drop(page.into_page()));
        }
    }
}

impl<H: Hal, T: Transport, P: OwnedPage> fmt::Debug for Balloon<H, T, P> {
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

/// The parts of a [`Balloon`] that exist before `DRIVER_OK` is set.
struct Parts<H: Hal, P> {
    inflate: Transfer<H, P>,
    deflate: Transfer<H, P>,
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

/// Returns the reporting queue, or inside `Ok` the reason why reporting cannot be used: the other
/// queues work without it. Fails if the queue exists but cannot be set up.
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
