//! When to compact a node before memory is requested ([`Proactive`]).
//!
//! The arithmetic is that of Nitin Gupta's *Proactive compaction* for Linux (v7, 2020). In
//! addition, there is no wake-up while there is nothing to do, and the CPU time is limited.

use core::{error, fmt, time::Duration};

/// The initial value of `vm.compaction_proactiveness`, of 0 to 100.
pub const PROACTIVENESS: u8 = 20;
/// The maximum proactiveness.
const MOST: u8 = 100;
/// The minimum of the low threshold. Without it, a high proactiveness would compact without end.
const LOW_LEAST: u64 = 5;
/// How far the high threshold is above the low one.
const APART: u64 = 10;
/// The time from one check of a node's fragmentation score to the next.
pub const PROACTIVE_INTERVAL: Duration = Duration::from_millis(500);
/// The number of checks that are skipped after a run that did not lower the score.
const DEFERRED: u32 = 64;

/// The maximum part of one CPU that proactive compaction takes, in percent. A program on the same
/// CPU loses at most a tenth of its speed.
///
/// At about 2 µs for each frame, a tenth is enough to migrate 50 000 frames a second: 780 MiB of
/// pageblocks that are a quarter full.
pub const PROACTIVE_SHARE: u32 = 10;
/// How long proactive compaction works before it pauses.
pub const PROACTIVE_SLICE: Duration = Duration::from_millis(5);
/// Like [`PROACTIVE_SLICE`], while other tasks want the CPU. They wait for this time and for the
/// last pageblock: less than a millisecond in all, at 1 µs for each frame.
pub const PROACTIVE_SHARED_SLICE: Duration = Duration::from_micros(400);

/// This proactiveness is above 100. The previous value stays in effect.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NotAProactiveness(pub u64);

impl fmt::Display for NotAProactiveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a proactiveness of {}, at most {MOST} is possible",
            self.0
        )
    }
}

impl error::Error for NotAProactiveness {}

/// The fragmentation scores at which compaction starts and ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Compaction of a zone ends when the zone's score is at most this.
    pub low: u64,
    /// Compaction starts when the node's score is above this.
    pub high: u64,
}

/// The result of [`Proactive::poll`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says what to do, and when to poll next"]
pub struct ProactivePoll {
    /// Whether to compact now, for [`PROACTIVE_SLICE`] at most: one by one the zones whose score is
    /// above the low threshold. Call [`Proactive::worked`] after that.
    pub compact: bool,
    /// When to poll again, even if that takes a wake-up. `None` means that no wake-up is necessary.
    pub next: Option<Duration>,
    /// Before this time a poll is not necessary. After it, poll when a CPU is awake anyway: the
    /// score of an idle node does not change.
    pub look_after: Duration,
}

/// Decides when to compact a node before memory is requested. A state machine without a thread or a
/// clock of its own.
#[derive(Debug)]
pub struct Proactive {
    proactiveness: u8,
    stage: Stage,
}

#[derive(Copy, Clone, Debug)]
enum Stage {
    /// Checks the score, but not before this time.
    Watching(Duration),
    /// Compacts.
    Running {
        /// The node's score when the run started.
        before: u64,
        /// The end of the current pause.
        resume: Duration,
    },
}

impl Proactive {
    /// Returns the initial state, with a proactiveness of [`PROACTIVENESS`].
    pub const fn new() -> Self {
        Self {
            proactiveness: PROACTIVENESS,
            stage: Stage::Watching(Duration::ZERO),
        }
    }

    /// Returns the proactiveness (`vm.compaction_proactiveness`), 0 to 100.
    pub const fn proactiveness(&self) -> u8 {
        self.proactiveness
    }

    /// Sets the proactiveness, 0 to 100, and ends all pauses and a run of compaction. 0 turns
    /// proactive compaction off. Poll at once after this.
    ///
    /// # Errors
    /// Fails if the value is above 100. Nothing is changed then.
    pub fn set_proactiveness(&mut self, proactiveness: u64) -> Result<(), NotAProactiveness> {
        match u8::try_from(proactiveness) {
            Ok(proactiveness) if proactiveness <= MOST => {
                *self = Self {
                    proactiveness,
                    ..Self::new()
                };
                Ok(())
            }
            _ => Err(NotAProactiveness(proactiveness)),
        }
    }

    /// Returns the fragmentation scores at which compaction starts and ends, which follow from the
    /// proactiveness.
    pub fn thresholds(&self) -> Thresholds {
        let low = u64::from(MOST - self.proactiveness).max(LOW_LEAST);
        Thresholds {
            low,
            high: (low + APART).min(100),
        }
    }

    /// Returns whether to compact the node now, and when to poll again. Starts a run if the score
    /// is above the high threshold. `now` is the time of any clock that does not run backwards.
    ///
    /// `score` is the sum of the fragmentation scores of the node's zones. `reclaims` says that
    /// background reclaim is at work. Compaction does not start then, and a run ends, as reclaim
    /// needs the memory more. With a proactiveness of 0 nothing is ever compacted.
    pub fn poll(&mut self, now: Duration, score: u64, reclaims: bool) -> ProactivePoll {
        let wait = |next: Option<Duration>, look_after: Duration| ProactivePoll {
            compact: false,
            next,
            look_after,
        };
        if self.proactiveness == 0 {
            return wait(None, Duration::MAX);
        }
        let later = now.saturating_add(PROACTIVE_INTERVAL);
        match self.stage {
            Stage::Running { resume, .. } if now < resume => return wait(Some(resume), resume),
            Stage::Running { before, .. } if reclaims => {
                self.end(now, before, score);
                return self.poll(now, score, true);
            }
            Stage::Running { .. } => {}
            Stage::Watching(not_before) if now < not_before => return wait(None, not_before),
            Stage::Watching(_) if score <= self.thresholds().high => return wait(None, later),
            // Reclaim keeps a CPU awake, which will poll again.
            Stage::Watching(_) if reclaims => return wait(None, later),
            Stage::Watching(_) => {
                self.stage = Stage::Running {
                    before: score,
                    resume: now,
                };
            }
        }
        ProactivePoll {
            compact: true,
            next: Some(now),
            look_after: now,
        }
    }

    /// Records the result of a slice of compaction that took the time `spent`. `score` is the
    /// node's score now. `more` says that a zone whose score is above the low threshold has more to
    /// compact.
    ///
    /// With `more`, a pause of nine times `spent` follows. Otherwise the run ends. The next check
    /// follows after [`PROACTIVE_INTERVAL`], or after 64 times that if the run did not lower the
    /// score. Does nothing if the proactiveness was set during the slice.
    pub fn worked(&mut self, now: Duration, spent: Duration, score: u64, more: bool) {
        let Stage::Running { before, .. } = self.stage else {
            // The proactiveness was set during the slice.
            return;
        };
        if more {
            let resume = now.saturating_add(spent.saturating_mul(100 / PROACTIVE_SHARE - 1));
            self.stage = Stage::Running { before, resume };
        } else {
            self.end(now, before, score);
        }
    }

    /// Ends a run. If it did not lower the score, the next check is deferred.
    fn end(&mut self, now: Duration, before: u64, score: u64) {
        let looks = if score < before { 1 } else { DEFERRED };
        self.stage = Stage::Watching(now.saturating_add(PROACTIVE_INTERVAL * looks));
    }
}

impl Default for Proactive {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn with(proactiveness: u64) -> Proactive {
        let mut proactive = Proactive::new();
        proactive.set_proactiveness(proactiveness).expect("valid");
        proactive
    }

    #[test]
    fn thresholds_are_those_of_the_seed() {
        let thresholds = |proactiveness| {
            let Thresholds { low, high } = with(proactiveness).thresholds();
            (low, high)
        };
        assert_eq!(thresholds(0), (100, 100));
        assert_eq!(thresholds(5), (95, 100));
        assert_eq!(thresholds(20), (80, 90));
        assert_eq!(thresholds(40), (60, 70));
        assert_eq!(thresholds(95), (5, 15));
        assert_eq!(thresholds(100), (5, 15));
        assert_eq!(Proactive::new().proactiveness(), 20);
        let mut proactive = with(40);
        for wrong in [101, 256, 296, u64::MAX] {
            let refused = proactive.set_proactiveness(wrong);
            assert_eq!(refused, Err(NotAProactiveness(wrong)));
        }
        assert_eq!(proactive.proactiveness(), 40);
    }

    #[test]
    fn it_begins_above_high_and_costs_nothing_below() {
        let mut proactive = Proactive::new();
        for score in [0, 80, 90] {
            let poll = proactive.poll(ms(1000), score, false);
            assert_eq!((poll.compact, poll.next), (false, None));
            assert_eq!(poll.look_after, ms(1500));
        }
        assert!(proactive.poll(ms(1000), 91, false).compact);
        let off = with(0).poll(ms(1), 100, false);
        assert_eq!(
            (off.compact, off.next, off.look_after),
            (false, None, Duration::MAX)
        );
        // No score is above 100, as in Linux with a proactiveness of up to 10.
        assert!(!with(10).poll(ms(1), 100, false).compact);
    }

    #[test]
    fn it_goes_on_below_high_and_takes_a_tenth_of_a_cpu() {
        let mut proactive = Proactive::new();
        let (mut now, mut score, mut busy) = (ms(0), 100, ms(0));
        while proactive.poll(now, score, false).compact {
            now += PROACTIVE_SLICE;
            busy += PROACTIVE_SLICE;
            score -= 1;
            proactive.worked(now, PROACTIVE_SLICE, score, score > 80);
            now = proactive.poll(now, score, false).next.unwrap_or(now);
        }
        assert_eq!(score, 80);
        assert_eq!(busy, PROACTIVE_SLICE * 20);
        // There is no pause after the last slice.
        assert_eq!(now, busy * 10 - PROACTIVE_SLICE * 9);
        assert_eq!(proactive.poll(now, score, false).next, None);
    }

    #[test]
    fn a_run_without_progress_is_deferred_for_64_looks() {
        let mut proactive = with(40);
        let mut now = ms(7);
        let mut tries = std::vec::Vec::new();
        // Poll every millisecond. If nothing can be migrated, that costs one attempt in 32 seconds.
        while now < Duration::from_secs(100) {
            let poll = proactive.poll(now, 100, false);
            assert!(poll.compact || poll.next.is_none());
            if poll.compact {
                tries.push(now);
                proactive.worked(now, ms(1), 100, false);
            }
            now += ms(1);
        }
        let apart = PROACTIVE_INTERVAL * DEFERRED;
        assert_eq!(apart, Duration::from_secs(32));
        let expected: std::vec::Vec<_> = (0..4).map(|turn| ms(7) + apart * turn).collect();
        assert_eq!(tries, expected);
        // Setting the proactiveness ends the pause.
        assert!(!proactive.poll(now, 100, false).compact);
        proactive.set_proactiveness(40).expect("valid");
        assert!(proactive.poll(now, 100, false).compact);
    }

    #[test]
    fn it_yields_to_reclaim() {
        let mut proactive = Proactive::new();
        assert!(!proactive.poll(ms(0), 95, true).compact);
        assert!(proactive.poll(ms(0), 95, false).compact);
        proactive.worked(ms(5), ms(5), 93, true);
        assert!(!proactive.poll(ms(50), 93, true).compact);
        assert!(
            !proactive.poll(ms(51), 93, false).compact,
            "looks again in 500 ms"
        );
        assert!(proactive.poll(ms(550), 93, false).compact);
    }
}
