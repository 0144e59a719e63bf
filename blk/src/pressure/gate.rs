//! Hysteresis: one stall is one event, and lasting pressure is an event now and then.

use crate::time::Micros;
use std::time::Duration;

/// Lets events through no more often than once in [`Gate::MIN_GAP`], whatever reports them.
#[derive(Debug, Default)]
pub struct Gate {
    last: Option<Micros>,
}

impl Gate {
    /// The least time between two events: the shrink interval, within which an instance that was
    /// asked has answered.
    pub const MIN_GAP: Duration = crate::pool::SHRINK_INTERVAL;

    /// Whether an event at `now` passes.
    pub fn pass(&mut self, now: Micros) -> bool {
        let passes = self.last.is_none_or(|last| now >= last + Self::MIN_GAP);
        if passes {
            self.last = Some(now);
        }
        passes
    }
}

/// Available memory against two marks: pressure begins below `low` and ends above `high`, so that
/// a level between the two changes nothing.
#[derive(Debug)]
pub struct Watermark {
    low_bytes: u64,
    high_bytes: u64,
    below: bool,
    next: Micros,
}

impl Watermark {
    /// While memory stays low the event is repeated this often.
    pub const REPEAT: Duration = Duration::from_secs(1);

    /// Marks for a machine of `total_bytes` whose memory is looked at now and then: a twentieth,
    /// and a quarter more than that.
    pub fn sampled(total_bytes: u64) -> Self {
        Self::new(total_bytes / 20)
    }

    /// Marks for a machine of `total_bytes` whose memory is looked at whenever it was taken from:
    /// half a percent, 16 MiB at least, and a quarter more than that. That is little more than
    /// where the kernel begins to swap.
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

    /// The mark below which there is pressure.
    pub fn low_bytes(&self) -> u64 {
        self.low_bytes
    }

    /// Whether `available_bytes` at `now` is an event.
    pub fn observe(&mut self, now: Micros, available_bytes: u64) -> bool {
        if available_bytes >= self.high_bytes {
            self.below = false;
        } else if available_bytes < self.low_bytes && !self.below {
            self.below = true;
            self.next = now;
        }
        let event = self.below && now >= self.next;
        if event {
            self.next = now + Self::REPEAT;
        }
        event
    }
}

#[cfg(all(test, not(loom)))]
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
        // Nothing is remembered: the next event is one of its own.
        assert!(gate.pass(Micros(100 * MS)));
    }

    #[test]
    fn a_level_between_the_marks_changes_nothing() {
        let mut mark = Watermark::sampled(2000);
        assert!(!mark.observe(Micros(0), 110), "between, from above");
        assert!(mark.observe(Micros(MS), 99), "below");
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
        assert!(!mark.observe(Micros(1002 * MS), 125), "over");
        assert!(
            !mark.observe(Micros(1003 * MS), 110),
            "between, from above again"
        );
        assert!(mark.observe(Micros(1004 * MS), 99), "a new event");
    }
}
