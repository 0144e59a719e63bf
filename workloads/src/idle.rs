//! `idle`: reports the start of user space, then sleeps.
//!
//! It shows the cost of a guest before its program has done anything: the time of the first user
//! instruction, and the resident memory.

use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure, args};
use std::time::Duration;

/// The experiment `idle`, with its arguments, help text and function: reports the start of user
/// space, then sleeps.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "idle",
    usage: "[SECONDS]",
    summary: "say when user space began, then sleep",
    help: "\
SECONDS is 3 by default. Shows what a guest costs before its program did anything.

Prints the guest's monotonic time at the program's first statement (ready_s). Of two seconds and more
it prints the phases idle, when half of the time is over, and end, and how often the guest changed
from one task to another in a second between them (switches_per_second).",
    run,
};

const DEFAULT: Duration = Duration::from_secs(3);
/// The shortest time in which the switches of an idle guest are counted.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let now = monotonic_ns();
    args::no_more(&words, 1)?;
    let time = words
        .first()
        .map_or(Ok(DEFAULT), |word| args::duration(word))?;
    out.say(&format!("ready at {now} ns"))?;
    out.result(&Metric {
        name: "ready_s",
        value: ratio(now, 1_000_000_000),
        unit: "s",
        better: Better::Lower,
        labels: Labels::new(),
    })?;
    if time < LONG_ENOUGH {
        std::thread::sleep(time);
        return Ok(());
    }
    // Work left over from the boot is done in the first half.
    std::thread::sleep(time / 2);
    out.phase("idle", None)?;
    let (before, since) = (switches()?, monotonic_ns());
    std::thread::sleep(time / 2);
    let (after, until) = (switches()?, monotonic_ns());
    out.phase("end", None)?;
    out.result(&Metric {
        name: "switches_per_second",
        value: ratio((after - before) * 1_000_000_000, until - since),
        unit: "1/s",
        better: Better::Lower,
        labels: Labels::new(),
    })
}

/// Returns the number of context switches since boot, on all CPUs.
fn switches() -> Result<u64, Failure> {
    const FILE: &str = "/proc/stat";
    let text = std::fs::read_to_string(FILE).map_err(Failure::system(FILE))?;
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok());
    count.ok_or_else(|| Failure::Unsupported(format!("ctxt in {FILE}")))
}
