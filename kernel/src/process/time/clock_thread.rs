//! A thread that does what timers of the clock ask for: a walk over all processes is too long for an
//! interrupt. It is started when such a timer may be set for the first time.

use super::steering;
use crate::process::task;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::errno::Errno;
use machine::sync::{Mutex, WaitQueue};

/// Tokens of timers that have run out, one bit each.
static DUE: AtomicU64 = AtomicU64::new(0);
/// Whether the thread was started.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Held by who starts it.
static STARTING: Mutex<()> = Mutex::new(());
static WORKER: WaitQueue = WaitQueue::new();

/// Starts the thread, unless it runs.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn start() -> Result<(), Errno> {
    // Relaxed (both): the lock orders them where it matters.
    if STARTED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let _starting = STARTING.lock();
    if !STARTED.load(Ordering::Relaxed) {
        task::try_spawn("kclockd", run)?;
        STARTED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Has the thread do what the timer with `token` is for.
pub(super) fn serve(token: u64) {
    // SeqCst: comes before the look at who waits.
    DUE.fetch_or(1 << token, Ordering::SeqCst);
    WORKER.wake_one();
}

fn run() {
    loop {
        WORKER.wait_uninterruptible(|| DUE.load(Ordering::SeqCst) != 0);
        let due = DUE.swap(0, Ordering::SeqCst);
        for token in 0..u64::from(u64::BITS) {
            if due >> token & 1 != 0 {
                steering::serve(token);
            }
        }
    }
}
