//! Memory that the host requests with `ebb reclaim`.
//!
//! Requests wait as a set of steps, so that any number of them takes no memory. A separate thread
//! carries the steps out, the cheapest first. Dropping caches and compacting are slow, and the
//! control port must not wait for them.

use super::give_back;
use crate::vm::compaction::proactive::Reclaiming;
use crate::vm::compaction::{self, daemon};
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_wire::Reclaim;
use machine::arch::header::HEADER;
use machine::sync::{Once, SpinLock, WaitQueue};
use machine::{memory, sched};

/// The reclaim steps that the host has requested and the thread has not begun.
#[derive(Copy, Clone)]
struct Asked {
    /// Whether each step is requested, in the order of [`Reclaim::ALL`].
    steps: [bool; Reclaim::ALL.len()],
    /// The number of the last request, 0 if the host waits for none.
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

/// Sets `drop_caches`, the function that drops clean pages of files. Only the first call has an
/// effect.
pub(super) fn prepare(drop_caches: fn()) {
    let _ = DROP_CACHES.set(drop_caches);
}

/// Queues the reclaim step `step` for the thread `kreclaimd`, and starts the thread at the first
/// call. After the step, the thread writes `number`, or the number of a later request, to the field
/// `reclaimed` of the header that the host reads. If `number` is 0, the host does not wait for the
/// step.
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
            // Release: pairs with the host's Acquire; the memory has been given back by then.
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
