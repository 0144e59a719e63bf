//! Reads the guest's monotonic clock as a number, which `std::time::Instant` does not offer.

/// Returns the time of `CLOCK_MONOTONIC` in nanoseconds.
///
/// Under QEMU's `-icount shift=0` one nanosecond is one guest instruction.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid, writable timespec during the whole call.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(status, 0, "CLOCK_MONOTONIC exists on every Linux");
    // Both fields of a monotonic time are never negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Formats `ns` nanoseconds as seconds with six decimals, without a unit.
pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000)
}

/// Returns `numerator / denominator`, for rates and means. Returns 0 if `denominator` is 0.
#[allow(
    clippy::cast_precision_loss,
    reason = "counts and times of one run are below 2^53"
)]
pub(crate) fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 {
        0.0
    } else {
        numerator as f64 / denominator as f64
    }
}
