//! Dirty pages on their way to the disks: by a kernel thread every few seconds or when there are
//! many, by whoever makes too many, and for good by `fsync` and the last close.

use super::cache::{ALL, Cache, Choice, Run};
use super::dirty_limits::{self, BACKGROUND, WRITERS, interval};
use core::sync::atomic::{AtomicBool, Ordering};
use machine::arch::clock::{self, Nanos};
use machine::memory::stats;
use machine::sched;
use machine::sync::{WaitEnd, WaitQueue};

/// How long the end of the VM waits for a disk that takes nothing.
const LAST_PATIENCE: Nanos = Nanos::from_secs(30);

/// The thread is wanted before its time.
static WANTED: AtomicBool = AtomicBool::new(false);
static WORKER: WaitQueue = WaitQueue::new();

/// Starts the thread, if there is a disk.
pub(super) fn start() {
    if super::caches::caches().next().is_some() {
        sched::spawn_kernel("kflushd", run);
    }
}

/// Sets the time between two looks at what is dirty, in hundredths of a second; 0 and less: there
/// are none. It holds from now on.
pub fn set_interval_centis(centis: i32) {
    dirty_limits::set_interval_centis(centis);
    wake();
}

/// Has the thread write what is dirty, soon.
pub(super) fn wake() {
    // Release: pairs with the Acquire in `run`.
    WANTED.store(true, Ordering::Release);
    WORKER.wake_one();
}

fn run() {
    loop {
        let deadline = interval().map_or(Nanos::MAX, |every| clock::now().saturating_add(every));
        // Acquire: pairs with the Release in `wake`; who asked has marked its pages.
        let wanted = || WANTED.swap(false, Ordering::Acquire);
        let end = WORKER.wait_uninterruptible_deadline(wanted, deadline);
        for cache in super::caches::caches() {
            flush_once(cache);
            if end == WaitEnd::Ready && cache.opens.load(Ordering::Acquire) == 0 {
                close(cache);
            }
        }
    }
}

/// Begins to write each page that is dirty now, but those whose last change is on its way.
fn flush_once(cache: &Cache) {
    let mut at = 0;
    loop {
        match cache.write_run(at..u64::MAX) {
            Run::Started(next) | Run::Looked(next) => at = next,
            Run::Busy(index) => at = index + 1,
            Run::None => return,
        }
        sched::cond_resched();
    }
}

/// After the last close: everything is written, and nothing is kept.
pub(super) fn close(cache: &Cache) {
    cache.write_back(ALL);
    // Acquire: pairs with the Release of the count; somebody may have opened it again.
    if cache.opens.load(Ordering::Acquire) == 0 {
        cache.drop_clean(ALL, Choice::Unheld, u64::MAX, u64::MAX);
    }
}

/// The pages that may be dirty before the thread writes, and before writers wait.
fn limits() -> (u64, u64) {
    (BACKGROUND.pages(), WRITERS.pages())
}

/// Called by who made pages dirty, without a lock: waits while there are too many.
pub(super) fn throttle(cache: &Cache) {
    let (dirty, writing) = stats::unwritten();
    if dirty == 0 {
        return;
    }
    let (background, limit) = limits();
    if dirty > background {
        wake();
    }
    if dirty + writing <= limit {
        return;
    }
    // This disk's own pages; each disk's writers see to theirs.
    flush_once(cache);
    let below = || {
        let (dirty, writing) = stats::unwritten();
        let (_, own) = cache.unwritten();
        dirty + writing <= limit || own == 0
    };
    let _waits = sched::pressure::io_wait();
    // Who is being killed stops to write soon.
    let _ = cache.changed().wait_killable(below);
}

/// Waits until some dirty page was written. False: there is none, or no disk takes any.
pub(super) fn wait_for_progress(deadline: Nanos) -> bool {
    let unwritten = |cache: &Cache| cache.unwritten() != (0, 0);
    let Some(cache) = super::caches::caches().find(|cache| unwritten(cache)) else {
        return false;
    };
    wake();
    let _waits = sched::pressure::io_wait();
    let before = cache.written();
    cache
        .changed()
        .wait_uninterruptible_deadline(|| cache.written() != before, deadline)
        == WaitEnd::Ready
}

/// Writes everything that is dirty to the disks and makes it stable: `sync(2)`.
pub fn sync_all() {
    for cache in super::caches::caches() {
        cache.write_back(ALL);
        // Whoever wrote it learns of errors by `fsync`.
        let _ = cache.disk.flush();
    }
}

/// As [`sync_all`] before the VM ends, as long as the disks take something. What other tasks change
/// meanwhile is not waited for.
pub fn sync_for_the_last_time() {
    for cache in super::caches::caches() {
        // The second time for pages that changed while the disk took them.
        for _ in 0..2 {
            flush_once(cache);
            if !wait_until_written(cache) {
                let (dirty, writing) = cache.unwritten();
                let name = cache.disk.name();
                machine::console!("{name} takes nothing; {} pages are lost", dirty + writing);
                return;
            }
        }
        if let Err(error) = cache.disk.flush() {
            machine::console!("{}: cannot flush: {error}", cache.disk.name());
        }
    }
}

/// Waits until the disk has what it was handed up to now. False: it takes nothing any more.
fn wait_until_written(cache: &Cache) -> bool {
    let goal = cache.handed();
    let mut last = cache.written();
    let _waits = sched::pressure::io_wait();
    // Ends: each turn the disk has written something.
    while last < goal {
        let deadline = clock::now().saturating_add(LAST_PATIENCE);
        let moved = || cache.written() != last;
        let end = cache
            .changed()
            .wait_uninterruptible_deadline(moved, deadline);
        if end == WaitEnd::TimedOut {
            return false;
        }
        last = cache.written();
    }
    true
}
