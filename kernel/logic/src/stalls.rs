//! Pressure stall information from totals that are counted elsewhere: averages, and triggers in
//! Linux's syntax (`Documentation/accounting/psi.rst`).

use core::fmt;

/// A time or a duration in microseconds of a monotonic clock.
pub type Micros = u64;

/// Time between two steps of the averages, as on Linux.
const PERIOD: Micros = 2_000_000;
/// Fractional bits of the averages.
const FRACTION_BITS: u32 = 11;
/// 1 in the averages' fixed point.
const ONE: u64 = 1 << FRACTION_BITS;
/// Factors by which averages over 10, 60 and 300 seconds decay in a period: `ONE / e^(2 s /
/// length)`.
const REMAINS: [u64; 3] = [1677, 1981, 2034];
/// After this number of periods without a stall, every average shows 0.00.
const PERIODS_MAX: u64 = 2_000;
/// The shortest and the longest window of a trigger, in microseconds.
const WINDOWS: core::ops::RangeInclusive<u32> = 500_000..=10_000_000;

/// The kind of stalls that a total counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Times in which at least one task stalled.
    Some,
    /// Times in which all tasks that were not idle stalled.
    Full,
}

/// The total time of stalls of both kinds, in microseconds.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Total of [`Kind::Some`].
    pub some: Micros,
    /// Total of [`Kind::Full`].
    pub full: Micros,
}

impl Totals {
    /// Returns the total of `kind`.
    pub fn of(self, kind: Kind) -> Micros {
        match kind {
            Kind::Some => self.some,
            Kind::Full => self.full,
        }
    }

    /// Returns for each kind of stall the larger of the totals in `self` and in `other`.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            some: self.some.max(other.some),
            full: self.full.max(other.full),
        }
    }
}

/// One kind's total at the end of the last period, and its averages since then.
#[derive(Copy, Clone, Debug)]
struct Series {
    counted: Micros,
    averages: [u64; 3],
}

impl Series {
    /// Ends a period in which the total grew to `total`.
    fn step(&mut self, total: Micros) {
        let stalled = total.saturating_sub(self.counted).min(PERIOD);
        self.counted = total;
        let percent = stalled * 100 * ONE / PERIOD;
        for (average, remains) in self.averages.iter_mut().zip(REMAINS) {
            let mut sum = *average * remains + percent * (ONE - remains);
            // A rising average rounds up, so that it reaches its goal.
            if percent >= *average {
                sum += ONE - 1;
            }
            *average = sum / ONE;
        }
    }
}

/// Totals and their averages over 10, 60 and 300 seconds.
#[derive(Copy, Clone, Debug)]
pub struct Stalls {
    totals: Totals,
    some: Series,
    full: Series,
    /// When the last whole period ended.
    ended: Micros,
}

impl Stalls {
    /// Returns totals and averages of 0, with the first period beginning at `now`.
    pub const fn new(now: Micros) -> Self {
        let series = Series {
            counted: 0,
            averages: [0; 3],
        };
        Self {
            totals: Totals { some: 0, full: 0 },
            some: series,
            full: series,
            ended: now,
        }
    }

    /// Sets the totals as of `now` to `totals`. A total that is less than the last one counts as
    /// the last one.
    pub fn set(&mut self, now: Micros, totals: Totals) {
        self.advance(now);
        self.totals = self.totals.max(totals);
    }

    /// Returns the totals that were last set.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends all periods that have ended by `now`.
    fn advance(&mut self, now: Micros) {
        let periods = now.saturating_sub(self.ended) / PERIOD;
        self.ended += periods * PERIOD;
        for _ in 0..periods.min(PERIODS_MAX) {
            self.some.step(self.totals.some);
            self.full.step(self.totals.full);
        }
    }

    /// Writes the two lines of Linux's `/proc/pressure/memory`, as of `now`, to `to`.
    ///
    /// # Errors
    /// Fails if writing to `to` fails.
    pub fn show(&mut self, now: Micros, to: &mut dyn fmt::Write) -> fmt::Result {
        self.advance(now);
        for (name, series, total) in [
            ("some", &self.some, self.totals.some),
            ("full", &self.full, self.totals.full),
        ] {
            write!(to, "{name}")?;
            for (length, average) in [10, 60, 300].into_iter().zip(series.averages) {
                let hundredths = (average % ONE) * 100 / ONE;
                write!(to, " avg{length}={}.{hundredths:02}", average / ONE)?;
            }
            writeln!(to, " total={total}")?;
        }
        Ok(())
    }
}

/// Watches for stalls that reach a threshold within a window, and fires at most once a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    kind: Kind,
    threshold: Micros,
    window: Micros,
    /// When the current window began, the total at that time, and the total's growth in the window
    /// before.
    began: Micros,
    total: Micros,
    earlier: Micros,
    /// When the trigger last fired.
    fired: Option<Micros>,
}

impl Trigger {
    /// Parses `some` or `full`, a threshold and a window, both in microseconds. The trigger watches
    /// from `now` on, when the totals are `totals`. Returns `None` if `text` is no valid trigger.
    /// The window must last 0.5 to 10 s, and the threshold must be neither 0 nor longer than the
    /// window.
    pub fn parse(text: &str, now: Micros, totals: Totals) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let kind = match words.next()? {
            "some" => Kind::Some,
            "full" => Kind::Full,
            _ => return None,
        };
        let mut number = || words.next()?.parse::<u32>().ok();
        let (threshold, window) = (number()?, number()?);
        let is_valid = WINDOWS.contains(&window) && (1..=window).contains(&threshold);
        (is_valid && words.next().is_none()).then_some(Self {
            kind,
            threshold: threshold.into(),
            window: window.into(),
            began: now,
            total: totals.of(kind),
            earlier: 0,
            fired: None,
        })
    }

    /// Checks the totals, which are `totals` at `now`. Returns `true` if the trigger fires. It
    /// fires if the stalls of the last window reach the threshold and the trigger did not fire in
    /// that window.
    pub fn fires(&mut self, now: Micros, totals: Totals) -> bool {
        let total = totals.of(self.kind);
        let elapsed = now.saturating_sub(self.began);
        let mut growth = total.saturating_sub(self.total);
        if elapsed > self.window {
            self.began = now;
            self.total = total;
            self.earlier = growth;
        } else {
            // The part of the window before this one that still counts.
            let left = self.window - elapsed;
            growth += self.earlier.min(self.window) * left / self.window;
        }
        let is_due = self
            .fired
            .is_none_or(|fired| now.saturating_sub(fired) >= self.window);
        let fires = is_due && growth >= self.threshold;
        if fires {
            self.fired = Some(now);
        }
        fires
    }
}
