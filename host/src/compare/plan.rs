//! The order in which guests run. They take turns, so that other load on the machine affects all
//! alike.

use super::experiment::{Experiment, Pace};
use super::experiments::{Case, cases};
use super::options::CompareOptions;
use super::schema::{Guest, Run};
use super::statistics;
use super::wording::speaks_alone;
use crate::system::slowdown;
use std::collections::HashMap;
use std::time::Duration;

/// The number of rounds in a boot. Figures of one boot may have a common error, so an interval
/// counts boots, not rounds. Each boot costs seconds.
const ROUNDS_A_BOOT: u32 = 3;
/// The first estimate of the duration of a run with Ebb's kernel, without its program.
const EBB_OVERHEAD: Duration = Duration::from_millis(400);
/// The first estimate of the duration of a run with Linux and little memory, without its program.
const LINUX_OVERHEAD: Duration = Duration::from_secs(7);
/// The time in which Linux initialises the page descriptors of one GiB while it boots.
const LINUX_OVERHEAD_GIB: Duration = Duration::from_millis(300);
/// The factor by which a program with fixed work takes longer on Linux, for the first estimate.
const LINUX_FACTOR: u32 = 3;
/// The first estimate of a run with Ebb's kernel whose instructions are counted, without its
/// program if that has more of them than the boot. Sleeping takes no time.
const EBB_COUNTED: Duration = Duration::from_secs(4);
/// The same estimate for Linux.
const LINUX_COUNTED: Duration = Duration::from_secs(15);

/// A step of a plan: one boot of one guest that runs alone, or of guests that run together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// The index of the case in the plan.
    pub(crate) case: usize,
    /// The guests in the order of their turns. The second one finds a warmer machine.
    pub(crate) guests: Vec<Guest>,
    /// The number of this boot, from 1.
    pub(crate) boot: u32,
    /// The number of rounds of each guest in this boot.
    pub(crate) rounds: u32,
}

/// All runs of a comparison in the order in which they run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The experiments in all shapes.
    pub(crate) cases: Vec<Case>,
    /// The steps in the order in which they run.
    pub(crate) steps: Vec<Step>,
    guests: Vec<Guest>,
    wanted: Option<u32>,
}

impl Plan {
    /// Plans the smallest number of rounds of each of `experiments`, in all shapes that `options`
    /// asks for, for those of `guests` that can run it. [`Self::more`] returns further rounds.
    /// There are no steps if no guest can run any of them.
    pub(crate) fn new(
        experiments: &[&'static Experiment],
        guests: &[Guest],
        options: &CompareOptions,
    ) -> Self {
        let mut plan = Self {
            cases: experiments
                .iter()
                .flat_map(|experiment| cases(experiment, options))
                .collect(),
            steps: Vec::new(),
            guests: guests.to_vec(),
            wanted: options.rounds,
        };
        let mut boots: Vec<Vec<Step>> = (0..plan.cases.len())
            .map(|case| plan.boots_of(case))
            .collect();
        // A case in a way to give memory back that no guest supports has no guests.
        boots
            .iter_mut()
            .for_each(|steps| steps.retain(|step| !step.guests.is_empty()));
        let last = boots.iter().flatten().map(|step| step.boot).max();
        // All cases run one boot before any runs the next one, since the machine also changes over
        // hours.
        for boot in 1..=last.unwrap_or(0) {
            let of_boot = boots.iter().flatten().filter(|step| step.boot == boot);
            plan.steps.extend(of_boot.cloned());
        }
        plan
    }

    /// Returns the number of runs in `steps`. A step with several guests counts once for each
    /// guest.
    pub(crate) fn runs_of(&self, steps: &[Step]) -> usize {
        steps.iter().map(|step| step.guests.len()).sum()
    }

    /// Returns the steps for the minimum number of rounds of a case.
    fn boots_of(&self, index: usize) -> Vec<Step> {
        let case = &self.cases[index];
        let rounds = case.rounds(self.wanted).least;
        match case.pace() {
            Pace::Apart => (1..=rounds)
                .flat_map(|boot| {
                    let alone = self.turn(case, boot).into_iter();
                    alone.map(move |guest| Step {
                        case: index,
                        guests: vec![guest],
                        boot,
                        rounds: 1,
                    })
                })
                .collect(),
            Pace::Counted | Pace::Together => (1..=rounds)
                .map(|boot| Step {
                    case: index,
                    guests: self.turn(case, boot),
                    boot,
                    rounds: 1,
                })
                .collect(),
            pace => {
                let a_boot = if pace == Pace::Once { 1 } else { ROUNDS_A_BOOT };
                (0..rounds.div_ceil(a_boot))
                    .map(|before| Step {
                        case: index,
                        guests: self.turn(case, before + 1),
                        boot: before + 1,
                        rounds: a_boot.min(rounds - before * a_boot),
                    })
                    .collect()
            }
        }
    }

    /// Returns the guests of a step in the order of their turns, which is reversed in every other
    /// boot.
    fn turn(&self, case: &Case, boot: u32) -> Vec<Guest> {
        let mut turn: Vec<Guest> = self
            .guests
            .iter()
            .copied()
            .filter(|guest| case.runs_on(*guest))
            .collect();
        if boot.is_multiple_of(2) {
            turn.reverse();
        }
        turn
    }

    /// Returns one more boot for each case whose guests take turns, whose ratios have not settled,
    /// and that may have more rounds. `runs` are the runs of this plan so far. Does not add the
    /// steps to the plan. Returns an empty list if nothing more is to run.
    pub(crate) fn more(&self, runs: &[Run]) -> Vec<Step> {
        let table = statistics::rows(runs);
        let unsettled = |case: &Case| {
            table.iter().any(|row| {
                row.experiment == case.experiment.name
                    && row.labels.get("cpus") == Some(&case.shape.cpus.to_string())
                    && row.labels.get("memory") == Some(&case.shape.memory.to_string())
                    && speaks_alone(row)
                    && row.interval.is_some_and(|interval| !interval.is_settled())
            })
        };
        let mut more = Vec::new();
        for (index, case) in self.cases.iter().enumerate() {
            let of_case = || self.steps.iter().filter(|step| step.case == index);
            let done: u32 = of_case().map(|step| step.rounds).sum();
            let left = case.rounds(self.wanted).most.saturating_sub(done);
            if !case.pace().takes_turns() || left == 0 || !unsettled(case) {
                continue;
            }
            let boot = of_case().map(|step| step.boot).max().unwrap_or(0) + 1;
            more.push(Step {
                case: index,
                guests: self.turn(case, boot),
                boot,
                rounds: left.min(ROUNDS_A_BOOT),
            });
        }
        more
    }
}

/// Estimates how long the rest of a plan takes, first by guesses, then by the steps that have run.
#[derive(Debug)]
pub(crate) struct Clock {
    known: HashMap<(usize, Vec<Guest>), (Duration, u32)>,
    /// How many times longer than on an idle machine the first step takes, by the machine's load.
    busy: f64,
    /// The guesses for the steps so far, and the time that they took.
    guessed: Duration,
    took: Duration,
}

/// The limits of how much slower or faster than the guess the machine is assumed to be.
const PACE: std::ops::RangeInclusive<f64> = 0.2..=10.0;
/// The limit of the factor for load. The load is that of the last minute, not of the next one.
const BUSY_MAX: f64 = 3.0;

impl Clock {
    /// Creates an estimate that knows no step yet, only the present load of the machine.
    pub(crate) fn new() -> Self {
        Self::with_busy(slowdown(1).min(BUSY_MAX))
    }

    fn with_busy(busy: f64) -> Self {
        Self {
            known: HashMap::new(),
            busy,
            guessed: Duration::ZERO,
            took: Duration::ZERO,
        }
    }

    /// Records that `step` of `plan` took the time `took`. Later estimates use it.
    pub(crate) fn learn(&mut self, plan: &Plan, step: &Step, took: Duration) {
        self.guessed += guess(plan, step);
        self.took += took;
        let (sum, count) = self.known.entry(key(step)).or_default();
        *sum += took;
        *count += 1;
    }

    /// Returns the time that `steps` of `plan` are expected to take one after the other.
    pub(crate) fn expect(&self, plan: &Plan, steps: &[Step]) -> Duration {
        steps.iter().map(|step| self.one(plan, step)).sum()
    }

    /// Returns the time that `step` is expected to take: the mean of equal steps that have run,
    /// else a guess by the speed of the machine so far.
    pub(crate) fn one(&self, plan: &Plan, step: &Step) -> Duration {
        if let Some((sum, count)) = self.known.get(&key(step)) {
            return *sum / *count;
        }
        // The steps so far show how fast this machine is.
        let pace = if self.guessed.is_zero() {
            self.busy
        } else {
            self.took.as_secs_f64() / self.guessed.as_secs_f64()
        };
        guess(plan, step).mul_f64(pace.clamp(*PACE.start(), *PACE.end()))
    }
}

/// Returns the guess for a step on an idle machine.
fn guess(plan: &Plan, step: &Step) -> Duration {
    let case = &plan.cases[step.case];
    let counted = case.pace() == Pace::Counted;
    let gib = u32::try_from(case.shape.memory.bytes() >> 30).unwrap_or(u32::MAX);
    // Guests that run together boot at the same time.
    let boot = step
        .guests
        .iter()
        .map(|guest| match (guest, counted) {
            (Guest::Ebb, false) => EBB_OVERHEAD,
            (Guest::Linux, false) => LINUX_OVERHEAD + LINUX_OVERHEAD_GIB * gib,
            (Guest::Ebb, true) => EBB_COUNTED,
            (Guest::Linux, true) => LINUX_COUNTED,
        })
        .max()
        .unwrap_or_default();
    if counted {
        // All guests run at the same time.
        return boot + case.counted_guess();
    }
    let work = step.guests.iter().map(|guest| match (guest, case.pace()) {
        (Guest::Linux, Pace::Timed | Pace::Fixed) => case.guess() * LINUX_FACTOR,
        _ => case.guess(),
    });
    let work: Duration = match case.pace() {
        Pace::Together => work.max().unwrap_or_default(),
        _ => work.sum(),
    };
    work * step.rounds + boot
}

/// Returns a key that is equal for steps which take the same time.
fn key(step: &Step) -> (usize, Vec<Guest>) {
    let mut guests = step.guests.clone();
    guests.sort_unstable();
    (step.case, guests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::experiments;
    use crate::compare::options::CompareOptions;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: CompareOptions,
    }

    #[test]
    fn every_run_is_counted_once_and_time_is_learned() {
        let words = [
            "compare",
            "idle",
            "memhog",
            "--rounds",
            "2",
            "--give-back",
            "reporting",
        ];
        let options = Alone::try_parse_from(words).expect("options").options;
        let chosen = experiments::select(&options.experiments).expect("known");
        let guests = [Guest::Ebb, Guest::Linux];
        let plan = Plan::new(&chosen, &guests, &options);
        // `idle` has two sizes of guests, one guest at a time; the guests of `memhog` run together.
        assert_eq!(plan.runs_of(&plan.steps), 2 * 2 * 2 + 2 * 2);
        let mut clock = Clock::with_busy(2.0);
        let all = |clock: &Clock| clock.expect(&plan, &plan.steps);
        let alone = all(&Clock::with_busy(1.0));
        assert!(all(&clock) > alone);
        // If a step took three times its guess, the rest is expected to do so, too.
        let step = &plan.steps[0];
        clock.learn(&plan, step, guess(&plan, step) * 3);
        let ratio = all(&clock).as_secs_f64() / alone.as_secs_f64();
        assert!((2.99..3.01).contains(&ratio), "{ratio}");
    }
}
