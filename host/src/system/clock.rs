//! The host's monotonic clock as a number that several processes share.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the present time of the host's monotonic clock (`CLOCK_MONOTONIC`) in seconds since a
/// moment that is the same for all processes of the host.
pub(crate) fn monotonic_seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds).as_secs_f64()
}
