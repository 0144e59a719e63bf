//! A CPU's run queue: who waits for it, and who goes next.
//!
//! The order is by virtual run time: time on a CPU, scaled by the thread's weight (its nice value).
//! A thread that slept re-enters a little ahead of those that wait, so that it answers soon, and not
//! further ahead than that, so that it cannot save up.

use super::thread::{Owned, Thread};
use crate::arch::MAX_CPUS;
use crate::arch::clock::Nanos;
use crate::arch::spin::SpinLock;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use logic::heap::Heap;
use logic::sched::policy;

/// The guarded part.
pub(super) struct Ready {
    heap: Heap<Thread>,
    /// Never goes back; new arrivals are placed relative to it.
    min_vruntime: u64,
}

/// What a CPU schedules.
pub(super) struct RunQueue {
    pub(super) ready: SpinLock<Ready>,
    /// Threads that wait in `ready`; a hint for others.
    pub(super) waiting: AtomicUsize,
    /// The CPU is idle or about to be; a hint for placement.
    pub(super) idle: AtomicBool,
    /// The CPU runs `start_cpu`'s loop.
    pub(super) online: AtomicBool,
    /// The idle thread's address.
    pub(super) idle_thread: AtomicPtr<Thread>,
    /// When the running thread's slice began; its CPU's own.
    pub(super) slice_start_ns: AtomicU64,
    /// When it ends; its CPU's own.
    pub(super) slice_end_ns: AtomicU64,
    /// Whether the timer is set for the slice's end; its CPU's own.
    pub(super) ticking: AtomicBool,
    /// Time that the CPU was idle, and since when it is (0: it is not).
    pub(super) idle_ns: AtomicU64,
    pub(super) idle_since_ns: AtomicU64,
    /// Context switches.
    pub(super) switches: AtomicU64,
    /// Time that threads spent in system calls here, for /proc/stat.
    pub(super) system_ns: AtomicU64,
}

impl RunQueue {
    pub(super) const fn new() -> Self {
        Self {
            ready: SpinLock::new(Ready {
                heap: Heap::new(),
                min_vruntime: 0,
            }),
            waiting: AtomicUsize::new(0),
            idle: AtomicBool::new(false),
            online: AtomicBool::new(false),
            idle_thread: AtomicPtr::new(core::ptr::null_mut()),
            slice_start_ns: AtomicU64::new(0),
            slice_end_ns: AtomicU64::new(0),
            ticking: AtomicBool::new(false),
            idle_ns: AtomicU64::new(0),
            idle_since_ns: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            system_ns: AtomicU64::new(0),
        }
    }

    /// Threads that wait or run here: the measure for balance.
    pub(super) fn load(&self) -> usize {
        // Relaxed: hints.
        let running = !self.idle.load(Ordering::Relaxed);
        self.waiting.load(Ordering::Relaxed) + usize::from(running)
    }

    /// Adds a runnable thread. `slept` is how it comes here: from a wait, or because it lost its CPU.
    pub(super) fn add(&self, thread: Owned, slept: bool) {
        let mut ready = self.ready.lock();
        let own = thread.vruntime.load(Ordering::Relaxed);
        let key = policy::place(own, ready.min_vruntime, slept);
        thread.vruntime.store(key, Ordering::Relaxed);
        // SAFETY: the reference count that we hand over keeps the thread alive in the heap; a thread
        // that is Runnable is on no other queue; the lock is held.
        unsafe { ready.heap.push(thread.into_raw(), key) };
        // SeqCst: before the interrupt that follows, so that the idle loop either sees the thread or
        // gets the interrupt.
        self.waiting.store(ready.heap.len(), Ordering::SeqCst);
    }

    /// Takes the next thread.
    pub(super) fn take(&self) -> Option<Owned> {
        let mut ready = self.ready.lock();
        self.take_locked(&mut ready)
    }

    fn take_locked(&self, ready: &mut Ready) -> Option<Owned> {
        let thread = ready.heap.pop()?;
        self.waiting.store(ready.heap.len(), Ordering::SeqCst);
        // SAFETY: `add` put this pointer there with its count, which we take back.
        let thread = unsafe { Owned::from_raw(thread) };
        ready.min_vruntime = ready
            .min_vruntime
            .max(thread.vruntime.load(Ordering::Relaxed));
        Some(thread)
    }

    /// Takes a thread that may run on `cpu`, for that CPU; its virtual time becomes relative to
    /// nothing, and `add` or the thief places it anew. Gives up when others hold the lock.
    pub(super) fn steal(&self, cpu: usize) -> Option<Owned> {
        let mut ready = self.ready.try_lock()?;
        let mut refused: [Option<Owned>; STEAL_TRIES] = [const { None }; STEAL_TRIES];
        let mut found = None;
        for place in &mut refused {
            let Some(thread) = ready.heap.pop() else {
                break;
            };
            // SAFETY: as in `take_locked`.
            let thread = unsafe { Owned::from_raw(thread) };
            if thread.affinity().contains(cpu) {
                found = Some(thread);
                break;
            }
            *place = Some(thread);
        }
        for thread in refused.into_iter().flatten() {
            let key = thread.vruntime.load(Ordering::Relaxed);
            // SAFETY: as in `add`; it was just taken out.
            unsafe { ready.heap.push(thread.into_raw(), key) };
        }
        self.waiting.store(ready.heap.len(), Ordering::SeqCst);
        if let Some(thread) = &found {
            let key = thread.vruntime.load(Ordering::Relaxed);
            thread
                .vruntime
                .store(policy::relative(key, ready.min_vruntime), Ordering::Relaxed);
        }
        found
    }

    /// The virtual time that new arrivals are placed against.
    pub(super) fn min_vruntime(&self) -> u64 {
        self.ready.lock().min_vruntime
    }

    /// Whether a waiting thread is due before one with this virtual time.
    pub(super) fn has_before(&self, vruntime: u64) -> bool {
        self.ready
            .lock()
            .heap
            .least()
            .is_some_and(|least| least < vruntime)
    }

    /// Threads that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(super) fn set_slice(&self, start: Nanos, length_ns: u64) {
        self.slice_start_ns.store(start.0, Ordering::Relaxed);
        self.slice_end_ns
            .store(start.0.saturating_add(length_ns), Ordering::Relaxed);
    }

    /// Ends the running thread's slice at `length_ns` after its start, if that is sooner. Returns when
    /// it ends.
    pub(super) fn shorten_slice(&self, length_ns: u64) -> Nanos {
        let start = self.slice_start_ns.load(Ordering::Relaxed);
        let end = self.slice_end().0.min(start.saturating_add(length_ns));
        self.slice_end_ns.store(end, Ordering::Relaxed);
        Nanos(end)
    }

    pub(super) fn slice_end(&self) -> Nanos {
        Nanos(self.slice_end_ns.load(Ordering::Relaxed))
    }
}

/// Every CPU's.
pub(super) static QUEUES: [RunQueue; MAX_CPUS] = [const { RunQueue::new() }; MAX_CPUS];

/// Threads that a thief looks at: pinned ones are rare.
const STEAL_TRIES: usize = 4;

impl fmt::Debug for RunQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueue")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
