//! The scheduler: chooses the thread that each CPU runs, blocks threads and wakes them.
//!
//! - [`thread`]: the scheduler's part of a thread.
//! - [`owner`], `running`: the tasks around threads, and the one that runs.
//! - [`logic::sched::state`]: the word that holds a thread's state, and the protocol around it.
//! - `queue`, [`logic::sched::policy`]: a CPU's run queue and the arithmetic of fairness.
//! - [`realtime`]: threads that run before those that share by weight.
//! - [`wait_queue`], [`wait_table`], [`mutex`], [`timer`]: primitives on which threads block.
//! - [`wall`]: waits until a time of the wall clock.
//! - `switch`: the switch from one thread to another.
//! - `balance`: the CPU for a runnable thread, and work for idle CPUs.
//! - `idle`: the loop of a CPU without work.
//! - `fpu`: the floating-point state of a user thread.
//! - [`pressure`]: how long threads stall for CPUs, memory, reads and writes.
//!
//! The scheduler owns exactly one reference to each thread that has started. The reference is in
//! the run queue, or belongs to the CPU that runs the thread. While the thread is blocked, it
//! belongs to the waker.
//!
//! # Blocking
//!
//! A thread blocks only by [`block`] or [`block_until`]. These files call them: `wait_queue`,
//! `wait_table`, and in the upper half `signal::stop` and `ptrace::stop`. A thread that
//! blocks holds no spin lock, which is asserted. A CPU that spins answers requests for TLB flushes,
//! so two CPUs never wait for each other. A thread that waits for the work of another one blocks or
//! sleeps. A loop that only yields still receives pending interrupts ([`yield_now`],
//! [`cond_resched`]).

pub mod account;
mod balance;
mod fpu;
mod idle;
pub mod load;
pub mod mutex;
pub mod owner;
pub mod pressure;
mod queue;
pub mod realtime;
mod running;
mod switch;
pub mod thread;
mod tick;
pub mod timer;
pub mod transfers;
pub mod wait_queue;
pub mod wait_table;
pub mod wall;

pub use balance::{migrate_current, start_new};
pub use idle::{start_cpu, start_cpu_with};
pub use owner::{Owned, Task};
pub use running::{Current, Running, Switched, current, started};
pub use switch::{exit_current, reschedule};
pub use thread::{Thread, work};
pub use tick::{on_resched, on_timer};

use crate::arch;

use crate::arch::clock::Nanos;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use logic::sched::state::State;
use queue::{QUEUES, RunQueue};
use switch::Why;
use wait_queue::WaitQueue;

/// Announces that the current thread is about to block. If another thread wakes it after this call,
/// the next [`block`] returns at once. The caller then tests its condition, and calls [`block`] or
/// [`cancel_block`].
#[inline]
pub fn prepare_to_block() {
    current().state.prepare();
}

/// Cancels [`prepare_to_block`]. The current thread then runs on without blocking.
#[inline]
pub fn cancel_block() {
    current().state.cancel();
}

/// Blocks the current thread until it is woken. Returns at once if the thread was woken since
/// [`prepare_to_block`], or if [`prepare_to_block`] was not called. So a wait inside the condition
/// of an outer wait makes the outer wait test its condition again.
pub fn block() {
    if current().state.is_parking() {
        switch::schedule(Why::Waits);
    }
    current().state.cancel();
}

/// Like [`block`], but blocks at most until `deadline`. Returns `true` if the deadline has passed,
/// or has changed because the wall clock was set. Returns `false` if the thread was woken before.
/// If `deadline` is `None`, always returns `false`.
pub fn block_until(deadline: Option<Nanos>) -> bool {
    match deadline {
        None | Some(Nanos::MAX) => {
            block();
            false
        }
        Some(deadline) => timer::with_wake_at(deadline, block),
    }
}

/// Makes `thread` runnable if it is blocked. If it is about to block, it will not block. Does
/// nothing if the thread is in another state.
pub fn wake(thread: &Thread) {
    if thread.state.wake() {
        // SAFETY: the thread was Blocked, and the caller that changes that state owns the
        // scheduler's reference.
        let thread = unsafe { Owned::from_raw(NonNull::from(thread)) };
        if thread.is_stalling() {
            pressure::wakes(&thread);
        }
        balance::enqueue_woken(thread);
    }
}

/// Sets the bits `bits` in the work word of `thread` ([`work`]), and makes the thread check them
/// soon. Wakes the thread if it is blocked. Interrupts its CPU if it runs on another CPU.
pub fn notify(thread: &Thread, bits: u32) {
    thread.add_work(bits);
    wake(thread);
    let cpu = thread.last_cpu();
    // A thread that runs elsewhere in user mode checks its word when it is interrupted. If it has
    // left that CPU, it has been through the kernel or still has to return to user mode.
    if cpu != arch::cpu_id() && thread.state.get() == State::Running {
        arch::ipi::resched(cpu);
    }
}

/// Charges `thread` for its time so far and records its weight in the run queue of this CPU, if it
/// is the current thread. Does nothing for any other thread. Call this before and after a change of
/// the thread's weight.
pub fn settle_weight(thread: &Thread) {
    let own = current();
    if core::ptr::eq(own.as_non_null().as_ptr(), thread) {
        let (queue, now) = (&QUEUES[arch::cpu_id()], arch::clock::now());
        switch::charge(queue, thread, now);
        switch::note_weight(queue, thread, now);
    }
}

/// Starts a kernel thread called `name` that runs `body`.
///
/// # Panics
/// If there is no memory. Kernel threads are started while the machine starts.
pub fn spawn_kernel(name: &'static str, body: fn()) {
    (owner::OWNER.spawn)(name, body);
}

/// Serves pending interrupts, and lets another thread run if it is due. Call this between bounded
/// pieces of long work, without locks. Delayed work of the threads' owner may be done here, too
/// ([`Task::at_ease`]). Does nothing before the first thread runs.
///
/// Kernel code is not interrupted elsewhere, so interrupts and other threads would wait for the end
/// of the work.
#[inline]
pub fn cond_resched() {
    if started() {
        (owner::OWNER.at_ease)();
        give_way();
    }
}

/// Like [`cond_resched`], but cheaper, because it does no delayed work: for loops that call it for
/// each page that they clear or copy.
#[inline]
pub fn give_way() {
    if !started() {
        return;
    }
    arch::interrupt::serve_pending();
    if need_resched() {
        reschedule();
    }
}

/// Serves pending interrupts, then lets waiting threads of this CPU run. The current thread moves
/// back in the run queue, as if it had used up its slice. If it has a real-time priority, it lets
/// threads run that share by weight, and those of its own or a higher priority. Returns when the
/// current thread continues, or at once if no such thread waits.
pub fn yield_now() {
    switch::yield_now(Why::GivesWay);
}

/// Like [`yield_now`], but a thread with a real-time priority lets only threads of its own or a
/// higher priority run (`sched_yield(2)`).
pub fn yield_to_equals() {
    switch::yield_now(Why::Yields);
}

/// Blocks the current thread until `deadline`. Signals do not end the sleep. For kernel threads.
pub fn sleep_until(deadline: Nanos) {
    let nothing = WaitQueue::new();
    nothing.wait_uninterruptible_deadline(|| false, deadline);
}

/// Returns whether the current thread must let another thread run: its work word has
/// [`work::RESCHED`]. Costs little, so loops may poll this.
pub fn need_resched() -> bool {
    current().work.load(Ordering::Relaxed) & work::RESCHED != 0
}

/// Returns whether other threads wait in this CPU's run queue.
pub fn others_wait() -> bool {
    QUEUES[arch::cpu_id()].waiting() != 0
}

/// The times and switches of a CPU since boot, for `/proc/stat`.
#[derive(Copy, Clone, Debug, Default)]
pub struct CpuTimes {
    /// The time that is neither idle nor in a system call: user mode, page faults, interrupts and
    /// kernel threads.
    pub user: Nanos,
    /// The time that threads spent in system calls, up to their last switch.
    pub system: Nanos,
    /// The time for which the CPU was idle.
    pub idle: Nanos,
    /// The number of context switches.
    pub switches: u64,
}

/// Returns the times and switches of CPU `cpu` since boot.
pub fn cpu_times(cpu: usize) -> CpuTimes {
    let queue = &QUEUES[cpu];
    let now = arch::clock::now();
    let idle = queue.idle_until(now);
    let now = now.0;
    let system = queue.system_ns.load(Ordering::Relaxed);
    CpuTimes {
        user: Nanos(now.saturating_sub(idle).saturating_sub(system)),
        system: Nanos(system),
        idle: Nanos(idle),
        switches: queue.switches.load(Ordering::Relaxed),
    }
}

/// Returns the number of threads that run or wait for a CPU, on all CPUs.
pub fn runnable() -> usize {
    QUEUES
        .iter()
        .filter(|queue| queue.online.load(Ordering::Relaxed))
        .map(RunQueue::load)
        .sum()
}
