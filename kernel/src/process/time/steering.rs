//! The steering of the wall clock: the state of `adjtimex`, and leap seconds.
//!
//! A frequency, a tick and `adjtime` make the wall clock run faster or slower than the monotonic
//! clock. There is no phase-locked loop: an offset for it is refused with `EOPNOTSUPP`.

use super::{clock_thread, wall};
use crate::process::caller;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicI32, Ordering};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::sched::timer::{KernelTimer, TimerTarget};
use machine::sync::{Once, SpinLock};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct timex` of the ABI.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timex {
    modes: u32,
    padding: u32,
    offset: i64,
    frequency: i64,
    most_error: i64,
    estimated_error: i64,
    status: u32,
    padding_2: u32,
    constant: i64,
    precision: i64,
    tolerance: i64,
    seconds: i64,
    fraction: i64,
    tick: i64,
    /// Frequency, jitter, interval and other values of a pulse-per-second signal, which does not
    /// exist here.
    pulse: [i64; 8],
    tai: i32,
    rest: [u32; 11],
}

const _: () = assert!(size_of::<Timex>() == 208);

/// Bits of [`Timex::modes`], Linux's `ADJ_*`.
mod modes {
    /// `ADJ_OFFSET`: the request has an offset in `offset`.
    pub(super) const OFFSET: u32 = 1;
    /// `ADJ_FREQUENCY`: the request sets the frequency.
    pub(super) const FREQUENCY: u32 = 2;
    /// `ADJ_MAXERROR`: the request sets the bound of the error.
    pub(super) const MOST_ERROR: u32 = 4;
    /// `ADJ_ESTERROR`: the request sets the estimated error.
    pub(super) const ESTIMATED_ERROR: u32 = 8;
    /// `ADJ_STATUS`: the request sets the status.
    pub(super) const STATUS: u32 = 0x10;
    /// `ADJ_TIMECONST`: the request sets the time constant.
    pub(super) const CONSTANT: u32 = 0x20;
    /// `ADJ_TAI`: the request sets the difference of `CLOCK_TAI` to the wall clock.
    pub(super) const TAI: u32 = 0x80;
    /// `ADJ_SETOFFSET`: the request moves the wall clock at once.
    pub(super) const SET_OFFSET: u32 = 0x100;
    /// `ADJ_MICRO`: times have microseconds.
    pub(super) const MICROSECONDS: u32 = 0x1000;
    /// `ADJ_NANO`: times have nanoseconds.
    pub(super) const NANOSECONDS: u32 = 0x2000;
    /// `ADJ_TICK`: the request sets the length of a tick.
    pub(super) const TICK: u32 = 0x4000;
    /// `ADJ_ADJTIME`: the request is one of `adjtime(3)`. With `SINGLE_SHOT` it starts an
    /// adjustment. With `LOOK` it only returns the rest of an adjustment.
    pub(super) const ADJUST: u32 = 0x8000;
    /// `ADJ_OFFSET_SINGLESHOT`, which `adjtime(3)` sets together with `ADJUST`.
    pub(super) const SINGLE_SHOT: u32 = OFFSET;
    /// `ADJ_OFFSET_SS_READ`, which `adjtime(3)` sets together with `ADJUST` to read only.
    pub(super) const LOOK: u32 = 0x2000;
}

/// Bits of [`Timex::status`], Linux's `STA_*`.
mod status {
    /// `STA_PLL`: the phase-locked loop is on.
    pub(super) const LOOP: u32 = 1;
    /// `STA_PPSFREQ` and `STA_PPSTIME`: a pulse-per-second signal steers the clock.
    pub(super) const PULSES: u32 = 2 | 4;
    /// `STA_INS`: a leap second is inserted at the end of the day.
    pub(super) const INSERT: u32 = 0x10;
    /// `STA_DEL`: the last second of the day is left out.
    pub(super) const DELETE: u32 = 0x20;
    /// `STA_UNSYNC`: the clock is not synchronised.
    pub(super) const UNSYNCHRONISED: u32 = 0x40;
    /// `STA_NANO`: times have nanoseconds instead of microseconds.
    pub(super) const NANOSECONDS: u32 = 0x2000;
    /// The bits of the status that programs cannot set (`STA_RONLY`).
    pub(super) const READ_ONLY: u32 = 0xff00;
}

/// The bound of the errors, in microseconds. They reach it if no program steers the clock.
const MOST_ERROR_US: i64 = 16_000_000;
/// The growth of the error, in microseconds for each second.
const DRIFT_US_PER_S: u64 = 500;
/// The usual length of a tick, in microseconds, and the lengths that Linux accepts.
const TICK_US: i64 = 10_000;
const TICKS_US: core::ops::RangeInclusive<i64> = 9000..=11_000;
/// Bounds of `ADJ_TIMECONST` and `ADJ_TAI`.
const MOST_CONSTANT: i64 = 10;
const MOST_TAI_S: i64 = 100_000;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// `adjtime` makes the clock gain or lose 1 ns in this number of nanoseconds.
const ADJTIME_PART: i64 = 2000;
/// The highest frequency, in parts per million with a 16-bit fraction.
const MOST_FREQUENCY: i64 = 500 << 16;
/// The result of `adjtimex` if no program steers the clock.
const TIME_ERROR: usize = 5;

/// The phase of a leap second, with Linux's numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// No leap second is requested.
    Usual = 0,
    /// A second will be repeated at the end of the day.
    Insert = 1,
    /// The last second of the day will be left out.
    Delete = 2,
    /// The repeated second is running.
    Inserted = 3,
    /// The leap second has passed, but the request is still set.
    Over = 4,
}

struct Steering {
    status: u32,
    most_error_us: i64,
    /// The time at which `most_error_us` was set.
    error_since: Nanos,
    estimated_error_us: i64,
    constant: i64,
    phase: Phase,
    /// The time of the leap second, on the wall clock.
    leap_at: Nanos,
    /// The correction of the clock's frequency, in parts per million with a 16-bit fraction.
    frequency: i64,
    tick_us: i64,
    /// The end of an adjustment by `adjtime`, and whether the clock gains or loses: `true` if it
    /// gains. `None` if there is no adjustment.
    adjusting: Option<(Nanos, bool)>,
}

static STEERING: SpinLock<Steering> = SpinLock::new(Steering {
    status: status::UNSYNCHRONISED,
    most_error_us: MOST_ERROR_US,
    error_since: Nanos::ZERO,
    estimated_error_us: MOST_ERROR_US,
    constant: 2,
    phase: Phase::Usual,
    leap_at: Nanos::MAX,
    frequency: 0,
    tick_us: TICK_US,
    adjusting: None,
});

/// The difference of `CLOCK_TAI` to the wall clock, in seconds.
static TAI_S: AtomicI32 = AtomicI32::new(0);

fn tai_ahead() -> Nanos {
    // Relaxed: no other data depends on it. It is negative only while a deleted second is counted.
    let seconds = u64::try_from(TAI_S.load(Ordering::Relaxed)).unwrap_or(0);
    Nanos(seconds * SECOND)
}

/// Returns the time on `CLOCK_TAI` when the wall clock shows `time`.
pub fn atomic_of(time: Nanos) -> Nanos {
    time.saturating_add(tai_ahead())
}

/// Returns the time on the wall clock when `CLOCK_TAI` shows `time`.
pub fn wall_of(time: Nanos) -> Nanos {
    time.saturating_sub(tai_ahead())
}

impl Steering {
    /// Increases the error for the time up to `now`. At its bound the clock counts as
    /// unsynchronised.
    fn settle(&mut self, now: Nanos) {
        let seconds = now.saturating_sub(self.error_since).0 / SECOND;
        if seconds > 0 {
            let grown = i64::try_from(seconds.saturating_mul(DRIFT_US_PER_S)).unwrap_or(i64::MAX);
            self.most_error_us = self.most_error_us.saturating_add(grown);
            self.error_since = now;
            if self.most_error_us > MOST_ERROR_US {
                self.most_error_us = MOST_ERROR_US;
                self.status |= status::UNSYNCHRONISED;
            }
        }
    }

    /// Changes the phase and the time of the leap second to those that the requests in `status`
    /// call for at the wall time `wall`.
    fn advance(&mut self, wall: Nanos) {
        let asked = self.status & (status::INSERT | status::DELETE);
        let day = Nanos((wall.0 / DAY + 1) * DAY);
        match self.phase {
            Phase::Usual if asked & status::INSERT != 0 => {
                (self.phase, self.leap_at) = (Phase::Insert, day);
            }
            Phase::Usual if asked != 0 => {
                let second = Nanos(day.0 - SECOND);
                self.leap_at = if wall < second {
                    second
                } else {
                    second.saturating_add(Nanos(DAY))
                };
                self.phase = Phase::Delete;
            }
            Phase::Insert if asked & status::INSERT == 0 => self.forget_leap(),
            Phase::Delete if asked & status::DELETE == 0 => self.forget_leap(),
            Phase::Inserted if wall >= self.leap_at => self.phase = Phase::Over,
            Phase::Over if asked == 0 => self.forget_leap(),
            _ => {}
        }
    }

    fn forget_leap(&mut self) {
        (self.phase, self.leap_at) = (Phase::Usual, Nanos::MAX);
    }

    /// Returns the seconds by which a leap second moves the clock if its time has come at the wall
    /// time `wall`. Returns `None` otherwise.
    fn leap(&self, wall: Nanos) -> Option<i32> {
        match self.phase {
            Phase::Insert if wall >= self.leap_at => Some(-1),
            Phase::Delete if wall >= self.leap_at => Some(1),
            _ => None,
        }
    }

    /// Returns the nanoseconds that the wall clock gains in 2^32 of the monotonic clock.
    fn rate(&self) -> i64 {
        let by_tick = (self.tick_us - TICK_US) * clock::TWICE / TICK_US;
        // 2^32 / 2^16 in parts per million; intermediate values stay below 2^41.
        let by_frequency = self.frequency * (1 << 16) / 1_000_000;
        let by_adjtime = match self.adjusting {
            None => 0,
            Some((_, true)) => clock::TWICE / ADJTIME_PART,
            Some((_, false)) => -clock::TWICE / ADJTIME_PART,
        };
        by_tick + by_frequency + by_adjtime
    }

    /// Returns the rest of an adjustment by `adjtime` at `now`, in microseconds.
    fn left_us(&self, now: Nanos) -> i64 {
        let Some((until, gains)) = self.adjusting else {
            return 0;
        };
        let span = i64::try_from(until.saturating_sub(now).0).unwrap_or(i64::MAX);
        let left = span / (ADJTIME_PART * 1000);
        if gains { left } else { -left }
    }

    /// Starts an adjustment by `offset_us`, which replaces the one before.
    fn adjust(&mut self, offset_us: i64, now: Nanos) {
        let span = offset_us
            .unsigned_abs()
            .saturating_mul(ADJTIME_PART.unsigned_abs() * 1000);
        let until = now.saturating_add(Nanos(span));
        self.adjusting = (offset_us != 0).then_some((until, offset_us > 0));
    }

    /// Sets the status to `new`, which a request passes, without its read-only bits. If that turns
    /// the phase-locked loop off, resets the phase of the leap second.
    fn set_status(&mut self, new: u32) {
        if self.status & status::LOOP != 0 && new & status::LOOP == 0 {
            self.forget_leap();
            self.status = status::UNSYNCHRONISED;
        }
        self.status = self.status & status::READ_ONLY | new & !status::READ_ONLY;
    }

    fn result(&self) -> usize {
        if self.status & (status::UNSYNCHRONISED | status::PULSES) != 0 {
            TIME_ERROR
        } else {
            self.phase as usize
        }
    }
}

/// Resets the state of the steering because the wall clock was set to `wall`. The error is unknown
/// then, and the day of a leap second may have changed. Called while no other task can set the
/// clock, so a leap second comes before the clock is set or after this call. [`resume`] follows.
pub(super) fn forget(wall: Nanos) {
    let mut steering = STEERING.lock();
    steering.status |= status::UNSYNCHRONISED;
    steering.most_error_us = MOST_ERROR_US;
    steering.estimated_error_us = MOST_ERROR_US;
    steering.forget_leap();
    steering.advance(wall);
    steering.adjusting = None;
}

/// Sets the timers and the rate of the clock after [`forget`].
pub(super) fn resume() {
    arm();
    run();
}

/// The target of the timers for leap seconds and for `adjtime`. Their tokens differ.
struct Leap;

const OF_LEAP: u64 = 0;
const OF_ADJTIME: u64 = 1;

/// The target and the timers, once one was needed.
static TIMERS: Once<(Arc<Leap>, [KernelTimer; 2])> = Once::new();

impl TimerTarget for Leap {
    fn expired(&self, token: u64, _: Nanos) {
        clock_thread::serve(token);
    }
}

/// Does the work of the timer with the token `token`, if its time has come: a leap second, or the
/// end of an adjustment.
pub(super) fn serve(token: u64) {
    if token == OF_ADJTIME {
        let now = clock::now();
        let mut steering = STEERING.lock();
        if steering.adjusting.is_some_and(|(until, _)| until <= now) {
            steering.adjusting = None;
        }
        drop(steering);
        run();
        return;
    }
    // Fails if the time has not come, and at the bounds of the clock.
    let _ = wall::change(
        |now| {
            let by = STEERING.lock().leap(now).ok_or(Errno::EAGAIN)?;
            wall::moved(now, i128::from(by) * i128::from(SECOND))
        },
        |_| {
            // The phase changes after the clock: a repeated second begins with the step back.
            let mut steering = STEERING.lock();
            let by = match steering.phase {
                Phase::Insert => {
                    steering.phase = Phase::Inserted;
                    -1
                }
                Phase::Delete => {
                    steering.phase = Phase::Over;
                    1
                }
                _ => 0,
            };
            TAI_S.fetch_sub(by, Ordering::Relaxed);
        },
    );
}

/// Sets the timers for the requested leap second, and for the end of an adjustment.
fn arm() {
    let waits = |phase| matches!(phase, Phase::Insert | Phase::Delete);
    let needed = {
        let steering = STEERING.lock();
        waits(steering.phase) || steering.adjusting.is_some()
    };
    if needed && TIMERS.get().is_none() {
        let target = Arc::new(Leap);
        let timers = [OF_LEAP, OF_ADJTIME].map(|token| {
            let weak: Weak<Leap> = Arc::downgrade(&target);
            KernelTimer::new(weak, token)
        });
        TIMERS.get_or_init(|| (target, timers));
    }
    if let Some((_, [leap, adjtime])) = TIMERS.get() {
        // The lock is held, so that the last of several callers sets the final value.
        let steering = STEERING.lock();
        let at = waits(steering.phase).then_some(steering.leap_at);
        leap.set(at.map(clock::monotonic_at));
        adjtime.set(steering.adjusting.map(|(until, _)| until));
    }
}

/// Makes the clock run at the requested rate.
fn run() {
    if wall::run_at(|| STEERING.lock().rate()) {
        // The rate changes the monotonic time of the leap second.
        arm();
    }
}

/// Checks a request, in Linux's order. Fails with `EPERM` if it changes anything and the caller
/// lacks `CAP_SYS_TIME`, and with `EINVAL` for a value out of bounds.
fn check(timex: &Timex) -> Result<(), Errno> {
    let modes = timex.modes;
    if modes & modes::ADJUST != 0 {
        if modes & modes::SINGLE_SHOT == 0 {
            return Err(Errno::EINVAL);
        }
        if modes & modes::LOOK == 0 {
            caller::need(Capabilities::SYS_TIME)?;
        }
    } else {
        if modes != 0 {
            caller::need(Capabilities::SYS_TIME)?;
        }
        if modes & modes::TICK != 0 && !TICKS_US.contains(&timex.tick) {
            return Err(Errno::EINVAL);
        }
    }
    if modes & modes::SET_OFFSET != 0 {
        caller::need(Capabilities::SYS_TIME)?;
        let unit = if modes & modes::NANOSECONDS != 0 {
            1_000_000_000
        } else {
            1_000_000
        };
        if !(0..unit).contains(&timex.fraction) {
            return Err(Errno::EINVAL);
        }
    }
    if modes & modes::FREQUENCY != 0 {
        /// Linux's factor for parts per million with a 16-bit fraction.
        const SCALE: i64 = 65_536_000;
        if !(i64::MIN / SCALE..=i64::MAX / SCALE).contains(&timex.frequency) {
            return Err(Errno::EINVAL);
        }
    }
    Ok(())
}

/// Returns whether the request has an offset for the phase-locked loop, which does not exist here.
fn locks_phase(timex: &Timex, status: u32) -> bool {
    let modes = timex.modes;
    let status = if modes & modes::STATUS != 0 {
        timex.status
    } else {
        status
    };
    // As on Linux, an offset has no effect if the loop is off.
    modes & modes::ADJUST == 0
        && modes & modes::OFFSET != 0
        && timex.offset != 0
        && status & status::LOOP != 0
}

/// Carries out the request in `timex` and fills `timex` with the state of the wall clock
/// (`adjtimex(2)`). Returns the state as a number (`TIME_OK` and so on).
///
/// # Errors
/// Fails with `EINVAL` for an invalid request, and with `EPERM` if the caller may not set the
/// clock. Fails with `EOPNOTSUPP` for an offset for the phase-locked loop, and with `ENOMEM`.
pub fn adjust(timex: &mut Timex) -> SysResult {
    check(timex)?;
    let modes = timex.modes;
    if locks_phase(timex, STEERING.lock().status) {
        return Err(Errno::EOPNOTSUPP);
    }
    // These requests may set a timer.
    if modes & (modes::ADJUST | modes::STATUS) != 0 {
        clock_thread::start()?;
    }
    if modes & modes::SET_OFFSET != 0 {
        let unit = if modes & modes::NANOSECONDS != 0 {
            1
        } else {
            1000
        };
        let seconds = i128::from(timex.seconds) * i128::from(SECOND);
        wall::step(seconds + i128::from(timex.fraction * unit))?;
    }
    let now = clock::now();
    let mut steering = STEERING.lock();
    steering.settle(now);
    let left_us = steering.left_us(now);
    if modes & modes::ADJUST == 0 {
        apply(&mut steering, timex, now);
    } else if modes & modes::LOOK == 0 {
        steering.adjust(timex.offset, now);
    }
    let wall = wall::now();
    steering.advance(wall);
    timex.offset = if modes & modes::ADJUST != 0 {
        left_us
    } else {
        0
    };
    timex.frequency = steering.frequency;
    timex.most_error = steering.most_error_us;
    timex.estimated_error = steering.estimated_error_us;
    timex.status = steering.status;
    timex.constant = steering.constant;
    timex.precision = 1;
    // 500 parts per million with a 16-bit fraction.
    timex.tolerance = 500 << 16;
    timex.tick = steering.tick_us;
    timex.pulse = [0; 8];
    timex.tai = TAI_S.load(Ordering::Relaxed);
    timex.rest = [0; 11];
    timex.seconds = (wall.0 / SECOND).cast_signed();
    let nanos = (wall.0 % SECOND).cast_signed();
    timex.fraction = if steering.status & status::NANOSECONDS != 0 {
        nanos
    } else {
        nanos / 1000
    };
    let result = steering.result();
    drop(steering);
    arm();
    run();
    Ok(result)
}

/// Stores the values that a request sets.
fn apply(steering: &mut Steering, timex: &Timex, now: Nanos) {
    let modes = timex.modes;
    if modes & modes::STATUS != 0 {
        steering.set_status(timex.status);
    }
    if modes & modes::NANOSECONDS != 0 {
        steering.status |= status::NANOSECONDS;
    }
    if modes & modes::MICROSECONDS != 0 {
        steering.status &= !status::NANOSECONDS;
    }
    if modes & modes::FREQUENCY != 0 {
        steering.frequency = timex.frequency.clamp(-MOST_FREQUENCY, MOST_FREQUENCY);
    }
    if modes & modes::TICK != 0 {
        steering.tick_us = timex.tick;
    }
    if modes & modes::MOST_ERROR != 0 {
        steering.most_error_us = timex.most_error;
        steering.error_since = now;
    }
    if modes & modes::ESTIMATED_ERROR != 0 {
        steering.estimated_error_us = timex.estimated_error;
    }
    if modes & modes::CONSTANT != 0 {
        let more = if steering.status & status::NANOSECONDS != 0 {
            0
        } else {
            4
        };
        steering.constant = timex.constant.saturating_add(more).clamp(0, MOST_CONSTANT);
    }
    if modes & modes::TAI != 0
        && let Ok(seconds) = i32::try_from(timex.constant)
        && (0..=MOST_TAI_S).contains(&timex.constant)
    {
        TAI_S.store(seconds, Ordering::Relaxed);
    }
}
