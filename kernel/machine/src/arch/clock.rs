//! The monotonic clock (from the time-stamp counter) and the wall clock's offset to it.

use super::boot_info::BootInfo;
pub use super::nanos::Nanos;
use super::{apic, cpu, features, rtc};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use features::Feature;

/// How the counter becomes time: `base_ns + ((tsc - base_tsc) * scale >> 32)`.
struct Scale {
    /// Odd while the values change.
    sequence: AtomicU32,
    base_tsc: AtomicU64,
    base_ns: AtomicU64,
    /// Nanoseconds a tick, times 2^32; 0 until the clock is set.
    scale: AtomicU64,
}

static SCALE: Scale = Scale {
    sequence: AtomicU32::new(0),
    base_tsc: AtomicU64::new(0),
    base_ns: AtomicU64::new(0),
    scale: AtomicU64::new(0),
};
/// The counter at kernel entry.
static START_TSC: AtomicU64 = AtomicU64::new(0);
/// What to add to the monotonic clock for the time since 1970.
static REALTIME_OFFSET: AtomicU64 = AtomicU64::new(0);
/// The first of two looks at counter and APIC timer, for [`refine`].
static FIRST_LOOK: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// How long the first guess of the rate looks at the APIC timer.
const GUESS_NS: u64 = 400_000;
/// How long the final one does at least.
const REFINE_NS: u64 = 5_000_000;
/// Attempts to read counter and APIC timer close to each other.
const MAX_LOOKS: u32 = 20;

/// Takes the time of kernel entry.
pub(super) fn start() {
    let tsc = cpu::rdtsc();
    // Relaxed: one CPU runs.
    START_TSC.store(tsc, Ordering::Relaxed);
    SCALE.base_tsc.store(tsc, Ordering::Relaxed);
}

/// Time since kernel entry; never goes back, on any CPU. 0 before [`init`].
#[inline]
pub fn now() -> Nanos {
    at(cpu::rdtsc())
}

fn at(tsc: u64) -> Nanos {
    loop {
        // Acquire: partner of the Release in `set_scale`; the values below are not older.
        let sequence = SCALE.sequence.load(Ordering::Acquire);
        let base_tsc = SCALE.base_tsc.load(Ordering::Relaxed);
        let base_ns = SCALE.base_ns.load(Ordering::Relaxed);
        let scale = SCALE.scale.load(Ordering::Relaxed);
        // Acquire fence: the values are read before the sequence is looked at again.
        fence(Ordering::Acquire);
        if sequence & 1 == 0 && SCALE.sequence.load(Ordering::Relaxed) == sequence {
            // A counter slightly behind the base (another CPU's) must not become a great span.
            let ticks = tsc.saturating_sub(base_tsc);
            let ns = (u128::from(ticks) * u128::from(scale)) >> 32;
            return Nanos(base_ns + ns as u64);
        }
        core::hint::spin_loop();
    }
}

/// Goes on from the present time at another rate.
fn set_scale(ticks: u64, ns: u64) {
    let scale = ((u128::from(ns) << 32) / u128::from(ticks.max(1))) as u64;
    let first = SCALE.scale.load(Ordering::Relaxed) == 0;
    let tsc = cpu::rdtsc();
    let base_ns = if first { 0 } else { at(tsc).0 };
    let sequence = SCALE.sequence.load(Ordering::Relaxed);
    SCALE.sequence.store(sequence + 1, Ordering::Relaxed);
    // Release fence: nobody sees the new values with the old, even sequence.
    fence(Ordering::Release);
    if !first {
        SCALE.base_tsc.store(tsc, Ordering::Relaxed);
        SCALE.base_ns.store(base_ns, Ordering::Relaxed);
    }
    SCALE.scale.store(scale, Ordering::Relaxed);
    // Release: partner of the Acquire in `at`.
    SCALE.sequence.store(sequence + 2, Ordering::Release);
}

/// Base of the counter, base in nanoseconds, and nanoseconds a tick times 2^32: final once programs start.
pub(super) fn rate() -> [u64; 3] {
    // Relaxed: nobody changes them any more.
    [&SCALE.base_tsc, &SCALE.base_ns, &SCALE.scale].map(|value| value.load(Ordering::Relaxed))
}

/// What to add to [`now`] for the time since 1970.
pub fn realtime_offset() -> Nanos {
    // Relaxed: the value stands for itself.
    Nanos(REALTIME_OFFSET.load(Ordering::Relaxed))
}

/// Sets what to add, before there are programs: somebody knows the time better than the boot line.
pub fn set_realtime_offset(offset: Nanos) {
    REALTIME_OFFSET.store(offset.0, Ordering::Relaxed);
}

/// Time-stamp counter ticks a millisecond.
pub fn tsc_khz() -> u64 {
    let scale = SCALE.scale.load(Ordering::Relaxed).max(1);
    ((1_000_000u128 << 32) / u128::from(scale)) as u64
}

/// The counter's value at a time; for the deadline timer.
pub(super) fn tsc_at(time: Nanos) -> u64 {
    let now_tsc = cpu::rdtsc();
    let left = u128::from(time.saturating_sub(at(now_tsc)).0);
    let scale = u128::from(SCALE.scale.load(Ordering::Relaxed).max(1));
    let ticks = ((left << 32) / scale).min(u128::from(u64::MAX / 2)) as u64;
    now_tsc.saturating_add(ticks)
}

/// The counter's rate in kHz, where the CPU or the hypervisor says it.
fn told_khz() -> Option<u64> {
    if cpu::cpuid(0, 0).eax >= 0x15 {
        let leaf = cpu::cpuid(0x15, 0);
        if leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0 {
            let hz = u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax);
            return Some(hz / 1000);
        }
    }
    if features::has(Feature::Hypervisor) && cpu::cpuid(0x4000_0000, 0).eax >= 0x4000_0010 {
        let leaf = cpu::cpuid(0x4000_0010, 0);
        if leaf.eax != 0 {
            return Some(u64::from(leaf.eax));
        }
    }
    None
}

/// Counter and nanoseconds of the APIC timer, read as close to each other as it goes.
fn look() -> (u64, u64) {
    let mut best = (0, 0, u64::MAX);
    for _ in 0..MAX_LOOKS {
        let before = cpu::rdtsc();
        let ns = apic::elapsed_ns();
        let after = cpu::rdtsc();
        let gap = after.wrapping_sub(before);
        if gap < best.2 {
            best = (before + gap / 2, ns, gap);
        }
    }
    (best.0, best.1)
}

/// Sets the clock going: a first guess of the rate unless it is told, and the wall clock.
pub(super) fn init(boot: &BootInfo) {
    if let Some(khz) = told_khz() {
        set_scale(khz, 1_000_000);
    } else {
        apic::start_reference();
        let (tsc, ns) = look();
        FIRST_LOOK[0].store(tsc, Ordering::Relaxed);
        FIRST_LOOK[1].store(ns, Ordering::Relaxed);
        measure(GUESS_NS);
    }
    let epoch = boot
        .option(ebb_wire::boot::EPOCH)
        .and_then(|value| value.parse().ok());
    let offset = match epoch {
        Some(ns) => ns,
        None => rtc::read()
            .saturating_mul(1_000_000_000)
            .saturating_sub(now().0),
    };
    REALTIME_OFFSET.store(offset, Ordering::Relaxed);
}

/// Sets the rate from the time since the first look, waiting until that is at least `least_ns`.
fn measure(least_ns: u64) {
    let first_tsc = FIRST_LOOK[0].load(Ordering::Relaxed);
    let first_ns = FIRST_LOOK[1].load(Ordering::Relaxed);
    if first_tsc == 0 {
        return;
    }
    while apic::elapsed_ns().saturating_sub(first_ns) < least_ns {
        core::hint::spin_loop();
    }
    let (tsc, ns) = look();
    set_scale(tsc.saturating_sub(first_tsc), ns.saturating_sub(first_ns));
}

/// Makes the rate exact with all the time that has passed since [`init`]. Before the APIC timer is
/// used for deadlines.
pub(super) fn refine() {
    measure(REFINE_NS);
    FIRST_LOOK[0].store(0, Ordering::Relaxed);
}
