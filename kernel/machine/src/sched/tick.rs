//! The end of a slice, the timer interrupt and the reschedule interrupt.
//!
//! The timer is set for the end of a slice only while somebody waits; a thread alone on its CPU, and
//! an idle CPU, get no ticks.

use super::queue::{QUEUES, RunQueue};
use super::switch::is_idle_thread;
use super::thread::{OWNER, Thread, current, work};
use super::{balance, load, timer};
use crate::arch::clock::{self, Nanos};
use crate::arch::{cpu_id, ipi};
use core::sync::atomic::Ordering;
use logic::sched::policy;

/// The current thread gets a fresh slice.
pub(super) fn begin_slice(queue: &RunQueue, now: Nanos) {
    let waiting = queue.waiting.load(Ordering::Relaxed);
    queue.set_slice(now, policy::slice_ns(waiting));
    queue.ticking.store(false, Ordering::Relaxed);
    if waiting != 0 {
        ensure(queue);
    }
    if let Some(tick) = (OWNER.wants_tick)(&current(), now) {
        timer::ensure_armed(tick);
    }
    load::update(now);
}

/// Somebody waits on this CPU: sees to it that the running thread's slice ends.
pub(super) fn ensure(queue: &RunQueue) {
    queue.ticking.store(true, Ordering::Relaxed);
    timer::ensure_armed(queue.slice_end());
}

/// Looks for the end of the running thread's slice.
fn check_slice(queue: &RunQueue, thread: &Thread, now: Nanos) {
    if queue.waiting() == 0 {
        queue.ticking.store(false, Ordering::Relaxed);
        return;
    }
    super::switch::charge(queue, thread, now);
    if now >= queue.slice_end() {
        thread.add_work(work::RESCHED);
        balance::offer(cpu_id());
    }
}

/// This CPU's timer fired.
pub fn on_timer() {
    let now = clock::now();
    timer::run_expired(now);
    if !super::started() {
        return;
    }
    let queue = &QUEUES[cpu_id()];
    let thread = current();
    let mut next = None;
    if !is_idle_thread(queue, thread.as_non_null().as_ptr()) {
        check_slice(queue, &thread, now);
        if queue.ticking.load(Ordering::Relaxed) && now < queue.slice_end() {
            next = Some(queue.slice_end());
        }
        if let Some(deadline) = (OWNER.tick)(&thread, now) {
            next = Some(next.map_or(deadline, |slice| slice.min(deadline)));
        }
    }
    load::update(now);
    timer::rearm(next);
}

/// Another CPU asks this one to look at its run queue.
pub fn on_resched() {
    if !super::started() {
        return;
    }
    let cpu = cpu_id();
    let queue = &QUEUES[cpu];
    balance::pull(cpu);
    let thread = current();
    if is_idle_thread(queue, thread.as_non_null().as_ptr()) || queue.waiting() == 0 {
        return;
    }
    balance::preempt_if_due(queue, &thread);
    ensure(queue);
}

/// Does in the kernel, where no interrupt comes, what others wait for: answers other CPUs, and serves due timers. Whoever
/// the caller waits for may need either.
pub(super) fn serve(now: Nanos) {
    ipi::poll_mailbox();
    if timer::is_due(now) {
        on_timer();
    }
}

/// A look at the clock in the kernel: serves what is due and lets others run.
pub(super) fn poll() {
    let queue = &QUEUES[cpu_id()];
    let now = clock::now();
    serve(now);
    if (queue.waiting() != 0 && now >= queue.slice_end()) || super::need_resched() {
        super::reschedule();
    }
}
