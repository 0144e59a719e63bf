//! The scheduler: which thread runs where, how threads block and wake.
//!
//! - [`thread`]: the scheduler's part of a thread, and the contract with its owner.
//! - [`logic::sched::state`]: the one word that says what a thread is doing, and the protocol around it.
//! - `queue`, [`logic::sched::policy`]: a CPU's run queue and the arithmetic of fairness.
//! - [`realtime`]: threads that run before those that share by weight.
//! - [`wait_queue`], [`mutex`], [`timer`]: what threads wait for.
//! - [`wall`]: waits until a time of the wall clock.
//! - `switch`: leaving one thread for another.
//! - `balance`: which CPU a runnable thread goes to, and how idle CPUs find work.
//! - `idle`: what a CPU does without work.
//! - [`pressure`]: how long threads stall for CPUs, memory, reads and writes.
//!
//! A thread that can run has exactly one reference count that belongs to the scheduler: it is in the
//! run queue, held by the CPU that runs the thread, or, while the thread is blocked, kept for the one
//! who wakes it.

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

/// Announces that the current thread is about to block; from here on no wake-up is lost.
#[inline]
pub fn prepare_to_block() {
    current().state.prepare();
}

/// Takes [`prepare_to_block`] back.
#[inline]
pub fn cancel_block() {
    current().state.cancel();
}

/// Gives the CPU away until a wake-up has come since [`prepare_to_block`]. Without that call it
/// returns at once: a wait inside the test of another wait makes the outer one test again.
pub fn block() {
    if current().state.is_parking() {
        switch::schedule(Why::Waits);
    }
    current().state.cancel();
}

/// Like [`block`], at most until `deadline`; says whether the deadline has passed.
pub fn block_until(deadline: Option<Nanos>) -> bool {
    match deadline {
        None | Some(Nanos::MAX) => {
            block();
            false
        }
        Some(deadline) => timer::with_wake_at(deadline, block),
    }
}

/// Makes a blocked thread runnable; one that is about to block will not. Harmless on any other.
pub fn wake(thread: &Thread) {
    if thread.state.wake() {
        // SAFETY: the thread was Blocked, and whoever moves it on owns the scheduler's reference.
        let thread = unsafe { Owned::from_raw(NonNull::from(thread)) };
        if thread.is_stalling() {
            pressure::wakes(&thread);
        }
        balance::enqueue_woken(thread);
    }
}

/// Sets work bits for a thread and makes it look at them soon: wakes it if it waits, interrupts its
/// CPU if it runs on another.
pub fn notify(thread: &Thread, bits: u32) {
    thread.add_work(bits);
    wake(thread);
    let cpu = thread.last_cpu();
    // A thread that runs elsewhere in user mode looks at its word when it is interrupted. Should it
    // have moved on meanwhile, it has been through the kernel or is yet to return to user mode.
    if cpu != arch::cpu_id() && thread.state.get() == State::Running {
        arch::ipi::resched(cpu);
    }
}

/// Charges `thread` for its time so far if it is the current one, and notes its weight. Call this before
/// and after a change of that.
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
/// When there is no memory for it: threads are started while the machine is.
pub fn spawn_kernel(name: &'static str, body: fn()) {
    (thread::OWNER.spawn)(name, body);
}

/// Lets others run if it is their turn; call it between bounded chunks of long work, without locks.
///
/// Kernel code is not interrupted, so pending interrupts are served here.
#[inline]
pub fn cond_resched() {
    if started() {
        (thread::OWNER.at_ease)();
        give_way();
    }
}

/// Does the same at the least cost: for loops that call it for each page that they clear or copy. Does nothing before
/// the first thread runs.
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

/// Goes behind the other runnable threads of this CPU, whatever their priorities, after the interrupts that are pending
/// are served. Comes back at once where no other thread waits for the CPU.
pub fn yield_now() {
    switch::yield_now(Why::GivesWay);
}

/// Like [`yield_now`], but a thread with a real-time priority lets only its equals run
/// (`sched_yield(2)`).
pub fn yield_to_equals() {
    switch::yield_now(Why::Yields);
}

/// Sleeps until `deadline`, whatever signals come (kernel threads).
pub fn sleep_until(deadline: Nanos) {
    let nothing = WaitQueue::new();
    nothing.wait_uninterruptible_deadline(|| false, deadline);
}

/// Whether the current thread's slice is over, as far as is known: something to look at in loops.
pub fn need_resched() -> bool {
    current().work.load(Ordering::Relaxed) & work::RESCHED != 0
}

/// Whether others wait for the CPU of the caller.
pub fn others_wait() -> bool {
    QUEUES[arch::cpu_id()].waiting() != 0
}

/// What a CPU has done, for `/proc/stat`.
#[derive(Copy, Clone, Debug, Default)]
pub struct CpuTimes {
    /// In user mode.
    pub user: Nanos,
    /// In system calls.
    pub system: Nanos,
    /// Idle.
    pub idle: Nanos,
    /// Context switches.
    pub switches: u64,
}

/// What CPU `cpu` has done since it started.
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

/// Threads that run or wait for a CPU.
pub fn runnable() -> usize {
    QUEUES
        .iter()
        .filter(|queue| queue.online.load(Ordering::Relaxed))
        .map(RunQueue::load)
        .sum()
}
