//! POSIX message queues: they have names and priorities, and can notify a process of the first
//! message.

mod file;
mod names;
mod notice;
mod queue;
mod size;

pub use names::{Making, open, unlink};
pub use notice::{Courier, Notice};
pub use queue::MessageQueue;
pub use size::{LIMITS, MAX_MESSAGE_BYTES, MAX_MESSAGES, PRIORITIES, Size};
