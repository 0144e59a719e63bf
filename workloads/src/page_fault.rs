//! `page-fault`: what a page fault costs, all in.
//!
//! The shape of will-it-scale's `page_fault1`: each task maps 128 MiB, writes one byte into every
//! page and unmaps, again and again. The cost counts the faults together with the `mmap` and
//! `munmap` around them, since whoever touches memory pays for all three.

use crate::Failure;
use crate::clock::{monotonic_ns, seconds};
use crate::mapping::{Anonymous, PAGE_BYTES, PageSize};
use std::io::Write;
use std::process::Stdio;

pub(crate) const USAGE: &str = "page-fault 4k [TASKS [SECONDS|ROUNDSr]]   map 128 MiB, write a byte a page, unmap; processes; \
     5 s, or that many rounds: 10r";

/// What one round maps.
const ROUND_BYTES: usize = 128 << 20;
const FAULTS_A_ROUND: u64 = (ROUND_BYTES / PAGE_BYTES) as u64;
const MAX_TASKS: usize = 256;
const MAX_ROUNDS: u64 = 1_000_000;
const MAX_SECONDS: u64 = 86_400;
/// Set for the children that the first process starts: they measure one task and print it raw.
const TASK_VARIABLE: &str = "EBB_PAGE_FAULT_TASK";

/// When a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Seconds(u64),
    Rounds(u64),
}

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

    /// One line that [`Outcome::read`] understands.
    fn raw(self) -> String {
        let Self {
            rounds,
            total_ns,
            fastest_round_ns,
            slowest_round_ns,
        } = self;
        format!("{rounds} {total_ns} {fastest_round_ns} {slowest_round_ns}\n")
    }

    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        let outcome = Self {
            rounds: numbers.next()??,
            total_ns: numbers.next()??,
            fastest_round_ns: numbers.next()??,
            slowest_round_ns: numbers.next()??,
        };
        (numbers.next().is_none() && outcome.rounds > 0).then_some(outcome)
    }
}

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let (kind, rest) = words
        .split_first()
        .ok_or_else(|| Failure::Usage("which kind of page is missing".to_owned()))?;
    if kind != "4k" {
        return Err(Failure::Usage(format!(
            "{kind:?} is not a kind of page; known: 4k"
        )));
    }
    let (tasks, until) = match rest {
        [] => (1, Until::Seconds(5)),
        [tasks] => (parse_tasks(tasks)?, Until::Seconds(5)),
        [tasks, until] => (parse_tasks(tasks)?, parse_until(until)?),
        _ => {
            return Err(Failure::Usage(format!(
                "{} arguments, 1 to 3 expected",
                words.len()
            )));
        }
    };
    if std::env::var_os(TASK_VARIABLE).is_some() {
        return stdout(&one_task(until)?.raw());
    }
    let outcomes = if tasks == 1 {
        vec![one_task(until)?]
    } else {
        in_processes(tasks, words)?
    };
    report(&outcomes)
}

/// Runs rounds until `until`, after one that warms up and does not count.
fn one_task(until: Until) -> Result<Outcome, Failure> {
    round()?;
    let mut outcome = Outcome {
        rounds: 0,
        total_ns: 0,
        fastest_round_ns: u64::MAX,
        slowest_round_ns: 0,
    };
    loop {
        let begin = monotonic_ns();
        round()?;
        let ns = monotonic_ns() - begin;
        outcome.rounds += 1;
        outcome.total_ns += ns;
        outcome.fastest_round_ns = outcome.fastest_round_ns.min(ns);
        outcome.slowest_round_ns = outcome.slowest_round_ns.max(ns);
        let done = match until {
            Until::Rounds(rounds) => outcome.rounds >= rounds,
            Until::Seconds(limit) => outcome.total_ns >= limit * 1_000_000_000,
        };
        if done || outcome.rounds >= MAX_ROUNDS {
            return Ok(outcome);
        }
    }
}

fn round() -> Result<(), Failure> {
    let mut mapping = Anonymous::map(ROUND_BYTES, PageSize::Base)?;
    mapping.touch();
    drop(mapping);
    Ok(())
}

/// Runs the same program once per task, so that tasks share no address space.
fn in_processes(tasks: usize, words: &[String]) -> Result<Vec<Outcome>, Failure> {
    let system = |what: &'static str| {
        move |source| Failure::System {
            what: what.to_owned(),
            source,
        }
    };
    let program = std::env::current_exe().map_err(system("find this program"))?;
    let mut children = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        let child = std::process::Command::new(&program)
            .arg("page-fault")
            .args(words)
            .env(TASK_VARIABLE, "1")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(system("start a task"))?;
        children.push(child);
    }
    let mut outcomes = Vec::with_capacity(tasks);
    for child in children {
        let output = child
            .wait_with_output()
            .map_err(system("wait for a task"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let outcome = Outcome::read(&text)
            .filter(|_| output.status.success())
            .ok_or_else(|| Failure::System {
                what: format!("a task ended with {} and said {text:?}", output.status),
                source: std::io::ErrorKind::InvalidData.into(),
            })?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn report(outcomes: &[Outcome]) -> Result<(), Failure> {
    let mut text = String::new();
    let mut total_rate = 0;
    for (index, outcome) in outcomes.iter().enumerate() {
        let faults = outcome.faults();
        let rate = faults * 1_000_000_000 / outcome.total_ns.max(1);
        total_rate += rate;
        text.push_str(&format!(
            "page-fault: task {index}: {faults} faults in {} s, {} ns a fault ({} to {} by round), {rate} a second\n",
            seconds(outcome.total_ns),
            tenths(outcome.total_ns, faults),
            tenths(outcome.fastest_round_ns, FAULTS_A_ROUND),
            tenths(outcome.slowest_round_ns, FAULTS_A_ROUND),
        ));
    }
    let faults: u64 = outcomes.iter().map(|o| o.faults()).sum();
    let ns: u64 = outcomes.iter().map(|o| o.total_ns).sum();
    text.push_str(&format!(
        "page-fault: total: {faults} faults, {} ns a fault, {total_rate} a second\n",
        tenths(ns, faults)
    ));
    stdout(&text)
}

/// `ns / count` with one decimal.
fn tenths(ns: u64, count: u64) -> String {
    let tenths = u128::from(ns) * 10 / u128::from(count.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn stdout(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|source| Failure::System {
            what: "write to stdout".to_owned(),
            source,
        })
}

fn parse_tasks(text: &str) -> Result<usize, Failure> {
    text.parse()
        .ok()
        .filter(|tasks| (1..=MAX_TASKS).contains(tasks))
        .ok_or_else(|| {
            Failure::Usage(format!(
                "{text:?} is not a number of tasks from 1 to {MAX_TASKS}"
            ))
        })
}

fn parse_until(text: &str) -> Result<Until, Failure> {
    let parsed = match text.strip_suffix('r') {
        Some(rounds) => rounds
            .parse()
            .ok()
            .filter(|r| (1..=MAX_ROUNDS).contains(r))
            .map(Until::Rounds),
        None => text
            .parse()
            .ok()
            .filter(|s| (1..=MAX_SECONDS).contains(s))
            .map(Until::Seconds),
    };
    parsed
        .ok_or_else(|| Failure::Usage(format!("{text:?} is neither seconds (5) nor rounds (10r)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_read_back_as_it_was_printed() {
        let outcome = Outcome {
            rounds: 3,
            total_ns: 99,
            fastest_round_ns: 30,
            slowest_round_ns: 36,
        };
        assert_eq!(Outcome::read(&outcome.raw()), Some(outcome));
        for text in ["", "1 2 3", "1 2 3 4 5", "0 1 1 1", "a 1 1 1"] {
            assert_eq!(Outcome::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_end_of_a_run_is_given_in_seconds_or_rounds() {
        assert_eq!(parse_until("5").expect("seconds"), Until::Seconds(5));
        assert_eq!(parse_until("10r").expect("rounds"), Until::Rounds(10));
        for text in ["", "r", "0", "0r", "-1", "1.5", "10s"] {
            assert!(parse_until(text).is_err(), "{text:?}");
        }
    }
}
