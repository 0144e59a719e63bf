//! Whether the kernel has panicked.

use core::sync::atomic::AtomicBool;

/// All CPUs but the one that panicked are to stop: the NMI's handler halts.
pub(super) static STOPPING: AtomicBool = AtomicBool::new(false);
