//! The idle loop of a CPU.

use super::owner::OWNER;
use super::queue::QUEUES;
use super::switch::{self, Why};
use crate::arch::clock;
use crate::arch::{self, cpu_id};
use core::sync::atomic::Ordering;

/// Turns the running code, which runs on the boot stack of this CPU, into the CPU's idle thread,
/// and enters the idle loop. CPUs other than the first call this at the end of their start.
pub fn start_cpu() -> ! {
    let cpu = become_idle();
    idle_loop(cpu)
}

fn become_idle() -> usize {
    let cpu = cpu_id();
    let queue = &QUEUES[cpu];
    let thread = (OWNER.idle)();
    thread.state.cancel();
    thread.account.switched_in(clock::now());
    // The reference is never released, because the CPU keeps its idle thread for ever.
    let thread = thread.into_raw();
    queue.idle_thread.store(thread.as_ptr(), Ordering::Relaxed);
    arch::set_current_thread(thread.as_ptr() as usize);
    // SAFETY: the idle thread is never dropped.
    unsafe { arch::set_work_flags(&raw const (*thread.as_ptr()).work) };
    // Release: pairs with the Acquire or stronger loads of CPUs that distribute work.
    queue.online.store(true, Ordering::Release);
    cpu
}

fn idle_loop(cpu: usize) -> ! {
    let queue = &QUEUES[cpu];
    loop {
        // Returns if there is nothing to run.
        switch::schedule(Why::Waits);
        (OWNER.resting)();
        queue.idle.store(true, Ordering::SeqCst);
        // A CPU that adds a thread for this CPU sends an interrupt afterwards. Either this load
        // sees the thread, or the interrupt stays pending and ends `idle()` at once.
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

/// Like [`start_cpu`], for the first CPU. Calls `first` before the idle loop. `first` may start
/// threads.
pub fn start_cpu_with(first: impl FnOnce()) -> ! {
    let cpu = become_idle();
    first();
    idle_loop(cpu)
}
