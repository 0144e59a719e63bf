//! A CPU's run queue: who waits for it, and who goes next.
//!
//! The order is by virtual run time: time on a CPU, scaled by the task's weight (its nice value).
//! A task that slept re-enters a little ahead of those that wait, so that it answers soon, and not
//! further ahead than that, so that it cannot save up.

use super::heap::Heap;
use super::policy;
use crate::arch::clock::Nanos;
use crate::sync::SpinLock;
use crate::task::Task;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The guarded part.
pub(super) struct Ready {
    heap: Heap<Task>,
    /// Never goes back; new arrivals are placed relative to it.
    min_vruntime: u64,
}

/// What a CPU schedules.
pub(super) struct RunQueue {
    pub(super) ready: SpinLock<Ready>,
    /// Tasks that wait in `ready`; a hint for others.
    pub(super) waiting: AtomicUsize,
    /// The CPU is idle or about to be; a hint for placement.
    pub(super) idle: AtomicBool,
    /// The CPU runs `start_cpu`'s loop.
    pub(super) online: AtomicBool,
    /// The idle task's address.
    pub(super) idle_task: AtomicPtr<Task>,
    /// When the running task's slice ends; its CPU's own.
    pub(super) slice_end_ns: AtomicU64,
    /// Whether the timer is set for the slice's end; its CPU's own.
    pub(super) ticking: AtomicBool,
    /// Time that the CPU was idle, and since when it is (0: it is not).
    pub(super) idle_ns: AtomicU64,
    pub(super) idle_since_ns: AtomicU64,
    /// Context switches.
    pub(super) switches: AtomicU64,
    /// Time that tasks spent in system calls here, for /proc/stat.
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
            idle_task: AtomicPtr::new(core::ptr::null_mut()),
            slice_end_ns: AtomicU64::new(0),
            ticking: AtomicBool::new(false),
            idle_ns: AtomicU64::new(0),
            idle_since_ns: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            system_ns: AtomicU64::new(0),
        }
    }

    /// Tasks that wait or run here: the measure for balance.
    pub(super) fn load(&self) -> usize {
        // Relaxed: hints.
        let running = !self.idle.load(Ordering::Relaxed);
        self.waiting.load(Ordering::Relaxed) + usize::from(running)
    }

    /// Adds a runnable task. `slept` is how it comes here: from a wait, or because it lost its CPU.
    pub(super) fn add(&self, task: Arc<Task>, slept: bool) {
        let mut ready = self.ready.lock();
        let own = task.vruntime.load(Ordering::Relaxed);
        let key = policy::place(own, ready.min_vruntime, slept);
        task.vruntime.store(key, Ordering::Relaxed);
        let task = Arc::into_raw(task).cast_mut();
        // SAFETY: the reference count that we hand over keeps the task alive in the heap; a task
        // that is Runnable is on no other queue; the lock is held.
        unsafe { ready.heap.push(NonNull::new_unchecked(task), key) };
        // SeqCst: before the interrupt that follows, so that the idle loop either sees the task or
        // gets the interrupt.
        self.waiting.store(ready.heap.len(), Ordering::SeqCst);
    }

    /// Takes the next task.
    pub(super) fn take(&self) -> Option<Arc<Task>> {
        let mut ready = self.ready.lock();
        self.take_locked(&mut ready)
    }

    fn take_locked(&self, ready: &mut Ready) -> Option<Arc<Task>> {
        let task = ready.heap.pop()?;
        self.waiting.store(ready.heap.len(), Ordering::SeqCst);
        // SAFETY: `add` made this pointer from an Arc, whose count we take back.
        let task = unsafe { Arc::from_raw(task.as_ptr()) };
        ready.min_vruntime = ready
            .min_vruntime
            .max(task.vruntime.load(Ordering::Relaxed));
        Some(task)
    }

    /// Takes a task that may run on `cpu`, for that CPU; its virtual time becomes relative to
    /// nothing, and `add` or the thief places it anew. Gives up when others hold the lock.
    pub(super) fn steal(&self, cpu: usize) -> Option<Arc<Task>> {
        let mut ready = self.ready.try_lock()?;
        let mut refused: [Option<Arc<Task>>; STEAL_TRIES] = [const { None }; STEAL_TRIES];
        let mut found = None;
        for place in &mut refused {
            let Some(task) = ready.heap.pop() else { break };
            // SAFETY: as in `take_locked`.
            let task = unsafe { Arc::from_raw(task.as_ptr()) };
            if task.affinity.contains(cpu) {
                found = Some(task);
                break;
            }
            *place = Some(task);
        }
        for task in refused.into_iter().flatten() {
            let key = task.vruntime.load(Ordering::Relaxed);
            let task = Arc::into_raw(task).cast_mut();
            // SAFETY: as in `add`; it was just taken out.
            unsafe { ready.heap.push(NonNull::new_unchecked(task), key) };
        }
        self.waiting.store(ready.heap.len(), Ordering::SeqCst);
        if let Some(task) = &found {
            let key = task.vruntime.load(Ordering::Relaxed);
            task.vruntime
                .store(policy::relative(key, ready.min_vruntime), Ordering::Relaxed);
        }
        found
    }

    /// The virtual time that new arrivals are placed against.
    pub(super) fn min_vruntime(&self) -> u64 {
        self.ready.lock().min_vruntime
    }

    /// Whether a waiting task is due before one with this virtual time.
    pub(super) fn has_before(&self, vruntime: u64) -> bool {
        self.ready
            .lock()
            .heap
            .least()
            .is_some_and(|least| least < vruntime)
    }

    /// Tasks that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(super) fn set_slice_end(&self, end: Nanos) {
        self.slice_end_ns.store(end.0, Ordering::Relaxed);
    }

    pub(super) fn slice_end(&self) -> Nanos {
        Nanos(self.slice_end_ns.load(Ordering::Relaxed))
    }
}

/// Tasks that a thief looks at: pinned ones are rare.
const STEAL_TRIES: usize = 4;

impl fmt::Debug for RunQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueue")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
