//! Memory that the host asks for by hand: `ebb reclaim`.
//!
//! Requests wait as a set of steps, so that any number of them costs no memory. A thread of its own takes them, the cheapest
//! first: dropping and compacting take their time, and lines of control must not wait for it.

use super::give_back;
use crate::vm::compaction::proactive::Reclaiming;
use crate::vm::compaction::{self, daemon};
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_wire::Reclaim;
use machine::arch::header::HEADER;
use machine::sync::{Once, SpinLock, WaitQueue};
use machine::{memory, sched};

/// What is asked for and not begun.
#[derive(Copy, Clone)]
struct Asked {
    /// By the place in [`Reclaim::ALL`].
    steps: [bool; Reclaim::ALL.len()],
    /// The number of the last request.
    number: u32,
}

const NOTHING: Asked = Asked {
    steps: [false; Reclaim::ALL.len()],
    number: 0,
};

static ASKED: SpinLock<Asked> = SpinLock::new(NOTHING);
static WANTED: AtomicBool = AtomicBool::new(false);
static QUEUE: WaitQueue = WaitQueue::new();
static STARTED: AtomicBool = AtomicBool::new(false);
static DROP_CACHES: Once<fn()> = Once::new();

/// Keeps what is to be called to drop clean pages of files.
pub(super) fn prepare(drop_caches: fn()) {
    let _ = DROP_CACHES.set(drop_caches);
}

/// Has a step taken. The header shows `number` afterwards, or a later one; 0 is a request that nobody waits for.
pub(super) fn ask(number: u32, step: Reclaim) {
    {
        let mut asked = ASKED.lock();
        for (wanted, known) in asked.steps.iter_mut().zip(Reclaim::ALL) {
            *wanted |= known == step;
        }
        if number != 0 {
            asked.number = number;
        }
    }
    // Release: pairs with the Acquire in `run`.
    WANTED.store(true, Ordering::Release);
    if !STARTED.swap(true, Ordering::AcqRel) {
        sched::spawn_kernel("kreclaimd", run);
    }
    QUEUE.wake_one();
}

fn run() {
    loop {
        QUEUE.wait_uninterruptible(|| WANTED.swap(false, Ordering::Acquire));
        let asked = core::mem::replace(&mut *ASKED.lock(), NOTHING);
        let reclaiming = Reclaiming::begin();
        for (wanted, step) in asked.steps.into_iter().zip(Reclaim::ALL) {
            if wanted {
                take(step);
            }
        }
        drop(reclaiming);
        daemon::memory_freed();
        if asked.number != 0 {
            // Release: pairs with the host's Acquire; what was given back is gone by then.
            HEADER.reclaimed.store(asked.number, Ordering::Release);
        }
    }
}

fn take(step: Reclaim) {
    match step {
        Reclaim::Free => {}
        Reclaim::Cache => {
            if let Some(drop_caches) = DROP_CACHES.get() {
                drop_caches();
            }
            memory::allocator().request_drain();
        }
        Reclaim::Compact => {
            if let Err(error) = compaction::compact_all() {
                machine::console!("reclaim {}: {error:?}", step.name());
            }
        }
    }
    if let Err(error) = give_back::sweep() {
        machine::console!("reclaim {}: {error:?}", step.name());
    }
}
