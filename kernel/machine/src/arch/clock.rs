//! The monotonic clock (from the time-stamp counter) and the wall clock's offset to it.

use super::boot_info::BootInfo;
pub use super::nanos::Nanos;
use super::{apic, cpu, features, rtc};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use features::Feature;

/// The values that convert the time-stamp counter to nanoseconds: `base_ns + ((tsc - base_tsc) *
/// scale / 2^32)`.
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
/// The time-stamp counter at kernel entry.
static START_TSC: AtomicU64 = AtomicU64::new(0);
/// The offset of the wall clock from the monotonic clock. It was `offset_ns` when the monotonic
/// clock showed `base_ns`. Since then it has grown by `rate` nanoseconds for each 2^32 nanoseconds
/// of the monotonic clock.
struct Ahead {
    /// Odd while the values change.
    sequence: AtomicU32,
    base_ns: AtomicU64,
    offset_ns: AtomicU64,
    rate: AtomicI64,
}

static AHEAD: Ahead = Ahead {
    sequence: AtomicU32::new(0),
    base_ns: AtomicU64::new(0),
    offset_ns: AtomicU64::new(0),
    rate: AtomicI64::new(0),
};

/// The argument of [`set_wall_rate`] with which the wall clock runs at twice the speed of the
/// monotonic clock.
pub const TWICE: i64 = 1 << 32;
/// The first of two readings of the time-stamp counter and the APIC timer, for [`refine`].
static FIRST_LOOK: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The time in nanoseconds for which the APIC timer is observed for the first guess of the rate.
const GUESS_NS: u64 = 400_000;
/// The least time in nanoseconds for which the APIC timer is observed for the final rate.
const REFINE_NS: u64 = 5_000_000;
/// The number of attempts to read the counter and the APIC timer close together.
const MAX_LOOKS: u32 = 20;

/// Notes the time-stamp counter as the start of the monotonic clock. The first CPU calls this at
/// kernel entry.
pub(super) fn start() {
    let tsc = cpu::rdtsc();
    // Relaxed: one CPU runs.
    START_TSC.store(tsc, Ordering::Relaxed);
    SCALE.base_tsc.store(tsc, Ordering::Relaxed);
}

/// Returns the monotonic clock: the time since kernel entry. It never goes back, on any CPU.
/// Returns 0 before [`init`].
#[inline]
pub fn now() -> Nanos {
    at(cpu::rdtsc())
}

/// A value of the time-stamp counter, or a difference of two values. Cheaper to read than [`now`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ticks(pub u64);

impl Ticks {
    /// Returns the present value of the time-stamp counter, which is not 0.
    #[inline]
    pub fn now() -> Self {
        Self(cpu::rdtsc())
    }

    /// Returns the number of ticks from `earlier` to `self`. Returns 0 if `earlier` is greater,
    /// which may happen if another CPU has read it.
    #[inline]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Converts this number of ticks to nanoseconds.
    pub fn to_nanos(self) -> Nanos {
        let scale = SCALE.scale.load(Ordering::Relaxed);
        Nanos(((u128::from(self.0) * u128::from(scale)) >> 32) as u64)
    }
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

/// Changes the rate of the clock to `ticks` in `ns` nanoseconds, without a jump of the present
/// time.
fn set_scale(ticks: u64, ns: u64) {
    let scale = ((u128::from(ns) << 32) / u128::from(ticks.max(1))) as u64;
    let first = SCALE.scale.load(Ordering::Relaxed) == 0;
    let tsc = cpu::rdtsc();
    let base_ns = if first { 0 } else { at(tsc).0 };
    let sequence = SCALE.sequence.load(Ordering::Relaxed);
    SCALE.sequence.store(sequence + 1, Ordering::Relaxed);
    // Release fence: no reader sees the new values with the old, even sequence.
    fence(Ordering::Release);
    if !first {
        SCALE.base_tsc.store(tsc, Ordering::Relaxed);
        SCALE.base_ns.store(base_ns, Ordering::Relaxed);
    }
    SCALE.scale.store(scale, Ordering::Relaxed);
    // Release: partner of the Acquire in `at`.
    SCALE.sequence.store(sequence + 2, Ordering::Release);
}

/// Returns the values of the conversion from the time-stamp counter to nanoseconds: the base of the
/// counter, the base in nanoseconds, and the nanoseconds of a tick times 2^32. They no longer
/// change once programs start.
pub(super) fn rate() -> [u64; 3] {
    // Relaxed: they do not change any more.
    [&SCALE.base_tsc, &SCALE.base_ns, &SCALE.scale].map(|value| value.load(Ordering::Relaxed))
}

/// Returns the offset to add to the monotonic time `now` for the time since 1970, and the rate at
/// which that offset grows.
fn ahead_at(now: Nanos) -> (Nanos, i64) {
    loop {
        // Acquire: partner of the Release in `set_ahead`; the values below are not older.
        let sequence = AHEAD.sequence.load(Ordering::Acquire);
        let base = AHEAD.base_ns.load(Ordering::Relaxed);
        let offset = AHEAD.offset_ns.load(Ordering::Relaxed);
        let rate = AHEAD.rate.load(Ordering::Relaxed);
        // Acquire fence: the values are read before the sequence is looked at again.
        fence(Ordering::Acquire);
        if sequence & 1 == 0 && AHEAD.sequence.load(Ordering::Relaxed) == sequence {
            if rate == 0 {
                return (Nanos(offset), 0);
            }
            let passed = i128::from(now.0) - i128::from(base);
            let gained = (passed * i128::from(rate)) >> 32;
            let sum = (i128::from(offset) + gained).max(0);
            return (Nanos(u64::try_from(sum).unwrap_or(u64::MAX)), rate);
        }
        core::hint::spin_loop();
    }
}

/// Makes the wall clock differ from the monotonic clock by `offset` at the time `now`, and makes
/// that offset grow by `rate` nanoseconds in 2^32 nanoseconds from then on. These are the values
/// that `ahead_at` reads. The caller ensures that no other thread sets them at the same time.
fn set_ahead(now: Nanos, offset: Nanos, rate: i64) {
    let sequence = AHEAD.sequence.load(Ordering::Relaxed);
    AHEAD.sequence.store(sequence + 1, Ordering::Relaxed);
    // Release fence: no reader sees the new values with the old, even sequence.
    fence(Ordering::Release);
    AHEAD.base_ns.store(now.0, Ordering::Relaxed);
    AHEAD.offset_ns.store(offset.0, Ordering::Relaxed);
    AHEAD.rate.store(rate, Ordering::Relaxed);
    // Release: partner of the Acquire in `ahead_at`.
    AHEAD.sequence.store(sequence + 2, Ordering::Release);
}

/// Returns the wall clock: the time since 1970.
pub fn wall_now() -> Nanos {
    let now = now();
    now.saturating_add(ahead_at(now).0)
}

/// Returns the present offset of the wall clock: the time since 1970 minus [`now`].
pub fn realtime_offset() -> Nanos {
    ahead_at(now()).0
}

/// Returns the nanoseconds that the wall clock gains in 2^32 nanoseconds of the monotonic clock.
/// Returns 0 if both clocks run at the same speed.
pub fn wall_rate() -> i64 {
    ahead_at(Nanos::ZERO).1
}

/// Returns the monotonic time at which the wall clock shows `wall`, by its present offset and rate.
/// Returns 0 if that was before the monotonic clock started.
pub fn monotonic_at(wall: Nanos) -> Nanos {
    let now = now();
    let (offset, rate) = ahead_at(now);
    if rate == 0 {
        return wall.saturating_sub(offset);
    }
    let left = i128::from(wall.0) - i128::from(now.saturating_add(offset).0);
    // Rounded up, so that it is not before.
    let span = (left << 32).div_euclid(i128::from(TWICE) + i128::from(rate)) + 1;
    let at = (i128::from(now.0) + span).max(0);
    Nanos(u64::try_from(at).unwrap_or(u64::MAX))
}

/// Sets the offset of the wall clock from the monotonic clock to `offset`. Once programs run, the
/// caller also wakes the threads that wait for a time of the wall clock. The caller ensures that no
/// other thread sets the wall clock at the same time.
pub fn set_realtime_offset(offset: Nanos) {
    set_ahead(now(), offset, wall_rate());
}

/// Makes the wall clock gain `rate` nanoseconds in 2^32 nanoseconds of the monotonic clock from now
/// on. The caller has the same duties as for [`set_realtime_offset`].
///
/// # Panics
/// If `rate` is not greater than `-TWICE`.
pub fn set_wall_rate(rate: i64) {
    assert!(rate > -TWICE, "a clock does not run backwards");
    let now = now();
    set_ahead(now, ahead_at(now).0, rate);
}

/// Returns the frequency of the time-stamp counter in kHz.
pub fn tsc_khz() -> u64 {
    let scale = SCALE.scale.load(Ordering::Relaxed).max(1);
    ((1_000_000u128 << 32) / u128::from(scale)) as u64
}

/// Returns the value that the time-stamp counter will have at `time`, for the deadline timer.
pub(super) fn tsc_at(time: Nanos) -> u64 {
    let now_tsc = cpu::rdtsc();
    let left = u128::from(time.saturating_sub(at(now_tsc)).0);
    let scale = u128::from(SCALE.scale.load(Ordering::Relaxed).max(1));
    let ticks = ((left << 32) / scale).min(u128::from(u64::MAX / 2)) as u64;
    now_tsc.saturating_add(ticks)
}

/// Returns the frequency of the time-stamp counter in kHz, or `None` if neither the CPU nor the
/// hypervisor reports it.
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

/// Returns the time-stamp counter and the nanoseconds of the APIC timer, read as close together as
/// possible.
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

/// Starts the monotonic clock and the wall clock. The rate is the one that the CPU or the
/// hypervisor reports, or a first guess. The wall clock starts with the time on the command line in
/// `boot`. If there is no such time, it starts with that of the CMOS clock.
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
    set_ahead(Nanos::ZERO, Nanos(offset), 0);
}

/// Sets the rate from the time since the first reading. Waits until that is at least `least_ns`
/// nanoseconds ago. Does nothing if there was no first reading.
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

/// Replaces a guessed rate of the clock by one that is measured over the whole time since [`init`].
/// Waits until [`REFINE_NS`] of that time have passed. Does nothing if the rate was reported.
/// Called before the APIC timer is used for deadlines.
pub(super) fn refine() {
    measure(REFINE_NS);
    FIRST_LOOK[0].store(0, Ordering::Relaxed);
}
