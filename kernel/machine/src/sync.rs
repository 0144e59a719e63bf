//! Locks, wait queues and cells that are set once, from whichever floor they are on.
//!
//! Kernel mode is never preempted, so a lock is held for a bounded stretch of straight code, and
//! nothing may block while it holds a spin lock (asserted in builds with assertions).

pub use crate::arch::once::Once;
pub use crate::arch::spin::{SpinGuard, SpinLock, assert_no_spin_lock_held, spin_locks_held};
pub use crate::sched::mutex::{Mutex, MutexGuard};
pub use crate::sched::wait_queue::{Interrupted, WaitEnd, WaitQueue, WaitSet};
