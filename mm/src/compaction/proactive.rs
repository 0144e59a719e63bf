//! When a node is compacted before anybody asks: the seed's arithmetic (Nitin Gupta, *Proactive
//! compaction*, v7, 2020), and what it lacks: no wake-up while there is nothing to do, and a bound on
//! the CPU time that it takes.

use core::{error, fmt, time::Duration};

/// `vm.compaction_proactiveness` unless somebody sets another.
pub const PROACTIVENESS: u8 = 20;
/// The most that it can be.
const MOST: u8 = 100;
/// The low threshold is never below this, or a high proactiveness would compact without end.
const LOW_LEAST: u64 = 5;
/// The high threshold is so far above the low one.
const APART: u64 = 10;
/// From one look at the score to the next.
pub const PROACTIVE_INTERVAL: Duration = Duration::from_millis(500);
/// After a run that brought the score no lower so many looks pass without another.
const DEFERRED: u32 = 64;

/// The most that proactive compaction takes of one CPU, in percent. A program that shares the CPU with
/// it loses no more than a tenth of its speed. At about 2 µs to move a frame a tenth is enough for
/// 50 000 frames a second: 780 MiB of pageblocks that are a quarter full, as the seed's are.
pub const PROACTIVE_SHARE: u32 = 10;
/// So long it works before it rests.
pub const PROACTIVE_SLICE: Duration = Duration::from_millis(5);
/// The same while others want its CPU. They wait for that and for the last pageblock: less than a
/// millisecond in all, at 1 µs to move a frame.
pub const PROACTIVE_SHARED_SLICE: Duration = Duration::from_micros(400);

/// A proactiveness above 100.
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

/// Scores at which compaction ends, and above which it begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// It ends at this or below, zone by zone.
    pub low: u64,
    /// It begins when the node's score is above.
    pub high: u64,
}

/// What [`Proactive::poll`] says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says what to do, and when to poll next"]
pub struct ProactivePoll {
    /// Compact now, for [`PROACTIVE_SLICE`] at most, zone by zone those whose score is above the
    /// low threshold, then say what came of it by [`Proactive::worked`].
    pub compact: bool,
    /// When it must be polled next, though it takes a wake-up; none: not for its own sake.
    pub next: Option<Duration>,
    /// Before this there is no need to poll. Later, when a CPU is awake anyway: the score of a node
    /// on which nothing runs does not change.
    pub look_after: Duration,
}

/// When a node is to be compacted: a state machine without a thread or a clock of its own.
#[derive(Debug)]
pub struct Proactive {
    proactiveness: u8,
    stage: Stage,
}

#[derive(Copy, Clone, Debug)]
enum Stage {
    /// Looks at the score, not before this.
    Watching(Duration),
    /// Compacts.
    Running {
        /// The score when it began.
        before: u64,
        /// It rests until then.
        resume: Duration,
    },
}

impl Proactive {
    /// With a proactiveness of [`PROACTIVENESS`].
    pub const fn new() -> Self {
        Self {
            proactiveness: PROACTIVENESS,
            stage: Stage::Watching(Duration::ZERO),
        }
    }

    /// `vm.compaction_proactiveness`: 0 to 100.
    pub const fn proactiveness(&self) -> u8 {
        self.proactiveness
    }

    /// Sets it. Poll at once: whatever was put off is tried again.
    ///
    /// # Errors
    /// If it is above 100; nothing has changed then.
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

    /// The thresholds that follow from it.
    pub fn thresholds(&self) -> Thresholds {
        let low = u64::from(MOST - self.proactiveness).max(LOW_LEAST);
        Thresholds {
            low,
            high: (low + APART).min(100),
        }
    }

    /// What is to be done now. `score`: the sum of the scores of the node's zones. `reclaims`:
    /// background reclaim is at work, which needs the memory more.
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
            // Reclaim keeps a CPU awake, on which somebody will look again.
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

    /// Says what came of a slice of work that took so long: the score now, and whether there is
    /// `more` to be had in a zone whose score is above the low threshold.
    pub fn worked(&mut self, now: Duration, spent: Duration, score: u64, more: bool) {
        let Stage::Running { before, .. } = self.stage else {
            // The proactiveness was set meanwhile.
            return;
        };
        if more {
            let resume = now.saturating_add(spent.saturating_mul(100 / PROACTIVE_SHARE - 1));
            self.stage = Stage::Running { before, resume };
        } else {
            self.end(now, before, score);
        }
    }

    /// Ends a run. One that has brought the score no lower is not repeated soon.
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
        // At 100 no score is above, as in Linux with a proactiveness of up to 10.
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
        // Of the last slice no rest is taken: there is none after it.
        assert_eq!(now, busy * 10 - PROACTIVE_SLICE * 9);
        assert_eq!(proactive.poll(now, score, false).next, None);
    }

    #[test]
    fn a_run_without_progress_is_deferred_for_64_looks() {
        let mut proactive = with(40);
        let mut now = ms(7);
        let mut tries = std::vec::Vec::new();
        // Polled as often as can be: what cannot be moved costs a try in 32 seconds.
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
        // Unless somebody writes to the knob.
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
