//! `memhog`: touches memory once, holds it, frees it and stays alive.
//!
//! The experiment of free page reporting: what the program freed should leave the host, though
//! the program and its guest live on.

use crate::clock::{monotonic_ns, seconds};
use crate::mapping::{Anonymous, PageSize};
use crate::{Failure, meminfo, size};
use std::io::Write;
use std::time::Duration;

pub(crate) const USAGE: &str = "memhog SIZE [HOLD_SECONDS [STAY_SECONDS]]   touch SIZE once, hold it (1 s), free it, stay alive (60 s)";

const DEFAULT_HOLD: Duration = Duration::from_secs(1);
const DEFAULT_STAY: Duration = Duration::from_secs(60);
/// Longest hold or stay that is accepted: a day.
const MAX_SECONDS: f64 = 86_400.0;

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let (bytes, hold, stay) = match words {
        [bytes] => (size::parse(bytes)?, DEFAULT_HOLD, DEFAULT_STAY),
        [bytes, hold] => (size::parse(bytes)?, duration(hold)?, DEFAULT_STAY),
        [bytes, hold, stay] => (size::parse(bytes)?, duration(hold)?, duration(stay)?),
        _ => {
            return Err(Failure::Usage(format!(
                "{} arguments, 1 to 3 expected",
                words.len()
            )));
        }
    };
    let name = size::mebibytes(bytes);
    phase("start", &name)?;
    let mut mapping = Anonymous::map(bytes, PageSize::Default)?;
    mapping.touch();
    phase("touched", &name)?;
    std::thread::sleep(hold);
    let lost = mapping.count_lost();
    if lost != 0 {
        return Err(Failure::System {
            what: format!("{lost} touched pages lost what was written"),
            source: std::io::ErrorKind::InvalidData.into(),
        });
    }
    phase("free", &name)?;
    drop(mapping);
    phase("freed", &name)?;
    std::thread::sleep(stay);
    phase("end", &name)
}

/// Prints one phase with the guest's monotonic time, at once even into a pipe.
fn phase(name: &str, detail: &str) -> Result<(), Failure> {
    let now = seconds(monotonic_ns());
    let free = meminfo::free_kib()
        .map(|kib| format!(", MemFree {kib} kB"))
        .unwrap_or_default();
    let line = format!("memhog: {now} s {name:<8}{detail}{free}");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", line.trim_end())
        .and_then(|()| out.flush())
        .map_err(|source| Failure::System {
            what: "write to stdout".to_owned(),
            source,
        })
}

fn duration(text: &str) -> Result<Duration, Failure> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=MAX_SECONDS).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err(Failure::Usage(format!(
            "{text:?} is not a number of seconds up to {MAX_SECONDS}"
        ))),
    }
}
