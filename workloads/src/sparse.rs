//! `sparse`: touches a byte in each 2 MiB and holds the memory.
//!
//! This is the case against huge pages without advice: a program uses only single pages of a large
//! heap. It should not hold much more memory than those pages.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{HUGE_BYTES, Mapping, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure, args, thp};
use std::time::Duration;

/// The experiment `sparse`, with its arguments, help text and function: touches a byte in each 2
/// MiB and measures the memory that it then holds.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "sparse",
    usage: "[PAGES [HOLD_SECONDS]]",
    summary: "touch one page in each 2 MiB, and hold them",
    help: "\
PAGES is 350 by default, HOLD_SECONDS 10. The memory is a program's ordinary memory: nothing is
advised, so the guest's policy decides whether it is in huge pages.

Prints the phases start, touched, held and end, the time to touch all (touch_s), and what the
program holds for each page in the end, by /proc/self/smaps (held_per_page).",
    run,
};

const DEFAULT_PAGES: u64 = 350;
const MOST_PAGES: u64 = 1 << 20;
const DEFAULT_HOLD: Duration = Duration::from_secs(10);

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 2)?;
    let mut words = words.iter();
    let pages = words.next().map_or(Ok(DEFAULT_PAGES), |word| {
        args::number(word, "PAGES", 1, MOST_PAGES)
    })?;
    let hold = words
        .next()
        .map_or(Ok(DEFAULT_HOLD), |word| args::duration(word))?;
    let count = usize::try_from(pages).unwrap_or(usize::MAX);
    let bytes = count.saturating_mul(HUGE_BYTES);
    out.phase("start", Some(bytes))?;
    let mut memory = Mapping::anonymous(bytes, PageSize::Default)?;
    let begin = monotonic_ns();
    memory.touch_each(HUGE_BYTES, 0..bytes);
    let touch_ns = monotonic_ns() - begin;
    out.phase("touched", Some(bytes))?;
    std::thread::sleep(hold);
    let held = thp::resident_bytes(&memory)?;
    out.phase("held", Some(bytes))?;
    memory.check_each(HUGE_BYTES)?;
    out.phase("end", Some(bytes))?;
    for (name, value, unit) in [
        ("touch_s", ratio(touch_ns, 1_000_000_000), "s"),
        ("held_per_page", ratio(held, pages), "B"),
    ] {
        out.result(&Metric {
            name,
            value,
            unit,
            better: Better::Lower,
            labels: Labels::new(),
        })?;
    }
    Ok(())
}
