//! Processes: tasks, signals, timers, futexes, tracing, IPC objects, terminals and the OOM killer.
//!
//! These modules depend on each other: a task takes signals, a signal wakes and ends tasks, a timer
//! sends signals.

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
