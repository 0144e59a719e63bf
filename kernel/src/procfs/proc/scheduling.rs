//! The knobs of real-time policies: `/proc/sys/kernel/sched_r*`.

use crate::fs::knob::Store;
use crate::fs::synthetic::Entry;
use core::fmt::Write;
use core::sync::atomic::{AtomicI32, Ordering};
use logic::errno::Errno;
use logic::sched::realtime::{RR_SLICE_NS, Share};
use machine::sched::realtime;
use machine::sync::SpinLock;

/// The knobs of real-time policies in `/proc/sys/kernel`.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::knob(
        "sys/kernel/sched_rt_period_us",
        |text| writeln!(text, "{}", LIMITS.lock().period_us),
        Store::int(|us| change(|limits| limits.period_us = us)),
    ),
    Entry::knob(
        "sys/kernel/sched_rt_runtime_us",
        |text| writeln!(text, "{}", LIMITS.lock().runtime_us),
        Store::int(|us| change(|limits| limits.runtime_us = us)),
    ),
    Entry::knob(
        "sys/kernel/sched_rr_timeslice_ms",
        |text| writeln!(text, "{}", RR_SLICE_MS.load(Ordering::Relaxed)),
        Store::int(set_rr_slice),
    ),
];

/// The share of a CPU that real-time threads may use, as programs write it.
#[derive(Copy, Clone)]
struct Limits {
    /// The length of a period in microseconds, more than 0.
    period_us: i32,
    /// The microseconds of a period for real-time threads, at most the whole period. -1 stands for
    /// the whole period.
    runtime_us: i32,
}

static LIMITS: SpinLock<Limits> = SpinLock::new(Limits {
    period_us: 1_000_000,
    runtime_us: 950_000,
});

/// The time slice of `SCHED_RR` in milliseconds, more than 0.
static RR_SLICE_MS: AtomicI32 = AtomicI32::new(USUAL_RR_SLICE_MS);
const USUAL_RR_SLICE_MS: i32 = 100;
const _: () = assert!(USUAL_RR_SLICE_MS.unsigned_abs() as u64 * NS_IN_MS == RR_SLICE_NS);
const NS_IN_MS: u64 = 1_000_000;
const NS_IN_US: u64 = 1_000;

/// Changes the limits. Fails with `EINVAL`, and changes nothing, if the period would not be
/// positive, or the runtime would exceed it or be less than -1.
fn change(change: impl FnOnce(&mut Limits)) -> Result<(), Errno> {
    let mut limits = LIMITS.lock();
    let mut new = *limits;
    change(&mut new);
    if new.period_us <= 0 || !(-1..=new.period_us).contains(&new.runtime_us) {
        return Err(Errno::EINVAL);
    }
    *limits = new;
    realtime::set_share(Share {
        period_ns: u64::from(new.period_us.unsigned_abs()) * NS_IN_US,
        runtime_ns: u64::try_from(new.runtime_us).map_or(u64::MAX, |us| us * NS_IN_US),
    });
    Ok(())
}

/// Sets the time slice of `SCHED_RR` to `slice_ms` milliseconds. As on Linux, 0 and negative
/// numbers stand for the usual slice. Never fails.
fn set_rr_slice(slice_ms: i32) -> Result<(), Errno> {
    let slice_ms = match slice_ms {
        ..=0 => USUAL_RR_SLICE_MS,
        slice_ms => slice_ms,
    };
    RR_SLICE_MS.store(slice_ms, Ordering::Relaxed);
    realtime::set_rr_slice_ns(u64::from(slice_ms.unsigned_abs()) * NS_IN_MS);
    Ok(())
}
