//! The kernel log, as far as it is kept in memory: what `syslog(2)` reads.

use super::spin::{SpinGuard, SpinLock};
use logic::log_ring::LogRing;

/// Bytes of it; pages that no line was written to yet cost nothing.
pub const BYTES: usize = 32 << 10;

/// The lines.
pub type Lines = LogRing<BYTES>;

static LINES: SpinLock<Lines> = SpinLock::new(Lines::new());

/// The lines, to read.
pub fn lines() -> SpinGuard<'static, Lines> {
    LINES.lock()
}

/// Locks the lines, to add one. Returns `None` if they are locked, perhaps by the code that an
/// interrupt or a panic has stopped: a lost line is better than an endless wait.
pub(super) fn lines_now() -> Option<SpinGuard<'static, Lines>> {
    LINES.lock_now()
}
