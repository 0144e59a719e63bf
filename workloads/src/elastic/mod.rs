//! `elastic`: measures a guest while the host takes memory from it and gives it back.
//!
//! A program outside the guest takes the memory, at the times that the phases tell it. The
//! experiments are those of the HyperAlloc paper (EuroSys '25): filling memory, STREAM, FTQ, and
//! builds with a rest after each.

mod bandwidth;
mod builds;
mod fill;
mod quanta;
mod windows;

use crate::output::Output;
use crate::{Experiment, Failure, args, size};
use std::time::Duration;

/// The experiment `elastic`, with its arguments, help text and function: measures a guest while the
/// host takes memory from it and gives it back.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "elastic",
    usage: "memory SIZE | stream|ftq SIZE SECONDS ROUNDS | build ROUNDS SHARE -- PROGRAM [ARGUMENTS]",
    summary: "fill memory, STREAM, FTQ or builds, while the host takes memory and gives it back",
    help: "\
`memory` touches SIZE twice and frees it each time. With --turns it waits for a line at the phases
untouched (before the first touch) and freed (after the first free).

`stream` and `ftq` do ROUNDS rounds of three windows of SECONDS each: quiet; leave, before which
another process has touched and freed SIZE; and return. The phases leave and return begin the last
two. `stream` runs STREAM's four kernels over three arrays of 8 MiB. `ftq` counts fixed units of work
in quanta of 1 ms.

`build` runs PROGRAM in ROUNDS rounds. After each it rests for SHARE times as long as the round took.

Prints the phases and, for `memory`, the seconds of each touch (fill_s); for `stream` the bandwidth of
each kernel in each window and that of the slowest hundredth of the passes (stream_low); for `ftq` the
work in a quantum (quantum_work) and that of the poorest hundredth (quantum_low); for `build` the time
of each round (round_s).",
    run,
};

/// The largest number of rounds of one run.
const ROUNDS_MAX: u64 = 1000;
/// The longest window. Its samples stay in memory until its end.
const WINDOW_MAX: Duration = Duration::from_secs(600);
/// The longest rest, as a multiple of its round.
const SHARE_MAX: u64 = 100;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["memory", bytes] => fill::run(size::parse(bytes)?, out),
        ["stream", bytes, seconds, rounds] => windows::run(
            &windows(bytes, seconds, rounds)?,
            &mut bandwidth::Stream::new(),
            out,
        ),
        ["ftq", bytes, seconds, rounds] => windows::run(
            &windows(bytes, seconds, rounds)?,
            &mut quanta::Ftq::new(),
            out,
        ),
        ["build", rounds, share, "--", program @ ..] if !program.is_empty() => builds::run(
            args::number(rounds, "rounds", 1, ROUNDS_MAX)?,
            u32::try_from(args::number(share, "rests", 0, SHARE_MAX)?).unwrap_or(0),
            program,
            out,
        ),
        [] => Err(Failure::Usage("memory, stream, ftq or build?".into())),
        words => Err(Failure::Usage(format!(
            "`{}` is no call of it",
            words.join(" ")
        ))),
    }
}

/// Reads the arguments of `stream` and `ftq`. Fails with `Usage` if one is out of range.
fn windows(bytes: &str, seconds: &str, rounds: &str) -> Result<windows::Windows, Failure> {
    let window = args::duration(seconds)?;
    if window.is_zero() || window > WINDOW_MAX {
        return Err(Failure::Usage(format!(
            "a window of {seconds} s is not above 0 and up to {} s",
            WINDOW_MAX.as_secs()
        )));
    }
    Ok(windows::Windows {
        bytes: size::parse(bytes)?,
        window,
        rounds: args::number(rounds, "rounds", 1, ROUNDS_MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, Pace};

    fn call(words: &[&str]) -> Result<(), Failure> {
        let mut out = Output::new("elastic", Format::Json, Pace::Own);
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        run(words, &mut out)
    }

    #[test]
    fn every_kind_runs_to_its_end_at_a_small_size() {
        call(&["memory", "1M"]).expect("it fills 1 MiB");
        call(&["ftq", "1M", "0.02", "2"]).expect("it counts work");
        call(&["stream", "1M", "0.02", "1"]).expect("it copies");
        call(&["build", "2", "1", "--", "true"]).expect("it runs a program");
    }

    #[test]
    fn a_call_that_means_nothing_is_refused_with_its_words() {
        for (words, why) in [
            (&[][..], "memory, stream, ftq or build"),
            (&["memory"], "`memory` is no call"),
            (&["stream", "1M", "0", "1"], "a window of 0 s"),
            (&["ftq", "1M", "601", "1"], "a window of 601 s"),
            (&["ftq", "1M", "1", "1001"], "1001"),
            (&["build", "1", "101", "--", "true"], "101"),
            (&["build", "1", "1", "--"], "no call"),
            (&["build", "1", "0", "--", "false"], "ended with"),
            (
                &["build", "1", "0", "--", "/no/such"],
                "there is no /no/such",
            ),
        ] {
            let failure = call(words).expect_err("it must fail").to_string();
            assert!(failure.contains(why), "{words:?}: {failure}");
        }
    }
}
