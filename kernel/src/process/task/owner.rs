//! The scheduler's callbacks for tasks. A task's first field is its thread.

#![expect(unsafe_code, reason = "a thread is the first part of a task")]

use super::{Task, current, kthread};
use crate::drivers::give_back;
use crate::process::ptrace;
use crate::process::time::cpu_timers;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use machine::arch;
use machine::memory;
use machine::sched::{Owned, Owner, Thread, work};

#[unsafe(export_name = "ebb_thread_owner")]
static OWNER: Owner = Owner {
    idle: || to_thread(Arc::new(Task::idle())),
    release,
    switch,
    begin,
    wants_tick: |thread, now| cpu_timers::tick_for(task_of(thread), now),
    tick: |thread, now| cpu_timers::on_tick(task_of(thread), now),
    spawn: kthread::spawn_kernel,
    at_ease: give_back::kick,
    resting,
    describe: |thread, f| fmt::Debug::fmt(task_of(thread), f),
};

/// Converts a reference to `task` to the form in which the scheduler owns it.
pub(super) fn to_thread(task: Arc<Task>) -> Owned {
    let thread = Arc::into_raw(task).cast::<Thread>().cast_mut();
    // SAFETY: the thread is the first field of the task, and `release` takes the reference back.
    unsafe { Owned::from_raw(NonNull::new_unchecked(thread)) }
}

/// Returns the task whose first field is this thread.
#[inline]
fn task_of(thread: &Thread) -> &Task {
    // SAFETY: only `to_thread` hands threads to the scheduler, so each is part of a task.
    unsafe { NonNull::from(thread).cast::<Task>().as_ref() }
}

/// Drops the reference to the task of `thread`.
///
/// # Safety
/// The contract of [`Owner::release`].
unsafe fn release(thread: NonNull<Thread>) {
    // SAFETY: `to_thread` made the pointer, and the caller owns the reference.
    drop(unsafe { Arc::from_raw(thread.cast::<Task>().as_ptr()) });
}

/// Switches the rarely used state of tasks: breakpoints and `NO_TSC`. `marks` holds the bits that
/// either task has.
#[cold]
fn switch_marked(previous: &Task, next: &Task, marks: u32) {
    if marks & work::BREAKPOINTS != 0 {
        ptrace::breakpoints::switch(previous, next);
    }
    if marks & work::NO_TSC != 0 {
        arch::cpu::allow_user_tsc(next.work() & work::NO_TSC == 0);
    }
}

/// Switches the state that user code sees besides its registers.
fn switch(previous: &Thread, next: &Thread) {
    let (previous, next) = (task_of(previous), task_of(next));
    let marks = previous.work() | next.work();
    if marks & (work::BREAKPOINTS | work::NO_TSC) != 0 {
        switch_marked(previous, next, marks);
    }
    if next.rseq().is_due(next.account().is_in_call()) {
        next.add_work(work::RSEQ);
    }
    with_vm(previous, |previous| {
        with_vm(next, |next| match (previous, next) {
            (Some(from), Some(to)) if Arc::ptr_eq(from, to) => {}
            (_, Some(to)) => to.activate(),
            (Some(from), None) => from.deactivate(),
            (None, None) => {}
        });
    });
    let Some(user) = &next.user else { return };
    arch::set_fs_base(user.fs_base());
    arch::set_gs_base_user(user.gs_base());
}

/// Calls `look` with the address space of `task`, which this CPU switches.
#[inline]
fn with_vm<R>(task: &Task, look: impl FnOnce(Option<&Arc<AddressSpace>>) -> R + Send) -> R {
    match &task.user {
        // SAFETY: this CPU switches the task.
        Some(user) => unsafe { user.vm.with(|vm| look(vm.as_deref())) },
        None => look(None),
    }
}

/// Runs when a task gets the CPU for the first time. A kernel task calls its body.
fn begin() {
    let task = current();
    match task.body {
        Some(body) => body(),
        None => task.store_child_tid(),
    }
}

/// Returns this CPU's cached frames to the allocator when the CPU becomes idle.
fn resting() {
    memory::percpu::drain();
    give_back::kick();
}
