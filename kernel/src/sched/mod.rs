//! The scheduler: which task runs where, how tasks block and wake.
//!
//! - [`state`]: the one word that says what a task is doing, and the protocol around it.
//! - `queue`, [`policy`]: a CPU's run queue and the arithmetic of fairness.
//! - `switch`: leaving one task for another.
//! - `balance`: which CPU a runnable task goes to, and how idle CPUs find work.
//! - `idle`: what a CPU does without work.
//!
//! A task that can run has exactly one reference count that belongs to the scheduler: it is in the
//! run queue, held by the CPU that runs the task, or, while the task is blocked, kept for the one
//! who wakes it.

pub mod account;
mod balance;
pub mod heap;
mod idle;
pub mod load;
pub mod policy;
mod queue;
pub mod state;
mod switch;
mod tick;

pub(crate) use balance::{migrate_current, start_new};
pub use idle::start_cpu;
pub(crate) use idle::start_cpu_with;
pub(crate) use switch::{begin, exit_current, reschedule};
pub(crate) use tick::set_nice;
pub use tick::{on_resched, on_timer};

use crate::arch;
use crate::arch::MAX_CPUS;
use crate::arch::clock::Nanos;
use crate::fs;
use crate::sync::WaitQueue;
use crate::task::{Task, work};
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use queue::RunQueue;

static QUEUES: [RunQueue; MAX_CPUS] = [const { RunQueue::new() }; MAX_CPUS];

/// The task that runs on this CPU. It stays alive as long as it runs, so the reference is good
/// wherever it can be used: on that task's own stack.
#[derive(Copy, Clone, Debug)]
pub struct TaskRef {
    task: NonNull<Task>,
    _not_send: PhantomData<*mut ()>,
}

impl TaskRef {
    /// The task's address; for lists of waiters, which end before the task does.
    pub fn as_non_null(self) -> NonNull<Task> {
        self.task
    }

    /// A counted reference to the task.
    pub fn to_arc(self) -> Arc<Task> {
        // SAFETY: every task is in an `Arc`, and the running one is counted by its CPU.
        unsafe {
            Arc::increment_strong_count(self.task.as_ptr());
            Arc::from_raw(self.task.as_ptr())
        }
    }

    /// The task's address space; `None` for a kernel thread and at a task's end.
    #[inline]
    pub fn vm(&self) -> Option<&Arc<AddressSpace>> {
        let user = self.user.as_ref()?;
        // SAFETY: the task itself asks, and it changes the field in exec and exit only, where no
        // reference from here is in use.
        unsafe { user.vm.look() }.as_ref()
    }

    /// Its open files.
    ///
    /// # Panics
    /// In a kernel thread, and at a task's end.
    #[inline]
    pub fn files(&self) -> &Arc<fs::FileTable> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: as in `vm`.
        unsafe { user.files.look() }
            .as_ref()
            .expect("files last until the task's end")
    }

    /// Its root, working directory and umask.
    ///
    /// # Panics
    /// As [`Self::files`].
    #[inline]
    pub fn fs(&self) -> &Arc<fs::Context> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: as in `vm`.
        unsafe { user.fs.look() }
            .as_ref()
            .expect("the context lasts until the task's end")
    }
}

impl TaskRef {
    /// Gives the task, alone in its process, other files.
    pub(crate) fn replace_files(&self, files: Arc<fs::FileTable>) {
        let Some(user) = &self.user else { return };
        // SAFETY: we are the task, and callers hold no reference from `files`.
        let old = unsafe { user.files.get() }.replace(files.clone());
        let files = fs::table::FilesOfProcess::new(files);
        let shared = self.process.resources.lock().files.replace(files);
        drop((old, shared));
    }

    /// Gives the task, alone in its process, another place in the tree.
    pub(crate) fn replace_fs(&self, context: Arc<fs::Context>) {
        let Some(user) = &self.user else { return };
        // SAFETY: we are the task, and callers hold no reference from `fs`.
        let old = unsafe { user.fs.get() }.replace(context.clone());
        let shared = self.process.resources.lock().fs.replace(context);
        drop((old, shared));
    }
}

impl Deref for TaskRef {
    type Target = Task;
    #[inline]
    fn deref(&self) -> &Task {
        // SAFETY: see the type.
        unsafe { self.task.as_ref() }
    }
}

/// The task that runs on this CPU.
#[inline]
pub fn current() -> TaskRef {
    let task = arch::current_task() as *mut Task;
    debug_assert!(!task.is_null(), "no task runs on this CPU yet");
    // SAFETY: set from the first task on, before anything asks.
    let task = unsafe { NonNull::new_unchecked(task) };
    TaskRef {
        task,
        _not_send: PhantomData,
    }
}

/// Whether this CPU runs a task already (early boot does not).
pub fn started() -> bool {
    arch::current_task() != 0
}

/// Announces that the current task is about to block; from here on no wake-up is lost.
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
        switch::schedule(true);
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
        Some(deadline) => crate::time::queue::with_wake_at(deadline, block),
    }
}

/// Makes a blocked task runnable; one that is about to block will not. Harmless on any other.
pub fn wake(task: &Task) {
    if task.state.wake() {
        // SAFETY: the task was Blocked, and whoever moves it on owns the scheduler's reference.
        let task = unsafe { Arc::from_raw(core::ptr::from_ref(task)) };
        balance::enqueue_woken(task);
    }
}

/// Sets work bits for a task and makes it look at them soon: wakes it if it waits, interrupts its
/// CPU if it runs on another.
pub(crate) fn notify(task: &Task, bits: u32) {
    task.add_work(bits);
    wake(task);
    let cpu = task.last_cpu();
    // A task that runs elsewhere in user mode looks at its word when it is interrupted. Should it
    // have moved on meanwhile, it has been through the kernel or is yet to return to user mode.
    if cpu != arch::cpu_id() && task.state.get() == state::State::Running {
        arch::ipi::resched(cpu);
    }
}

/// Starts a kernel thread.
pub fn spawn_kernel(name: &'static str, body: fn()) {
    crate::task::spawn_kernel(name, body);
}

/// Lets others run if it is their turn; call it between bounded chunks of long work, without locks.
///
/// No interrupt comes in kernel mode, so this looks at the clock itself.
#[inline]
pub fn cond_resched() {
    if started() {
        tick::poll();
    }
}

/// Goes behind the other runnable tasks of this CPU.
pub fn yield_now() {
    switch::yield_now();
}

/// Sleeps until `deadline`, whatever signals come (kernel threads).
pub fn sleep_until(deadline: Nanos) {
    let nothing = WaitQueue::new();
    nothing.wait_uninterruptible_deadline(|| false, deadline);
}

/// Whether the current task's slice is over, as far as is known: something to look at in loops.
pub fn need_resched() -> bool {
    current().work.load(Ordering::Relaxed) & work::RESCHED != 0
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
    let now = arch::clock::now().0;
    let since = queue.idle_since_ns.load(Ordering::Relaxed);
    let open = if since == 0 {
        0
    } else {
        now.saturating_sub(since)
    };
    let idle = queue.idle_ns.load(Ordering::Relaxed) + open;
    let system = queue.system_ns.load(Ordering::Relaxed);
    CpuTimes {
        user: Nanos(now.saturating_sub(idle).saturating_sub(system)),
        system: Nanos(system),
        idle: Nanos(idle),
        switches: queue.switches.load(Ordering::Relaxed),
    }
}

/// Tasks that run or wait for a CPU.
pub fn runnable() -> usize {
    QUEUES
        .iter()
        .filter(|queue| queue.online.load(Ordering::Relaxed))
        .map(RunQueue::load)
        .sum()
}
