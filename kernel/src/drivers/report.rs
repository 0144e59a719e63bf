//! Free page reporting: the kernel thread that drives the reporter, and its knobs.

use super::balloon;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::time::Duration;
use ebb_mm::{Events, Frame, FrameRange, Order, PAGEBLOCK_ORDER, ReportSink, Reporter};
use ebb_wire::boot::{GIVE_BACK, OFF, REPORTING};
use logic::errno::Errno;
use machine::arch::BootInfo;
use machine::arch::clock::{self, Nanos};
use machine::memory::memmap::descriptor_pages;
use machine::memory::{self, hugetlb, stats};
use machine::sched;
use machine::sync::WaitQueue;

/// The most ranges that the device takes in one request.
const DEVICE_RANGES: usize = ebb_balloon::MAX_RANGES;

/// What the allocator tells us.
#[derive(Debug)]
pub struct KernelEvents;
/// To be handed to the allocator.
pub static EVENTS: KernelEvents = KernelEvents;

/// The reporter is wanted, or its knobs have changed.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Where the reporter sleeps.
static QUEUE: WaitQueue = WaitQueue::new();
/// Whether free memory is to be given back at all.
static ENABLED: AtomicBool = AtomicBool::new(true);
/// `page_reporting_order`, whether or not reporting is enabled.
static ORDER: AtomicU8 = AtomicU8::new(PAGEBLOCK_ORDER.get());

impl Events for KernelEvents {
    fn report_requested(&self) {
        // Release: pairs with the Acquire in `run`; the reporter looks at the allocator afterwards.
        WANTED.store(true, Ordering::Release);
        // Somewhere deep in a free: only wake where no lock can be in the way. Else `kick` does.
        if memory::pressure::may_block() {
            QUEUE.wake_one();
        }
    }
}

/// Wakes the reporter if it is wanted and was not woken yet; no spin lock is held.
#[inline]
pub(crate) fn kick() {
    // Relaxed: a hint; who set it has kicked or will.
    if WANTED.load(Ordering::Relaxed) && sched::started() {
        QUEUE.wake_one();
    }
}

/// Reads the boot line; once there is memory.
pub fn configure(boot: &BootInfo) {
    match boot.option(GIVE_BACK) {
        Some(OFF) => ENABLED.store(false, Ordering::Relaxed),
        None | Some(REPORTING) => {}
        Some(other) => machine::console!("ebb.give_back={other}: not known, reporting it is"),
    }
    if let Some(text) = boot.option("page_reporting.page_reporting_order") {
        let valid = text.parse().ok().and_then(Order::new);
        match valid {
            Some(order) => ORDER.store(order.get(), Ordering::Relaxed),
            None => machine::console!("page_reporting.page_reporting_order={text}: not 0 to 10"),
        }
    }
    apply();
}

fn apply() {
    let order = Order::new(ORDER.load(Ordering::Relaxed));
    let enabled = ENABLED.load(Ordering::Relaxed);
    memory::allocator().set_reporting_order(order.filter(|_| enabled));
}

/// `/sys/module/page_reporting/parameters/page_reporting_order`.
pub fn order() -> u64 {
    u64::from(ORDER.load(Ordering::Relaxed))
}

/// Sets it.
///
/// # Errors
/// `EINVAL` above 10.
pub fn set_order(order: u64) -> Result<(), Errno> {
    let order = u8::try_from(order)
        .ok()
        .and_then(Order::new)
        .ok_or(Errno::EINVAL)?;
    ORDER.store(order.get(), Ordering::Relaxed);
    apply();
    WANTED.store(true, Ordering::Release);
    QUEUE.wake_one();
    Ok(())
}

/// Starts the reporter; called when the devices are there.
pub fn start() {
    if !ENABLED.load(Ordering::Relaxed) {
        return;
    }
    if let Err(reason) = balloon::reporting() {
        machine::console!("free page reporting: off, {reason}");
        ENABLED.store(false, Ordering::Relaxed);
        apply();
        return;
    }
    sched::spawn_kernel("kreportd", run);
}

fn run() {
    let mut reporter = Reporter::new();
    let mut sink = Host { reports: 0 };
    let mut pool = PoolReports { due: None };
    loop {
        // Acquire: pairs with the Release of those who want us.
        WANTED.swap(false, Ordering::Acquire);
        let now = Duration::from_nanos(clock::now().0);
        let poll = reporter.poll(now, memory::allocator(), &mut sink);
        stats::count_reports(core::mem::take(&mut sink.reports), poll.ranges, poll.frames);
        if let Some(error) = poll.error
            && stats::count_report_error()
        {
            machine::console!("free page reporting: a report failed: {error}");
        }
        let pool = pool.poll(&mut sink);
        let next = poll
            .next
            .map(|next| Nanos(u64::try_from(next.as_nanos()).unwrap_or(u64::MAX)));
        match next.into_iter().chain(pool).min() {
            Some(next) => sched::sleep_until(next),
            None => QUEUE.wait_uninterruptible(|| WANTED.load(Ordering::Acquire)),
        }
    }
}

/// Reports of free pages of the pool of huge pages, a moment after they were freed, as for other memory.
struct PoolReports {
    due: Option<Nanos>,
}

impl PoolReports {
    /// Reports what is due; when to come again.
    fn poll(&mut self, sink: &mut Host) -> Option<Nanos> {
        let now = clock::now();
        if memory::allocator().reporting_order().is_none() || !hugetlb::has_reports() {
            self.due = None;
            return None;
        }
        let delay = u64::try_from(ebb_mm::REPORTING_DELAY.as_nanos()).unwrap_or(u64::MAX);
        let due = *self.due.get_or_insert(Nanos(now.0.saturating_add(delay)));
        if now < due {
            return Some(due);
        }
        self.due = None;
        let told = hugetlb::report(|ranges| sink.send(ranges));
        match told {
            Ok(frames) => {
                let blocks = frames / ebb_mm::PAGEBLOCK_FRAMES;
                stats::count_reports(core::mem::take(&mut sink.reports), blocks, frames);
            }
            Err(error) => {
                if stats::count_report_error() {
                    machine::console!("free page reporting: a report failed: {error}");
                }
            }
        }
        None
    }
}

/// The balloon device.
struct Host {
    reports: u64,
}

impl Host {
    fn send(&mut self, ranges: &[FrameRange]) -> Result<(), balloon::ReportFailure> {
        if !ranges.is_empty() {
            balloon::report(ranges)?;
            self.reports += 1;
        }
        Ok(())
    }
}

impl ReportSink for Host {
    type Error = balloon::ReportFailure;

    /// Reports the ranges, and the descriptors of their frames after them: the descriptors of free
    /// frames are zero, and so is what the host gives when they are touched again.
    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), Self::Error> {
        let mut descriptors = [FrameRange::new(Frame::new(0), 0); DEVICE_RANGES];
        for part in ranges.chunks(DEVICE_RANGES) {
            self.send(part)?;
            let mut count = 0;
            for pages in part.iter().filter_map(|&range| descriptor_pages(range)) {
                descriptors[count] = pages;
                count += 1;
            }
            // The frames are with the host already: that their descriptors are not costs nothing.
            let _ = self.send(&descriptors[..count]);
        }
        Ok(())
    }
}
