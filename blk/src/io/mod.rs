//! Input and output on an image: io_uring where the process may have one, system calls elsewhere.

mod calls;
mod operation;
mod queue;
mod uring;

pub use operation::{Completion, Operation, Route};
pub use queue::Queue;
