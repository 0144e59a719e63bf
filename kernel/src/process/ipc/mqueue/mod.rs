//! POSIX message queues: by name, with priorities, and a notice for who wants to hear of the first
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
