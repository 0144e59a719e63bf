//! The scheduler: which task runs where, how tasks block and wake.

use crate::arch;
use crate::arch::clock::Nanos;
use crate::task::Task;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

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
    TaskRef {
        task: unsafe { NonNull::new_unchecked(task) },
        _not_send: PhantomData,
    }
}

/// Whether this CPU runs a task already (early boot does not).
pub fn started() -> bool {
    arch::current_task() != 0
}

/// Announces that the current task is about to block; from here on no wake-up is lost.
pub fn prepare_to_block() {
    unimplemented!()
}

/// Takes [`prepare_to_block`] back.
pub fn cancel_block() {
    unimplemented!()
}

/// Gives the CPU away until a wake-up has come since [`prepare_to_block`].
pub fn block() {
    block_until(None);
}

/// Like [`block`], at most until `deadline`; says whether the deadline has passed.
pub fn block_until(deadline: Option<Nanos>) -> bool {
    let _ = deadline;
    unimplemented!()
}

/// Makes a blocked task runnable; one that is about to block will not. Harmless on any other.
pub fn wake(task: &Task) {
    let _ = task;
    unimplemented!()
}

/// Starts a kernel thread.
pub fn spawn_kernel(name: &'static str, body: fn()) {
    let _ = (name, body);
    unimplemented!()
}

/// Lets others run if it is their turn; call it between bounded chunks of long work, without locks.
#[inline]
pub fn cond_resched() {
    unimplemented!()
}

/// Goes behind the other runnable tasks of this CPU.
pub fn yield_now() {
    unimplemented!()
}

/// Sleeps until `deadline`, whatever signals come (kernel threads).
pub fn sleep_until(deadline: Nanos) {
    let _ = deadline;
    unimplemented!()
}

/// This CPU's timer fired.
pub fn on_timer() {
    unimplemented!()
}

/// Another CPU asks this one to look at its run queue.
pub fn on_resched() {
    unimplemented!()
}

/// Runs this CPU's idle loop on its boot stack; the other CPUs enter here when they have started.
pub fn start_cpu() -> ! {
    unimplemented!()
}
