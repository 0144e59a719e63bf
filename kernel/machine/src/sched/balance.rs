//! Chooses the CPU for a runnable thread, and finds work for idle CPUs.

use super::owner::Owned;
use super::queue::{QUEUES, RunQueue};
use super::realtime::{self, Due};
use super::running::current;
use super::switch::is_idle_thread;
use super::thread::{Thread, work};
use super::{pressure, tick};
use crate::arch::clock::{self, Nanos};
use crate::arch::{self, cpu_id};
use core::sync::atomic::Ordering;
use logic::sched::policy;

fn online(cpu: usize) -> bool {
    QUEUES[cpu].online.load(Ordering::Relaxed)
}

/// Returns the CPUs that run threads and that `thread` may use. If there are none, returns all CPUs
/// that run threads.
fn allowed(thread: &Thread) -> impl Iterator<Item = usize> + Clone {
    let mut mask = 0u64;
    for cpu in arch::online_cpus().iter() {
        if online(cpu) {
            mask |= 1 << cpu;
        }
    }
    let both = mask & thread.affinity().mask();
    let chosen = if both == 0 { mask } else { both };
    arch::CpuSet::from_mask(chosen).iter()
}

fn is_idle(cpu: usize) -> bool {
    QUEUES[cpu].idle.load(Ordering::Relaxed) && QUEUES[cpu].waiting.load(Ordering::Relaxed) == 0
}

/// Returns the CPU for `thread`, which was woken: its last one if idle, else any idle one.
/// Otherwise returns its last one or this one, whichever has less load. Only considers CPUs that
/// `thread` may use. A thread with a real-time priority gets the CPU of [`cpu_for_priority`].
fn cpu_for_woken(thread: &Thread) -> usize {
    if thread.priority() != 0 {
        return cpu_for_priority(thread);
    }
    let last = thread.last_cpu();
    let mut choices = allowed(thread);
    if choices.clone().any(|cpu| cpu == last) && is_idle(last) {
        return last;
    }
    if let Some(cpu) = choices.clone().find(|&cpu| is_idle(cpu)) {
        return cpu;
    }
    let here = cpu_id();
    let (mut last_allowed, mut here_allowed) = (false, false);
    for cpu in choices.clone() {
        last_allowed |= cpu == last;
        here_allowed |= cpu == here;
    }
    match (last_allowed, here_allowed) {
        (true, true) if QUEUES[here].load() < QUEUES[last].load() => here,
        (true, _) => last,
        (false, true) => here,
        (false, false) => choices.next().unwrap_or(here),
    }
}

/// Returns the CPU for `thread`, which has a real-time priority: its last one if idle, else any
/// idle one. Otherwise returns the CPU whose highest priority is lowest, if that is below the
/// thread's own. If the thread must wait on every CPU that it may use, returns its last one.
fn cpu_for_priority(thread: &Thread) -> usize {
    let (last, own) = (thread.last_cpu(), thread.priority());
    let level = |cpu: usize| match QUEUES[cpu].level() {
        _ if is_idle(cpu) => 0,
        level if level < own => level + 1,
        _ => u32::MAX,
    };
    allowed(thread)
        .min_by_key(|&cpu| (level(cpu), usize::from(cpu != last)))
        .unwrap_or(last)
}

/// Returns the CPU for `thread`, which is new: the least loaded one that it may use, and among
/// equals this one. A thread with a real-time priority gets the CPU of [`cpu_for_priority`].
fn cpu_for_new(thread: &Thread) -> usize {
    if thread.priority() != 0 {
        return cpu_for_priority(thread);
    }
    let here = cpu_id();
    allowed(thread)
        .min_by_key(|&cpu| (QUEUES[cpu].load(), usize::from(cpu != here)))
        .unwrap_or(here)
}

/// Puts `thread`, which was blocked, on the run queue of a CPU that it may use, an idle one if
/// possible. If the thread shares by weight, it gets the credit of a thread that slept.
pub(super) fn enqueue_woken(thread: Owned) {
    let cpu = cpu_for_woken(&thread);
    put(cpu, thread, true);
}

/// Puts `thread`, which is runnable and has not slept, on the run queue of a CPU that it may use,
/// an idle one if possible. Called if the thread's priority has changed while it waited in a queue.
/// Also called if the thread has a real-time priority and has just stopped running.
pub(super) fn enqueue_anew(thread: Owned) {
    let cpu = cpu_for_woken(&thread);
    put(cpu, thread, false);
}

/// Puts `thread`, which this CPU has just stopped running and which can continue, back on a run
/// queue. This is the queue of this CPU if the thread shares by weight and may run here. Otherwise
/// it is the queue of another CPU that the thread may use, or of this one again.
pub(super) fn enqueue_left(thread: Owned) {
    let cpu = cpu_id();
    if thread.affinity().contains(cpu) {
        match QUEUES[cpu].add_left(cpu, thread) {
            None => tick::ensure(&QUEUES[cpu]),
            // Another CPU may run a lower priority.
            Some(thread) => enqueue_anew(thread),
        }
    } else {
        enqueue_elsewhere(thread);
    }
}

/// Puts `thread`, which may not run on this CPU, on the run queue of a CPU that it may use. If the
/// thread shares by weight, this is the CPU with the least load.
pub(super) fn enqueue_elsewhere(thread: Owned) {
    let cpu = cpu_for_new(&thread);
    put(cpu, thread, false);
}

/// Starts `thread`, which has never run, by putting it on a run queue. Other threads may know the
/// thread before it starts. It serves the bits that they set in its work word before it enters user
/// mode.
///
/// # Panics
/// If the thread was started before, or is an idle thread.
pub fn start_new(thread: Owned) {
    assert!(thread.stack.is_some(), "an idle thread is started");
    let started = thread.state.start();
    assert!(started, "a thread is started that is not new");
    let cpu = cpu_for_new(&thread);
    thread.cpu.store(cpu, Ordering::Relaxed);
    // A new thread starts level with the waiting threads.
    thread
        .vruntime
        .store(QUEUES[cpu].min_vruntime(), Ordering::Relaxed);
    put(cpu, thread, false);
}

fn put(cpu: usize, thread: Owned, slept: bool) {
    let queue = &QUEUES[cpu];
    let from = thread.last_cpu();
    if from != cpu {
        let (before, after) = (QUEUES[from].min_vruntime(), queue.min_vruntime());
        let own = thread.vruntime.load(Ordering::Relaxed);
        let moved = policy::moved(own, before, after);
        thread.vruntime.store(moved, Ordering::Relaxed);
        thread.cpu.store(cpu, Ordering::Relaxed);
        if thread.is_stalling() {
            pressure::moves(&thread, from, cpu);
        }
    }
    let now = clock::now();
    let ahead = queue.add(cpu, thread, slept, now);
    pressure::joined(queue, now);
    if cpu == cpu_id() {
        kick_here(queue, ahead, now);
    } else {
        // The CPU may be idle, have no tick, or run a thread that has had more time than this one.
        arch::ipi::resched(cpu);
    }
}

/// Makes this CPU react to a thread that was put on `queue`, its run queue, at the time `now`:
/// marks the running thread for replacement if necessary, and sets the timer. `ahead` says that the
/// running thread is clearly ahead of the new one in virtual time.
fn kick_here(queue: &RunQueue, ahead: bool, now: Nanos) {
    if !super::started() {
        return;
    }
    let thread = current();
    if is_idle_thread(queue, thread.as_non_null().as_ptr()) {
        return; // The idle loop checks before it halts.
    }
    if realtime::present() {
        preempt_if_due(queue, &thread, now);
    } else if ahead {
        preempt_if_disturbed(queue, &thread, now);
    }
    tick::ensure(queue);
}

/// Marks `running`, the running thread, for replacement ([`work::RESCHED`]), because it is ahead of
/// a thread in `queue` in virtual time. `now` is the present time. A thread that has just started
/// its slice keeps the CPU for a moment: its slice is shortened instead. Otherwise a thread that
/// wakes many others would lose the CPU to each of them.
fn preempt_if_disturbed(queue: &RunQueue, running: &Thread, now: Nanos) {
    if now >= queue.shorten_slice(policy::UNDISTURBED_NS) {
        running.add_work(work::RESCHED);
    }
}

/// Charges `running`, the current thread of this CPU, up to `now`. Then requests that it be
/// replaced ([`work::RESCHED`]) if [`realtime::due`] says so. While weights decide, requests that
/// if a thread in `queue` is clearly behind `running` in virtual time, and `running` has had
/// [`policy::UNDISTURBED_NS`] of its slice. If it has not, shortens the slice to that.
pub(super) fn preempt_if_due(queue: &RunQueue, running: &Thread, now: Nanos) {
    super::switch::charge(queue, running, now);
    if realtime::present() {
        match realtime::due(queue, running, now) {
            Due::Switch => return running.add_work(work::RESCHED),
            Due::Stay => return,
            Due::ByWeight => {}
        }
    }
    let own = running.vruntime.load(Ordering::Relaxed);
    if queue.has_before(own.saturating_sub(policy::WAKE_GRANULARITY_NS)) {
        preempt_if_disturbed(queue, running, now);
    }
}

/// Makes `thread`, which was just stolen, a thread of CPU `cpu`. Converts its relative virtual time
/// to that of the CPU, and moves it in the counts of stalling threads.
fn arrive(thread: &Thread, cpu: usize) {
    let from = thread.last_cpu();
    pressure::taken(&QUEUES[from]);
    if thread.is_stalling() {
        pressure::moves(thread, from, cpu);
    }
    let own = thread.vruntime.load(Ordering::Relaxed);
    let here = QUEUES[cpu].min_vruntime();
    thread
        .vruntime
        .store(own.saturating_add(here), Ordering::Relaxed);
    thread.cpu.store(cpu, Ordering::Relaxed);
}

/// Takes a waiting thread for CPU `cpu` from the CPU where most threads wait. If that CPU has no
/// thread that may move, takes one from another CPU. Returns `None` if no thread was found.
pub(super) fn steal(cpu: usize) -> Option<Owned> {
    let mut tried = 1u64 << cpu;
    // Ends: at most one turn for each CPU.
    loop {
        let busiest = arch::online_cpus()
            .iter()
            .filter(|&other| tried & (1 << other) == 0 && online(other))
            .max_by_key(|&other| QUEUES[other].waiting.load(Ordering::Relaxed))?;
        if QUEUES[busiest].waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        tried |= 1 << busiest;
        if let Some(thread) = QUEUES[busiest].steal(cpu) {
            arrive(&thread, cpu);
            return Some(thread);
        }
    }
}

/// Interrupts the CPU with the least load, so that it takes a thread that waits on CPU `cpu`
/// ([`pull`]). Does nothing if the load of that CPU is not at least two threads less than the load
/// of `cpu`. Does not wait.
pub(super) fn offer(cpu: usize) {
    let load = QUEUES[cpu].load();
    let idlest = arch::online_cpus()
        .iter()
        .filter(|&other| other != cpu && online(other))
        .min_by_key(|&other| QUEUES[other].load());
    if let Some(other) = idlest
        && QUEUES[other].load() + 2 <= load
    {
        arch::ipi::resched(other);
    }
}

/// Moves a waiting thread from the run queue of the CPU with the most load to that of CPU `cpu`.
/// Does nothing if that CPU's load is not at least two threads more than the load of `cpu`, or if
/// its queue has no thread that may move. A CPU that [`offer`] has interrupted calls this.
pub(super) fn pull(cpu: usize) {
    let load = QUEUES[cpu].load();
    let busiest = arch::online_cpus()
        .iter()
        .filter(|&other| other != cpu && online(other))
        .max_by_key(|&other| QUEUES[other].load());
    let Some(other) = busiest else { return };
    if QUEUES[other].load() < load + 2 {
        return;
    }
    if let Some(thread) = QUEUES[other].steal(cpu) {
        arrive(&thread, cpu);
        let now = clock::now();
        QUEUES[cpu].add(cpu, thread, false, now);
        pressure::joined(&QUEUES[cpu], now);
    }
}

/// Moves the current thread to another CPU if its affinity does not allow this one.
pub fn migrate_current() {
    let thread = current();
    if !thread.affinity().contains(cpu_id()) {
        super::switch::reschedule();
    }
}
