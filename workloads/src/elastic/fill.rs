//! Fills memory and frees it, with a pause for the host before and after.

use crate::Failure;
use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{Mapping, PageSize};
use crate::output::{Better, Labels, Metric, Output};

/// Touches and frees `bytes` bytes twice, and prints the time of each touching. In turns with
/// others, waits for a line before each touching; the host may take free memory during these
/// pauses. Fails if memory cannot be mapped or standard input ends.
pub(super) fn run(bytes: usize, out: &mut Output) -> Result<(), Failure> {
    out.phase("start", Some(bytes))?;
    out.rest_as("untouched")?;
    touch(bytes, "first", out)?;
    out.rest_as("freed")?;
    touch(bytes, "again", out)?;
    out.phase("end", None)
}

/// Touches and frees `bytes` bytes, and prints the time of the touching.
fn touch(bytes: usize, pass: &str, out: &mut Output) -> Result<(), Failure> {
    let begin = monotonic_ns();
    let mut memory = Mapping::anonymous(bytes, PageSize::Default)?;
    memory.touch();
    let ns = monotonic_ns() - begin;
    out.phase("filled", Some(bytes))?;
    drop(memory);
    out.result(&Metric {
        name: "fill_s",
        value: ratio(ns, 1_000_000_000),
        unit: "s",
        better: Better::Lower,
        labels: Labels::from([("pass", pass.to_owned())]),
    })
}
