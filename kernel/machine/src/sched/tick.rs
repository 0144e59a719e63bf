//! The end of a slice, the timer interrupt and the reschedule interrupt.
//!
//! The timer is set for the end of a slice only while another thread waits. A thread alone on its
//! CPU, and an idle CPU, get no ticks.

use super::owner::OWNER;
use super::queue::{QUEUES, RunQueue};
use super::realtime::{self, Due};
use super::running::current;
use super::switch::is_idle_thread;
use super::thread::{Thread, work};
use super::{balance, load, pressure, timer};
use crate::arch::clock::{self, Nanos};
use crate::arch::cpu_id;
use core::sync::atomic::Ordering;
use logic::sched::policy;

/// Starts a new slice of the current thread at `now`, on the CPU that owns `queue`.
pub(super) fn begin_slice(queue: &RunQueue, now: Nanos) {
    let waiting = queue.waiting.load(Ordering::Relaxed);
    let thread = current();
    queue.set_slice(now, policy::slice_ns(waiting, thread.weighed()));
    queue.ticking.store(false, Ordering::Relaxed);
    if realtime::present() {
        realtime::limit_slice(queue, &thread, now);
    }
    if waiting != 0 {
        arm(queue);
    }
    if let Some(tick) = (OWNER.wants_tick)(thread, now) {
        timer::ensure_armed(tick);
    }
    load::update(now);
}

/// Makes this CPU's timer fire when the running thread's slice ends, or before. Call this when a
/// thread waits in `queue`, the run queue of this CPU.
pub(super) fn ensure(queue: &RunQueue) {
    if realtime::present() {
        realtime::limit_slice(queue, &current(), clock::now());
    }
    arm(queue);
}

fn arm(queue: &RunQueue) {
    queue.ticking.store(true, Ordering::Relaxed);
    timer::ensure_armed(queue.slice_end());
}

/// Checks whether the slice of `thread`, the running thread, has ended at `now`. If no thread waits
/// in `queue`, this CPU's run queue, only notes that the slice needs no timer. Otherwise charges
/// `thread` up to `now`. If its slice has ended, offers a waiting thread to another CPU. Then
/// requests that a waiting thread replace `thread` ([`work::RESCHED`]), or gives `thread` another
/// slice if it is still the one to run.
fn check_slice(queue: &RunQueue, thread: &Thread, now: Nanos) {
    if queue.waiting() == 0 {
        queue.ticking.store(false, Ordering::Relaxed);
        return;
    }
    super::switch::charge(queue, thread, now);
    if now < queue.slice_end() {
        return;
    }
    balance::offer(cpu_id());
    if realtime::present() {
        match realtime::due(queue, thread, now) {
            Due::Switch => return thread.add_work(work::RESCHED),
            Due::Stay => return realtime::renew(queue, thread, now),
            Due::ByWeight => {}
        }
    }
    // The thread continues while it is ahead: it has had less time for its weight than the waiting
    // threads.
    let Some(lead) = queue.lead(thread.vruntime.load(Ordering::Relaxed)) else {
        return thread.add_work(work::RESCHED);
    };
    // The thread's weight may have changed.
    queue.note_running(thread);
    let length = policy::renewal_ns(lead, queue.waiting(), thread.weighed());
    queue.set_slice(now, length);
    if realtime::present() {
        realtime::limit_slice(queue, thread, now);
    }
}

/// Handles this CPU's timer interrupt: runs expired timers, checks the slice of the running thread,
/// and sets the timer again.
pub fn on_timer() {
    let now = clock::now();
    timer::run_expired(now);
    if !super::started() {
        return;
    }
    let queue = &QUEUES[cpu_id()];
    pressure::on_timer(queue);
    let thread = current();
    let mut next = None;
    if !is_idle_thread(queue, thread.as_non_null().as_ptr()) {
        check_slice(queue, &thread, now);
        if queue.ticking.load(Ordering::Relaxed) && now < queue.slice_end() {
            next = Some(queue.slice_end());
        }
        if let Some(deadline) = (OWNER.tick)(thread, now) {
            next = Some(next.map_or(deadline, |slice| slice.min(deadline)));
        }
    }
    load::update(now);
    timer::rearm(next);
}

/// Handles another CPU's request to check this CPU's run queue
/// ([`Entries::resched`](crate::arch::Entries::resched)). Takes a thread from the CPU with the most
/// load if that load is at least two threads more. Marks the running thread for replacement if
/// another one is due.
pub fn on_resched() {
    if !super::started() {
        return;
    }
    let cpu = cpu_id();
    let queue = &QUEUES[cpu];
    balance::pull(cpu);
    let thread = current();
    if is_idle_thread(queue, thread.as_non_null().as_ptr()) {
        return;
    }
    let now = clock::now();
    super::switch::note_weight(queue, &thread, now);
    if queue.waiting() == 0 {
        return;
    }
    balance::preempt_if_due(queue, &thread, now);
    ensure(queue);
}
