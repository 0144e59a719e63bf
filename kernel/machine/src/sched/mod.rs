//! The scheduler: chooses the thread that each CPU runs, blocks threads and wakes them.
//!
//! - [`thread`]: the scheduler's part of a thread, and the contract with its owner.
//! - [`logic::sched::state`]: the word that holds a thread's state, and the protocol around it.
//! - `queue`, [`logic::sched::policy`]: a CPU's run queue and the arithmetic of fairness.
//! - [`realtime`]: threads that run before those that share by weight.
//! - [`wait_queue`], [`mutex`], [`timer`]: primitives on which threads block.
//! - [`wall`]: waits until a time of the wall clock.
//! - `switch`: the switch from one thread to another.
//! - `balance`: the CPU for a runnable thread, and work for idle CPUs.
//! - `idle`: the loop of a CPU without work.
//! - [`pressure`]: how long threads stall for CPUs, memory, reads and writes.
//!
//! The scheduler owns exactly one reference to each thread that has started. The reference is in
//! the run queue, or belongs to the CPU that runs the thread. While the thread is blocked, it
//! belongs to the waker.

pub mod account;
mod balance;
mod idle;
pub mod load;
pub mod mutex;
pub mod pressure;
mod queue;
pub mod realtime;
mod switch;
pub mod thread;
mod tick;
pub mod timer;
pub mod transfers;
pub mod wait_queue;
pub mod wall;

pub use balance::{migrate_current, start_new};
pub use idle::{start_cpu, start_cpu_with};
pub use switch::{exit_current, reschedule};
pub use thread::{Current, Owned, Owner, Thread, current, started, work};
pub use tick::{on_resched, on_timer};

use crate::arch;

use crate::arch::clock::Nanos;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use logic::sched::state::State;
use queue::{QUEUES, RunQueue};
use switch::Why;
use wait_queue::WaitQueue;

/// Announces that the current thread is about to block. No wake-up from here on is lost.
#[inline]
pub fn prepare_to_block() {
    current().state.prepare();
}

/// Cancels [`prepare_to_block`].
#[inline]
pub fn cancel_block() {
    current().state.cancel();
}

/// Releases the CPU until a wake-up has arrived since [`prepare_to_block`]. Without that call it
/// returns at once: a wait inside the condition of an outer wait makes the outer wait test again.
pub fn block() {
    if current().state.is_parking() {
        switch::schedule(Why::Waits);
    }
    current().state.cancel();
}

/// Like [`block`], at most until `deadline`. Returns whether the deadline has passed.
pub fn block_until(deadline: Option<Nanos>) -> bool {
    match deadline {
        None | Some(Nanos::MAX) => {
            block();
            false
        }
        Some(deadline) => timer::with_wake_at(deadline, block),
    }
}

/// Makes a blocked thread runnable. A thread that is about to block will not block. Has no effect
/// on other threads.
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

/// Sets work bits for a thread and makes it check them soon: wakes it if it is blocked, and
/// interrupts its CPU if that is another one.
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

/// Charges `thread` for its time so far if it is the current one, and notes its weight. Call this
/// before and after a change of the weight.
pub fn settle_weight(thread: &Thread) {
    let own = current();
    if core::ptr::eq(own.as_non_null().as_ptr(), thread) {
        let (queue, now) = (&QUEUES[arch::cpu_id()], arch::clock::now());
        switch::charge(queue, thread, now);
        switch::note_weight(queue, thread, now);
    }
}

/// Starts a kernel thread that runs `body`.
///
/// # Panics
/// Panics if memory is out. Threads are started while the machine starts.
pub fn spawn_kernel(name: &'static str, body: fn()) {
    (thread::OWNER.spawn)(name, body);
}

/// Lets other threads run if they are due. Call this between bounded pieces of long work, without
/// locks.
///
/// Kernel code is not interrupted, so this serves pending interrupts.
#[inline]
pub fn cond_resched() {
    if started() {
        (thread::OWNER.at_ease)();
        give_way();
    }
}

/// Like [`cond_resched`], but as cheap as possible, for loops that call it for each page that they
/// clear or copy. Does nothing before the first thread runs.
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

/// Serves pending interrupts, then goes behind the other runnable threads of this CPU, whichever
/// priorities they have. Returns at once if no other thread waits for the CPU.
pub fn yield_now() {
    switch::yield_now(Why::GivesWay);
}

/// Like [`yield_now`], but a thread with a real-time priority lets only its equals run
/// (`sched_yield(2)`).
pub fn yield_to_equals() {
    switch::yield_now(Why::Yields);
}

/// Sleeps until `deadline`. Signals do not end the sleep (kernel threads).
pub fn sleep_until(deadline: Nanos) {
    let nothing = WaitQueue::new();
    nothing.wait_uninterruptible_deadline(|| false, deadline);
}

/// Returns whether another thread is known to be due. Loops may poll this.
pub fn need_resched() -> bool {
    current().work.load(Ordering::Relaxed) & work::RESCHED != 0
}

/// Returns whether other threads wait for the current CPU.
pub fn others_wait() -> bool {
    QUEUES[arch::cpu_id()].waiting() != 0
}

/// The activity of a CPU, for `/proc/stat`.
#[derive(Copy, Clone, Debug, Default)]
pub struct CpuTimes {
    /// Time in user mode.
    pub user: Nanos,
    /// Time in system calls.
    pub system: Nanos,
    /// Idle time.
    pub idle: Nanos,
    /// Context switches.
    pub switches: u64,
}

/// Returns the activity of CPU `cpu` since it started.
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

/// Returns the number of threads that run or wait for a CPU.
pub fn runnable() -> usize {
    QUEUES
        .iter()
        .filter(|queue| queue.online.load(Ordering::Relaxed))
        .map(RunQueue::load)
        .sum()
}
