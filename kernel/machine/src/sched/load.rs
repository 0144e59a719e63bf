//! The load averages.
//!
//! There is no periodic tick. A read or a context switch updates the averages: each period that has
//! passed counts with the number of threads that can run now.

use crate::arch::clock::{self, Nanos};
use crate::arch::spin::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};

/// The fixed-point representation of 1 in the load averages.
pub const FIXED_1: u64 = 1 << 11;
/// The time between two updates.
const PERIOD_NS: u64 = 5_000_000_000;
/// The share of the old value that is kept in each period: exp(-5s/1min), exp(-5s/5min),
/// exp(-5s/15min).
const KEEP: [u64; 3] = [1884, 2014, 2037];
/// After this number of periods the old value has no effect at the precision shown.
const MAX_PERIODS: u64 = 2000;

/// The time at which the averages of loads or of pressure must be checked next.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// The time at which the averages of loads are due; guarded by [`AVERAGES`].
static LOADS_DUE_NS: AtomicU64 = AtomicU64::new(PERIOD_NS);
static AVERAGES: SpinLock<[u64; 3]> = SpinLock::new([0; 3]);

/// Returns the load average `average` after one more period. `active` is the number of threads that
/// can run, and `keep` is the share of the old value that is kept. All are in units of
/// 1/[`FIXED_1`].
fn step(average: u64, keep: u64, active: u64) -> u64 {
    let sum = average * keep + active * (FIXED_1 - keep);
    // Like Linux, round up while the average rises, so that it reaches the active count.
    if active >= average {
        sum.div_ceil(FIXED_1)
    } else {
        sum / FIXED_1
    }
}

/// Updates the load averages and the averages of pressure if either is due at `now`.
#[inline]
pub(super) fn update(now: Nanos) {
    if now.0 >= NEXT_NS.load(Ordering::Relaxed) {
        update_slow(now);
    }
}

#[cold]
fn update_slow(now: Nanos) {
    let Some(mut averages) = AVERAGES.try_lock() else {
        return;
    };
    let pressure_due = super::pressure::update(now);
    let due = LOADS_DUE_NS.load(Ordering::Relaxed);
    let next = pressure_due.0.min(due);
    if now.0 < due {
        NEXT_NS.store(next, Ordering::Relaxed);
        return;
    }
    let periods = (now.0 - due) / PERIOD_NS + 1;
    let due = due + periods * PERIOD_NS;
    LOADS_DUE_NS.store(due, Ordering::Relaxed);
    NEXT_NS.store(pressure_due.0.min(due), Ordering::Relaxed);
    let active = super::runnable() as u64 * FIXED_1;
    for _ in 0..periods.min(MAX_PERIODS) {
        for (average, keep) in averages.iter_mut().zip(KEEP) {
            *average = step(*average, keep, active);
        }
    }
}

/// Updates the load averages over 1, 5 and 15 minutes if they are due, and returns them in units of
/// 1/[`FIXED_1`].
pub fn averages() -> [u64; 3] {
    update(clock::now());
    *AVERAGES.lock()
}
