//! `memhog`: touches memory once, holds it, frees it and stays alive.
//!
//! This is the experiment of free page reporting: memory that the program has freed should go back
//! to the host, although the program and its guest go on running.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::pool::Pool;
use crate::{Experiment, Failure, args, others, size};
use std::time::Duration;

/// The experiment `memhog`, with its arguments, help text and function: touches memory once, holds
/// it, frees it and stays alive.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "memhog",
    usage: "[SIZE [HOLD_SECONDS [STAY_SECONDS]]] [--hugetlb] [--count]",
    summary: "touch memory once, hold it, free it, stay alive",
    help: "\
SIZE is 512M by default, HOLD_SECONDS 1, STAY_SECONDS 60. What was freed should leave the host
while the program stays. With --turns it also waits for its turn between the eighths of SIZE that
it touches, and before it holds. With --hugetlb it takes the memory from the kernel's pool of huge
pages: it adds SIZE to the pool, holds that for HOLD_SECONDS before it touches anything, and leaves
the pool as large until the end. With --count it works instead of sleeping while it stays, and counts what
others take of the CPU meanwhile, with --icount in instructions.

Prints the phases start, touched, free, freed and end, with --hugetlb also pooled, each with the guest's monotonic time and
what the guest then has free, the time to touch all (touch_s) and to free it (release_s). With --count also what others took while it stayed, beyond
what they take in the quietest second of that time (others_ns).",
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
    args::no_more(&words, 3)?;
    let mut words = words.iter();
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), |w| size::parse(w))?;
    let hold = words
        .next()
        .map_or(Ok(DEFAULT_HOLD), |w| args::duration(w))?;
    let stay = words
        .next()
        .map_or(Ok(DEFAULT_STAY), |w| args::duration(w))?;
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
    let others_ns = if count {
        Some(others::taken(stay))
    } else {
        std::thread::sleep(stay);
        None
    };
    out.phase("end", Some(bytes))?;
    drop(lent);
    if let Some(ns) = others_ns {
        out.result(&Metric {
            name: "others_ns",
            value: ratio(ns, 1),
            unit: "ns",
            better: Better::Lower,
            labels: Labels::new(),
        })?;
    }
    for (name, ns) in [("touch_s", touch_ns), ("release_s", release_ns)] {
        out.result(&Metric {
            name,
            value: ratio(ns, 1_000_000_000),
            unit: "s",
            better: Better::Lower,
            labels: Labels::new(),
        })?;
    }
    Ok(())
}
