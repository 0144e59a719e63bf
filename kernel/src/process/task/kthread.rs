//! Kernel threads.

use super::limits::Limits;
use super::process::Resources;
use super::task::NewTask;
use super::{Process, Task};
use crate::process::signal::Actions;
use alloc::sync::Arc;
use logic::credentials::Credentials;
use logic::errno::Errno;
use machine::memory::KernelStack;
use machine::sched;
use machine::sync::Once;

/// The process that kernel threads belong to. It is not in the table.
static KERNEL: Once<Arc<Process>> = Once::new();

/// Returns the process with the number 0, to which kernel threads belong. Creates it at the first
/// call.
pub(crate) fn kernel_process() -> &'static Arc<Process> {
    if let Some(process) = KERNEL.get() {
        return process;
    }
    let process = Process::new(
        0,
        Arc::new(Actions::new()),
        Resources::default(),
        Limits::initial(0),
        root_credentials(),
    );
    // Another CPU may have been first; then this one is dropped.
    let _ = KERNEL.set(Arc::new(process));
    KERNEL.get().expect("set just now")
}

/// Returns root's credentials, which kernel threads have.
pub(crate) fn root_credentials() -> Arc<Credentials> {
    static ROOT: Once<Arc<Credentials>> = Once::new();
    if ROOT.get().is_none() {
        // Another CPU may have been first; then these are dropped.
        let _ = ROOT.set(Arc::new(Credentials::root()));
    }
    ROOT.get().expect("set just now").clone()
}

/// Starts a kernel thread named `name` that runs `body`. Called while the machine starts.
///
/// # Panics
/// Panics if there is no memory for the thread's stack.
pub(super) fn spawn_kernel(name: &'static str, body: fn()) {
    try_spawn(name, body).expect("memory for a kernel thread's stack");
}

/// Starts a kernel thread named `name` that runs `body`. May be called at any time.
///
/// # Errors
/// Fails with `ENOMEM` if there is no memory for the thread's stack.
pub(crate) fn try_spawn(name: &'static str, body: fn()) -> Result<(), Errno> {
    let stack = KernelStack::new()?;
    let task = with_stack(kernel_process().clone(), 0, name.as_bytes(), stack, body);
    sched::start_new(sched::Owned::new(task));
    Ok(())
}

/// Returns a new kernel thread of `process` with the number `tid`, which runs `body`. The caller
/// starts the thread.
///
/// # Panics
/// Panics if there is no memory for the thread's stack.
pub(super) fn new(process: Arc<Process>, tid: u32, name: &[u8], body: fn()) -> Arc<Task> {
    let stack = KernelStack::new().expect("memory for a kernel thread's stack");
    with_stack(process, tid, name, stack, body)
}

fn with_stack(
    process: Arc<Process>,
    tid: u32,
    name: &[u8],
    stack: KernelStack,
    body: fn(),
) -> Arc<Task> {
    let new = NewTask {
        process,
        tid,
        name,
        credentials: root_credentials(),
    };
    Arc::new(Task::kernel(new, stack, body))
}
