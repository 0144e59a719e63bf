//! A thread that does the work of the wall clock's timers, because a walk over all processes is too
//! long for an interrupt. It starts when such a timer may be set for the first time.

use super::steering;
use crate::process::task;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::errno::Errno;
use machine::sync::{Mutex, WaitQueue};

/// Tokens of expired timers, one bit each.
static DUE: AtomicU64 = AtomicU64::new(0);
/// Whether the thread has been started.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Held by a task that starts the thread.
static STARTING: Mutex<()> = Mutex::new(());
static WORKER: WaitQueue = WaitQueue::new();

/// Starts the kernel thread `kclockd`, which does the work of timers of the wall clock: leap
/// seconds and the end of `adjtime`. Does nothing if it runs already.
///
/// # Errors
/// Fails with `ENOMEM`.
pub(super) fn start() -> Result<(), Errno> {
    // Relaxed (both): the lock orders the accesses that matter.
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

/// Makes `kclockd` do the work of the expired timer with the token `token`, which is below 64.
pub(super) fn serve(token: u64) {
    // SeqCst: ordered before the check for waiters in `wake_one`.
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
