//! `memhog`: touches memory once, holds it, frees it and stays alive.
//!
//! This is the experiment of free page reporting: memory that the program has freed should go back
//! to the host, although the program and its guest go on running.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::pool::Pool;
use crate::reports::{Counter, Part};
use crate::{Experiment, Failure, others, size};
use std::time::Duration;

/// The experiment `memhog`, with its arguments, help text and function: touches memory once, holds
/// it, frees it and stays alive.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "memhog",
    usage: "[SIZE [HOLD_SECONDS [STAY_SECONDS [ROUNDSr]]]] [--hugetlb] [--count]",
    summary: "touch memory once, hold it, free it, stay alive",
    help: "\
SIZE is 512M by default, HOLD_SECONDS 1, STAY_SECONDS 60. What was freed should leave the host
while the program stays. With --turns it also waits for its turn between the eighths of SIZE that
it touches, and before it holds. With --hugetlb it takes the memory from the kernel's pool of huge
pages: it adds SIZE to the pool, holds that for HOLD_SECONDS before it touches anything, and leaves
the pool as large until the end. With --count it works instead of sleeping while it stays, and counts what
others take of the CPU meanwhile, with --icount in instructions. With ROUNDSr (1r) it touches, holds, frees and stays again,
which goes with neither --hugetlb nor --count.

Prints the phases start, touched, free, freed and end, with --hugetlb also pooled, each with the guest's monotonic time and
what the guest then has free, the time to touch all (touch_s) and to free it (release_s). With --count also what others took while it stayed, beyond
what they take in the quietest second of that time (others_ns). Of all rounds but the first it prints the mean times
(touch_again_s, release_again_s). Where the kernel tells, also how often it reported free memory to the host (reports): until
the memory of the first round is free, and from then until that of the last one is.",
    run,
};

const DEFAULT_BYTES: usize = 512 << 20;
const DEFAULT_HOLD: Duration = Duration::from_secs(1);
const DEFAULT_STAY: Duration = Duration::from_secs(60);

/// Number of parts in which memory is touched. Other programs may have their turn between them.
const PIECES: usize = 8;

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let from_pool = args::take_flag(&mut words, "--hugetlb");
    let count = args::take_flag(&mut words, "--count");
    args::no_more(&words, 4)?;
    let mut words = words.iter();
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), |w| size::parse(w))?;
    let hold = words
        .next()
        .map_or(Ok(DEFAULT_HOLD), |w| args::duration(w))?;
    let stay = words
        .next()
        .map_or(Ok(DEFAULT_STAY), |w| args::duration(w))?;
    let rounds = words.next().map_or(Ok(1), |w| rounds(w))?;
    if rounds > 1 && (from_pool || count) {
        return Err(Failure::Usage(
            "more than one round goes with neither --hugetlb nor --count".to_owned(),
        ));
    }
    let (pages, page_bytes, bytes) = if from_pool {
        let bytes = bytes.next_multiple_of(HUGE_BYTES);
        (PageSize::Pool, HUGE_BYTES, bytes)
    } else {
        (PageSize::Default, PAGE_BYTES, bytes)
    };
    out.phase("start", Some(bytes))?;
    let mut lent = None;
    if from_pool {
        lent = Some(Pool::lend(bytes, HUGE_BYTES)?);
        std::thread::sleep(hold);
        out.phase("pooled", Some(bytes))?;
    }
    // Pages that come from the pool and go back to it are not free memory.
    let counter = if from_pool { None } else { Counter::find() };
    let first = Part::begin(counter.as_ref());
    let mut mapping = Mapping::anonymous(bytes, pages)?;
    let piece_bytes = bytes.div_ceil(PIECES).next_multiple_of(page_bytes);
    let mut touch_ns = 0;
    for start in (0..bytes).step_by(piece_bytes) {
        if start > 0 {
            out.rest()?;
        }
        let begin = monotonic_ns();
        mapping.touch_part(start..bytes.min(start + piece_bytes));
        touch_ns += monotonic_ns() - begin;
    }
    out.phase("touched", Some(bytes))?;
    out.rest()?;
    std::thread::sleep(hold);
    mapping.check()?;
    out.phase("free", Some(bytes))?;
    let begin = monotonic_ns();
    drop(mapping);
    let release_ns = monotonic_ns() - begin;
    out.phase("freed", Some(bytes))?;
    let first = first.end();
    let later = Part::begin(counter.as_ref());
    let others_ns = if count {
        Some(others::taken(stay))
    } else {
        std::thread::sleep(stay);
        None
    };
    let (mut touch_again_ns, mut release_again_ns) = (0, 0);
    for _ in 1..rounds {
        let begin = monotonic_ns();
        let mut mapping = Mapping::anonymous(bytes, pages)?;
        mapping.touch();
        touch_again_ns += monotonic_ns() - begin;
        std::thread::sleep(hold);
        mapping.check()?;
        let begin = monotonic_ns();
        drop(mapping);
        release_again_ns += monotonic_ns() - begin;
        std::thread::sleep(stay);
    }
    let later = later.end();
    out.phase("end", Some(bytes))?;
    drop(lent);
    if let Some(ns) = others_ns {
        let labels = Labels::new();
        figure("others_ns", ratio(ns, 1), "ns", &labels, out)?;
        later.print(&labels, out)?;
    }
    // Tells which figures and which reports are of the same part.
    let labels = Labels::from([("use", "first".to_owned())]);
    for (name, ns) in [("touch_s", touch_ns), ("release_s", release_ns)] {
        figure(name, ratio(ns, 1_000_000_000), "s", &labels, out)?;
    }
    first.print(&labels, out)?;
    if rounds > 1 {
        let labels = Labels::from([("use", "again".to_owned())]);
        for (name, ns) in [
            ("touch_again_s", touch_again_ns),
            ("release_again_s", release_again_ns),
        ] {
            let mean = ratio(ns, (rounds - 1) * 1_000_000_000);
            figure(name, mean, "s", &labels, out)?;
        }
        later.print(&labels, out)?;
    }
    Ok(())
}

/// Reads a number of rounds, such as `4r`. Fails with `Usage` for a time and for other texts.
fn rounds(word: &str) -> Result<u64, Failure> {
    match Until::parse(word)? {
        Until::Rounds(rounds) => Ok(rounds),
        Until::Elapsed(_) => Err(Failure::Usage(format!(
            "{word:?} is no number of rounds (4r)"
        ))),
    }
}

/// Prints a figure whose lower values are better.
fn figure(
    name: &'static str,
    value: f64,
    unit: &'static str,
    labels: &Labels,
    out: &mut Output,
) -> Result<(), Failure> {
    out.result(&Metric {
        name,
        value,
        unit,
        better: Better::Lower,
        labels: labels.clone(),
    })
}
