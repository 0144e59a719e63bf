//! `page-fault`: what a page fault costs, all in.
//!
//! The shape of will-it-scale's `page_fault1` and `page_fault2`: each task maps 128 MiB, writes
//! one byte into every page and unmaps, again and again. The cost counts the faults together with
//! the `mmap` and `munmap` around them, since whoever touches memory pays for all three.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio, seconds};
use crate::mapping::{Anonymous, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::tasks::{self, Kind};
use crate::{Experiment, Failure};
use std::time::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "page-fault",
    usage: "[4k [TASKS [SECONDS|ROUNDSr]]] [--threads]",
    summary: "map 128 MiB, write a byte a page, unmap, again and again",
    help: "\
  4k       private anonymous memory in base pages
TASKS (1) processes, or threads of one process with --threads, for SECONDS (5) or a fixed number
of rounds (10r). A round that warms up comes first and does not count.

Prints faults a second of each task and of all, and the nanoseconds of a fault, with mmap and
munmap in it.",
    run,
};

/// What one round maps.
const ROUND_BYTES: usize = 128 << 20;
const FAULTS_A_ROUND: u64 = (ROUND_BYTES / PAGE_BYTES) as u64;
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(5));

/// What one task did after its warm-up round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    rounds: u64,
    total_ns: u64,
    fastest_round_ns: u64,
    slowest_round_ns: u64,
}

impl Outcome {
    fn faults(self) -> u64 {
        self.rounds * FAULTS_A_ROUND
    }

    fn per_second(self) -> f64 {
        ratio(self.faults(), self.total_ns) * 1e9
    }
}

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let kind = if args::take_flag(&mut words, "--threads") {
        Kind::Threads
    } else {
        Kind::Processes
    };
    args::no_more(&words, 3)?;
    let mut words = words.iter().map(String::as_str);
    let mode = words.next().unwrap_or("4k");
    if mode != "4k" {
        return Err(Failure::Usage(format!(
            "{mode:?} is not a kind of page; known: 4k"
        )));
    }
    let tasks = words
        .next()
        .map_or(Ok(1), |w| args::number(w, "tasks", 1, tasks::MAX_TASKS))?;
    let until = words.next().map_or(Ok(DEFAULT_UNTIL), Until::parse)?;
    let count = usize::try_from(tasks).expect("bounded above");
    let outcomes: Vec<Outcome> = tasks::run(kind, count, |_| one_task(until))?
        .into_iter()
        .map(
            |[rounds, total_ns, fastest_round_ns, slowest_round_ns]| Outcome {
                rounds,
                total_ns,
                fastest_round_ns,
                slowest_round_ns,
            },
        )
        .collect();
    report(&outcomes, mode, kind, out)
}

/// Runs rounds until `until`, after one that warms up and does not count.
fn one_task(until: Until) -> Result<[u64; 4], Failure> {
    round()?;
    let [mut rounds, mut total_ns, mut fastest_ns, mut slowest_ns] = [0, 0, u64::MAX, 0];
    while !until.reached(rounds, total_ns) {
        let begin = monotonic_ns();
        round()?;
        let ns = monotonic_ns() - begin;
        rounds += 1;
        total_ns += ns;
        fastest_ns = fastest_ns.min(ns);
        slowest_ns = slowest_ns.max(ns);
    }
    Ok([rounds, total_ns, fastest_ns, slowest_ns])
}

fn round() -> Result<(), Failure> {
    let mut mapping = Anonymous::map(ROUND_BYTES, PageSize::Base)?;
    mapping.touch();
    drop(mapping);
    Ok(())
}

fn report(outcomes: &[Outcome], mode: &str, kind: Kind, out: &mut Output) -> Result<(), Failure> {
    for (index, outcome) in outcomes.iter().enumerate() {
        let faults = outcome.faults();
        out.say(&format!(
            "task {index}: {faults} faults in {} s, {:.1} ns a fault ({:.1} to {:.1} by round), {:.0} a second",
            seconds(outcome.total_ns),
            ratio(outcome.total_ns, faults),
            ratio(outcome.fastest_round_ns, FAULTS_A_ROUND),
            ratio(outcome.slowest_round_ns, FAULTS_A_ROUND),
            outcome.per_second(),
        ))?;
    }
    let labels = Labels::from([
        ("mode", mode.to_owned()),
        ("kind", kind.name().to_owned()),
        ("tasks", outcomes.len().to_string()),
    ]);
    let faults: u64 = outcomes.iter().map(|o| o.faults()).sum();
    let ns: u64 = outcomes.iter().map(|o| o.total_ns).sum();
    let total: f64 = outcomes.iter().map(|o| o.per_second()).sum();
    #[allow(clippy::cast_precision_loss, reason = "at most 256 tasks")]
    let per_task = total / outcomes.len() as f64;
    let higher = |name, value| Metric {
        name,
        value,
        unit: "1/s",
        better: Better::Higher,
        labels: labels.clone(),
    };
    out.result(&higher("faults_per_second", total))?;
    out.result(&higher("faults_per_second_per_task", per_task))?;
    out.result(&Metric {
        name: "fault_ns",
        value: ratio(ns, faults),
        unit: "ns",
        better: Better::Lower,
        labels,
    })
}
