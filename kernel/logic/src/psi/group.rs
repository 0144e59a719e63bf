//! The totals of all CPUs and their averages over 10, 60 and 300 seconds.

use super::{Resource, Stall, Times};
use core::fmt;

/// Nanoseconds between two steps of the averages.
pub const PERIOD: u64 = 2_000_000_000;
/// Fractional bits of the averages.
const FRACTION_BITS: u32 = 11;
/// 1 in the averages' fixed point.
const ONE: u64 = 1 << FRACTION_BITS;
/// Factors by which averages over 10, 60 and 300 seconds decay in a period: `ONE / e^(2 s /
/// length)`.
const REMAINS: [u64; 3] = [1677, 1981, 2034];

/// The times of a CPU since it started, in nanoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time in which the CPU ran a task or had a task that stalled.
    pub busy: u64,
    /// Time of each stall.
    pub stalls: Times,
}

impl CpuTimes {
    /// No time.
    pub const ZERO: Self = Self {
        busy: 0,
        stalls: [0; Stall::COUNT],
    };
}

/// Averages of one kind of stall, in percent: fixed-point numbers with [`FRACTION_BITS`] fractional
/// bits.
#[derive(Copy, Clone, Debug)]
struct Series {
    /// The part of the total that the averages include.
    counted: u64,
    averages: [u64; 3],
}

/// The stalls of `CPUS` CPUs together: their totals and their averages.
#[derive(Debug)]
pub struct Group<const CPUS: usize> {
    last: [CpuTimes; CPUS],
    totals: Times,
    series: [Series; Stall::COUNT],
    /// When the averages were stepped last, and when the next step is due.
    stepped: u64,
    due: u64,
}

impl<const CPUS: usize> Group<CPUS> {
    /// Returns a group whose totals and averages are 0, at the time 0.
    pub const fn new() -> Self {
        let series = Series {
            counted: 0,
            averages: [0; 3],
        };
        Self {
            last: [CpuTimes::ZERO; CPUS],
            totals: [0; Stall::COUNT],
            series: [series; Stall::COUNT],
            stepped: 0,
            due: PERIOD,
        }
    }

    /// Adds the stalls since the last call to the totals. `cpus` yields the number of each CPU and
    /// its times since the start. Each CPU is weighted with its part of the time in which CPUs were
    /// busy.
    pub fn collect(&mut self, cpus: impl Iterator<Item = (usize, CpuTimes)>) {
        let mut weighted = [0_u128; Stall::COUNT];
        let mut busy = 0_u128;
        for (cpu, times) in cpus {
            let last = core::mem::replace(&mut self.last[cpu], times);
            // A time that is read while its CPU changes it may be too small. Keeping the larger one
            // prevents the difference from counting twice.
            for (stall, before) in self.last[cpu].stalls.iter_mut().zip(last.stalls) {
                *stall = before.max(*stall);
            }
            let weight = u128::from(times.busy.saturating_sub(last.busy));
            busy += weight;
            for (sum, (new, old)) in weighted
                .iter_mut()
                .zip(times.stalls.into_iter().zip(last.stalls))
            {
                *sum += u128::from(new.saturating_sub(old)) * weight;
            }
        }
        for (total, weighted) in self.totals.iter_mut().zip(weighted) {
            // The result is an average of 64-bit times, so it fits.
            let grown = u64::try_from(weighted / busy.max(1)).unwrap_or(0);
            *total = total.saturating_add(grown);
        }
    }

    /// Returns the total time of each kind of stall, in nanoseconds.
    pub fn totals(&self) -> &Times {
        &self.totals
    }

    /// Returns the time in nanoseconds at which [`Self::step`] updates the averages next.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Updates the averages if that is due at `now`, up to which the totals were collected. If more
    /// than one period has passed, the growth of the totals counts as spread evenly over them.
    pub fn step(&mut self, now: u64) {
        if now < self.due {
            return;
        }
        let missed = (now - self.due) / PERIOD;
        self.due += (1 + missed) * PERIOD;
        let elapsed = now.saturating_sub(self.stepped).max(1);
        self.stepped = now;
        for (series, total) in self.series.iter_mut().zip(self.totals) {
            // Growth beyond the elapsed time counts in later steps.
            let sample = (total - series.counted).min(elapsed);
            series.counted += sample;
            let percent = u128::from(sample) * 100 / u128::from(elapsed);
            let active = u64::try_from(percent).unwrap_or(100) * ONE;
            for (average, remains) in series.averages.iter_mut().zip(REMAINS) {
                *average = decayed(*average, power(remains, 1 + missed), active);
            }
        }
    }

    /// Returns the contents of the file of `/proc/pressure` about `resource`.
    pub fn report(&self, resource: Resource) -> Report {
        Report([false, true].map(|full| {
            let stall = Stall::of(resource, full) as usize;
            (self.series[stall].averages, self.totals[stall] / 1000)
        }))
    }
}

impl<const CPUS: usize> Default for Group<CPUS> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the moving average after a period in which the value was `active`. The old `average`
/// keeps the weight `remains`. All numbers are fixed-point with [`FRACTION_BITS`] fractional bits.
/// Rounds up unless `active` is below `average`.
fn decayed(average: u64, remains: u64, active: u64) -> u64 {
    let mut sum = average * remains + active * (ONE - remains);
    // A rising average rounds up, so that it reaches its goal.
    if active >= average {
        sum += ONE - 1;
    }
    sum / ONE
}

/// Returns the fixed-point number `base` to the power of `exponent`.
fn power(base: u64, exponent: u64) -> u64 {
    let times = |a: u64, b: u64| (a * b + ONE / 2) >> FRACTION_BITS;
    let (mut base, mut exponent, mut result) = (base, exponent, ONE);
    while exponent != 0 {
        if exponent & 1 != 0 {
            result = times(result, base);
        }
        exponent >>= 1;
        base = times(base, base);
    }
    result
}

/// The contents of a file of `/proc/pressure`. For `some` and for `full`, it has the averages and
/// the total in microseconds.
#[derive(Copy, Clone, Debug)]
pub struct Report([([u64; 3], u64); 2]);

impl Report {
    /// Writes the lines of `some` and of `full` to `to`.
    ///
    /// # Errors
    /// Fails if writing to `to` fails.
    pub fn show(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        for (name, (averages, total)) in ["some", "full"].into_iter().zip(self.0) {
            write!(to, "{name}")?;
            for (length, average) in [10, 60, 300].into_iter().zip(averages) {
                let hundredths = (average % ONE) * 100 / ONE;
                write!(to, " avg{length}={}.{hundredths:02}", average / ONE)?;
            }
            writeln!(to, " total={total}")?;
        }
        Ok(())
    }
}
