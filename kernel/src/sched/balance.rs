//! Which CPU a runnable task goes to, and how idle CPUs find work.

use super::queue::RunQueue;
use super::switch::is_idle_task;
use super::{QUEUES, current, policy, tick};
use crate::arch::{self, cpu_id};
use crate::task::{Task, work};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

fn online(cpu: usize) -> bool {
    QUEUES[cpu].online.load(Ordering::Relaxed)
}

/// CPUs that run tasks, and that `task` may run on; all that run tasks if there is none.
fn allowed(task: &Task) -> impl Iterator<Item = usize> + Clone {
    let mut mask = 0u64;
    for cpu in arch::online_cpus().iter() {
        if online(cpu) {
            mask |= 1 << cpu;
        }
    }
    let both = mask & task.affinity.mask();
    let chosen = if both == 0 { mask } else { both };
    arch::CpuSet::from_mask(chosen).iter()
}

fn is_idle(cpu: usize) -> bool {
    QUEUES[cpu].idle.load(Ordering::Relaxed) && QUEUES[cpu].waiting.load(Ordering::Relaxed) == 0
}

/// The CPU for a task that wakes: its last one if idle, any idle one, else the less loaded of its
/// last one and this one.
fn cpu_for_woken(task: &Task) -> usize {
    let last = task.last_cpu();
    let mut choices = allowed(task);
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

/// The CPU for a new task: the least loaded; this one when several are.
fn cpu_for_new(task: &Task) -> usize {
    let here = cpu_id();
    allowed(task)
        .min_by_key(|&cpu| (QUEUES[cpu].load(), usize::from(cpu != here)))
        .unwrap_or(here)
}

/// Puts a task that was blocked on a run queue.
pub(super) fn enqueue_woken(task: Arc<Task>) {
    let cpu = cpu_for_woken(&task);
    put(cpu, task, true);
}

/// Puts a task back that lost its CPU.
pub(super) fn enqueue_left(task: Arc<Task>) {
    let cpu = cpu_id();
    if task.affinity.contains(cpu) {
        QUEUES[cpu].add(task, false);
        tick::ensure(&QUEUES[cpu]);
    } else {
        enqueue_elsewhere(task);
    }
}

/// Puts a task that may not run here on a queue of a CPU where it may.
pub(super) fn enqueue_elsewhere(task: Arc<Task>) {
    let cpu = cpu_for_new(&task);
    put(cpu, task, true);
}

/// Starts a new task, whose state is Blocked: puts it on a run queue for the first time.
pub(crate) fn start_new(task: Arc<Task>) {
    let made_runnable = task.state.wake();
    assert!(made_runnable, "a new task is not blocked");
    let cpu = cpu_for_new(&task);
    // A new task starts level with those that wait.
    task.vruntime
        .store(QUEUES[cpu].min_vruntime(), Ordering::Relaxed);
    put(cpu, task, false);
}

fn put(cpu: usize, task: Arc<Task>, slept: bool) {
    let queue = &QUEUES[cpu];
    queue.add(task, slept);
    if cpu == cpu_id() {
        kick_here(queue);
    } else {
        // It may be idle, or have no tick, or run a task that has had more than this one.
        arch::ipi::resched(cpu);
    }
}

/// Something was put on this CPU's queue.
fn kick_here(queue: &RunQueue) {
    if !super::started() {
        return;
    }
    let task = current();
    if is_idle_task(queue, task.as_non_null().as_ptr()) {
        return; // The idle loop looks before it halts.
    }
    preempt_if_due(queue, &task);
    tick::ensure(queue);
}

/// Marks the running task to be replaced when a waiting one is clearly behind it.
pub(super) fn preempt_if_due(queue: &RunQueue, running: &Task) {
    super::switch::charge(queue, running, arch::clock::now());
    let own = running.vruntime.load(Ordering::Relaxed);
    if queue.has_before(own.saturating_sub(policy::WAKE_GRANULARITY_NS)) {
        running.add_work(work::RESCHED);
    }
}

/// Takes a task from the CPU where most wait.
pub(super) fn steal(cpu: usize) -> Option<Arc<Task>> {
    let mut tried = 1u64 << cpu;
    // One turn for each CPU at most.
    loop {
        let busiest = arch::online_cpus()
            .iter()
            .filter(|&other| tried & (1 << other) == 0 && online(other))
            .max_by_key(|&other| QUEUES[other].waiting.load(Ordering::Relaxed))?;
        if QUEUES[busiest].waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        tried |= 1 << busiest;
        if let Some(task) = QUEUES[busiest].steal(cpu) {
            let own = task.vruntime.load(Ordering::Relaxed);
            let here = QUEUES[cpu].min_vruntime();
            task.vruntime
                .store(own.saturating_add(here), Ordering::Relaxed);
            return Some(task);
        }
    }
}

/// Tasks wait here: asks a CPU with clearly less to do to come and take one.
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

/// Takes a task from a CPU that has clearly more to do (its answer to [`offer`]).
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
    if let Some(task) = QUEUES[other].steal(cpu) {
        let own = task.vruntime.load(Ordering::Relaxed);
        let here = QUEUES[cpu].min_vruntime();
        task.vruntime
            .store(own.saturating_add(here), Ordering::Relaxed);
        QUEUES[cpu].add(task, false);
    }
}

/// The current task may not run on this CPU any more: moves it.
pub(crate) fn migrate_current() {
    let task = current();
    if !task.affinity.contains(cpu_id()) {
        super::switch::reschedule();
    }
}
