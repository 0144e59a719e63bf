//! Runs a program that builds something in rounds, with a rest after each round.

use crate::Failure;
use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs `program`, a name and its arguments, `rounds` times. After each round, prints its time and
/// sleeps `share` times as long. Fails with `Usage` if `program` is empty, with `Unsupported` if it
/// does not exist, with `System` if it cannot be started, and with `Wrong` if its exit status is
/// not 0.
pub(super) fn run(
    rounds: u64,
    share: u32,
    program: &[&str],
    out: &mut Output,
) -> Result<(), Failure> {
    for _ in 0..rounds {
        out.phase("build", None)?;
        let begin = monotonic_ns();
        build(program)?;
        let took = Duration::from_nanos(monotonic_ns() - begin);
        out.phase("built", None)?;
        out.result(&Metric {
            name: "round_s",
            value: ratio(
                u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                1_000_000,
            ),
            unit: "s",
            better: Better::Lower,
            labels: Labels::new(),
        })?;
        std::thread::sleep(took * share);
    }
    out.phase("end", None)
}

fn build(program: &[&str]) -> Result<(), Failure> {
    let [name, arguments @ ..] = program else {
        return Err(Failure::Usage("which program? It stands behind --".into()));
    };
    let status = Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Unsupported(format!("there is no {name}")),
            _ => Failure::system((*name).to_owned())(error),
        })?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Wrong(format!("{name} ended with {status}")))
    }
}
