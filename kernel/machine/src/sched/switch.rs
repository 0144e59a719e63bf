//! Switches from one thread to another.

use super::owner::{OWNER, Owned};
use super::queue::{QUEUES, RunQueue};
use super::running::{Current, current};
use super::thread::{Thread, work};
use super::{balance, fpu, pressure, realtime, tick};
use crate::arch::clock::{self, Nanos};
use crate::arch::spin::assert_no_spin_lock_held;
use crate::arch::{self, MAX_CPUS, cpu_id};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use logic::own::Token;
use logic::sched::policy;
use logic::sched::state::{Left, State};

/// The thread that each CPU has just left, until the next thread there has settled its state. Only
/// that CPU uses its entry.
static LEFT: [AtomicPtr<Thread>; MAX_CPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CPUS];

/// Returns whether `thread` is the idle thread of the CPU that owns `queue`.
pub(super) fn is_idle_thread(queue: &RunQueue, thread: *const Thread) -> bool {
    ptr::eq(queue.idle_thread.load(Ordering::Relaxed), thread)
}

/// Charges `thread`, the current thread of the CPU that owns `queue`, for its time up to `now`.
pub(super) fn charge(queue: &RunQueue, thread: &Thread, now: Nanos) {
    let ran = thread.account.settle(now);
    charge_ran(queue, thread, now, ran);
}

/// Records the weight of `thread`, which runs on this CPU, in `queue` if the weight has changed
/// since the slice began. From `now` on, threads that enter the queue are placed relative to the
/// virtual time that results from this weight. Charges the thread up to `now`, and restarts its
/// slice there.
pub(super) fn note_weight(queue: &RunQueue, thread: &Thread, now: Nanos) {
    if !queue.is_noted(thread) {
        charge(queue, thread, now);
        queue.note_running(thread);
        queue.restart_slice(now);
    }
}

#[inline]
fn charge_ran(queue: &RunQueue, thread: &Thread, now: Nanos, ran_ns: u64) {
    let virtual_ns = match thread.weighed() {
        0 => ran_ns,
        policy::NO_WEIGHT => return realtime::charge(queue, thread, now, ran_ns),
        weighed => policy::scaled(ran_ns, weighed),
    };
    // While a thread runs, only its CPU changes its virtual time, so a plain load and store
    // suffice.
    let sum = thread.vruntime.load(Ordering::Relaxed) + virtual_ns;
    thread.vruntime.store(sum, Ordering::Relaxed);
}

/// Takes the first thread that may run on CPU `cpu` out of `queue`, the CPU's run queue. Moves the
/// threads before it, which may not, to the queues of CPUs where they may. Returns `None` if no
/// thread in `queue` may run on `cpu`.
fn take_allowed(queue: &RunQueue, cpu: usize) -> Option<Owned> {
    // Ends: each turn removes one waiting thread for good.
    loop {
        let thread = queue.take()?;
        if thread.affinity().contains(cpu) {
            return Some(thread);
        }
        balance::enqueue_elsewhere(thread);
    }
}

/// Why the current thread leaves its CPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Another thread is due.
    Preempted,
    /// The thread blocks or ends, or it is an idle thread.
    Waits,
    /// The thread lets threads run that have the same real-time priority, or a higher one.
    Yields,
    /// Like `Yields`, but a thread with a real-time priority also lets threads run that share by
    /// weight.
    GivesWay,
}

/// Switches to the next thread. Returns when the current thread continues: at once if no other
/// thread is chosen, or later, once its state says that it can run. `why` is the reason for which
/// the current thread leaves its CPU.
pub(super) fn schedule(why: Why) {
    assert_no_spin_lock_held();
    let cpu = cpu_id();
    let queue = &QUEUES[cpu];
    let previous = current();
    let idle = is_idle_thread(queue, previous.as_non_null().as_ptr());
    let ends = |previous: &Thread| {
        idle || previous.state.is_parking() || previous.state.get() == State::Dead
    };
    let mut next = if realtime::present() {
        let stays = !ends(&previous) && previous.affinity().contains(cpu);
        realtime::pick(queue, cpu, &previous, stays, why)
    } else {
        take_allowed(queue, cpu)
    };
    if next.is_none() {
        if ends(&previous) {
            next = balance::steal(cpu);
        } else if previous.affinity().contains(cpu) {
            // No other thread wants to run.
            let now = clock::now();
            charge(queue, &previous, now);
            queue.note_running(&previous);
            tick::begin_slice(queue, now);
            // A thread that waited may have gone to another CPU.
            pressure::switched(queue);
            return;
        }
    }
    match next {
        Some(next) => switch_to(queue, previous, next, why),
        None if idle => {}
        None => switch_to(queue, previous, idle_thread(queue), why),
    }
}

fn switch_to(queue: &RunQueue, previous: Current, next: Owned, why: Why) {
    let cpu = cpu_id();
    let now = clock::now();
    debug_assert!(!ptr::eq(next.as_ptr(), previous.as_non_null().as_ptr()));
    let system_before = previous.account.system();
    let ran = previous.account.switched_out(now, why != Why::Preempted);
    let system = previous.account.system().since(system_before).to_nanos().0;
    queue.system_ns.store(
        queue.system_ns.load(Ordering::Relaxed) + system,
        Ordering::Relaxed,
    );
    charge_ran(queue, &previous, now, ran);
    if previous.is_stalling() {
        pressure::leaves(queue, &previous, now);
    }
    queue.switches.store(
        queue.switches.load(Ordering::Relaxed) + 1,
        Ordering::Relaxed,
    );
    if let Some(stack) = &previous.stack {
        assert!(
            stack.is_intact(),
            "the kernel stack of {:?} has overflowed",
            previous
        );
    }

    if !is_idle_thread(queue, next.as_ptr()) {
        next.state.picked();
    }
    queue.note_running(&next);
    next.cpu.store(cpu, Ordering::Relaxed);
    next.account.switched_in(now);
    // SAFETY: this CPU still runs the previous thread, and switches from it.
    unsafe { fpu::leave(&previous) };
    // SAFETY: this CPU runs the previous thread, and has made `next` Running, which runs nowhere
    // else.
    unsafe { (OWNER.switch)(&previous, &next) };
    // SAFETY: this CPU switches to the next thread, which does not run yet.
    unsafe { fpu::enter(&next) };
    // The CPU's reference, which `settle_left` takes back.
    let next = next.into_raw();
    // SAFETY: the CPU's reference keeps `next` alive while it runs here.
    let next_thread = unsafe { next.as_ref() };
    arch::set_current_thread(next.as_ptr() as usize);
    // SAFETY: the CPU's reference keeps `next` alive, and the stack belongs to it.
    unsafe {
        arch::set_work_flags(&raw const next_thread.work);
        if let Some(stack) = &next_thread.stack {
            arch::set_kernel_stack(stack.top() as u64);
        }
    }
    LEFT[cpu].store(previous.as_non_null().as_ptr(), Ordering::Relaxed);
    tick::begin_slice(queue, now);
    // SAFETY: this CPU alone has made `next` Running, so it was saved completely and runs nowhere
    // else. The previous thread's context is its own, and no other CPU switches that thread until
    // it is settled.
    unsafe { arch::context::switch(previous.context.get(), next_thread.context.get()) };
    // Some CPU continues the previous thread here, later.
    settle_left();
}

/// Makes the state of the thread that this CPU has just left final: puts the thread back on a queue
/// if it can run, leaves it to its waker, or drops it. The next thread calls this first.
pub(super) fn settle_left() {
    let cpu = cpu_id();
    let left = LEFT[cpu].swap(ptr::null_mut(), Ordering::Relaxed);
    let Some(left) = NonNull::new(left) else {
        return;
    };
    if !is_idle_thread(&QUEUES[cpu], left.as_ptr()) {
        settle(left);
    }
    pressure::switched(&QUEUES[cpu]);
}

/// Makes the state of `left`, a thread that this CPU has left, final: puts it back on a queue,
/// leaves it to its waker, or drops it if it has ended. It is not an idle thread.
fn settle(left: NonNull<Thread>) {
    // SAFETY: this is the reference of the CPU that ran the thread.
    let thread = unsafe { Owned::from_raw(left) };
    match thread.state.switched_out() {
        Left::Enqueue => {
            if thread.is_stalling() {
                // It was woken before it slept.
                pressure::wakes(&thread);
            }
            balance::enqueue_left(thread);
        }
        Left::Nothing => {
            // From here on the thread belongs to its waker, and may be gone already.
            let _ = thread.into_raw();
        }
        Left::Bury => drop(thread),
    }
}

/// The first code of a new thread. Makes the state of the thread that ran before on this CPU final,
/// then calls [`Task::begin`](super::Task::begin). Then a user thread enters user mode, and a
/// kernel thread ends.
pub(super) extern "C" fn begin(_: usize) -> ! {
    settle_left();
    (OWNER.begin)();
    let thread = current();
    if let Some(frame) = thread.user_frame() {
        // SAFETY: `Thread::user` has put a frame of user mode at the top of the stack. The owner's
        // code has returned, so the stack is not needed any more.
        unsafe { arch::context::enter_user(frame) }
    }
    // SAFETY: the owner's code has returned, so its entries in queues are gone.
    unsafe { end_current() }
}

/// Switches to another thread if one is due. The current thread stays runnable. Returns when it
/// continues.
pub fn reschedule() {
    let thread = current();
    thread.clear_work(work::RESCHED);
    // This may be a wait inside the condition of an outer wait. The outer wait tests again.
    thread.state.cancel();
    schedule(Why::Preempted);
}

/// Serves pending interrupts, then lets other threads run. `why` is `Yields` or `GivesWay`, and
/// decides which ones. Returns when the current thread continues, or at once if no such thread
/// waits.
pub(super) fn yield_now(why: Why) {
    arch::interrupt::serve_pending();
    let thread = current();
    thread.clear_work(work::RESCHED);
    thread.state.cancel();
    if thread.priority() != 0 {
        return schedule(why);
    }
    // Goes behind the waiting threads, as if it had used the rest of its slice. The switch adds the
    // time since it was last charged.
    let queue = &QUEUES[cpu_id()];
    if queue.waiting() != 0 {
        let behind = queue.min_vruntime() + policy::SHORT_SLICE_NS;
        let own = thread.vruntime.load(Ordering::Relaxed);
        thread.vruntime.store(own.max(behind), Ordering::Relaxed);
        schedule(why);
    }
}

/// Ends the current task, whose token the caller has. The next thread drops the scheduler's
/// reference to it. Values on the task's stack are not dropped.
///
/// Other threads may use a value on a task's stack only while the task is in a call of this module
/// that lends it, such as the entry of a wait. Conditions of waits are `Send`, so none has the
/// token, and no condition ends its task.
pub fn exit_current(_token: &mut Token) -> ! {
    // SAFETY: the caller has the token, so the task is in no wait, and has no entry in a queue.
    unsafe { end_current() }
}

/// Ends the current thread. The next thread drops the scheduler's reference to it.
///
/// # Safety
/// No other thread uses values on the current thread's stack, such as its entry in a queue. They
/// are not dropped.
unsafe fn end_current() -> ! {
    current().state.die();
    schedule(Why::Waits);
    unreachable!("a dead thread was scheduled");
}

fn idle_thread(queue: &RunQueue) -> Owned {
    let thread = queue.idle_thread.load(Ordering::Relaxed);
    // SAFETY: set before this CPU schedules. The reference that it came with is never released, so
    // it also stands for this one: `settle_left` drops no reference to an idle thread.
    unsafe { Owned::from_raw(NonNull::new_unchecked(thread)) }
}
