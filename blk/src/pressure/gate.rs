//! Limits how often pressure events are reported, and adds hysteresis to a watermark.

use crate::time::Micros;
use std::time::Duration;

/// A rate limit on pressure events: passes at most one in [`Gate::MIN_GAP`] from all sources
/// together.
#[derive(Debug, Default)]
pub struct Gate {
    last: Option<Micros>,
}

impl Gate {
    /// Minimum time between two events that pass. It equals the shrink interval, in which an
    /// instance has reacted to the last event.
    pub const MIN_GAP: Duration = crate::pool::SHRINK_INTERVAL;

    /// Returns whether an event at `now` may be reported. If so, events in the following
    /// [`Self::MIN_GAP`] are not; they are dropped, not delayed.
    pub fn pass(&mut self, now: Micros) -> bool {
        let passes = self.last.is_none_or(|last| now >= last + Self::MIN_GAP);
        if passes {
            self.last = Some(now);
        }
        passes
    }
}

/// Compares available memory with two marks. Pressure begins below the low mark and ends at the
/// high mark; a level between them changes nothing.
#[derive(Debug)]
pub struct Watermark {
    low_bytes: u64,
    high_bytes: u64,
    below: bool,
    next: Micros,
}

impl Watermark {
    /// Interval at which events are repeated while pressure lasts.
    pub const REPEAT: Duration = Duration::from_secs(1);

    /// Returns a watermark for a machine with `total_bytes` of memory whose level is read at
    /// intervals. Its low mark is a twentieth of the memory; its high mark is a quarter above that.
    pub fn sampled(total_bytes: u64) -> Self {
        Self::new(total_bytes / 20)
    }

    /// Returns a watermark for a machine with `total_bytes` of memory whose level is read whenever
    /// pools have grown. Its low mark is half a percent of the memory, at least 16 MiB, which is
    /// little more than the level at which the kernel begins to swap. Its high mark is a quarter
    /// above that.
    pub fn growth(total_bytes: u64) -> Self {
        Self::new((total_bytes / 200).max(16 << 20))
    }

    fn new(low_bytes: u64) -> Self {
        Self {
            low_bytes,
            high_bytes: low_bytes + low_bytes / 4,
            below: false,
            next: Micros(0),
        }
    }

    /// Returns the low mark in bytes, below which pressure begins.
    pub fn low_bytes(&self) -> u64 {
        self.low_bytes
    }

    /// Takes the number of available bytes at time `now`. Returns whether a pressure event is due:
    /// memory has been short since the level fell below the low mark, and no event of this shortage
    /// was [`Self::reported`] within the last [`Self::REPEAT`].
    pub fn observe(&mut self, now: Micros, available_bytes: u64) -> bool {
        if available_bytes >= self.high_bytes {
            self.below = false;
        } else if available_bytes < self.low_bytes && !self.below {
            self.below = true;
            self.next = now;
        }
        self.below && now >= self.next
    }

    /// Notes that a due event was reported at `now`. Until this is called, it stays due while the
    /// shortage lasts.
    pub fn reported(&mut self, now: Micros) {
        self.next = now + Self::REPEAT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    #[test]
    fn a_flood_is_one_event_in_a_gap() {
        let mut gate = Gate::default();
        let passed = (0..1000).filter(|ms| gate.pass(Micros(ms * MS))).count();
        assert_eq!(passed, 10, "a second of events a millisecond apart");
    }

    #[test]
    fn one_stall_does_not_latch() {
        let mut gate = Gate::default();
        assert!(gate.pass(Micros(0)));
        assert!(!gate.pass(Micros(1)));
        // The gate keeps no state but the time of the last event.
        assert!(gate.pass(Micros(100 * MS)));
    }

    #[test]
    fn a_level_between_the_marks_changes_nothing() {
        let mut mark = Watermark::sampled(2000);
        assert!(!mark.observe(Micros(0), 110), "between, from above");
        assert!(mark.observe(Micros(MS), 99), "below");
        assert!(mark.observe(Micros(MS), 99), "not reported yet");
        mark.reported(Micros(MS));
        assert!(
            !mark.observe(Micros(2 * MS), 50),
            "repeats only after a while"
        );
        assert!(!mark.observe(Micros(3 * MS), 110), "between");
        assert!(
            !mark.observe(Micros(4 * MS), 99),
            "wobble is not a new event"
        );
        assert!(
            mark.observe(Micros(1001 * MS), 110),
            "still low a second later"
        );
        mark.reported(Micros(1001 * MS));
        assert!(!mark.observe(Micros(1002 * MS), 125), "over");
        assert!(
            !mark.observe(Micros(1003 * MS), 110),
            "between, from above again"
        );
        assert!(mark.observe(Micros(1004 * MS), 99), "a new event");
    }
}
