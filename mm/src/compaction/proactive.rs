//! When to compact a node before memory is requested ([`Proactive`]).
//!
//! The arithmetic is that of Nitin Gupta's *Proactive compaction* for Linux (v7, 2020). In
//! addition:
//!
//! - There is no wake-up while there is nothing to do.
//! - A run takes as much of a CPU as is idle, and hardly any while other tasks want the CPU.
//! - A run does not end at the low threshold: it goes on with pageblocks that are cheap to empty
//!   ([`ZoneFragmentation::dearest`](crate::ZoneFragmentation::dearest)). Memory that a run left at
//!   the low threshold would be used up by the next program in a moment, in less time than a run
//!   takes to start again.

use core::{error, fmt, time::Duration};

use super::score::FLOOR_PERCENT;

/// The initial value of `vm.compaction_proactiveness`, of 0 to 100.
pub const PROACTIVENESS: u8 = 20;
/// The maximum proactiveness.
const MOST: u8 = 100;
/// The minimum of the low threshold.
const LOW_LEAST: u64 = FLOOR_PERCENT;
/// How far the high threshold is above the low one.
const APART: u64 = 10;
/// The time from one check of a node's fragmentation score to the next.
pub const PROACTIVE_INTERVAL: Duration = Duration::from_millis(500);
/// The number of checks that are skipped after a run that did not lower the score.
const DEFERRED: u32 = 64;

/// While other tasks want the CPU, proactive compaction takes one part in this many of its time: as
/// much as a task of `SCHED_IDLE` has beside one with the nice value 0. It takes more after a slice
/// of more than 1.5 ms, as no pause is longer than 500 ms.
pub const PROACTIVE_LEFT_OVER: u32 = 342;
/// A run ends after this number of slices that tried pageblocks and made none of them free.
const FRUITLESS: u32 = 16;
/// The longest pause for other tasks.
const PAUSE_MOST: Duration = PROACTIVE_INTERVAL;
/// How long proactive compaction works before its caller polls again.
pub const PROACTIVE_SLICE: Duration = Duration::from_millis(5);
/// Like [`PROACTIVE_SLICE`], for compaction for the host's sake while other tasks want the CPU.
/// They wait for this time and for the last pageblock: less than a millisecond in all, at 1 µs for
/// each frame.
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
    /// Down to this fragmentation of a zone any pageblock is emptied that can be. Below it only
    /// pageblocks that are cheap to empty are.
    pub low: u64,
    /// Compaction starts when the node's score is above this.
    pub high: u64,
}

impl Thresholds {
    /// Returns the scores that follow from a proactiveness of 0 to 100. A larger one counts as 100.
    pub fn of(proactiveness: u8) -> Self {
        let low = u64::from(MOST.saturating_sub(proactiveness)).max(LOW_LEAST);
        Self {
            low,
            high: (low + APART).min(100),
        }
    }
}

/// The result of [`Proactive::poll`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says what to do, and when to poll next"]
pub struct ProactivePoll {
    /// Whether to compact now: one zone after the other, while a pageblock of it may be emptied by
    /// [`ZoneFragmentation::dearest`](crate::ZoneFragmentation::dearest). Stop after
    /// [`PROACTIVE_SLICE`], or after one pageblock if other tasks want the CPU, and call
    /// [`Proactive::worked`].
    pub compact: bool,
    /// Whether this is the first slice of a run, which has one or more.
    pub begins: bool,
    /// When to poll again, even if that takes a wake-up. `None` means that no wake-up is necessary.
    pub next: Option<Duration>,
    /// Before this time a poll is not necessary. After it, poll when a CPU is awake anyway: the
    /// score of an idle node does not change.
    pub look_after: Duration,
}

/// What one slice of proactive compaction has done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ProactiveSlice {
    /// The number of pageblocks that became free.
    pub blocks: u64,
    /// The number of pageblocks that it tried to empty.
    pub tried: u64,
    /// The node's score now.
    pub score: u64,
    /// Whether a pageblock is left that may be emptied.
    pub more: bool,
    /// If other tasks want the CPU, the time that they waited for this slice: the CPU time that it
    /// took.
    pub kept_waiting: Option<Duration>,
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
    /// Checks the score.
    Watching {
        /// The next check comes not before this time.
        not_before: Duration,
        /// Whether the last run gained nothing.
        deferred: bool,
    },
    /// Compacts.
    Running {
        /// The node's score when the run started.
        before: u64,
        /// The number of pageblocks that the run has made free.
        blocks: u64,
        /// The number of slices since the last one in which a pageblock became free, without those
        /// that tried none.
        fruitless: u32,
        /// The end of the current pause.
        resume: Duration,
    },
}

impl Stage {
    /// A check at once.
    const START: Self = Self::Watching {
        not_before: Duration::ZERO,
        deferred: false,
    };
}

impl Proactive {
    /// Returns the initial state, with a proactiveness of [`PROACTIVENESS`].
    pub const fn new() -> Self {
        Self {
            proactiveness: PROACTIVENESS,
            stage: Stage::START,
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
        Thresholds::of(self.proactiveness)
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
            begins: false,
            next,
            look_after,
        };
        if self.proactiveness == 0 {
            return wait(None, Duration::MAX);
        }
        let later = now.saturating_add(PROACTIVE_INTERVAL);
        let mut begins = false;
        match self.stage {
            Stage::Running { before, blocks, .. } if reclaims => {
                self.end(now, before, score, blocks);
                return self.poll(now, score, true);
            }
            Stage::Running { resume, .. } if now < resume => return wait(Some(resume), resume),
            Stage::Running { .. } => {}
            Stage::Watching { not_before, .. } if now < not_before => {
                return wait(None, not_before);
            }
            Stage::Watching { .. } if score <= self.thresholds().high => return wait(None, later),
            // When reclaim ends, memory was freed, after which the caller polls again.
            Stage::Watching { .. } if reclaims => return wait(None, later),
            Stage::Watching { .. } => {
                begins = true;
                self.stage = Stage::Running {
                    before: score,
                    blocks: 0,
                    fruitless: 0,
                    resume: now,
                };
            }
        }
        ProactivePoll {
            compact: true,
            begins,
            next: Some(now),
            look_after: now,
        }
    }

    /// Makes the next check due at once, as pageblocks are wanted. Has no effect while the checks
    /// are deferred after a run that gained nothing, nor on a run and its pauses.
    pub fn hurry(&mut self) {
        if let Stage::Watching {
            deferred: false, ..
        } = self.stage
        {
            self.stage = Stage::START;
        }
    }

    /// Returns the time before which [`hurry`](Self::hurry) has no effect, or zero if it has one
    /// now. With a proactiveness of 0 that is the end of time.
    pub const fn heeds_hurry_from(&self) -> Duration {
        match self.stage {
            _ if self.proactiveness == 0 => Duration::MAX,
            Stage::Running { resume, .. } => resume,
            Stage::Watching {
                not_before,
                deferred: true,
            } => not_before,
            Stage::Watching { .. } => Duration::ZERO,
        }
    }

    /// Records the result of a slice of compaction.
    ///
    /// If more is left, the run goes on: at once if no other task wants the CPU. Otherwise after a
    /// pause of [`PROACTIVE_LEFT_OVER`] times as long as the others waited, and of 500 ms at most.
    ///
    /// If nothing is left, or no pageblock became free in 16 slices that tried some, the run ends.
    /// The next check follows after [`PROACTIVE_INTERVAL`], or after 64 times that if the run
    /// gained nothing: it did not lower the score, and no pageblock became free that other tasks
    /// may have allocated since. Does nothing if the proactiveness was set during the slice.
    pub fn worked(&mut self, now: Duration, slice: ProactiveSlice) {
        let Stage::Running {
            before,
            blocks,
            fruitless,
            ..
        } = self.stage
        else {
            // The proactiveness was set during the slice.
            return;
        };
        let blocks = blocks.saturating_add(slice.blocks);
        let fruitless = match (slice.blocks, slice.tried) {
            (0, 0) => fruitless,
            (0, _) => fruitless + 1,
            _ => 0,
        };
        if !slice.more || fruitless >= FRUITLESS {
            return self.end(now, before, slice.score, blocks);
        }
        let pause = slice.kept_waiting.map_or(Duration::ZERO, |waited| {
            waited
                .saturating_mul(PROACTIVE_LEFT_OVER - 1)
                .min(PAUSE_MOST)
        });
        self.stage = Stage::Running {
            before,
            blocks,
            fruitless,
            resume: now.saturating_add(pause),
        };
    }

    /// Ends a run. If it gained nothing, the next check is deferred.
    fn end(&mut self, now: Duration, before: u64, score: u64, blocks: u64) {
        let deferred = score >= before && blocks == 0;
        let looks = if deferred { DEFERRED } else { 1 };
        self.stage = Stage::Watching {
            not_before: now.saturating_add(PROACTIVE_INTERVAL * looks),
            deferred,
        };
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

    /// A slice that lowered the score to `score`.
    const fn slice(score: u64, more: bool) -> ProactiveSlice {
        ProactiveSlice {
            blocks: if more { 1 } else { 0 },
            tried: 1,
            score,
            more,
            kept_waiting: None,
        }
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
    fn it_goes_on_below_high_without_a_pause() {
        let mut proactive = Proactive::new();
        let (mut now, mut score, mut busy) = (ms(0), 100, ms(0));
        loop {
            let poll = proactive.poll(now, score, false);
            assert_eq!(poll.begins, score == 100, "the first slice begins the run");
            if !poll.compact {
                break;
            }
            now += PROACTIVE_SLICE;
            busy += PROACTIVE_SLICE;
            score -= 1;
            proactive.worked(now, slice(score, score > 40));
            now = proactive.poll(now, score, false).next.unwrap_or(now);
        }
        assert_eq!(score, 40);
        assert_eq!(busy, PROACTIVE_SLICE * 60);
        assert_eq!(now, busy);
        assert_eq!(proactive.poll(now, score, false).next, None);
    }

    #[test]
    fn the_least_threshold_keeps_100_from_endless_work() {
        let mut proactive = with(100);
        let (mut now, mut score) = (ms(0), 100);
        while proactive.poll(now, score, false).compact {
            score -= 5;
            now += PROACTIVE_SLICE;
            proactive.worked(now, slice(score, score > LOW_LEAST));
            now = proactive.poll(now, score, false).next.unwrap_or(now);
        }
        assert_eq!(score, LOW_LEAST);
        // For an hour programs keep as much of the memory in pieces as no run begins at.
        for _ in 0..2 * 60 * 60 {
            now += PROACTIVE_INTERVAL;
            let poll = proactive.poll(now, LOW_LEAST + APART, false);
            assert_eq!((poll.compact, poll.next), (false, None));
        }
        // Then nothing can be moved: one slice in 32 seconds.
        let (begun, mut slices) = (now, 0);
        while now - begun < PROACTIVE_INTERVAL * DEFERRED * 10 {
            if proactive.poll(now, 100, false).compact {
                slices += 1;
                proactive.worked(now, slice(100, false));
            }
            now += PROACTIVE_INTERVAL;
        }
        assert_eq!(slices, 10);
    }

    #[test]
    fn other_tasks_have_the_cpu_first() {
        let mut proactive = Proactive::new();
        let kept = |waited| ProactiveSlice {
            kept_waiting: Some(waited),
            ..slice(95, true)
        };
        assert!(proactive.poll(ms(0), 95, false).compact);
        proactive.worked(ms(1), kept(Duration::from_micros(200)));
        let resume = ms(1) + Duration::from_micros(200 * 341);
        assert_eq!(proactive.poll(ms(2), 95, false).next, Some(resume));
        assert_eq!(proactive.heeds_hurry_from(), resume);
        proactive.hurry();
        assert!(!proactive.poll(ms(2), 95, false).compact);
        assert!(proactive.poll(resume, 95, false).compact);
        proactive.worked(ms(100), kept(ms(5)));
        assert_eq!(proactive.poll(ms(100), 95, false).next, Some(ms(600)));
        // Nor does it go on after its pause where memory is reclaimed.
        assert_eq!(proactive.poll(ms(101), 95, true).next, None);
        assert!(!proactive.poll(ms(600), 95, false).compact);
    }

    #[test]
    fn where_blocks_are_wanted_it_looks_at_once() {
        let mut proactive = Proactive::new();
        assert_eq!(proactive.heeds_hurry_from(), Duration::ZERO);
        assert!(proactive.poll(ms(0), 95, false).compact);
        proactive.worked(ms(5), slice(40, false));
        assert!(!proactive.poll(ms(6), 95, false).compact);
        proactive.hurry();
        assert!(!proactive.poll(ms(6), 90, false).compact);
        assert!(proactive.poll(ms(6), 91, false).compact);
        // In vain: no hurry makes it try again.
        proactive.worked(ms(7), slice(91, false));
        let again = ms(7) + PROACTIVE_INTERVAL * DEFERRED;
        assert_eq!(proactive.heeds_hurry_from(), again);
        proactive.hurry();
        assert!(!proactive.poll(ms(600), 95, false).compact);
        assert!(proactive.poll(again, 95, false).compact);
        // The blocks were made, and others have them already.
        let taken = ProactiveSlice {
            blocks: 3,
            ..slice(99, false)
        };
        proactive.worked(again, taken);
        proactive.hurry();
        assert!(proactive.poll(again, 95, false).compact);
        assert_eq!(with(0).heeds_hurry_from(), Duration::MAX);
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
            assert_eq!(poll.begins, poll.compact, "a run of one slice");
            if poll.compact {
                tries.push(now);
                proactive.worked(now, slice(100, false));
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
    fn slices_in_which_nothing_becomes_free_end_a_run() {
        let mut proactive = Proactive::new();
        let nothing = ProactiveSlice {
            blocks: 0,
            ..slice(95, true)
        };
        let mut slices = 0;
        while proactive.poll(ms(0), 95, false).compact {
            slices += 1;
            proactive.worked(ms(0), nothing);
        }
        assert_eq!(slices, FRUITLESS);
        assert_eq!(
            proactive.heeds_hurry_from(),
            PROACTIVE_INTERVAL * DEFERRED,
            "the run was in vain"
        );
        let mut proactive = Proactive::new();
        let stopped = ProactiveSlice {
            tried: 0,
            ..nothing
        };
        for _ in 0..3 * FRUITLESS {
            assert!(proactive.poll(ms(0), 95, false).compact, "none was tried");
            proactive.worked(ms(0), stopped);
        }
        for _ in 0..3 * FRUITLESS {
            assert!(proactive.poll(ms(0), 95, false).compact);
            proactive.worked(ms(0), nothing);
            assert!(proactive.poll(ms(0), 95, false).compact);
            proactive.worked(ms(0), slice(95, true));
        }
    }

    #[test]
    fn it_yields_to_reclaim() {
        let mut proactive = Proactive::new();
        assert!(!proactive.poll(ms(0), 95, true).compact);
        assert!(proactive.poll(ms(0), 95, false).compact);
        proactive.worked(ms(5), slice(93, true));
        assert!(!proactive.poll(ms(50), 93, true).compact);
        assert!(
            !proactive.poll(ms(51), 93, false).compact,
            "looks again in 500 ms"
        );
        assert!(proactive.poll(ms(550), 93, false).compact);
    }
}
