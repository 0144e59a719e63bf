//! `idle`: says that user space has begun and waits.
//!
//! What a guest costs before its program did anything: the time of the first user instruction
//! and the memory that stays resident.

use crate::Failure;
use crate::clock::monotonic_ns;
use std::io::Write;
use std::time::Duration;

pub(crate) const USAGE: &str =
    "idle [SECONDS]   print the monotonic time at once, then sleep (3 s)";

const DEFAULT_SECONDS: u64 = 3;
const MAX_SECONDS: u64 = 86_400;

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let now = monotonic_ns();
    let seconds = match words {
        [] => DEFAULT_SECONDS,
        [text] => text
            .parse()
            .ok()
            .filter(|&s| s <= MAX_SECONDS)
            .ok_or_else(|| {
                Failure::Usage(format!(
                    "{text:?} is not a number of seconds up to {MAX_SECONDS}"
                ))
            })?,
        _ => {
            return Err(Failure::Usage(format!(
                "{} arguments, at most 1 expected",
                words.len()
            )));
        }
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "idle: ready at {now} ns")
        .and_then(|()| out.flush())
        .map_err(|source| Failure::System {
            what: "write to stdout".to_owned(),
            source,
        })?;
    std::thread::sleep(Duration::from_secs(seconds));
    Ok(())
}
