//! Writes dirty pages to the disks. A kernel thread does so every few seconds or if there are many,
//! and a task does so that makes too many. `fsync` and the last close also make them stable.

use super::cache::{ALL, Cache, Choice, Run};
use super::dirty_limits::{self, BACKGROUND, WRITERS, interval};
use core::sync::atomic::{AtomicBool, Ordering};
use machine::arch::clock::{self, Nanos};
use machine::memory::stats;
use machine::sched;
use machine::sync::{WaitEnd, WaitQueue};

/// How long the end of the VM waits for a disk that completes no request.
const LAST_PATIENCE: Nanos = Nanos::from_secs(30);
/// How long it waits for the flush of a disk, which may write much and shows no progress.
const LAST_FLUSH_PATIENCE: Nanos = Nanos::from_secs(120);
/// The time between two looks whether any disk has written a page.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(10);

/// Whether the thread must run before the interval has passed.
static WANTED: AtomicBool = AtomicBool::new(false);
static WORKER: WaitQueue = WaitQueue::new();

/// Starts the kernel thread `kflushd`, which writes dirty pages, if there is a disk.
pub(super) fn start() {
    if super::caches::caches().next().is_some() {
        sched::spawn_kernel("kflushd", run);
    }
}

/// Sets the interval at which `kflushd` writes dirty pages, in hundredths of a second. 0 and
/// negative values turn periodic writing off. `kflushd` also writes the dirty pages of all disks
/// now, and the new interval begins after that.
pub fn set_interval_centis(centis: i32) {
    dirty_limits::set_interval_centis(centis);
    wake();
}

/// Wakes `kflushd`, which then writes the dirty pages of all disks.
pub(super) fn wake() {
    // Release: pairs with the Acquire in `run`.
    WANTED.store(true, Ordering::Release);
    WORKER.wake_one();
}

fn run() {
    loop {
        let deadline = interval().map_or(Nanos::MAX, |every| clock::now().saturating_add(every));
        // Acquire: pairs with the Release in `wake`. The task that called it has marked its pages.
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

/// Begins to write each page that is dirty now. Skips pages that are dirty again while they are
/// being written.
fn flush_once(cache: &'static Cache) {
    flush_while(cache, || true);
}

/// Does what [`flush_once`] does, as long as `ready`, which it calls before each request, returns
/// `true`. Returns whether it came to the end.
fn flush_while(cache: &'static Cache, ready: impl Fn() -> bool) -> bool {
    let mut at = 0;
    while ready() {
        match cache.write_run(at..u64::MAX) {
            Run::Started(next) | Run::Looked(next) => at = next,
            Run::Busy(index) => at = index + 1,
            Run::None => return true,
        }
        sched::cond_resched();
    }
    false
}

/// Writes all dirty pages of `cache` after the last close of its disk, and drops the clean ones.
/// Drops none if another task has opened the disk again.
pub(super) fn close(cache: &'static Cache) {
    cache.write_back(ALL);
    // Acquire: pairs with the Release of the count. Another task may have opened the disk again.
    if cache.opens.load(Ordering::Acquire) == 0 {
        cache.drop_clean(ALL, Choice::Unheld, u64::MAX, u64::MAX);
    }
}

/// Returns the limits on dirty pages for the thread and for writers.
fn limits() -> (u64, u64) {
    (BACKGROUND.pages(), WRITERS.pages())
}

/// If more pages are dirty than [`WRITERS`] allows, begins to write those of `cache` and waits. The
/// wait ends below that limit, once `cache` has nothing left to write, or when the task is being
/// killed. A task calls this when it makes pages of `cache` dirty, without a lock.
pub(super) fn throttle(cache: &'static Cache) {
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
    // Writers of other disks write the pages of those.
    flush_once(cache);
    let below = || {
        let (dirty, writing) = stats::unwritten();
        let (_, own) = cache.unwritten();
        dirty + writing <= limit || own == 0
    };
    let _waits = sched::pressure::io_wait();
    // A task that is being killed does not wait. It soon stops writing.
    let _ = cache.changed().wait_killable(below);
}

/// Waits until a page was written by any disk. Returns `false` if no disk has unwritten pages, or
/// if `deadline` passes first.
pub(super) fn wait_for_progress(deadline: Nanos) -> bool {
    let unwritten = |cache: &Cache| cache.unwritten() != (0, 0);
    let Some(first) = super::caches::caches().find(|cache| unwritten(cache)) else {
        return false;
    };
    wake();
    let _waits = sched::pressure::io_wait();
    let written = || super::caches::caches().map(Cache::written).sum::<u64>();
    let before = written();
    // Only the first disk ends a wait. The others are looked at in between.
    loop {
        let look = clock::now().saturating_add(LOOK_INTERVAL).min(deadline);
        let end = first
            .changed()
            .wait_uninterruptible_deadline(|| written() != before, look);
        if end == WaitEnd::Ready || look == deadline {
            return end == WaitEnd::Ready;
        }
    }
}

/// Writes all dirty pages to the disks and makes them stable (`sync(2)`). Reports no errors;
/// `fsync` does.
pub fn sync_all() {
    for cache in super::caches::caches() {
        cache.write_back(ALL);
        // The task that wrote a page learns of errors through `fsync`.
        let _ = cache.disk.flush();
    }
}

/// Writes all dirty pages before the VM ends, as [`sync_all`] does. Gives a disk up that completes
/// no request, and goes on with the next one. Asks nothing of a disk that was never written. Does
/// not wait for changes that other tasks make in between.
pub fn sync_for_the_last_time() {
    for cache in super::caches::caches() {
        if !write_for_the_last_time(cache) {
            let (dirty, writing) = cache.unwritten();
            let name = cache.disk.name();
            machine::console!("{name} takes nothing; {} pages are lost", dirty + writing);
            continue;
        }
        let deadline = clock::now().saturating_add(LAST_FLUSH_PATIENCE);
        if let Err(error) = cache.disk.flush_until(deadline) {
            machine::console!("{}: cannot flush: {error}", cache.disk.name());
        }
    }
}

/// Writes all dirty pages of `cache`. Returns `false` if the disk completes no request.
fn write_for_the_last_time(cache: &'static Cache) -> bool {
    let patience = || clock::now().saturating_add(LAST_PATIENCE);
    // The second turn is for pages that changed while they were written.
    (0..2).all(|_| {
        flush_while(cache, || cache.disk.wait_for_room(patience())) && wait_until_written(cache)
    })
}

/// Waits until the disk has written all pages that were handed to it before. Returns `false` if it
/// completes no request.
fn wait_until_written(cache: &'static Cache) -> bool {
    let goal = cache.handed();
    let mut last = cache.written();
    let _waits = sched::pressure::io_wait();
    // This loop ends: in each turn the disk has written something.
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
