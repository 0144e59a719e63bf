//! Locks, wait queues and cells that are set once.
//!
//! Kernel mode is never preempted, so a lock is held for a bounded stretch of straight code, and
//! nothing may block while it holds one (asserted in builds with assertions).

pub(crate) mod futex;
mod mutex;
mod once;
mod spin;
mod wait_queue;

pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
pub use spin::{SpinGuard, SpinLock, assert_no_spin_lock_held, spin_locks_held};
pub use wait_queue::{Interrupted, WaitEnd, WaitQueue, WaitSet};
