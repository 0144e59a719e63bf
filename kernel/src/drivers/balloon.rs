//! The driver of the balloon device, through which the host takes guest memory.
//!
//! A thread here follows the balloon size that the host wants and answers its requests for
//! statistics. Another thread (`give_back`) reports free memory. One lock protects the driver, and
//! no thread sleeps with it held.

use core::fmt;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU8, Ordering};
use ebb_balloon::{
    Balloon, BalloonError, Ballooned, FreePages, Options, PageSource, RangeError, ReportError,
    ReportingUnavailable, Stats, Stop, Work,
};
use ebb_mm::{FRAME_SIZE, Frame};
use machine::arch::clock::{self, Nanos};
use machine::memory::ballooned::{self, BalloonFrame};
use machine::memory::isolated::Isolated;
use machine::memory::targets::Targets;
use machine::memory::{self, hugetlb, stats};
use machine::sync::{Once, SpinLock, WaitQueue};
use machine::virtio::Platform;
use machine::virtio::found::Found;
use machine::{console, sched};
use virtio_drivers::transport::SomeTransport;

/// The largest number of pages that the thread moves before it checks for other work.
const STEP_PAGES: u32 = 256;
/// Time between two checks of a device that works on a request.
const POLL_INTERVAL: Nanos = Nanos::from_micros(500);
/// Time between attempts to inflate while the guest has no memory to spare.
const SPARE_INTERVAL: Nanos = Nanos::from_secs(1);
/// The longest time that an out-of-memory deflation takes.
const DEFLATE_PATIENCE: Nanos = Nanos::from_millis(200);
/// The longest time that compaction waits for an exchange of pages.
const EXCHANGE_PATIENCE: Nanos = Nanos::from_millis(20);
/// Time between two checks of a device that works on a request for which a task waits.
const REQUEST_INTERVAL: Nanos = Nanos::from_micros(100);
/// The longest time to wait for a report. The host punches holes for up to 32 ranges in it.
const REPORT_PATIENCE: Nanos = Nanos::from_secs(30);

type Device = Balloon<Platform, SomeTransport<'static>, BalloonFrame>;

static DRIVER: Once<SpinLock<Device>> = Once::new();
/// [`Work`] bits that interrupts set for the thread.
static WORK: AtomicU8 = AtomicU8::new(0);
static WORKER: WaitQueue = WaitQueue::new();

/// Why a report did not reach the host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReportFailure {
    /// The machine has no balloon device that works.
    NoDevice,
    /// The device does not support reports.
    Unavailable(ReportingUnavailable),
    /// One of the ranges cannot be reported.
    BadRange(RangeError),
    /// The device refused this report.
    Refused(ReportError),
    /// The device did not answer in time. It was reset, and takes no further reports.
    Timeout,
    /// The device did not answer in time or broke the protocol, and did not confirm its reset
    /// either. It may still drop the ranges of the report.
    NotReset,
}

impl fmt::Display for ReportFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => write!(f, "there is no balloon device"),
            Self::Unavailable(reason) => write!(f, "{reason}"),
            Self::BadRange(error) => write!(f, "{error}"),
            Self::Refused(error) => write!(f, "{error}"),
            Self::Timeout => write!(f, "the balloon device does not answer"),
            Self::NotReset => write!(f, "the balloon device does not answer, nor does it reset"),
        }
    }
}

/// The pages in the balloon, and the guest's allocator.
///
/// Counts the pages that enter or leave the list. So the number of pages inflated less that of
/// pages deflated is the length of the list, whichever call finishes a request.
#[derive(Debug)]
struct Pages;

impl PageSource for Pages {
    type Page = BalloonFrame;

    fn take_spare(&mut self) -> Option<BalloonFrame> {
        ballooned::spare_frame()
    }

    fn give_back(&mut self, page: BalloonFrame) {
        drop(page);
    }

    fn remember(&mut self, page: Ballooned<BalloonFrame>) {
        ballooned::push(page);
        stats::count_balloon_inflated(1);
    }

    fn recall(&mut self) -> Option<Ballooned<BalloonFrame>> {
        let page = ballooned::pop()?;
        stats::count_balloon_deflated(1);
        Some(page)
    }
}

/// The pages of one exchange: unused frames that enter the balloon, and frames that leave it. Does
/// not count them.
struct ExchangedPages<'a> {
    to: &'a mut Targets,
    from: core::slice::Iter<'a, Frame>,
}

impl PageSource for ExchangedPages<'_> {
    type Page = BalloonFrame;

    fn take_spare(&mut self) -> Option<BalloonFrame> {
        self.to.take().and_then(BalloonFrame::of_target)
    }

    fn give_back(&mut self, page: BalloonFrame) {
        drop(page);
    }

    fn remember(&mut self, page: Ballooned<BalloonFrame>) {
        ballooned::push(page);
    }

    fn recall(&mut self) -> Option<Ballooned<BalloonFrame>> {
        // A frame may have left the balloon since it was found.
        self.from.find_map(|&frame| ballooned::remove(frame))
    }
}

/// Initializes `found` as the balloon device. On failure it writes a message to the console, and
/// the machine has no balloon.
pub(super) fn add(found: Found) {
    if !found.connect(interrupt, 0) {
        console!("balloon: no interrupt");
        return;
    }
    let options = Options {
        stats: Some(collect()),
        free_pages: memory::poison::fill()
            .pattern()
            .map_or(FreePages::Arbitrary, FreePages::Filled),
    };
    match Balloon::new(found.transport, options) {
        Ok(mut device) => {
            // QEMU is done before it returns from the notification, under TCG; elsewhere the
            // threads look again soon.
            device.set_completion_interrupts(false);
            if DRIVER.set(SpinLock::new(device)).is_err() {
                console!("balloon: a second device is left alone");
            }
            ballooned::set_exchange(exchange);
        }
        Err(error) => console!("balloon: {error}"),
    }
}

/// Starts the kernel thread `kballoond`, which inflates and deflates the balloon to the size that
/// the host wants. Does nothing if there is no balloon device.
pub(super) fn start() {
    if DRIVER.get().is_some() {
        // The target may be set from the start.
        WORK.store(Work::TARGET.bits(), Ordering::Release);
        sched::spawn_kernel("kballoond", run);
    }
}

fn interrupt(_: usize) {
    let Some(driver) = DRIVER.get() else { return };
    let work = driver.lock().ack_interrupt();
    if !work.is_empty() {
        wake(work);
    }
}

/// Has the thread do `work`. The caller must not hold a spin lock.
fn wake(work: Work) {
    // Release: partner of the Acquire in `run`.
    WORK.fetch_or(work.bits(), Ordering::Release);
    WORKER.wake_all();
}

fn run() {
    let Some(driver) = DRIVER.get() else { return };
    let mut again = None;
    loop {
        let wanted = || WORK.load(Ordering::Relaxed) != 0;
        match again {
            Some(delay) => {
                let deadline = clock::now().saturating_add(delay);
                WORKER.wait_uninterruptible_deadline(wanted, deadline);
            }
            None => WORKER.wait_uninterruptible(wanted),
        }
        // Acquire: partner of the Release in `wake`.
        let work = Work::from_bits_truncate(WORK.swap(0, Ordering::Acquire));
        if work.contains(Work::STATS) {
            // Counted before the lock is taken: counting looks at every zone.
            let values = collect();
            let answered = driver.lock().answer_stats(|| values);
            if let Err(error) = answered {
                console!("balloon: {error}");
            }
        }
        if work.contains(Work::NEEDS_RESET) {
            reset(driver);
            return;
        }
        let step = driver.lock().step(&mut Pages, STEP_PAGES);
        again = match step {
            Ok(progress) => match progress.stop {
                Stop::OnTarget | Stop::NothingToRecall { .. } => None,
                Stop::BudgetSpent => {
                    sched::cond_resched();
                    Some(Nanos::ZERO)
                }
                Stop::Waiting(_) => Some(POLL_INTERVAL),
                Stop::NothingToSpare { .. } => Some(SPARE_INTERVAL),
            },
            Err(error) => {
                console!("balloon: {error}");
                reset(driver);
                return;
            }
        };
    }
}

/// Resets the device. Returns whether it confirmed that. Then all pages of the balloon are back.
/// May let other threads run.
fn reset(driver: &SpinLock<Device>) -> bool {
    let stopped = driver.lock().stop();
    if let Err(error) = stopped {
        console!("balloon: {error}");
        return false;
    }
    // In steps: the balloon may be large, and the CPU serves no interrupt with the lock held.
    loop {
        let left = driver.lock().release(&mut Pages, STEP_PAGES);
        if !left {
            break;
        }
        sched::cond_resched();
    }
    console!("balloon: reset, all of its pages are back");
    true
}

/// Returns the guest's statistics in the form that the device wants.
fn collect() -> Stats {
    let frames = stats::frames();
    let bytes = |frames: u64| Some(frames * FRAME_SIZE as u64);
    let all = stats::meminfo();
    let value = |wanted| {
        let field = all.iter().find(|(name, _)| *name == wanted);
        field.map(|(_, kib)| kib << 10)
    };
    let cached = value("Cached").zip(value("Buffers"));
    let (huge_pages, huge_failures) = hugetlb::requests();
    Stats {
        swap_in_bytes: Some(0),
        swap_out_bytes: Some(0),
        major_faults: Some(stats::major_faults()),
        minor_faults: Some(stats::faults().saturating_sub(stats::major_faults())),
        free_bytes: bytes(frames.free_frames),
        total_bytes: bytes(frames.managed_frames),
        available_bytes: value("MemAvailable"),
        cache_bytes: cached.map(|(files, disks)| files + disks),
        huge_page_allocations: Some(huge_pages),
        huge_page_failures: Some(huge_failures),
    }
}

/// Checks that free memory can be reported.
///
/// # Errors
/// Fails with the reason if there is no device, it does not support reports or has been reset.
pub fn reporting() -> Result<(), ReportFailure> {
    let driver = DRIVER.get().ok_or(ReportFailure::NoDevice)?;
    driver
        .lock()
        .reporting()
        .map_err(ReportFailure::Unavailable)
}

/// Reports `ranges`, at most [`ebb_balloon::MAX_RANGES`], to the host as free, and waits until the
/// device has taken them.
///
/// # Errors
/// Fails if the device did not take the ranges. A device that broke the protocol or did not answer
/// in time is reset first, so that the frames may be used again. Fails with `NotReset` if the
/// device does not confirm that. The ranges are still lent then, so that the frames stay unused for
/// ever.
pub fn report(ranges: &mut Isolated<'_>) -> Result<(), ReportFailure> {
    let driver = DRIVER.get().ok_or(ReportFailure::NoDevice)?;
    let mut batch = ranges.lend().map_err(ReportFailure::BadRange)?;
    let submitted = driver.lock().submit_report(&mut batch);
    if let Err(error) = submitted {
        ranges.take_back(&batch.take_ranges());
        // A device that broke the protocol does not take the next report either.
        if matches!(error, ReportError::Device(_)) && reporting().is_ok() {
            reset(driver);
        }
        return Err(ReportFailure::Refused(error));
    }
    let deadline = clock::now().saturating_add(REPORT_PATIENCE);
    loop {
        let done = {
            let mut device = driver.lock();
            let done = device.report_done();
            if let Ok(Some(_)) = done {
                take_back(&mut device, ranges);
            }
            done
        };
        let failure = match done {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if clock::now() < deadline => None,
            Ok(None) => Some(ReportFailure::Timeout),
            Err(error) => Some(ReportFailure::Refused(error)),
        };
        if let Some(failure) = failure {
            // The device still has the ranges: it must be stopped before they are used again.
            reset(driver);
            let back = take_back(&mut driver.lock(), ranges);
            return Err(if back {
                failure
            } else {
                ReportFailure::NotReset
            });
        }
        sched::sleep_until(clock::now().saturating_add(POLL_INTERVAL));
    }
}

/// Takes the ranges of the last report back. Returns `false` if `device` still has them.
fn take_back(device: &mut Device, ranges: &mut Isolated<'_>) -> bool {
    let returned = device.take_ranges();
    let back = returned.is_some();
    if let Some(returned) = returned {
        ranges.take_back(&returned);
    }
    back
}

/// Takes up to `frames` pages of 4 KiB back from the balloon because the guest has no free memory.
/// Returns the number of pages freed. Returns 0 if there is no balloon device or it fails.
///
/// Sleeps without a lock while the device works on a deflation, for `DEFLATE_PATIENCE` at most.
pub fn deflate_on_oom(frames: u32) -> u32 {
    let Some(driver) = DRIVER.get() else { return 0 };
    match deflate(driver, frames) {
        Ok(deflated) => deflated,
        Err(BalloonError::DeviceReset) => {
            // The thread releases the pages in steps. This one comes first.
            let mut device = driver.lock();
            let before = device.actual_pages();
            device.release(&mut Pages, frames);
            before - device.actual_pages()
        }
        Err(BalloonError::DeflateNotAllowed { .. }) => 0,
        Err(_) => {
            // The thread meets the error, too, and resets the device. All pages come back then.
            wake(Work::DEFLATE);
            0
        }
    }
}

/// Sends a request for up to `frames` pages once the device has finished an earlier deflation.
/// Returns the number of pages freed, those of the earlier one included if they are free only now.
/// Returns 0 if the device takes longer than `DEFLATE_PATIENCE`; the next step or deflation
/// finishes the request then. Fails as [`Balloon::deflate`] does.
fn deflate(driver: &SpinLock<Device>, frames: u32) -> Result<u32, BalloonError> {
    let stop = || ControlFlow::Break(());
    let deadline = clock::now().saturating_add(DEFLATE_PATIENCE);
    let mut wanted = frames;
    loop {
        let (deflated, waits) = {
            let mut device = driver.lock();
            let mut deflated = device.deflate(&mut Pages, 0, stop)?;
            if !device.is_deflating() && wanted != 0 {
                match device.deflate(&mut Pages, wanted, stop) {
                    Ok(more) => deflated += more,
                    // What an earlier request has freed counts all the same.
                    Err(_) if deflated != 0 => {}
                    Err(error) => return Err(error),
                }
                wanted = 0;
            }
            (deflated, device.is_deflating())
        };
        if deflated != 0 || !waits || clock::now() >= deadline {
            return Ok(deflated);
        }
        sched::sleep_until(clock::now().saturating_add(REQUEST_INTERVAL));
    }
}

/// Exchanges the frames `from` of the balloon for `to`. Returns the number of frames that
/// have left the balloon. See [`ballooned::exchange`].
///
/// Sleeps without a lock while the device works on a request, for `EXCHANGE_PATIENCE` at most. If
/// the device takes longer, the driver keeps the pages of the request until the answer. Then the
/// thread finishes the request and brings the balloon back to its size.
fn exchange(from: &[Frame], to: &mut Targets) -> usize {
    let Some(driver) = DRIVER.get() else { return 0 };
    let count = to.left();
    let mut pages = ExchangedPages {
        to,
        from: from.iter(),
    };
    let started = {
        let mut device = driver.lock();
        let listed = from.iter().filter(|&&frame| ballooned::is_listed(frame));
        let limit = u32::try_from(listed.count().min(count)).unwrap_or(u32::MAX);
        device.start_exchange(&mut pages, limit)
    };
    let Ok(Some(mut exchange)) = started else {
        if started.is_err() {
            // The thread meets the error, too, and resets the device.
            wake(Work::DEFLATE);
        }
        return 0;
    };
    let deadline = clock::now().saturating_add(EXCHANGE_PATIENCE);
    let polled = loop {
        let polled = driver.lock().poll_exchange(&mut exchange, &mut pages);
        if polled != Ok(false) || clock::now() >= deadline {
            break polled;
        }
        sched::sleep_until(clock::now().saturating_add(REQUEST_INTERVAL));
    };
    let (entered, left) = (exchange.entered(), exchange.left());
    stats::count_balloon_inflated(entered - left);
    stats::count_balloon_migrated(left);
    if polled != Ok(true) || left as usize != count - pages.to.left() {
        // The thread finishes the exchange, or handles the error.
        wake(Work::DEFLATE);
    }
    left as usize
}
