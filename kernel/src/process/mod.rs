//! Processes: their tasks, signals, timers and futexes, who traces them, what they share by name and key, terminals, and who goes when memory is out. These know
//! each other: a task takes signals, a signal wakes and ends tasks, a timer sends signals.

pub mod args;
pub mod caller;
pub(crate) mod futex;
pub(crate) mod futex_pi;
pub mod ipc;
pub mod pidfd;
pub(crate) mod ptrace;
pub(crate) mod rseq;
pub(crate) mod seccomp;
pub mod signal;
pub mod task;
pub mod terminal;
pub mod time;
pub mod uts;

pub use task::{TaskRef, current};
