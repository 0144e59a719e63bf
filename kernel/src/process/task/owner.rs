//! The scheduler's callbacks for tasks.

use super::current::vm;
use super::{Task, current, kthread};
use crate::drivers::give_back;
use crate::process::ptrace;
use crate::process::time::cpu_timers;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use machine::arch;
use machine::arch::clock::Nanos;
use machine::memory;
use machine::sched::{self, Switched, work};

impl sched::Task for Task {
    fn idle() -> Arc<Self> {
        Arc::new(Self::idle())
    }

    fn switch(previous: Switched<'_, Self>, next: Switched<'_, Self>) {
        let marks = previous.work() | next.work();
        if marks & (work::BREAKPOINTS | work::NO_TSC) != 0 {
            switch_marked(&previous, &next, marks);
        }
        if next.rseq().is_due(next.account().is_in_call()) {
            next.add_work(work::RSEQ);
        }
        with_vm(&previous, |previous| {
            with_vm(&next, |next| match (previous, next) {
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

    /// Calls the body of a kernel task. A user task stores its number where `clone` asked for it.
    fn begin() {
        let task = current();
        match task.body {
            Some(body) => body(),
            None => task.store_child_tid(),
        }
    }

    fn wants_tick(&self, now: Nanos) -> Option<Nanos> {
        cpu_timers::tick_for(self, now)
    }

    fn tick(&self, now: Nanos) -> Option<Nanos> {
        cpu_timers::on_tick(self, now)
    }

    fn spawn(name: &'static str, body: fn()) {
        kthread::spawn_kernel(name, body);
    }

    fn at_ease() {
        give_back::kick();
    }

    /// Returns this CPU's cached frames to the allocator.
    fn resting() {
        memory::percpu::drain();
        give_back::kick();
    }
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

/// Calls `look` with the address space of `task`.
#[inline]
fn with_vm<R>(
    task: &Switched<'_, Task>,
    look: impl FnOnce(Option<&Arc<AddressSpace>>) -> R + Send,
) -> R {
    match &task.user {
        Some(_) => task.with(vm, |vm| look(vm.as_deref())),
        None => look(None),
    }
}
