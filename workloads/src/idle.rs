//! `idle`: says that user space has begun and waits.
//!
//! What a guest costs before its program did anything: the time of the first user instruction
//! and the memory that stays resident.

use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure, args};
use std::time::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "idle",
    usage: "[SECONDS]",
    summary: "say when user space began, then sleep",
    help: "\
SECONDS is 3 by default. Shows what a guest costs before its program did anything.

Prints the guest's monotonic time at the program's first statement (ready_s).",
    run,
};

const DEFAULT: Duration = Duration::from_secs(3);

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
    std::thread::sleep(time);
    Ok(())
}
