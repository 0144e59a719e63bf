//! I/O on an image: by io_uring if the process may use it, else by system calls.

mod calls;
mod operation;
mod queue;
mod uring;

pub use operation::{Completion, Operation, Route};
pub use queue::Queue;
