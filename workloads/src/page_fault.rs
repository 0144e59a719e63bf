//! `page-fault`: what a page fault costs, all in.
//!
//! The shape of will-it-scale's `page_fault1` and `page_fault2`: each task maps 128 MiB, writes
//! one byte into every page and unmaps, again and again. The cost counts the faults together with
//! the `mmap` and `munmap` around them, since whoever touches memory pays for all three.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio, seconds};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::rests::{Rest, Rests};
use crate::tasks::{self, Kind};
use crate::{Experiment, Failure, memory_file, thp};
use std::fs::File;
use std::time::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "page-fault",
    usage: "[4k|thp|file [TASKS [SECONDS|ROUNDSr]]] [--threads]",
    summary: "map 128 MiB, write a byte a page, unmap, again and again",
    help: "\
  4k       private anonymous memory in base pages (the default)
  thp      private anonymous memory advised to be in huge pages
  file     a private mapping of a file in memory, copied page by page as it is written
TASKS (1) processes, or threads of one process with --threads, for SECONDS (5) or a fixed number
of rounds (10r). A round that warms up comes first and does not count. With --turns and rounds,
processes also wait for their turn before each quarter of a round.

Prints faults a second of each task (faults_per_second_per_task) and of all (faults_per_second),
and the time of a fault with its part of mmap and munmap (fault_ns). Every base page counts as one
fault in 4k and file, every 2 MiB in thp, where huge_share says how much was in huge pages.",
    run,
};

/// What one round maps.
const ROUND_BYTES: usize = 128 << 20;
/// A round is cut into so many pieces where others have their turn between them. More of them would
/// lie closer to each other in time, but change what is measured (by cold caches, probably): with
/// eight, Ebb's lead was a fifth smaller than with turns of 0.3 s.
const PIECES: usize = 4;
const PIECE_BYTES: usize = ROUND_BYTES / PIECES;
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(5));

/// What is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Base,
    Huge,
    File,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Base, Self::Huge, Self::File];

    fn name(self) -> &'static str {
        match self {
            Self::Base => "4k",
            Self::Huge => "thp",
            Self::File => "file",
        }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| {
                Failure::Usage(format!(
                    "{text:?} is not a kind of page; known: 4k, thp, file"
                ))
            })
    }

    /// Bytes that one fault should bring.
    fn fault_bytes(self) -> usize {
        match self {
            Self::Base | Self::File => PAGE_BYTES,
            Self::Huge => HUGE_BYTES,
        }
    }

    fn faults_a_round(self) -> u64 {
        (ROUND_BYTES / self.fault_bytes()) as u64
    }
}

/// What one task did after its warm-up round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    rounds: u64,
    total_ns: u64,
    fastest_round_ns: u64,
    slowest_round_ns: u64,
    huge_bytes: u64,
}

impl Outcome {
    fn per_second(self, mode: Mode) -> f64 {
        ratio(self.rounds * mode.faults_a_round(), self.total_ns) * 1e9
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
    let mode = words.next().map_or(Ok(Mode::Base), Mode::parse)?;
    let tasks = words
        .next()
        .map_or(Ok(1), |w| args::number(w, "tasks", 1, tasks::MAX_TASKS))?;
    let until = words.next().map_or(Ok(DEFAULT_UNTIL), Until::parse)?;
    if mode == Mode::Huge {
        thp::require()?;
    }
    let count = usize::try_from(tasks).expect("bounded above");
    let pieces = match until {
        Until::Rounds(rounds) if out.takes_turns() && kind == Kind::Processes => {
            rounds * PIECES as u64
        }
        _ => 0,
    };
    let rests = Rests {
        count: pieces,
        turn: &mut || out.rest(),
    };
    let work = |_, rest: Rest<'_>| {
        let task = Task::new(mode)?;
        task.run(until, (pieces > 0).then_some(rest))
    };
    let outcomes: Vec<Outcome> = tasks::run(kind, count, rests, work)?
        .into_iter()
        .map(
            |[
                rounds,
                total_ns,
                fastest_round_ns,
                slowest_round_ns,
                huge_bytes,
            ]| Outcome {
                rounds,
                total_ns,
                fastest_round_ns,
                slowest_round_ns,
                huge_bytes,
            },
        )
        .collect();
    report(&outcomes, mode, kind, out)
}

/// One task's work.
struct Task {
    mode: Mode,
    /// What `file` maps; each task has its own, so that they share no pages.
    file: Option<File>,
}

impl Task {
    fn new(mode: Mode) -> Result<Self, Failure> {
        let file = match mode {
            Mode::File => Some(memory_file::filled(ROUND_BYTES)?),
            Mode::Base | Mode::Huge => None,
        };
        Ok(Self { mode, file })
    }

    fn map(&self) -> Result<Mapping, Failure> {
        match (&self.file, self.mode) {
            (Some(file), _) => Mapping::of_file(file, ROUND_BYTES),
            (None, Mode::Huge) => Mapping::anonymous(ROUND_BYTES, PageSize::Huge),
            (None, _) => Mapping::anonymous(ROUND_BYTES, PageSize::Base),
        }
    }

    fn round(&self) -> Result<(), Failure> {
        let mut mapping = self.map()?;
        mapping.touch();
        drop(mapping);
        Ok(())
    }

    /// A round in pieces, with a rest before each; how long it took, rests apart.
    fn round_with_rests(&self, rest: Rest<'_>) -> Result<u64, Failure> {
        let mut ns = 0;
        let mut mapping = None;
        for piece in 0..PIECES {
            rest()?;
            let begin = monotonic_ns();
            let mut whole = match mapping.take() {
                Some(whole) => whole,
                None => self.map()?,
            };
            whole.touch_part(piece * PIECE_BYTES..(piece + 1) * PIECE_BYTES);
            if piece + 1 < PIECES {
                mapping = Some(whole);
            } else {
                drop(whole);
            }
            ns += monotonic_ns() - begin;
        }
        Ok(ns)
    }

    /// A round that does not count: it checks contents, and says how many bytes are in huge pages.
    fn checked_round(&self) -> Result<u64, Failure> {
        let mut mapping = self.map()?;
        mapping.touch();
        mapping.check()?;
        match self.mode {
            Mode::Base => Ok(0),
            Mode::Huge => thp::huge_bytes(&mapping),
            Mode::File => memory_file::check(&mapping, ROUND_BYTES).map(|()| 0),
        }
    }

    /// Runs rounds until `until`, after one that warms up and does not count.
    fn run(&self, until: Until, rest: Option<Rest<'_>>) -> Result<[u64; 5], Failure> {
        let huge_first = self.checked_round()?;
        let [mut rounds, mut total_ns, mut fastest_ns, mut slowest_ns] = [0, 0, u64::MAX, 0];
        while !until.reached(rounds, total_ns) {
            let ns = match rest {
                Some(rest) => self.round_with_rests(rest)?,
                None => {
                    let begin = monotonic_ns();
                    self.round()?;
                    monotonic_ns() - begin
                }
            };
            rounds += 1;
            total_ns += ns;
            fastest_ns = fastest_ns.min(ns);
            slowest_ns = slowest_ns.max(ns);
        }
        // Huge pages can run out on the way: what holds before and after held between.
        let huge = match self.mode {
            Mode::Huge => huge_first.min(self.checked_round()?),
            Mode::Base | Mode::File => 0,
        };
        Ok([rounds, total_ns, fastest_ns, slowest_ns, huge])
    }
}

fn report(outcomes: &[Outcome], mode: Mode, kind: Kind, out: &mut Output) -> Result<(), Failure> {
    let a_round = mode.faults_a_round();
    for (index, outcome) in outcomes.iter().enumerate() {
        let faults = outcome.rounds * a_round;
        out.say(&format!(
            "task {index}: {faults} faults in {} s, {:.1} ns a fault ({:.1} to {:.1} by round), {:.0} a second",
            seconds(outcome.total_ns),
            ratio(outcome.total_ns, faults),
            ratio(outcome.fastest_round_ns, a_round),
            ratio(outcome.slowest_round_ns, a_round),
            outcome.per_second(mode),
        ))?;
    }
    let labels = Labels::from([
        ("mode", mode.name().to_owned()),
        ("kind", kind.name().to_owned()),
        ("tasks", outcomes.len().to_string()),
    ]);
    let tasks = outcomes.len() as u64;
    let faults: u64 = outcomes.iter().map(|o| o.rounds * a_round).sum();
    let ns: u64 = outcomes.iter().map(|o| o.total_ns).sum();
    let total: f64 = outcomes.iter().map(|o| o.per_second(mode)).sum();
    let mut result = |name, value, unit, better| {
        out.result(&Metric {
            name,
            value,
            unit,
            better,
            labels: labels.clone(),
        })
    };
    result("faults_per_second", total, "1/s", Better::Higher)?;
    let per_task = total * ratio(1, tasks);
    result(
        "faults_per_second_per_task",
        per_task,
        "1/s",
        Better::Higher,
    )?;
    result("fault_ns", ratio(ns, faults), "ns", Better::Lower)?;
    if mode == Mode::Huge {
        let huge: u64 = outcomes.iter().map(|o| o.huge_bytes).sum();
        let share = ratio(huge, tasks * ROUND_BYTES as u64);
        result("huge_share", share, "share", Better::Higher)?;
    }
    Ok(())
}
