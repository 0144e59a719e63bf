//! Gives free memory back to the host: the mode, the knobs, and the kernel thread that runs the
//! reporter and the hinter.
//!
//! | mode | what the thread (`kreportd`) does |
//! |---|---|
//! | `reporting` | polls [`Reporter`], which isolates free blocks and sends them by the balloon |
//! | `hinting` | polls [`Hinter`], which sends the blocks of the CPUs' lists in the same way |
//! | `shared` | wakes the host, which takes free blocks itself, by a write to the control port |
//!
//! The allocator wakes the thread by [`Events::report_requested`].

use super::{balloon, hint, port};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use core::time::Duration;
use ebb_mm::{
    Events, HINT_BOUND, HINT_PAUSE, HintList, Hinter, Order, PAGEBLOCK_ORDER, Poll, Reporter,
};
use ebb_wire::GiveBack;
use ebb_wire::boot::GIVE_BACK;
use ebb_wire::port::WAKE_BYTES;
use logic::errno::Errno;
use logic::knob::number::{self, Base};
use machine::arch::BootInfo;
use machine::arch::clock::{self, Nanos};
use machine::arch::header::HEADER;
use machine::memory::isolated::Isolated;
use machine::memory::reporting::{self, ReportDevice};
use machine::memory::{self, hugetlb, stats};
use machine::sched;
use machine::sync::{SpinLock, WaitQueue};

/// The receiver of the allocator's events.
#[derive(Debug)]
pub struct KernelEvents;
/// The receiver that the kernel passes to the allocator.
pub static EVENTS: KernelEvents = KernelEvents;

/// Whether the thread has work: the allocator requested a report, or the mode or a knob has
/// changed.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The thread sleeps here.
static QUEUE: WaitQueue = WaitQueue::new();
/// Whether the thread exists.
static STARTED: AtomicBool = AtomicBool::new(false);
/// The number of the mode that was set last.
static MODE: AtomicU32 = AtomicU32::new(GiveBack::Reporting.number());
/// `page_reporting_order`. It is kept in every mode.
static ORDER: AtomicU8 = AtomicU8::new(PAGEBLOCK_ORDER.get());
/// The number of sweeps requested since boot.
static SWEEPS_ASKED: AtomicU32 = AtomicU32::new(0);
static SWEEPS_DONE: AtomicU32 = AtomicU32::new(0);
/// The value of `SWEEPS_DONE` after the last sweep in which a report failed.
static SWEEPS_FAILED: AtomicU32 = AtomicU32::new(0);
/// Tasks that wait for the end of a sweep.
static SWEPT: WaitQueue = WaitQueue::new();
/// The largest number of passes in a sweep. Each pass reports a share of the free memory, and
/// together they reach all of it.
const SWEEP_PASSES: u32 = 64;
/// The time that CPUs have to empty their caches after a drain request. A CPU does so when it
/// idles, unmaps pages or serves another CPU's request to check its run queue. The cache of a CPU
/// that does none of these in that time keeps its frames.
const DRAIN_PAUSE: Nanos = Nanos::from_millis(20);
/// Held while the mode and the order are passed to the allocator, so that it gets a consistent
/// pair.
static APPLYING: SpinLock<()> = SpinLock::new(());

impl Events for KernelEvents {
    fn report_requested(&self) {
        // Release: pairs with the Acquire in `run`; the thread looks at the allocator afterwards.
        WANTED.store(true, Ordering::Release);
        // The caller may hold spin locks. Then `kick` wakes the thread later.
        if memory::pressure::may_block() {
            QUEUE.wake_one();
        }
    }

    fn hints(&self) -> Option<&HintList> {
        hint::own()
    }
}

/// Wakes the thread of the give-back mode if the allocator has requested it and could not wake it,
/// because its caller held a spin lock. The caller must not hold a spin lock.
#[inline]
pub(crate) fn kick() {
    // Relaxed: a hint. The CPU that sets the flag wakes the thread, or calls this afterwards.
    if WANTED.load(Ordering::Relaxed) && sched::started() {
        QUEUE.wake_one();
    }
}

/// Reads the mode and the orders from the kernel command line. Call this once memory can be
/// allocated.
pub fn configure(boot: &BootInfo) {
    if let Some(name) = boot.option(GIVE_BACK) {
        match GiveBack::from_name(name) {
            Some(mode) => MODE.store(mode.number(), Ordering::Relaxed),
            None => machine::console!("ebb.give_back={name}: not known, reporting it is"),
        }
    }
    if let Some(text) = boot.option("page_reporting.page_reporting_order") {
        let number = number::unsigned(text.as_bytes(), Base::OfPrefix, Order::MAX.get().into());
        let order = u8::try_from(number.unwrap_or(u64::MAX)).ok();
        match order.and_then(Order::new) {
            Some(order) => ORDER.store(order.get(), Ordering::Relaxed),
            None => machine::console!("page_reporting.page_reporting_order={text}: not 0 to 10"),
        }
    }
    hint::configure(boot);
    if matches!(mode(), GiveBack::Reporting | GiveBack::Shared) {
        // Memory that is freed before the thread starts waits for it.
        apply();
    }
}

/// Returns the give-back mode.
pub fn mode() -> GiveBack {
    GiveBack::from_number(MODE.load(Ordering::Relaxed)).unwrap_or(GiveBack::Off)
}

/// Sets the give-back mode and applies it.
///
/// # Errors
/// Fails with `ENODEV` if the machine lacks what the mode needs: a control port for `shared`, a
/// balloon device that takes reports for `reporting` and `hinting`. Fails with `ENOMEM` if there is
/// no memory for the lists of hints. The mode stays as it was then.
pub(super) fn set_mode(mode: GiveBack) -> Result<(), Errno> {
    match mode {
        GiveBack::Off => {}
        GiveBack::Shared => {
            port::control().ok_or(Errno::ENODEV)?;
        }
        GiveBack::Reporting | GiveBack::Hinting => {
            balloon::reporting().map_err(|_| Errno::ENODEV)?;
        }
    }
    if mode == GiveBack::Hinting {
        hint::prepare()?;
    }
    MODE.store(mode.number(), Ordering::Relaxed);
    apply();
    if mode != GiveBack::Off {
        start_thread();
    }
    wake();
    Ok(())
}

/// Reports all blocks that are free now, in any mode, and waits until the host has taken them.
///
/// # Errors
/// Fails with `ENODEV` if the device takes no reports. Fails with `EIO` if a report failed in this
/// sweep, or in another one that ended before the caller ran again.
pub(super) fn sweep() -> Result<(), Errno> {
    balloon::reporting().map_err(|_| Errno::ENODEV)?;
    start_thread();
    memory::allocator().request_drain();
    sched::sleep_until(clock::now().saturating_add(DRAIN_PAUSE));
    let number = SWEEPS_ASKED.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    wake();
    // Acquire: pairs with the Release in `sweep_for`. The device's own patience bounds the wait.
    let reached = |sweeps: &AtomicU32| {
        let sweeps = sweeps.load(Ordering::Acquire);
        sweeps.wrapping_sub(number).cast_signed() >= 0
    };
    SWEPT.wait_uninterruptible(|| reached(&SWEEPS_DONE));
    if reached(&SWEEPS_FAILED) {
        return Err(Errno::EIO);
    }
    Ok(())
}

/// Carries out the sweeps requested since the last call, with one series of passes for all of them.
fn sweep_for(reporter: &mut Reporter, sink: &mut Host) {
    let asked = SWEEPS_ASKED.load(Ordering::Acquire);
    if asked == SWEEPS_DONE.load(Ordering::Relaxed) {
        return;
    }
    let mut failed = false;
    for _ in 0..SWEEP_PASSES {
        let (poll, done) = reporting::pass_now(reporter, sink);
        sink.count();
        failed = poll.error.is_some();
        complain(poll.error);
        if done || failed {
            break;
        }
        sched::cond_resched();
    }
    failed |= report_pools(sink).is_err();
    if failed {
        // Relaxed: the store of `SWEEPS_DONE` publishes it.
        SWEEPS_FAILED.store(asked, Ordering::Relaxed);
    }
    SWEEPS_DONE.store(asked, Ordering::Release);
    SWEPT.wake_all();
}

/// Counts `error`. Writes a message to the console if it is the first one. Turns reporting and
/// hinting off if the device takes no more reports. The mode stays, since the host may still take
/// memory by itself.
fn complain(error: Option<balloon::ReportFailure>) {
    let Some(error) = error else { return };
    if stats::count_report_error() {
        machine::console!("free page reporting: a report failed: {error}");
    }
    let Err(reason) = balloon::reporting() else {
        return;
    };
    let applying = APPLYING.lock();
    let mode = mode();
    if matches!(mode, GiveBack::Reporting | GiveBack::Hinting)
        && memory::allocator().reporting_order().is_some()
        && memory::allocator().set_reporting_order(None).is_ok()
    {
        machine::console!("give-back {}: off, {reason}", mode.name());
    }
    drop(applying);
}

/// Writes to the console why `mode` was refused with `error`.
pub(super) fn explain(mode: GiveBack, error: Errno) {
    match balloon::reporting() {
        Err(reason) if mode != GiveBack::Shared => {
            machine::console!("give-back {}: {reason}", mode.name());
        }
        _ => machine::console!("give-back {}: {error:?}", mode.name()),
    }
}

fn start_thread() {
    if !STARTED.swap(true, Ordering::AcqRel) {
        sched::spawn_kernel("kreportd", run);
    }
}

/// Passes the mode and the order to the allocator.
fn apply() {
    let applying = APPLYING.lock();
    let mode = mode();
    let reporting = Order::new(ORDER.load(Ordering::Relaxed));
    let applied = match (mode, hint::order()) {
        (GiveBack::Shared, _) => {
            memory::allocator().set_shared();
            Ok(())
        }
        (GiveBack::Hinting, Some(order)) => memory::allocator().set_hinting_order(order),
        (GiveBack::Reporting, _) => memory::allocator().set_reporting_order(reporting),
        _ => memory::allocator().set_reporting_order(None),
    };
    if let Err(error) = applied {
        machine::console!("give-back {}: {error}", mode.name());
    }
    HEADER.give_back.store(mode.number(), Ordering::Relaxed);
    drop(applying);
}

/// Makes the thread run once more.
fn wake() {
    // Release: pairs with the Acquire in `run`.
    WANTED.store(true, Ordering::Release);
    QUEUE.wake_one();
}

/// Returns the order of the smallest blocks that are reported, the knob
/// `/sys/module/page_reporting/parameters/page_reporting_order`.
pub fn order() -> u64 {
    u64::from(ORDER.load(Ordering::Relaxed))
}

/// Sets the order of the smallest blocks that are reported. In the mode `reporting` it takes effect
/// at once. In other modes it is kept until that mode is set.
///
/// # Errors
/// Fails with `EINVAL` if `order` is above 10.
pub fn set_order(order: u64) -> Result<(), Errno> {
    let order = u8::try_from(order)
        .ok()
        .and_then(Order::new)
        .ok_or(Errno::EINVAL)?;
    ORDER.store(order.get(), Ordering::Relaxed);
    if mode() == GiveBack::Reporting {
        apply();
        wake();
    }
    Ok(())
}

/// Returns the order of the smallest blocks that are hinted, the knob
/// `/sys/module/page_hinting/parameters/page_hinting_order`.
pub fn hinting_order() -> u64 {
    hint::order().map_or(0, |order| u64::from(order.get()))
}

/// Sets the order of the smallest blocks that are hinted. In the mode `hinting` it takes effect at
/// once. In other modes it is kept until that mode is set.
///
/// # Errors
/// Fails with `EINVAL` if `order` is above 10.
pub fn set_hinting_order(order: u64) -> Result<(), Errno> {
    hint::keep_order(order)?;
    if mode() == GiveBack::Hinting {
        apply();
        wake();
    }
    Ok(())
}

/// Applies the mode of the command line, and starts the thread for it. Call this once the devices
/// are found. If the mode is not possible, writes a message to the console and turns give-back off.
pub fn start() {
    let mode = mode();
    if let Err(error) = set_mode(mode) {
        match balloon::reporting() {
            Err(reason) => machine::console!("free page reporting: off, {reason}"),
            Ok(()) => machine::console!("give-back {}: off, {error:?}", mode.name()),
        }
        let _ = set_mode(GiveBack::Off);
    }
}

/// Does the work of the current mode. Returns the time of the next call, or `None` if the thread
/// may sleep until it is woken.
fn poll(reporter: &mut Reporter, hinter: &mut Hinter, sink: &mut Host) -> Option<Duration> {
    let now = Duration::from_nanos(clock::now().0);
    let hinting = memory::allocator().is_hinting();
    let poll: Poll<_> = if hinting {
        reporting::poll_hinter(hinter, now, hint::lists(), hint::threshold(), sink)
    } else {
        reporting::poll(reporter, now, sink)
    };
    let sent = sink.count();
    if hinting {
        hint::count(sent, hinter.take_counts());
    }
    complain(poll.error);
    poll.next
}

fn run() {
    let mut reporter = Reporter::new();
    let mut hinter = Hinter::new();
    let mut sweeper = Reporter::new();
    let mut sink = Host { sent: [0; 3] };
    let mut pool = PoolReports { due: None };
    loop {
        // Acquire: pairs with the Release of the stores to `WANTED`.
        let wanted = WANTED.swap(false, Ordering::Acquire);
        if wanted && memory::allocator().is_shared() {
            ring();
        }
        sweep_for(&mut sweeper, &mut sink);
        let next = poll(&mut reporter, &mut hinter, &mut sink);
        let pool = pool.poll(&mut sink);
        if memory::allocator().is_hinting() {
            // The kernel is not preempted: tasks that free all the time must not keep this thread
            // on a CPU.
            sched::sleep_until(clock::now().saturating_add(nanos(HINT_PAUSE)));
        }
        match next.map(nanos).into_iter().chain(pool).min() {
            Some(next) => {
                QUEUE.wait_uninterruptible_deadline(|| WANTED.load(Ordering::Acquire), next);
            }
            None => QUEUE.wait_uninterruptible(|| WANTED.load(Ordering::Acquire)),
        }
    }
}

/// Sends a wake-up to the host, which sleeps or does not know the mode yet.
fn ring() {
    // Frames in per-CPU caches keep blocks from being free. The host finds the blocks that become
    // free now, or is called for them.
    memory::allocator().request_drain();
    if let Some(port) = port::control() {
        // If there is no room, the host has thousands of earlier calls to read, and looks for them.
        let _ = port.write(WAKE_BYTES, true, false);
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Reports free pages of the pool of huge pages, with the same delay after the free as other
/// memory.
struct PoolReports {
    due: Option<Nanos>,
}

impl PoolReports {
    /// Reports the pages that are due. If that fails, they are due again after the delay of free
    /// page reporting. Returns the time of the next call, or `None` without such pages.
    fn poll(&mut self, sink: &mut Host) -> Option<Nanos> {
        let now = clock::now();
        let shared = memory::allocator().is_shared() && balloon::reporting().is_ok();
        let gives_back = shared || memory::allocator().reporting_order().is_some();
        if !gives_back || !hugetlb::has_reports() {
            self.due = None;
            return None;
        }
        let delay = if shared || memory::allocator().is_hinting() {
            HINT_BOUND
        } else {
            ebb_mm::REPORTING_DELAY
        };
        let due = *self.due.get_or_insert(now.saturating_add(nanos(delay)));
        if now < due {
            return Some(due);
        }
        // After a failure again later, like other memory.
        let failed = report_pools(sink).is_err();
        self.due = failed.then(|| clock::now().saturating_add(nanos(ebb_mm::REPORTING_DELAY)));
        self.due
    }
}

/// Reports free pages of the pools. Fails if a report failed.
fn report_pools(sink: &mut Host) -> Result<(), balloon::ReportFailure> {
    let reported = hugetlb::report(|ranges| sink.send(ranges));
    sink.count();
    complain(reported.err());
    reported.map(drop)
}

/// The host as a receiver of reports, by the balloon device.
struct Host {
    /// Sums of the reports that the device took and that are not counted yet: requests, ranges and
    /// frames.
    sent: [u64; 3],
}

impl Host {
    /// Adds the amounts sent since the last call to the kernel's counters, and returns them:
    /// requests, ranges in them, and frames in these, for free memory and for freed descriptors
    /// alike.
    fn count(&mut self) -> [u64; 3] {
        let sent = core::mem::take(&mut self.sent);
        let [requests, ranges, frames] = sent;
        stats::count_reports(requests, ranges, frames);
        sent
    }
}

impl ReportDevice for Host {
    type Error = balloon::ReportFailure;

    fn send(&mut self, ranges: &mut Isolated<'_>) -> Result<(), Self::Error> {
        balloon::report(ranges)?;
        let ranges = ranges.ranges();
        let frames = ranges.iter().map(|range| range.frames).sum();
        for (sum, new) in self.sent.iter_mut().zip([1, ranges.len() as u64, frames]) {
            *sum += new;
        }
        Ok(())
    }

    /// Lets other threads run. QEMU may be done with a report at once, so that `balloon::report`
    /// did not sleep.
    fn give_way(&mut self) {
        sched::cond_resched();
    }
}
