//! Tasks (threads) and processes: creation, state and end.
//!
//! Locks, in the order in which they are taken: the process table ([`table`]), a process's
//! relations, a process's group, a task's pending signals, wait queues and timer queues, run
//! queues. Of two processes' locks of the same kind only one is held at a time.

mod clone;
pub(crate) mod core_dump;
mod current;
mod death_signal;
mod elf_file;
mod exec;
mod executable;
mod exit;
mod image;
mod kthread;
pub mod limits;
mod oom;
mod out;
mod owner;
mod process;
mod robust;
mod scheduling;
mod start;
pub mod table;
#[expect(
    clippy::module_inception,
    reason = "the type that the part is named after"
)]
mod task;
mod used_space;
pub(crate) mod vdso;
mod wait;
mod work_loop;

pub(crate) use clone::{CloneRequest, clone};
pub use current::{TaskRef, current};
pub(crate) use death_signal::set as set_death_signal;
pub(crate) use exec::{UserStrings, execve};
pub(crate) use executable::{open_again as open_executable_again, open_at as open_executable};
pub(crate) use exit::{exit_group, exit_thread, kill_group, reap, tell_parent};
pub(crate) use kthread::{root_credentials, try_spawn};
pub use oom::{oom_kill, oom_score};
pub(crate) use process::{Group, Stop};
pub use process::{Process, Usage, WaitStatus};
pub(crate) use scheduling::{Scheduled, Scheduling};
pub use start::start;
pub use table::{find, find_task, last_number, next_process, task_count, tasks_made};
pub(crate) use task::UserState;
pub(crate) use task::{Marks, REGISTERS};
pub use task::{Name, Task};
pub(crate) use wait::{WaitFor, WaitOptions, Waited, wait_for_child};
pub use work_loop::exit_to_user;
