//! The part of the kernel log that is kept in memory, for `syslog(2)`.

use super::spin::{SpinGuard, SpinLock};
use logic::log_ring::LogRing;

/// The size of the kept log in bytes. Pages of it that were never written cost no memory.
pub const BYTES: usize = 32 << 10;

/// The ring of the lines of the kernel log that are kept in memory.
pub type Lines = LogRing<BYTES>;

static LINES: SpinLock<Lines> = SpinLock::new(Lines::new());

/// Locks the lines of the kernel log that are kept in memory, so that the caller can read them.
/// Waits until the lock is free.
pub fn lines() -> SpinGuard<'static, Lines> {
    LINES.lock()
}

/// Locks the lines of the kernel log that are kept in memory, to add one. Returns `None` if the
/// lock is held, perhaps by code that an interrupt or a panic has stopped: a lost line is better
/// than an endless wait.
pub(super) fn lines_now() -> Option<SpinGuard<'static, Lines>> {
    LINES.lock_now()
}
