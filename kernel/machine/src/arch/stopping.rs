//! A flag that stops CPUs after a panic.

use core::sync::atomic::AtomicBool;

/// Whether the kernel has panicked. All CPUs but the one that panicked stop: the handler of the NMI
/// halts them.
pub(super) static STOPPING: AtomicBool = AtomicBool::new(false);
