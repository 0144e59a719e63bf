//! Kernel threads.

use super::limits::Limits;
use super::process::Resources;
use super::task::NewTask;
use super::{Process, Task, owner};
use crate::process::signal::Actions;
use alloc::sync::Arc;
use machine::memory::KernelStack;
use machine::sched;
use machine::sync::Once;

/// The process that kernel threads belong to; it is in no table.
static KERNEL: Once<Arc<Process>> = Once::new();

/// The kernel's own process, number 0.
pub(crate) fn kernel_process() -> &'static Arc<Process> {
    if let Some(process) = KERNEL.get() {
        return process;
    }
    let process = Process::new(
        0,
        Arc::new(Actions::new()),
        Resources::default(),
        Limits::initial(0),
    );
    // Another CPU may have been first; then ours goes.
    let _ = KERNEL.set(Arc::new(process));
    KERNEL.get().expect("set just now")
}

/// Starts a kernel thread that runs `body`.
///
/// # Panics
/// When there is no memory for it: threads are started while the machine is.
pub(super) fn spawn_kernel(name: &'static str, body: fn()) {
    let task = new(kernel_process().clone(), 0, name.as_bytes(), body);
    sched::start_new(owner::to_thread(task));
}

/// Makes a kernel thread that has not started.
pub(super) fn new(process: Arc<Process>, tid: u32, name: &[u8], body: fn()) -> Arc<Task> {
    let stack = KernelStack::new().expect("memory for a kernel thread's stack");
    Arc::new(Task::kernel(NewTask { process, tid, name }, stack, body))
}
