//! Which guest runs when: in turns, so that whatever else the machine does hits all alike.

use super::experiments::{Case, Experiment, cases};
use super::options::CompareOptions;
use super::schema::Guest;
use std::collections::HashMap;
use std::time::Duration;

/// Rounds, unless the user says otherwise.
const ROUNDS: u32 = 3;
/// Counted instructions do not vary.
const ROUNDS_ICOUNT: u32 = 1;
/// First guesses of what a run takes besides its program.
const EBB_OVERHEAD: Duration = Duration::from_millis(400);
const LINUX_OVERHEAD: Duration = Duration::from_secs(7);
/// So much more does a program take where instructions are counted, at a guess.
const ICOUNT_FACTOR: u32 = 4;

/// One guest that will run.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Which of the plan's cases.
    pub(crate) case: usize,
    pub(crate) guest: Guest,
    pub(crate) round: u32,
}

/// All that will run, in order.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<Case>,
    pub(crate) steps: Vec<Step>,
    pub(crate) rounds: u32,
}

impl Plan {
    /// Plans the rounds of `experiments` in `guests`.
    pub(crate) fn new(
        experiments: &[&'static Experiment],
        guests: &[Guest],
        options: &CompareOptions,
    ) -> Self {
        let rounds = options.rounds.unwrap_or(if options.icount {
            ROUNDS_ICOUNT
        } else {
            ROUNDS
        });
        let cases: Vec<Case> = experiments
            .iter()
            .flat_map(|experiment| cases(experiment, options))
            .collect();
        let last = cases
            .iter()
            .map(|case| case.rounds(rounds))
            .max()
            .unwrap_or(0);
        let mut steps = Vec::new();
        for round in 1..=last {
            for (index, case) in cases.iter().enumerate() {
                if round > case.rounds(rounds) {
                    continue;
                }
                let mut turn: Vec<Guest> = guests
                    .iter()
                    .copied()
                    .filter(|guest| *guest == Guest::Ebb || case.on_linux())
                    .collect();
                // Whoever comes second finds a warmer machine.
                if round.is_multiple_of(2) {
                    turn.reverse();
                }
                steps.extend(turn.into_iter().map(|guest| Step {
                    case: index,
                    guest,
                    round,
                }));
            }
        }
        Self {
            cases,
            steps,
            rounds,
        }
    }
}

/// How long the rest of a plan takes: first guessed, then known from what has run.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    known: HashMap<(usize, Guest), (Duration, u32)>,
}

impl Clock {
    /// Learns what a step took.
    pub(crate) fn learn(&mut self, step: &Step, took: Duration) {
        let (sum, count) = self.known.entry((step.case, step.guest)).or_default();
        *sum += took;
        *count += 1;
    }

    /// What `steps` will take together.
    pub(crate) fn expect(&self, plan: &Plan, steps: &[Step]) -> Duration {
        steps.iter().map(|step| self.one(plan, step)).sum()
    }

    /// What one step will take.
    pub(crate) fn one(&self, plan: &Plan, step: &Step) -> Duration {
        if let Some((sum, count)) = self.known.get(&(step.case, step.guest)) {
            return *sum / *count;
        }
        let case = &plan.cases[step.case];
        let overhead = match step.guest {
            Guest::Ebb => EBB_OVERHEAD,
            Guest::Linux => LINUX_OVERHEAD,
        };
        let guess = case.guess() + overhead;
        if case.shape.icount {
            guess * ICOUNT_FACTOR
        } else {
            guess
        }
    }
}
