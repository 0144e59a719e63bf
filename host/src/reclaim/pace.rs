//! How long free memory of a guest is left alone before it is taken: what a guest soon gets again was taken in vain.
//!
//! Taking costs the host a hole, and the guest a fault for each page that it gets again. What of that was in vain shows by the
//! guest's resident memory: it has grown again since. The pause makes the work in vain a small part of the time, as far as
//! [`LONGEST`] allows; one that frees for good is rid of it at once. No state is kept but that of the last take.

use std::time::Duration;

/// The shortest pause: what is taken again at once stays.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest one: what is freed for good is held no longer, whatever came back before.
const LONGEST: Duration = Duration::from_millis(300);
/// Work in vain should be this part of the time at most.
const PART_IN_VAIN: f64 = 1.0 / 20.0;
/// What getting memory again costs, beside taking it: faults of 4 KiB zero what a hole drops in one go.
const AGAIN: f64 = 3.0;

/// What was taken last.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Pace {
    taken: u64,
    /// What that took.
    work: Duration,
    /// Resident memory of the guest right after it.
    resident: u64,
}

impl Pace {
    /// So many bytes were taken by so much work, which left so many resident.
    pub(super) fn took(&mut self, taken: u64, work: Duration, resident: u64) {
        *self = Self {
            taken,
            work,
            resident,
        };
    }

    /// How long to leave alone what is free now, `since` the last take, while so many bytes are resident.
    pub(super) fn pause(&self, resident: u64, since: Duration) -> Duration {
        if self.taken == 0 {
            return SHORTEST;
        }
        let again = resident.saturating_sub(self.resident).min(self.taken);
        #[expect(clippy::cast_precision_loss, reason = "a share, not an amount")]
        let share = again as f64 / self.taken as f64;
        let in_vain = self.work.as_secs_f64() * (1.0 + AGAIN) * share;
        let least = Duration::from_secs_f64((in_vain / PART_IN_VAIN).min(LONGEST.as_secs_f64()));
        least.saturating_sub(since).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const WORK: Duration = Duration::from_millis(100);

    fn after(grown: u64, since: Duration) -> Duration {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(7 * GIB, since), SHORTEST);
        pace.took(GIB, WORK, GIB);
        pace.pause(GIB + grown, since)
    }

    #[test]
    fn what_stays_away_makes_nobody_wait() {
        assert_eq!(after(0, Duration::ZERO), SHORTEST);
        let mut pace = Pace::default();
        pace.took(GIB, WORK, GIB);
        assert_eq!(pace.pause(GIB / 2, Duration::ZERO), SHORTEST);
    }

    #[test]
    fn what_comes_back_makes_it_wait_for_as_long_as_it_cost() {
        assert_eq!(after(GIB, Duration::ZERO), LONGEST);
        assert_eq!(after(u64::MAX - GIB, Duration::ZERO), LONGEST);
        assert_eq!(after(GIB, Duration::from_secs(9)), SHORTEST);
        let little = after(GIB / 100, Duration::ZERO);
        assert!((75..90).contains(&little.as_millis()), "{little:?}");
        let later = after(GIB / 100, Duration::from_millis(50));
        assert_eq!(later + Duration::from_millis(50), little);
    }
}
