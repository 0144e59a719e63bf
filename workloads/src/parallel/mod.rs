//! `parallel`: measures a call made by one task, and by several tasks at once.
//!
//! It works like will-it-scale: each task has files and memory of its own. If n tasks make fewer
//! than n times the calls of one task, the cause is data that the kernel shares among them.

mod files;
mod memory;
mod waits;

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::pauses::Pauses;
use crate::tasks::{self, Kind};
use crate::{Experiment, Failure};
use std::time::Duration;

/// The experiment `parallel`, with its arguments, help text and function: measures a call made by
/// one task, and by several tasks at once.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "parallel",
    usage: "CALL [TASKS [SECONDS|ROUNDSr]]",
    summary: "what a call costs when one task makes it, and when several do at once",
    help: "\
CALL is one of
  dup        dup and close of a file (threads)
  open       open and close of a file by its name (processes)
  mmap       mmap and munmap of 128 MiB of nothing (threads)
  mmap-file  the same of a file (threads)
  brk        the heap a page larger, and smaller again (threads)
  file-fault a page of a private mapping of a file is written; with its part of mmap and munmap (threads)
  fault      a page of memory is written, with its part of mmap and munmap (threads)
  poll       poll of an eventfd that is ready (threads)
  poll-128   poll of 128 eventfds of which none is ready, without waiting (threads)
  switch     a byte to another thread through a pipe, and one back (threads)
TASKS is 1 by default, SECONDS 1; a round (10r) is a fixed number of calls. Each task has a file and
memory of its own. With several tasks one task does it, then all do, several times in turns.

Prints how often a call was done: the time from one to the next, by any task (call_ns), and, with
several tasks, how many times as many calls all of them made as one alone (scaling).",
    run,
};

/// The work of one task: it prepares itself, then makes calls while [`Watch::again`] returns
/// `true`.
type Work = fn(&mut Watch) -> Result<(), Failure>;

/// A call to measure.
struct Call {
    name: &'static str,
    kind: Kind,
    /// Number of calls in one batch. The clock is read after each batch.
    batch: u64,
    work: Work,
}

const CALLS: [&Call; 10] = [
    &files::DUP,
    &files::OPEN,
    &memory::MMAP,
    &memory::MMAP_FILE,
    &memory::BRK,
    &memory::FILE_FAULT,
    &memory::FAULT,
    &waits::POLL,
    &waits::POLL_MANY,
    &waits::SWITCH,
];

const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(1));
/// Number of times that one task works and then all do. They alternate, since the machine's speed
/// changes over time.
const SLICES: u32 = 3;
/// Number of warm-up batches at the start of a slice.
const WARM: u64 = 2;

/// Decides when a task stops, and counts its batches and time.
struct Watch {
    until: Until,
    batches: u64,
    begin: u64,
    ns: u64,
}

impl Watch {
    fn new(until: Until) -> Self {
        Self {
            until,
            batches: 0,
            begin: 0,
            ns: 0,
        }
    }

    /// Returns whether the task must make another batch of calls. The task must be ready at the
    /// first call.
    fn again(&mut self) -> bool {
        let now = monotonic_ns();
        if self.batches == WARM {
            self.begin = now;
        }
        if self.batches > WARM {
            self.ns = now - self.begin;
            if self.until.reached(self.batches - WARM, self.ns) {
                return false;
            }
        }
        self.batches += 1;
        true
    }

    /// Returns the number of batches after the warm-up and their time in nanoseconds.
    fn figures(&self) -> [u64; 2] {
        [self.batches.saturating_sub(WARM), self.ns]
    }
}

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 3)?;
    let mut words = words.iter().map(String::as_str);
    let known = || CALLS.map(|call| call.name).join(", ");
    let Some(name) = words.next() else {
        return Err(Failure::Usage(format!("which call? known: {}", known())));
    };
    let call = CALLS
        .into_iter()
        .find(|call| call.name == name)
        .ok_or_else(|| Failure::Usage(format!("{name:?} is no call; known: {}", known())))?;
    let tasks = words
        .next()
        .map_or(Ok(1), |w| args::number(w, "tasks", 1, tasks::MAX_TASKS))?;
    let until = words.next().map_or(Ok(DEFAULT_UNTIL), Until::parse)?;
    if tasks == 1 {
        let alone = rate(call, 1, until)?;
        return report(call, 1, alone, out);
    }
    let slice = match until {
        Until::Elapsed(time) => Until::Elapsed(time / (2 * SLICES)),
        rounds @ Until::Rounds(_) => rounds,
    };
    let (mut alone, mut all) = (0.0, 0.0);
    for _ in 0..SLICES {
        alone += rate(call, 1, slice)? / f64::from(SLICES);
        all += rate(call, tasks, slice)? / f64::from(SLICES);
    }
    report(call, 1, alone, out)?;
    report(call, tasks, all, out)?;
    out.result(&Metric {
        name: "scaling",
        value: all / alone,
        unit: "times",
        better: Better::Higher,
        labels: labels(call, tasks),
    })
}

fn labels(call: &Call, tasks: u64) -> Labels {
    Labels::from([
        ("call", call.name.to_owned()),
        (call.kind.name(), tasks.to_string()),
    ])
}

fn report(call: &Call, tasks: u64, rate: f64, out: &mut Output) -> Result<(), Failure> {
    out.result(&Metric {
        name: "call_ns",
        value: 1.0 / rate,
        unit: "ns",
        better: Better::Lower,
        labels: labels(call, tasks),
    })
}

/// Runs `tasks` tasks at once and returns the number of calls per nanosecond of all together.
fn rate(call: &Call, tasks: u64, until: Until) -> Result<f64, Failure> {
    let count = usize::try_from(tasks).expect("bounded by `MAX_TASKS`");
    let work = || {
        let pauses = Pauses {
            count: 0,
            turn: &mut || Ok(()),
        };
        tasks::run(call.kind, count, pauses, |_, _| {
            let mut watch = Watch::new(until);
            (call.work)(&mut watch)?;
            Ok(watch.figures())
        })
    };
    let figures = match call.kind {
        Kind::Processes => work(),
        // A single thread also gets a second one, which only waits. A process with one thread would
        // be spared work that the kernel does because of other threads.
        Kind::Threads => std::thread::scope(|scope| match scope.spawn(work).join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }),
    }?;
    Ok(figures
        .into_iter()
        .map(|[batches, ns]| ratio(batches * call.batch, ns))
        .sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_counts_what_comes_after_the_warm_up() {
        let mut watch = Watch::new(Until::Rounds(3));
        let mut batches = 0;
        while watch.again() {
            batches += 1;
        }
        assert_eq!(batches, WARM + 3);
        assert_eq!(watch.figures()[0], 3);
    }

    #[test]
    fn two_make_a_call_at_once() {
        for call in [&files::DUP, &memory::FAULT, &waits::SWITCH] {
            let rate = rate(call, 2, Until::Rounds(2)).expect(call.name);
            assert!(rate > 0.0, "{}", call.name);
        }
    }
}
