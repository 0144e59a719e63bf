//! Time as the parts of this crate are handed it.

use std::ops::Add;
use std::time::{Duration, Instant};

/// Microseconds since some moment of the process's own choice; never goes backwards.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// From here to `later`; zero if that is not later.
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

/// Where the time comes from in a running process. Tests hand in [`Micros`] of their own.
#[derive(Copy, Clone, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that shows one microsecond now: zero is left to mean "never".
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time.
    pub fn now(self) -> Micros {
        Micros(1) + self.0.elapsed()
    }
}
