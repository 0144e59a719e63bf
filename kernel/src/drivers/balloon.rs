//! The driver of the balloon device, through which the host takes guest memory.
//!
//! A thread here follows the balloon size that the host wants and answers its requests for
//! statistics. Another thread (`give_back`) reports free memory. One lock protects the driver, and
//! no thread sleeps with it held.

#![expect(unsafe_code, reason = "the device reads and writes memory")]

use super::found::Found;
use super::hal::Machine;
use core::fmt;
use core::ops::ControlFlow;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use ebb_balloon::{
    Balloon, BalloonError, FreePages, Options, PFNS_PER_REQUEST, PageSource, Pfn, RangeError,
    ReportBatch, ReportError, ReportingUnavailable, Stats, Stop, Work,
};
use ebb_mm::{FRAME_SIZE, Frame, FrameRange};
use machine::arch::clock::{self, Nanos};
use machine::arch::{ipi, phys_to_virt};
use machine::memory::{self, FrameRef, hugetlb, stats};
use machine::sync::{Once, SpinLock, WaitQueue};
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
/// The longest time to wait for a report. The host punches holes for up to 32 ranges in it.
const REPORT_PATIENCE: Nanos = Nanos::from_secs(30);

type Device = Balloon<Machine, SomeTransport<'static>>;

struct Driver {
    device: Device,
    pages: Pages,
}

static DRIVER: Once<SpinLock<Driver>> = Once::new();
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

/// The numbers of the pages in the balloon. They are kept in a chain of frames, so that no
/// allocation is needed while memory is short.
#[derive(Debug)]
struct Pages {
    /// The frame that is filled now; its last word is the number of the next frame in the chain.
    /// `None` if the chain has no frame.
    chunk: Option<FrameRef>,
    used: usize,
    /// The next frame of the chain, allocated before `chunk` is full. `None` while it is not needed
    /// yet.
    reserve: Option<FrameRef>,
}

/// The number of page numbers in a chunk. The word behind them is the link.
const CHUNK_ENTRIES: usize = FRAME_SIZE / 4 - 1;

impl Pages {
    const fn new() -> Self {
        Self {
            chunk: None,
            used: 0,
            reserve: None,
        }
    }

    fn put(chunk: &FrameRef, index: usize, value: u32) {
        chunk.write(index * 4, &value.to_le_bytes());
    }

    fn get(chunk: &FrameRef, index: usize) -> u32 {
        let mut bytes = [0; 4];
        chunk.read(index * 4, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}

fn frame_of(page: Pfn) -> Frame {
    Frame::new(u64::from(page.number()))
}

// SAFETY: a spare frame has one reference, which `take_spare` gives up for the page. So the page is
// the only user of the frame until `give_back` takes the reference again.
unsafe impl PageSource for Pages {
    fn take_spare(&mut self) -> Option<Pfn> {
        // Pages are taken by the batch before any of them is remembered. A batch is smaller than a
        // chunk, so one frame ahead is enough wherever in the batch the chunk fills up.
        const { assert!(PFNS_PER_REQUEST < CHUNK_ENTRIES) };
        if self.reserve.is_none() {
            self.reserve = Some(memory::spare_frame()?);
        }
        let frame = memory::spare_frame()?;
        // A frame whose number does not fit in 32 bits is freed again.
        let page = Pfn::containing(frame.address())?;
        let _ = frame.into_counted();
        Some(page)
    }

    fn give_back(&mut self, page: Pfn) {
        // SAFETY: the reference that `take_spare` gave up.
        drop(unsafe { FrameRef::from_counted(frame_of(page)) });
    }

    fn remember(&mut self, page: Pfn) {
        if self.chunk.is_none() || self.used == CHUNK_ENTRIES {
            // `take_spare` has allocated one. If there is none nevertheless, the page is leaked,
            // which breaks no memory safety.
            let Some(next) = self.reserve.take() else {
                console!("balloon: no room to remember page {:#x}", page.number());
                return;
            };
            let link = self
                .chunk
                .take()
                .map_or(0, |full| full.into_counted().number());
            Self::put(&next, CHUNK_ENTRIES, u32::try_from(link).unwrap_or(0));
            self.chunk = Some(next);
            self.used = 0;
        }
        if let Some(chunk) = &self.chunk {
            Self::put(chunk, self.used, page.number());
            self.used += 1;
        }
    }

    fn recall(&mut self) -> Option<Pfn> {
        if self.used == 0 {
            let empty = self.chunk.take()?;
            let link = Self::get(&empty, CHUNK_ENTRIES);
            if link != 0 {
                // SAFETY: the reference that `remember` gave up for the chain.
                self.chunk = Some(unsafe { FrameRef::from_counted(Frame::new(u64::from(link))) });
                self.used = CHUNK_ENTRIES;
            }
            drop(empty);
        }
        let chunk = self.chunk.as_ref()?;
        self.used = self.used.checked_sub(1)?;
        Some(Pfn::new(Self::get(chunk, self.used)))
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
            if DRIVER
                .set(SpinLock::new(Driver {
                    device,
                    pages: Pages::new(),
                }))
                .is_err()
            {
                console!("balloon: a second device is left alone");
            }
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
    let work = driver.lock().device.ack_interrupt();
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
            let answered = driver.lock().device.answer_stats(|| values);
            if let Err(error) = answered {
                console!("balloon: {error}");
            }
        }
        if work.contains(Work::NEEDS_RESET) {
            reset(driver);
            return;
        }
        let step = {
            let Driver { device, pages } = &mut *driver.lock();
            device.step(pages, STEP_PAGES)
        };
        if let Ok(progress) = &step {
            stats::count_balloon(progress.inflated, progress.deflated);
        }
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
fn reset(driver: &SpinLock<Driver>) -> bool {
    let stopped = driver.lock().device.stop();
    if let Err(error) = stopped {
        console!("balloon: {error}");
        return false;
    }
    // In steps: the balloon may be large, and the CPU serves no interrupt with the lock held.
    loop {
        let left = {
            let Driver { device, pages } = &mut *driver.lock();
            device.release(pages, STEP_PAGES)
        };
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
        .device
        .reporting()
        .map_err(ReportFailure::Unavailable)
}

/// Reports `ranges`, at most [`ebb_balloon::MAX_RANGES`], to the host as free, and waits until the
/// device has taken them. The caller keeps the frames unused until this returns.
///
/// # Errors
/// Fails if the device did not take the ranges. A device that broke the protocol or did not answer
/// in time is reset first, so that the frames may be used again. Fails with `NotReset` if the
/// device does not confirm that. The frames must stay unused for ever then.
pub fn report(ranges: &[FrameRange]) -> Result<(), ReportFailure> {
    let driver = DRIVER.get().ok_or(ReportFailure::NoDevice)?;
    let mut batch = ReportBatch::new();
    for range in ranges {
        let start =
            NonNull::new(phys_to_virt(range.start.address())).unwrap_or(NonNull::dangling());
        // A range is at most a block of the largest order.
        #[expect(clippy::cast_possible_truncation, reason = "usize is 64 bits wide")]
        let len = range.bytes() as usize;
        // SAFETY: the caller keeps the frames out of use until this returns.
        unsafe { batch.push(start, len) }.map_err(ReportFailure::BadRange)?;
    }
    let submitted = driver.lock().device.submit_report(&mut batch);
    if let Err(error) = submitted {
        // A device that broke the protocol does not take the next report either.
        if matches!(error, ReportError::Device(_)) && reporting().is_ok() {
            reset(driver);
        }
        return Err(ReportFailure::Refused(error));
    }
    let deadline = clock::now().saturating_add(REPORT_PATIENCE);
    loop {
        let failure = match driver.lock().device.report_done() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if clock::now() < deadline => None,
            Ok(None) => Some(ReportFailure::Timeout),
            Err(error) => Some(ReportFailure::Refused(error)),
        };
        if let Some(failure) = failure {
            // The device still has the ranges: it must be stopped before they are used again.
            return Err(if reset(driver) {
                failure
            } else {
                ReportFailure::NotReset
            });
        }
        sched::sleep_until(clock::now().saturating_add(POLL_INTERVAL));
    }
}

/// Takes up to `frames` pages of 4 KiB back from the balloon because the guest has no free memory.
/// Returns the number of pages freed. Returns 0 if there is no balloon device or it fails.
///
/// Does not sleep. While the device works on a request, spins with the driver's lock held, for
/// `DEFLATE_PATIENCE` at most.
pub fn deflate_on_oom(frames: u32) -> u32 {
    let Some(driver) = DRIVER.get() else { return 0 };
    let deadline = clock::now().saturating_add(DEFLATE_PATIENCE);
    let deflated = {
        let Driver { device, pages } = &mut *driver.lock();
        let deflated = device.deflate(pages, frames, || {
            ipi::poll_mailbox();
            core::hint::spin_loop();
            if clock::now() < deadline {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        match deflated {
            Err(BalloonError::DeviceReset) => {
                // The thread releases the pages in steps. This one comes first.
                let before = device.actual_pages();
                device.release(pages, frames);
                Ok(before - device.actual_pages())
            }
            deflated => deflated,
        }
    };
    let deflated = match deflated {
        Ok(deflated) => deflated,
        Err(BalloonError::DeflateNotAllowed { .. }) => 0,
        Err(_) => {
            // The thread meets the error, too, and resets the device. All pages come back then.
            wake(Work::DEFLATE);
            0
        }
    };
    stats::count_balloon(0, deflated);
    deflated
}
