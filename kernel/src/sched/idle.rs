//! What a CPU does without work.

use super::{QUEUES, switch};
use crate::arch::clock;
use crate::arch::{self, cpu_id};
use crate::memory;
use crate::task::Task;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

/// Turns the code that runs now, on a CPU's boot stack, into that CPU's idle task, and runs it. The
/// CPUs besides the first enter here when they have started.
pub fn start_cpu() -> ! {
    let cpu = become_idle();
    idle_loop(cpu)
}

fn become_idle() -> usize {
    let cpu = cpu_id();
    let queue = &QUEUES[cpu];
    let task = Arc::new(Task::idle());
    task.state.cancel();
    task.account.switched_in(clock::now());
    // One count for `idle_task`, one for the CPU, which runs the task now.
    let _ = Arc::into_raw(task.clone());
    let task = Arc::into_raw(task);
    queue.idle_task.store(task.cast_mut(), Ordering::Relaxed);
    arch::set_current_task(task as usize);
    // SAFETY: the idle task is never dropped.
    unsafe { arch::set_work_flags(&raw const (*task).work) };
    // Release: pairs with the Acquire-or-stronger looks of CPUs that hand out work.
    queue.online.store(true, Ordering::Release);
    cpu
}

fn idle_loop(cpu: usize) -> ! {
    let queue = &QUEUES[cpu];
    loop {
        // Returns when there is nothing to run.
        switch::schedule(true);
        memory::on_idle();
        queue.idle.store(true, Ordering::SeqCst);
        // Whoever adds a task for this CPU sends an interrupt after it: either we see the task now,
        // or the interrupt stays pending and ends `idle()` at once.
        if queue.waiting() == 0 {
            let start = clock::now();
            queue.idle_since_ns.store(start.0, Ordering::Relaxed);
            arch::idle();
            queue.idle_since_ns.store(0, Ordering::Relaxed);
            let idle = clock::now().saturating_sub(start).0;
            let sum = queue.idle_ns.load(Ordering::Relaxed) + idle;
            queue.idle_ns.store(sum, Ordering::Relaxed);
        }
        queue.idle.store(false, Ordering::SeqCst);
    }
}

/// Like [`start_cpu`] for the first CPU: `first` runs once tasks can be started.
pub(crate) fn start_cpu_with(first: impl FnOnce()) -> ! {
    let cpu = become_idle();
    first();
    idle_loop(cpu)
}
