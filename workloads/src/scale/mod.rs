//! `scale`: measures calls with few and with many objects of one kind.
//!
//! If a kernel searches a list, a call takes longer the longer the list is. Each part has a small
//! and a large number of one kind of object (areas, files, tasks, …) and measures calls whose time
//! should not depend on it.

mod areas;
mod call;
mod children;
mod descriptors;
mod directory;
mod mappers;
mod procfs;
mod threads;
mod timers;
mod waiters;

use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure, args};

/// The experiment `scale`, with its arguments, help text and function: measures calls with few and
/// with many objects of one kind.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "scale",
    usage: "[PART [N…]]",
    summary: "what calls cost with little of something, and with much of it",
    help: "\
PART is one of areas, children, mappers, threads, waiters, timers, descriptors, directory, procfs;
without it all run, one after the other. Each has two numbers N of its own; others may be given.

  areas        areas of the address space: mprotect, mmap, munmap
  children     processes alive: fork, its end and wait
  mappers      processes that map a file: mmap, a store, munmap of it
  threads      threads alive: pthread_create, pthread_join
  waiters      threads that wait on futexes: wake none; wake one, which waits again
  timers       timers that are set: setting one, making and deleting one
  descriptors  open files: open and close, fork, and fork when they are closed again
  directory    files of a directory: an entry of readdir, create, open, unlink
  procfs       areas: reading /proc/self/maps (an area), /proc/meminfo, /proc/self/stat

Prints the time of each call for each N (mprotect_ns and so on), and by how much the largest N
makes it dearer (growth).",
    run,
};

/// The figures of a part for one number of objects: name, and time in nanoseconds.
type Figures = Vec<(&'static str, f64)>;

/// One kind of object, and the calls to measure.
struct Part {
    name: &'static str,
    /// The objects that N counts, as the label of the figures.
    counts: &'static str,
    /// The numbers of objects if none are given.
    usual: [u64; 2],
    most: u64,
    run: fn(u64) -> Result<Figures, Failure>,
}

const PARTS: &[Part] = &[
    areas::PART,
    children::PART,
    mappers::PART,
    threads::PART,
    waiters::PART,
    timers::PART,
    descriptors::PART,
    directory::PART,
    procfs::PART,
];

/// Number of measured repetitions of a call.
const TIMES: u64 = 256;
/// Number of repetitions before that, to warm up.
const BEFORE: u64 = 32;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, usize::MAX)?;
    let Some((name, numbers)) = words.split_first() else {
        return PARTS
            .iter()
            .try_for_each(|part| one(part, &part.usual, out));
    };
    let part = PARTS.iter().find(|part| part.name == name).ok_or_else(|| {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        Failure::Usage(format!("{name:?} is no part; known: {}", known.join(", ")))
    })?;
    let mut wanted = Vec::new();
    for word in numbers {
        wanted.push(args::number(word, part.counts, 1, part.most)?);
    }
    if wanted.is_empty() {
        wanted.extend(part.usual);
    }
    one(part, &wanted, out)
}

/// Runs a part for each number of objects, and prints the figures and their growth.
fn one(part: &Part, numbers: &[u64], out: &mut Output) -> Result<(), Failure> {
    let mut all = Vec::new();
    for &number in numbers {
        let figures = (part.run)(number)?;
        for &(name, value) in &figures {
            out.result(&Metric {
                name,
                value,
                unit: "ns",
                better: Better::Lower,
                labels: Labels::from([(part.counts, number.to_string())]),
            })?;
        }
        all.push(figures);
    }
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        return Ok(());
    };
    if all.len() < 2 {
        return Ok(());
    }
    for ((name, small), (_, large)) in first.iter().zip(last) {
        out.result(&Metric {
            name: "growth",
            value: large / small,
            unit: "times",
            better: Better::Lower,
            labels: Labels::from([
                ("of", name.trim_end_matches("_ns").to_owned()),
                ("with", part.counts.to_owned()),
            ]),
        })?;
    }
    Ok(())
}

/// Returns the time of one `call` in nanoseconds. `call` gets the number of its repetition, counted
/// from 0 and including the warm-up.
fn time(mut call: impl FnMut(usize) -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut calls = 0..;
    let mut some = |number: u64| {
        let begin = monotonic_ns();
        for _ in 0..number {
            call(calls.next().unwrap_or_default())?;
        }
        Ok::<u64, Failure>(monotonic_ns() - begin)
    };
    some(BEFORE)?;
    Ok(ratio(some(TIMES)?, TIMES))
}
