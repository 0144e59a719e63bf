//! Leaving one task for another.

use super::queue::RunQueue;
use super::state::Left;
use super::{QUEUES, TaskRef, balance, current, policy, tick};
use crate::arch::clock::{self, Nanos};
use crate::arch::{self, MAX_CPUS, cpu_id};
use crate::sync::assert_no_spin_lock_held;
use crate::task::{Task, work};
use alloc::sync::Arc;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The task that each CPU has just left, until whoever runs next there has settled its state. Its
/// CPU's own.
static LEFT: [AtomicPtr<Task>; MAX_CPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CPUS];

pub(super) fn is_idle_task(queue: &RunQueue, task: *const Task) -> bool {
    ptr::eq(queue.idle_task.load(Ordering::Relaxed), task)
}

/// Books the current task's time up to now.
pub(super) fn charge(queue: &RunQueue, task: &Task, now: Nanos) {
    let ran = task.account.settle(now);
    charge_virtual(queue, task, ran);
}

fn charge_virtual(_queue: &RunQueue, task: &Task, ran_ns: u64) {
    let virtual_ns = policy::scaled(ran_ns, task.nice());
    // A task's virtual time is its CPU's while it runs: plain load and store.
    let sum = task.vruntime.load(Ordering::Relaxed) + virtual_ns;
    task.vruntime.store(sum, Ordering::Relaxed);
}

/// Takes the next task that may run here; those that may not are sent where they may.
fn take_allowed(queue: &RunQueue, cpu: usize) -> Option<Arc<Task>> {
    // At most as many turns as tasks wait: each takes one away for good.
    loop {
        let task = queue.take()?;
        if task.affinity.contains(cpu) {
            return Some(task);
        }
        balance::enqueue_elsewhere(task);
    }
}

/// Gives the CPU to the next task. The current one goes on later, if its state says that it can
/// run; `voluntary`: it waits or yields.
pub(super) fn schedule(voluntary: bool) {
    assert_no_spin_lock_held();
    let cpu = cpu_id();
    let queue = &QUEUES[cpu];
    let previous = current();
    let idle = is_idle_task(queue, previous.as_non_null().as_ptr());
    let mut next = take_allowed(queue, cpu);
    if next.is_none() {
        if idle || previous.state.is_parking() || previous.state.get() == super::state::State::Dead
        {
            next = balance::steal(cpu);
        } else if previous.affinity.contains(cpu) {
            // Nobody else wants to run.
            tick::begin_slice(queue, clock::now());
            return;
        }
    }
    match next {
        Some(next) => switch_to(queue, previous, next, voluntary),
        None if idle => {}
        None => switch_to(queue, previous, idle_task(queue), voluntary),
    }
}

fn switch_to(queue: &RunQueue, previous: TaskRef, next: Arc<Task>, voluntary: bool) {
    let cpu = cpu_id();
    let now = clock::now();
    debug_assert!(!ptr::eq(
        Arc::as_ptr(&next),
        previous.as_non_null().as_ptr()
    ));
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
            &*previous
        );
    }

    if !is_idle_task(queue, Arc::as_ptr(&next)) {
        next.state.picked();
    }
    next.cpu.store(cpu, Ordering::Relaxed);
    next.account.switched_in(now);
    leave_user_state(&previous, &next);
    // The CPU's reference: taken back in `settle_left`.
    let next = Arc::into_raw(next);
    // SAFETY: the CPU's reference keeps `next` alive as long as it runs here.
    let next_task = unsafe { &*next };
    arch::set_current_task(next as usize);
    // SAFETY: as above; the stack belongs to the task.
    unsafe {
        arch::set_work_flags(&raw const next_task.work);
        if let Some(stack) = &next_task.stack {
            arch::set_kernel_stack(stack.top() as u64);
        }
    }
    LEFT[cpu].store(previous.as_non_null().as_ptr(), Ordering::Relaxed);
    tick::begin_slice(queue, now);
    // SAFETY: `next` is Running by our doing alone, so it was saved whole and runs nowhere; the
    // previous task's context is its own, and nobody else switches it while it is unsettled.
    unsafe { arch::context::switch(previous.context.get(), next_task.context.get()) };
    // Some CPU continues the previous task here, later.
    settle_left();
}

/// Changes what user code sees besides its registers.
fn leave_user_state(previous: &TaskRef, next: &Arc<Task>) {
    if let Some(user) = &previous.user {
        // SAFETY: we are still the previous task.
        unsafe { user.fpu.get() }.save();
    }
    let previous_vm = previous.vm();
    let Some(user) = &next.user else {
        if let Some(vm) = previous_vm {
            vm.deactivate();
        }
        return;
    };
    // SAFETY: the next task does not run yet and is ours.
    let next_vm = unsafe { user.vm.look() }.as_ref();
    match (previous_vm, next_vm) {
        (Some(from), Some(to)) if Arc::ptr_eq(from, to) => {}
        (_, Some(to)) => to.activate(),
        (Some(from), None) => from.deactivate(),
        (None, None) => {}
    }
    // SAFETY: as above.
    unsafe { user.fpu.get() }.restore();
    arch::set_fs_base(next.fs_base.load(Ordering::Relaxed));
    arch::set_gs_base_user(next.gs_base.load(Ordering::Relaxed));
}

/// Settles the state of the task that this CPU has just left; called first thing by whoever runs
/// next.
pub(super) fn settle_left() {
    let cpu = cpu_id();
    let left = LEFT[cpu].swap(ptr::null_mut(), Ordering::Relaxed);
    if left.is_null() {
        return;
    }
    // SAFETY: this is the reference of the CPU that ran it.
    let task = unsafe { Arc::from_raw(left.cast_const()) };
    if is_idle_task(&QUEUES[cpu], left) {
        return;
    }
    match task.state.switched_out() {
        Left::Enqueue => balance::enqueue_left(task),
        Left::Nothing => {
            // From here on it belongs to whoever wakes it; it may be gone already.
            let _ = Arc::into_raw(task);
        }
        Left::Bury => drop(task),
    }
}

/// Where a new task starts. The state of the task before it is settled first.
pub(crate) extern "C" fn begin(_: usize) -> ! {
    settle_left();
    let task = current();
    if let Some(body) = task.body {
        body();
        exit_current();
    }
    task.store_child_tid();
    let top = task.stack.as_ref().expect("a user task has a stack").top();
    let frame = top.cast::<arch::UserFrame>().wrapping_sub(1);
    // SAFETY: the maker of the task put a user's frame at the top of its stack.
    unsafe { arch::context::enter_user(frame) }
}

/// Lets another task run if it is due; the current one stays runnable.
pub(crate) fn reschedule() {
    let task = current();
    task.clear_work(work::RESCHED);
    // A wait inside a wait's test: the outer one tests again.
    task.state.cancel();
    schedule(false);
}

pub(super) fn yield_now() {
    let task = current();
    task.clear_work(work::RESCHED);
    task.state.cancel();
    let queue = &QUEUES[cpu_id()];
    charge(queue, &task, clock::now());
    // Behind those that wait: as if it had used what is left of its slice.
    if queue.waiting() != 0 {
        let behind = queue.min_vruntime() + policy::SHORT_SLICE_NS;
        let own = task.vruntime.load(Ordering::Relaxed);
        task.vruntime.store(own.max(behind), Ordering::Relaxed);
        schedule(true);
    }
}

/// Ends the current task: its last code.
pub(crate) fn exit_current() -> ! {
    current().state.die();
    schedule(true);
    unreachable!("a dead task was scheduled");
}

fn idle_task(queue: &RunQueue) -> Arc<Task> {
    let task = queue.idle_task.load(Ordering::Relaxed);
    // SAFETY: the idle task is never dropped; the count is for the CPU that runs it.
    unsafe {
        Arc::increment_strong_count(task);
        Arc::from_raw(task)
    }
}
