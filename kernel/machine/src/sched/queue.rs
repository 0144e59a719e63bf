//! A CPU's run queue: the threads that wait for the CPU, in their order.
//!
//! The order is by virtual run time: time on a CPU, scaled by the thread's weight (its nice value).
//! A thread that slept re-enters a little ahead of the waiting threads, so that it responds soon.
//! It gets no further ahead, so that it cannot save up time.

use super::owner::Owned;
use super::pressure::Pressure;
use super::realtime::Budget;
use super::thread::{Place, Thread};
use crate::arch::MAX_CPUS;
use crate::arch::clock::Nanos;
use crate::arch::spin::SpinLock;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use logic::heap::Heap;
use logic::sched::policy;
use logic::sched::realtime::{Places, priority_of};

/// The part of a run queue that its lock guards.
pub(super) struct Ready {
    /// Threads that share the CPU by weight, ordered by virtual time.
    heap: Heap<Thread>,
    /// Threads with a real-time priority, highest first.
    realtime: Heap<Thread>,
    places: Places,
}

impl Ready {
    /// Returns the number of waiting threads.
    #[inline]
    fn waiting(&self) -> usize {
        self.heap.len() + self.realtime.len()
    }
}

/// The run queue and other scheduling state of a CPU.
pub(super) struct RunQueue {
    /// The waiting threads.
    pub(super) ready: SpinLock<Ready>,
    /// The virtual time against which new arrivals are placed. It never decreases; changed with
    /// `ready` locked.
    min_vruntime: AtomicU64,
    /// The number of threads in `ready`; a hint for other CPUs.
    pub(super) waiting: AtomicUsize,
    /// The highest priority in `ready`, 0 if there is none; a hint for other CPUs.
    best_priority: AtomicU32,
    /// The priority of the running thread, 0 if it has none; a hint for other CPUs.
    running_priority: AtomicU32,
    /// The time that real-time threads have used of this CPU.
    pub(super) budget: Budget,
    /// The CPU is idle or about to be; a hint for the placement of threads.
    pub(super) idle: AtomicBool,
    /// The CPU runs `start_cpu`'s loop.
    pub(super) online: AtomicBool,
    /// The idle thread's address.
    pub(super) idle_thread: AtomicPtr<Thread>,
    /// The running thread's virtual time when its slice began, against which others are placed.
    /// Written by its CPU.
    running_vruntime: AtomicU64,
    /// The running thread's [`Thread::weighed`].
    running_weighed: AtomicI32,
    /// The start of the running thread's slice. Only its CPU writes it.
    pub(super) slice_start_ns: AtomicU64,
    /// The end of the slice. Only its CPU writes it.
    pub(super) slice_end_ns: AtomicU64,
    /// Whether the timer is set for the slice's end. Only its CPU writes it.
    pub(super) ticking: AtomicBool,
    /// The idle time of the CPU without the present idle period.
    pub(super) idle_ns: AtomicU64,
    /// The start of the present idle period; 0 if the CPU is not idle.
    pub(super) idle_since_ns: AtomicU64,
    /// How long threads of the CPU have stalled.
    pub(super) pressure: Pressure,
    /// Context switches.
    pub(super) switches: AtomicU64,
    /// Time that threads spent in system calls here, for `/proc/stat`.
    pub(super) system_ns: AtomicU64,
}

impl RunQueue {
    /// Makes the queue of a CPU that is not online.
    pub(super) const fn new() -> Self {
        Self {
            ready: SpinLock::new(Ready {
                heap: Heap::new(),
                realtime: Heap::new(),
                places: Places::new(),
            }),
            min_vruntime: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            best_priority: AtomicU32::new(0),
            running_priority: AtomicU32::new(0),
            budget: Budget::new(),
            idle: AtomicBool::new(false),
            online: AtomicBool::new(false),
            idle_thread: AtomicPtr::new(core::ptr::null_mut()),
            running_vruntime: AtomicU64::new(0),
            running_weighed: AtomicI32::new(policy::NO_WEIGHT),
            slice_start_ns: AtomicU64::new(0),
            slice_end_ns: AtomicU64::new(0),
            ticking: AtomicBool::new(false),
            idle_ns: AtomicU64::new(0),
            idle_since_ns: AtomicU64::new(0),
            pressure: Pressure::new(),
            switches: AtomicU64::new(0),
            system_ns: AtomicU64::new(0),
        }
    }

    /// Returns the number of threads that wait or run on this CPU. Load balancing compares these
    /// numbers.
    pub(super) fn load(&self) -> usize {
        // Relaxed: hints.
        let running = !self.idle.load(Ordering::Relaxed);
        self.waiting.load(Ordering::Relaxed) + usize::from(running)
    }

    /// Records the virtual time and the weight of `thread`, which has just been charged and starts
    /// a slice on this CPU. Threads that enter the queue are placed relative to these values.
    #[inline]
    pub(super) fn note_running(&self, thread: &Thread) {
        // Relaxed (all): if another CPU reads values of two different moments, it misplaces a
        // thread by a slice at most.
        let vruntime = thread.vruntime.load(Ordering::Relaxed);
        self.running_vruntime.store(vruntime, Ordering::Relaxed);
        self.running_weighed
            .store(thread.weighed(), Ordering::Relaxed);
    }

    /// Returns whether the weight of `thread`, which runs on this CPU, is still the one that
    /// [`Self::note_running`] has recorded.
    pub(super) fn is_noted(&self, thread: &Thread) -> bool {
        self.running_weighed.load(Ordering::Relaxed) == thread.weighed()
    }

    /// Records `priority`, the real-time priority of the running thread, or 0 if it shares by
    /// weight.
    pub(super) fn note_priority(&self, priority: u32) {
        self.running_priority.store(priority, Ordering::Relaxed);
    }

    /// Returns the virtual time of the running thread at `now`. Returns `None` if it has no weight.
    #[inline]
    fn running_virtual(&self, now: Nanos) -> Option<u64> {
        let weighed = self.running_weighed.load(Ordering::Relaxed);
        if weighed == policy::NO_WEIGHT {
            return None;
        }
        let since = self.slice_start_ns.load(Ordering::Relaxed);
        let vruntime = self.running_vruntime.load(Ordering::Relaxed);
        Some(vruntime + policy::scaled(now.0.saturating_sub(since), weighed))
    }

    /// Raises `min_vruntime` to `least` if that is higher. The caller holds the lock.
    #[inline]
    fn raise_min(&self, least: u64) {
        if least > self.min_vruntime() {
            self.min_vruntime.store(least, Ordering::Relaxed);
        }
    }

    /// Adds `thread`, which is runnable, to this queue of CPU `cpu`, at `now`. With `slept`, the
    /// thread gets the credit of one that was blocked. Returns `true` if `thread` and the running
    /// thread share by weight, and the running thread is ahead of `thread` in virtual time by more
    /// than [`policy::WAKE_GRANULARITY_NS`]. Returns `false` otherwise, and for each real-time
    /// thread.
    pub(super) fn add(&self, cpu: usize, thread: Owned, slept: bool, now: Nanos) -> bool {
        let mut ready = self.ready.lock();
        if thread.priority() != 0 {
            self.add_by_priority(&mut ready, cpu, thread);
            return false;
        }
        let running = self.running_virtual(now);
        if let Some(running) = running {
            let least = ready.heap.least().map_or(running, |it| it.min(running));
            self.raise_min(least);
        }
        let key = self.add_by_weight(&mut ready, cpu, thread, slept);
        running.is_some_and(|running| key + policy::WAKE_GRANULARITY_NS < running)
    }

    /// Adds `thread`, which CPU `cpu`, the owner of this queue, has just stopped running, if it
    /// shares by weight. Returns `None` then. A thread with a real-time priority is not added but
    /// returned, and the caller must put it on a queue.
    pub(super) fn add_left(&self, cpu: usize, thread: Owned) -> Option<Owned> {
        let mut ready = self.ready.lock();
        if thread.priority() != 0 {
            return Some(thread);
        }
        self.add_by_weight(&mut ready, cpu, thread, false);
        None
    }

    /// Adds `thread`, which shares by weight, to `ready`, the locked lists of this queue of CPU
    /// `cpu`. With `slept`, the thread gets the credit of one that was blocked. Returns its virtual
    /// time in the queue.
    #[inline]
    fn add_by_weight(&self, ready: &mut Ready, cpu: usize, thread: Owned, slept: bool) -> u64 {
        let own = thread.vruntime.load(Ordering::Relaxed);
        let key = policy::place(own, self.min_vruntime(), slept);
        thread.vruntime.store(key, Ordering::Relaxed);
        thread.set_queued(Some(Place {
            at: cpu,
            realtime: false,
        }));
        // SAFETY: the reference that is handed over keeps the thread alive in the heap. A thread
        // that is Runnable and not queued is in no heap. The lock is held.
        unsafe { ready.heap.push(thread.into_raw(), key) };
        // SeqCst: ordered before the interrupt that follows. So the idle loop either sees the
        // thread or gets the interrupt.
        self.waiting.store(ready.waiting(), Ordering::SeqCst);
        key
    }

    #[cold]
    fn add_by_priority(&self, ready: &mut Ready, cpu: usize, thread: Owned) {
        let at_front = thread.realtime.take_at_front();
        let key = ready.places.key(thread.priority(), at_front);
        thread.set_queued(Some(Place {
            at: cpu,
            realtime: true,
        }));
        // SAFETY: the reference that is handed over keeps the thread alive in the heap. The thread
        // is in no heap, and the lock is held.
        unsafe { ready.realtime.push(thread.into_raw(), key) };
        self.note_best(ready);
        // SeqCst: ordered before the interrupt that follows, for the idle loop.
        self.waiting.store(ready.waiting(), Ordering::SeqCst);
    }

    /// Publishes the highest priority in the locked `ready`.
    fn note_best(&self, ready: &Ready) {
        let best = ready.realtime.least().map_or(0, priority_of);
        self.best_priority.store(best, Ordering::Relaxed);
    }

    /// Takes the next thread out of the queue. This is the one with the highest real-time priority,
    /// or the first of those that share by weight if none has a priority. Returns `None` if no
    /// thread waits.
    pub(super) fn take(&self) -> Option<Owned> {
        let mut ready = self.ready.lock();
        if ready.realtime.is_empty() {
            self.take_by_weight(&mut ready)
        } else {
            self.take_by_priority(&mut ready)
        }
    }

    /// Takes the next thread that shares by weight out of the queue. Returns `None` if no such
    /// thread waits.
    pub(super) fn take_fair(&self) -> Option<Owned> {
        self.take_by_weight(&mut self.ready.lock())
    }

    /// Takes the thread with the highest real-time priority out of the queue. Returns `None` if no
    /// waiting thread has a priority of `least` or more.
    pub(super) fn take_realtime(&self, least: u32) -> Option<Owned> {
        let mut ready = self.ready.lock();
        let best = priority_of(ready.realtime.least()?);
        if best < least {
            return None;
        }
        self.take_by_priority(&mut ready)
    }

    #[inline]
    fn take_by_weight(&self, ready: &mut Ready) -> Option<Owned> {
        let thread = ready.heap.pop()?;
        let thread = self.taken(ready, thread);
        self.raise_min(thread.vruntime.load(Ordering::Relaxed));
        Some(thread)
    }

    #[cold]
    fn take_by_priority(&self, ready: &mut Ready) -> Option<Owned> {
        let thread = ready.realtime.pop()?;
        self.note_best(ready);
        Some(self.taken(ready, thread))
    }

    /// Returns `thread`, which was just taken out of a heap of `ready`, in its owned form. Updates
    /// the number of waiting threads.
    #[inline]
    fn taken(&self, ready: &Ready, thread: NonNull<Thread>) -> Owned {
        self.waiting.store(ready.waiting(), Ordering::SeqCst);
        // SAFETY: `add_by_weight` or `add_by_priority` put this pointer there with its reference,
        // which is taken back here.
        let thread = unsafe { Owned::from_raw(thread) };
        thread.set_queued(None);
        thread
    }

    /// Takes `thread` out of this queue, that of CPU `cpu`, and returns it. Returns `None` if the
    /// thread does not wait in this queue.
    pub(super) fn remove(&self, cpu: usize, thread: &Thread) -> Option<Owned> {
        let mut ready = self.ready.lock();
        let heap = match thread.queued() {
            Some(Place { at, realtime: true }) if at == cpu => &mut ready.realtime,
            Some(Place { at, .. }) if at == cpu => &mut ready.heap,
            _ => return None,
        };
        // SAFETY: the lock is held, without which no thread enters or leaves this queue. So the
        // thread is in the heap that it names.
        let removed = unsafe { heap.remove(NonNull::from(thread)) };
        assert!(removed, "a thread is not where it says that it waits");
        self.note_best(&ready);
        Some(self.taken(&ready, NonNull::from(thread)))
    }

    /// Takes the thread with the highest real-time priority out of the queue, for CPU `cpu`.
    /// Returns `None` if the priority is below `least`, if the thread may not run on `cpu`, if no
    /// such thread waits, or if another CPU holds the lock.
    pub(super) fn steal_realtime(&self, cpu: usize, least: u32) -> Option<Owned> {
        let mut ready = self.ready.try_lock()?;
        let key = ready.realtime.least()?;
        let thread = ready.realtime.pop()?;
        // SAFETY: `add_by_priority` put this pointer there with its reference, which keeps the
        // thread alive.
        let fits = priority_of(key) >= least && unsafe { thread.as_ref() }.affinity().contains(cpu);
        if fits {
            self.note_best(&ready);
            return Some(self.taken(&ready, thread));
        }
        // SAFETY: the thread was just taken out, and its reference keeps it alive. The lock is
        // held.
        unsafe { ready.realtime.push(thread, key) };
        None
    }

    /// Takes a waiting thread that may run on CPU `cpu` out of this queue. It is the thread with
    /// the highest real-time priority, or else one of the first [`STEAL_TRIES`] threads that share
    /// by weight. The virtual time of the latter becomes relative to this queue's `min_vruntime`,
    /// and the caller then adds the `min_vruntime` of the queue of `cpu`. Returns `None` if these
    /// threads may not run on `cpu`, or if another CPU holds the lock.
    pub(super) fn steal(&self, cpu: usize) -> Option<Owned> {
        if self.best_priority() != 0
            && let Some(thread) = self.steal_realtime(cpu, 1)
        {
            return Some(thread);
        }
        let mut ready = self.ready.try_lock()?;
        let mut refused: [Option<Owned>; STEAL_TRIES] = [const { None }; STEAL_TRIES];
        let mut found = None;
        for place in &mut refused {
            let Some(thread) = ready.heap.pop() else {
                break;
            };
            // SAFETY: `add_by_weight` put this pointer there with its reference, which is taken
            // back here.
            let thread = unsafe { Owned::from_raw(thread) };
            if thread.affinity().contains(cpu) {
                found = Some(thread);
                break;
            }
            *place = Some(thread);
        }
        for thread in refused.into_iter().flatten() {
            let key = thread.vruntime.load(Ordering::Relaxed);
            // SAFETY: the thread was just taken out, and its reference keeps it alive. The lock is
            // held.
            unsafe { ready.heap.push(thread.into_raw(), key) };
        }
        self.waiting.store(ready.waiting(), Ordering::SeqCst);
        if let Some(thread) = &found {
            thread.set_queued(None);
            let key = thread.vruntime.load(Ordering::Relaxed);
            thread.vruntime.store(
                policy::relative(key, self.min_vruntime()),
                Ordering::Relaxed,
            );
        }
        found
    }

    /// Returns the virtual time relative to which threads that enter this queue are placed. It
    /// never decreases.
    pub(super) fn min_vruntime(&self) -> u64 {
        // Relaxed: a slightly older or newer value makes no difference.
        self.min_vruntime.load(Ordering::Relaxed)
    }

    /// Returns the least virtual time of the waiting threads minus `vruntime`, the virtual time of
    /// the running thread. Returns `None` if the difference is not positive, or if no thread waits
    /// that shares by weight.
    pub(super) fn lead(&self, vruntime: u64) -> Option<u64> {
        let least = self.ready.lock().heap.least()?;
        least.checked_sub(vruntime).filter(|lead| *lead != 0)
    }

    /// Returns whether a thread that shares by weight waits in this queue and has a virtual time
    /// less than `vruntime`.
    pub(super) fn has_before(&self, vruntime: u64) -> bool {
        self.ready
            .lock()
            .heap
            .least()
            .is_some_and(|least| least < vruntime)
    }

    /// Returns whether a thread that shares by weight waits in this queue.
    pub(super) fn has_fair(&self) -> bool {
        !self.ready.lock().heap.is_empty()
    }

    /// Returns the highest real-time priority of the threads that wait in this queue, or 0 if all
    /// of them share by weight.
    pub(super) fn best_priority(&self) -> u32 {
        self.best_priority.load(Ordering::Relaxed)
    }

    /// Returns the highest real-time priority of the threads of the CPU that owns this queue: the
    /// running one and those that wait. Returns 0 if all of them share by weight.
    pub(super) fn level(&self) -> u32 {
        let running = self.running_priority.load(Ordering::Relaxed);
        running.max(self.best_priority())
    }

    /// Returns the number of threads that wait in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Sets the slice of the running thread: it begins at `start` and lasts `length_ns`
    /// nanoseconds.
    pub(super) fn set_slice(&self, start: Nanos, length_ns: u64) {
        self.slice_start_ns.store(start.0, Ordering::Relaxed);
        self.slice_end_ns
            .store(start.0.saturating_add(length_ns), Ordering::Relaxed);
    }

    /// Returns the time at which the running thread's slice began.
    #[inline]
    pub(super) fn slice_start(&self) -> Nanos {
        Nanos(self.slice_start_ns.load(Ordering::Relaxed))
    }

    /// Returns the time for which the CPU was idle from boot to `now`, in nanoseconds.
    pub(super) fn idle_until(&self, now: Nanos) -> u64 {
        let open = match self.idle_since_ns.load(Ordering::Relaxed) {
            0 => 0,
            since => now.0.saturating_sub(since),
        };
        self.idle_ns.load(Ordering::Relaxed) + open
    }

    /// Sets the start of the running thread's slice to `now`. The end of the slice stays.
    pub(super) fn restart_slice(&self, now: Nanos) {
        self.slice_start_ns.store(now.0, Ordering::Relaxed);
    }

    /// Moves the end of the running thread's slice to `length_ns` nanoseconds after the start of
    /// the slice, if that is sooner. Returns the end of the slice.
    pub(super) fn shorten_slice(&self, length_ns: u64) -> Nanos {
        let start = self.slice_start_ns.load(Ordering::Relaxed);
        let end = self.slice_end().0.min(start.saturating_add(length_ns));
        self.slice_end_ns.store(end, Ordering::Relaxed);
        Nanos(end)
    }

    /// Moves the end of the running thread's slice to `end`, if that is sooner.
    pub(super) fn limit_slice_end(&self, end: Nanos) {
        let end = self.slice_end().min(end);
        self.slice_end_ns.store(end.0, Ordering::Relaxed);
    }

    /// Returns the time at which the running thread's slice ends.
    pub(super) fn slice_end(&self) -> Nanos {
        Nanos(self.slice_end_ns.load(Ordering::Relaxed))
    }
}

/// The run queues of all CPUs.
pub(super) static QUEUES: [RunQueue; MAX_CPUS] = [const { RunQueue::new() }; MAX_CPUS];

/// The most threads that a thief examines. Threads that may not move are rare.
const STEAL_TRIES: usize = 4;

impl fmt::Debug for RunQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueue")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
