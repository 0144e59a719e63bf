//! Pressure stall information: how long the tasks of each CPU stall ([`logic::psi`]).
//!
//! The time that threads wait for a CPU is counted when that CPU's queue gets its first thread or
//! becomes empty. [`memory_stall`] and [`io_wait`] mark stalls for memory, reads and writes. While
//! a CPU has such threads, each of its switches updates its states. Otherwise a switch costs two
//! loads.

use super::queue::{QUEUES, RunQueue};
use super::running::current;
use super::switch::is_idle_thread;
use super::thread::Thread;
use super::wait_queue::WaitQueue;
use crate::arch::clock::{self, Nanos};
use crate::arch::spin::SpinLock;
use crate::arch::{self, MAX_CPUS, cpu_id};
use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use logic::psi::cpu::{Cpu, Running};
use logic::psi::group::{CpuTimes, Group, Report};
use logic::psi::{Resource, Stall, Times};

/// Bit of [`Thread::stalls`]: the thread stalls for memory.
const MEMORY: u32 = 1;
/// Bit of [`Thread::stalls`]: the thread waits for reads or writes when it sleeps.
const IO: u32 = 2;
/// Bit of [`Thread::stalls`]: the thread sleeps, and its CPU's counts include that.
const ASLEEP: u32 = 4;

/// The pressure stall information of one CPU: for how long its threads have waited for the CPU, and
/// how its threads stall for memory, reads and writes.
pub(super) struct Pressure {
    /// The time since which threads have waited for the CPU; 0 if none waits.
    contended_since_ns: AtomicU64,
    /// The time in nanoseconds for which threads waited for the CPU before `contended_since_ns`.
    contended_ns: AtomicU64,
    /// Threads of the CPU stall for memory, reads or writes.
    stalled: AtomicBool,
    cpu: SpinLock<Cpu>,
}

impl Pressure {
    /// Makes the state of a CPU without stalls.
    pub(super) const fn new() -> Self {
        Self {
            contended_since_ns: AtomicU64::new(0),
            contended_ns: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            cpu: SpinLock::new(Cpu::new()),
        }
    }

    /// Returns the time for which threads have waited for the CPU up to `now`, in nanoseconds.
    fn contended(&self, now: Nanos) -> u64 {
        let open = match self.contended_since_ns.load(Relaxed) {
            0 => 0,
            since => now.0.saturating_sub(since),
        };
        self.contended_ns.load(Relaxed) + open
    }

    #[inline]
    fn end_contended(&self, now: Nanos) {
        // Another CPU may end the period at the same time. Only one of them adds the time.
        let since = self.contended_since_ns.swap(0, Relaxed);
        if since != 0 {
            let waited = now.0.saturating_sub(since);
            self.contended_ns.fetch_add(waited, Relaxed);
        }
    }
}

/// Whether stalls are counted (boot word `psi`).
static ENABLED: AtomicBool = AtomicBool::new(true);
static GROUP: SpinLock<Group<MAX_CPUS>> = SpinLock::new(Group::new());
/// The number of watchers of each [`Resource`], whose stalls end [`wait_for_stall`].
static WATCHED: [AtomicU32; Resource::COUNT] = [const { AtomicU32::new(0) }; Resource::COUNT];
/// A watched resource may have stalled since the last [`wait_for_stall`].
static STALLED: AtomicBool = AtomicBool::new(false);
static WATCHER: WaitQueue = WaitQueue::new();

/// Stops the counting of stalls for memory, reads and writes (boot option `psi=0`).
pub fn disable() {
    ENABLED.store(false, Relaxed);
}

/// Records that a thread was put on `queue`, the run queue of any CPU, at `now`. The time in which
/// threads wait for that CPU then begins, unless it has begun before or the CPU is idle. An idle
/// CPU takes the thread at once.
#[inline]
pub(super) fn joined(queue: &RunQueue, now: Nanos) {
    if queue.pressure.contended_since_ns.load(Relaxed) == 0 && !queue.idle.load(Relaxed) {
        // SeqCst (both): either the CPU sees the time when it takes the thread, or this CPU sees
        // that the thread is gone.
        queue.pressure.contended_since_ns.store(now.0, SeqCst);
        if queue.waiting.load(SeqCst) == 0 {
            queue.pressure.end_contended(now);
        }
    }
    if queue.pressure.stalled.load(Relaxed) {
        look(queue, now, None);
    }
}

/// Records that another CPU has taken a thread out of `queue`. If no thread is left there, the time
/// in which threads wait for the CPU that owns `queue` ends.
pub(super) fn taken(queue: &RunQueue) {
    let now = clock::now();
    if queue.waiting() == 0 {
        queue.pressure.end_contended(now);
    }
    if queue.pressure.stalled.load(Relaxed) {
        look(queue, now, None);
    }
}

/// Updates the stall times of this CPU, which owns `queue`, after it has switched threads.
#[inline]
pub(super) fn switched(queue: &RunQueue) {
    let waits = queue.waiting.load(Relaxed) != 0;
    if waits != (queue.pressure.contended_since_ns.load(Relaxed) != 0) {
        let now = queue.slice_start();
        if waits {
            queue.pressure.contended_since_ns.store(now.0, Relaxed);
        } else {
            queue.pressure.end_contended(now);
        }
    }
    if queue.pressure.stalled.load(Relaxed) {
        look(queue, queue.slice_start(), Some(running(queue)));
    }
}

/// Returns what this CPU, which owns `queue`, runs.
fn running(queue: &RunQueue) -> Running {
    let thread = current();
    if is_idle_thread(queue, thread.as_non_null().as_ptr()) {
        Running::Idle
    } else if thread.stalls.load(Relaxed) & MEMORY != 0 {
        Running::Stalled
    } else {
        Running::Productive
    }
}

/// Updates the states of the CPU that owns `queue`, at `now`, after threads have come or gone.
/// `running` is what the CPU runs, or `None` if that has not changed.
#[cold]
fn look(queue: &RunQueue, now: Nanos, running: Option<Running>) {
    change(queue, now, |tasks| {
        if let Some(running) = running {
            tasks.running = running;
        }
    });
}

/// Applies `change` to the counts of tasks of the CPU that owns `queue`, at `now`, and updates the
/// CPU's states.
fn change(queue: &RunQueue, now: Nanos, change: impl FnOnce(&mut logic::psi::cpu::Tasks)) {
    let mut cpu = queue.pressure.cpu.lock();
    let any = cpu.change(now.0, |tasks| {
        change(tasks);
        tasks.waiting = queue.waiting.load(Relaxed);
    });
    // Relaxed: written with the lock held. A CPU that reads it late updates its states at its next
    // switch.
    queue.pressure.stalled.store(any, Relaxed);
}

/// Counts `thread`, which is marked as stalling, as asleep from `now` on if it is about to block.
/// This CPU, which owns `queue`, stops running the thread. Does nothing if the thread does not
/// block.
#[cold]
pub(super) fn leaves(queue: &RunQueue, thread: &Thread, now: Nanos) {
    if !thread.state.is_parking() {
        return;
    }
    let stalls = thread.stalls.load(Relaxed);
    // Relaxed: the thread belongs to this CPU until its state is settled, and then to its waker.
    thread.stalls.store(stalls | ASLEEP, Relaxed);
    change(queue, now, |tasks| {
        tasks.in_memory_runnable -= i32::from(stalls & MEMORY != 0);
        tasks.in_io += i32::from(stalls & IO != 0);
    });
}

/// Counts `thread`, which is marked as stalling, as runnable again. It still counts for the CPU
/// where it slept. Does nothing if the thread was not counted as asleep ([`leaves`]).
#[cold]
pub(super) fn wakes(thread: &Thread) {
    let stalls = thread.stalls.load(Relaxed);
    if stalls & ASLEEP == 0 {
        return;
    }
    thread.stalls.store(stalls & !ASLEEP, Relaxed);
    change(&QUEUES[thread.last_cpu()], clock::now(), |tasks| {
        tasks.in_memory_runnable += i32::from(stalls & MEMORY != 0);
        tasks.in_io -= i32::from(stalls & IO != 0);
    });
}

/// Moves `thread`, which is runnable, from the counts of CPU `from` to those of CPU `to` if the
/// thread stalls for memory. Does nothing otherwise.
#[cold]
pub(super) fn moves(thread: &Thread, from: usize, to: usize) {
    if thread.stalls.load(Relaxed) & MEMORY == 0 {
        return;
    }
    let now = clock::now();
    for (cpu, more) in [(from, -1), (to, 1)] {
        change(&QUEUES[cpu], now, |tasks| {
            tasks.in_memory += more;
            tasks.in_memory_runnable += more;
        });
    }
}

/// A mark on the thread that made it: the thread stalls for memory, or waits for reads or writes
/// whenever it sleeps. Dropping this value removes the mark.
#[derive(Debug)]
pub struct Stalling {
    /// The bit of [`Thread::stalls`] that it has set; 0 if the bit was set already or stalls are
    /// not counted.
    bit: u32,
    /// It belongs to the thread that made it.
    _not_send: PhantomData<*mut ()>,
}

impl Stalling {
    const NOTHING: Self = Self {
        bit: 0,
        _not_send: PhantomData,
    };

    fn begin(bit: u32) -> Self {
        let thread = current();
        let stalls = thread.stalls.load(Relaxed);
        if stalls & bit != 0 || !ENABLED.load(Relaxed) {
            return Self::NOTHING;
        }
        thread.stalls.store(stalls | bit, Relaxed);
        Self {
            bit,
            _not_send: PhantomData,
        }
    }
}

impl Drop for Stalling {
    fn drop(&mut self) {
        if self.bit == 0 {
            return;
        }
        let thread = current();
        let stalls = thread.stalls.load(Relaxed);
        thread.stalls.store(stalls & !self.bit, Relaxed);
        if self.bit == MEMORY {
            change_own(-1);
        }
    }
}

/// Adds the current thread to those of its CPU that stall for memory if `more` is 1, or removes it
/// if `more` is -1.
fn change_own(more: i32) {
    let queue = &QUEUES[cpu_id()];
    let now = clock::now();
    let running = running(queue);
    change(queue, now, |tasks| {
        tasks.in_memory += more;
        tasks.in_memory_runnable += more;
        tasks.running = running;
    });
    super::load::update(now);
}

/// Marks the current thread as stalled for memory until the returned value is dropped. If the
/// thread is marked already, or stalls are not counted, the returned value has no effect. Call this
/// while the thread reclaims memory or waits for some. The caller is a thread and holds no spin
/// lock, because this may wake a watcher of the pressure.
pub fn memory_stall() -> Stalling {
    let stalling = Stalling::begin(MEMORY);
    if stalling.bit != 0 {
        change_own(1);
        tell(Resource::Memory);
    }
    stalling
}

/// Makes the sleeps of the current thread count as waits for reads and writes until the returned
/// value is dropped. If the thread is marked already, or stalls are not counted, the returned value
/// has no effect. The caller is a thread and holds no spin lock, because this may wake a watcher of
/// the pressure.
pub fn io_wait() -> Stalling {
    let stalling = Stalling::begin(IO);
    if stalling.bit != 0 {
        tell(Resource::Io);
    }
    stalling
}

/// Wakes the thread in [`wait_for_stall`] if `resource` is watched.
fn tell(resource: Resource) {
    if is_watched(resource) && !STALLED.swap(true, Relaxed) {
        WATCHER.wake_all();
    }
}

fn is_watched(resource: Resource) -> bool {
    WATCHED[resource as usize].load(Relaxed) != 0
}

/// Wakes the thread in [`wait_for_stall`] if stalls for the CPU are watched and threads wait in
/// `queue`, the run queue of this CPU. The timer interrupt calls this. While threads wait, the
/// timer fires soon.
#[inline]
pub(super) fn on_timer(queue: &RunQueue) {
    if is_watched(Resource::Cpu) && queue.waiting() != 0 {
        tell(Resource::Cpu);
    }
}

/// Adds a watcher of stalls for `resource`: until [`unwatch`] is called, such stalls also end
/// [`wait_for_stall`]. Wakes a thread that is in [`wait_for_stall`].
pub fn watch(resource: Resource) {
    WATCHED[resource as usize].fetch_add(1, Relaxed);
    STALLED.store(true, Relaxed);
    WATCHER.wake_all();
}

/// Removes one watcher of stalls for `resource` that [`watch`] has added.
pub fn unwatch(resource: Resource) {
    WATCHED[resource as usize].fetch_sub(1, Relaxed);
}

/// Blocks the current thread until a watched resource may have stalled since the last call, or
/// until [`watch`] is called. Signals do not end the wait.
pub fn wait_for_stall() {
    WATCHER.wait_uninterruptible(|| STALLED.swap(false, Relaxed));
}

/// Updates the totals in `group` to `now`, and its averages if they are due.
fn collect(group: &mut Group<MAX_CPUS>, now: Nanos) {
    group.collect(arch::online_cpus().iter().map(|cpu| {
        let queue = &QUEUES[cpu];
        let (mut stalls, beside) = queue.pressure.cpu.lock().times(now.0);
        stalls[Stall::CpuSome as usize] = queue.pressure.contended(now);
        let busy = now.0.saturating_sub(queue.idle_until(now)) + beside;
        (cpu, CpuTimes { busy, stalls })
    }));
    group.step(now.0);
}

/// Updates the averages of pressure if they are due at `now`. Returns the time at which they are
/// due next, or [`Nanos::MAX`] if stalls are not counted. If another CPU uses the averages at this
/// moment, does nothing and returns `now`.
pub(super) fn update(now: Nanos) -> Nanos {
    let Some(mut group) = GROUP.try_lock() else {
        return now;
    };
    if ENABLED.load(Relaxed) && now.0 >= group.due() {
        collect(&mut group, now);
    }
    if ENABLED.load(Relaxed) {
        Nanos(group.due())
    } else {
        Nanos::MAX
    }
}

/// Returns the present averages and the total of the stalls for `resource`.
pub fn report(resource: Resource) -> Report {
    let mut group = GROUP.lock();
    collect(&mut group, clock::now());
    group.report(resource)
}

/// Returns the present totals of all kinds of stall, in nanoseconds, and the time at which they
/// were computed.
pub fn totals() -> (Times, Nanos) {
    let now = clock::now();
    let mut group = GROUP.lock();
    collect(&mut group, now);
    (*group.totals(), now)
}
