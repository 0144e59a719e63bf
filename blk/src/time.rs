//! Points in time, as callers pass them to the parts of this crate.

use std::ops::Add;
use std::time::{Duration, Instant};

/// A time in microseconds since a moment that the process chose. It never goes backwards.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// Returns the time from `self` to `later`, or zero if `later` is before `self`.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}

impl Add<Duration> for Micros {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(wait))
    }
}

/// The source of time in a running process. Tests make [`Micros`] values themselves.
#[derive(Copy, Clone, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts a clock, which shows one microsecond now, because zero means "never".
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since [`Self::start`], plus one microsecond.
    pub fn now(self) -> Micros {
        Micros(1) + self.0.elapsed()
    }
}
