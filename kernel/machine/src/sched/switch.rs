//! Leaving one thread for another.

use super::queue::{QUEUES, RunQueue};
use super::thread::{Current, OWNER, Owned, Thread, current, work};
use super::{balance, tick};
use crate::arch::clock::{self, Nanos};
use crate::arch::spin::assert_no_spin_lock_held;
use crate::arch::{self, MAX_CPUS, cpu_id};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use logic::sched::policy;
use logic::sched::state::{Left, State};

/// The thread that each CPU has just left, until whoever runs next there has settled its state. Its
/// CPU's own.
static LEFT: [AtomicPtr<Thread>; MAX_CPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CPUS];

pub(super) fn is_idle_thread(queue: &RunQueue, thread: *const Thread) -> bool {
    ptr::eq(queue.idle_thread.load(Ordering::Relaxed), thread)
}

/// Books the current thread's time up to now.
pub(super) fn charge(queue: &RunQueue, thread: &Thread, now: Nanos) {
    let ran = thread.account.settle(now);
    charge_virtual(queue, thread, ran);
}

fn charge_virtual(_queue: &RunQueue, thread: &Thread, ran_ns: u64) {
    let virtual_ns = policy::scaled(ran_ns, thread.weighed());
    // A thread's virtual time is its CPU's while it runs: plain load and store.
    let sum = thread.vruntime.load(Ordering::Relaxed) + virtual_ns;
    thread.vruntime.store(sum, Ordering::Relaxed);
}

/// Takes the next thread that may run here; those that may not are sent where they may.
fn take_allowed(queue: &RunQueue, cpu: usize) -> Option<Owned> {
    // At most as many turns as threads wait: each takes one away for good.
    loop {
        let thread = queue.take()?;
        if thread.affinity().contains(cpu) {
            return Some(thread);
        }
        balance::enqueue_elsewhere(thread);
    }
}

/// Gives the CPU to the next thread. The current one goes on later, if its state says that it can
/// run; `voluntary`: it waits or yields.
pub(super) fn schedule(voluntary: bool) {
    assert_no_spin_lock_held();
    let cpu = cpu_id();
    let queue = &QUEUES[cpu];
    let previous = current();
    let idle = is_idle_thread(queue, previous.as_non_null().as_ptr());
    let mut next = take_allowed(queue, cpu);
    if next.is_none() {
        if idle || previous.state.is_parking() || previous.state.get() == State::Dead {
            next = balance::steal(cpu);
        } else if previous.affinity().contains(cpu) {
            // Nobody else wants to run.
            tick::begin_slice(queue, clock::now());
            return;
        }
    }
    match next {
        Some(next) => switch_to(queue, previous, next, voluntary),
        None if idle => {}
        None => switch_to(queue, previous, idle_thread(queue), voluntary),
    }
}

fn switch_to(queue: &RunQueue, previous: Current, next: Owned, voluntary: bool) {
    let cpu = cpu_id();
    let now = clock::now();
    debug_assert!(!ptr::eq(next.as_ptr(), previous.as_non_null().as_ptr()));
    let system_before = previous.account.system_ns();
    let ran = previous.account.switched_out(now, voluntary);
    let system = previous.account.system_ns() - system_before;
    queue.system_ns.store(
        queue.system_ns.load(Ordering::Relaxed) + system,
        Ordering::Relaxed,
    );
    charge_virtual(queue, &previous, ran);
    queue.switches.store(
        queue.switches.load(Ordering::Relaxed) + 1,
        Ordering::Relaxed,
    );
    if let Some(stack) = &previous.stack {
        assert!(
            stack.is_intact(),
            "the kernel stack of {:?} has overflowed",
            *previous
        );
    }

    if !is_idle_thread(queue, next.as_ptr()) {
        next.state.picked();
    }
    next.cpu.store(cpu, Ordering::Relaxed);
    next.account.switched_in(now);
    (OWNER.switch)(&previous, &next);
    // The CPU's reference: taken back in `settle_left`.
    let next = next.into_raw();
    // SAFETY: the CPU's reference keeps `next` alive as long as it runs here.
    let next_thread = unsafe { next.as_ref() };
    arch::set_current_thread(next.as_ptr() as usize);
    // SAFETY: as above; the stack belongs to the thread.
    unsafe {
        arch::set_work_flags(&raw const next_thread.work);
        if let Some(stack) = &next_thread.stack {
            arch::set_kernel_stack(stack.top() as u64);
        }
    }
    LEFT[cpu].store(previous.as_non_null().as_ptr(), Ordering::Relaxed);
    tick::begin_slice(queue, now);
    // SAFETY: `next` is Running by our doing alone, so it was saved whole and runs nowhere; the
    // previous thread's context is its own, and nobody else switches it while it is unsettled.
    unsafe { arch::context::switch(previous.context.get(), next_thread.context.get()) };
    // Some CPU continues the previous thread here, later.
    settle_left();
}

/// Settles the state of the thread that this CPU has just left; called first thing by whoever runs
/// next.
pub(super) fn settle_left() {
    let cpu = cpu_id();
    let left = LEFT[cpu].swap(ptr::null_mut(), Ordering::Relaxed);
    let Some(left) = NonNull::new(left) else {
        return;
    };
    if is_idle_thread(&QUEUES[cpu], left.as_ptr()) {
        return;
    }
    // SAFETY: this is the reference of the CPU that ran it.
    let thread = unsafe { Owned::from_raw(left) };
    match thread.state.switched_out() {
        Left::Enqueue => balance::enqueue_left(thread),
        Left::Nothing => {
            // From here on it belongs to whoever wakes it; it may be gone already.
            let _ = thread.into_raw();
        }
        Left::Bury => drop(thread),
    }
}

/// Where a new thread starts. The state of the thread before it is settled first.
pub(super) extern "C" fn begin(_: usize) -> ! {
    settle_left();
    (OWNER.begin)()
}

/// Lets another thread run if it is due; the current one stays runnable.
pub fn reschedule() {
    let thread = current();
    thread.clear_work(work::RESCHED);
    // A wait inside a wait's test: the outer one tests again.
    thread.state.cancel();
    schedule(false);
}

pub(super) fn yield_now() {
    let now = clock::now();
    tick::serve(now);
    let thread = current();
    thread.clear_work(work::RESCHED);
    thread.state.cancel();
    let queue = &QUEUES[cpu_id()];
    charge(queue, &thread, now);
    // Behind those that wait: as if it had used what is left of its slice.
    if queue.waiting() != 0 {
        let behind = queue.min_vruntime() + policy::SHORT_SLICE_NS;
        let own = thread.vruntime.load(Ordering::Relaxed);
        thread.vruntime.store(own.max(behind), Ordering::Relaxed);
        schedule(true);
    }
}

/// Ends the current thread: its last code.
pub fn exit_current() -> ! {
    current().state.die();
    schedule(true);
    unreachable!("a dead thread was scheduled");
}

fn idle_thread(queue: &RunQueue) -> Owned {
    let thread = queue.idle_thread.load(Ordering::Relaxed);
    // SAFETY: set before this CPU schedules. The count that it came with is never given back, so it
    // stands for this one too: `settle_left` drops none of an idle thread.
    unsafe { Owned::from_raw(NonNull::new_unchecked(thread)) }
}
