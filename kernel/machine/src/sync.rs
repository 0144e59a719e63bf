//! Locks, wait queues and cells that are set once, re-exported from `arch` and `sched`.
//!
//! Kernel mode is never preempted, so a spin lock is held only for a bounded number of
//! instructions. A thread must not block while its CPU holds a spin lock (asserted in builds with
//! assertions).

pub use crate::arch::once::Once;
pub use crate::arch::spin::{SpinGuard, SpinLock, assert_no_spin_lock_held, spin_locks_held};
pub use crate::sched::mutex::{Mutex, MutexGuard};
pub use crate::sched::wait_queue::{Interrupted, WaitEnd, WaitQueue, WaitSet};
