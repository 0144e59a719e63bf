//! `memhog`: touches memory once, holds it, frees it and stays alive.
//!
//! The experiment of free page reporting: what the program freed should leave the host, though
//! the program and its guest live on.

use crate::mapping::{Mapping, PageSize};
use crate::output::Output;
use crate::{Experiment, Failure, args, size};
use std::time::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "memhog",
    usage: "[SIZE [HOLD_SECONDS [STAY_SECONDS]]]",
    summary: "touch memory once, hold it, free it, stay alive",
    help: "\
SIZE is 512M by default, HOLD_SECONDS 1, STAY_SECONDS 60. What was freed should leave the host
while the program stays.

Prints the phases start, touched, free, freed and end, each with the guest's monotonic time and
what the guest then has free.",
    run,
};

const DEFAULT_BYTES: usize = 512 << 20;
const DEFAULT_HOLD: Duration = Duration::from_secs(1);
const DEFAULT_STAY: Duration = Duration::from_secs(60);

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 3)?;
    let mut words = words.iter();
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), |w| size::parse(w))?;
    let hold = words
        .next()
        .map_or(Ok(DEFAULT_HOLD), |w| args::duration(w))?;
    let stay = words
        .next()
        .map_or(Ok(DEFAULT_STAY), |w| args::duration(w))?;
    out.phase("start", Some(bytes))?;
    let mut mapping = Mapping::anonymous(bytes, PageSize::Default)?;
    mapping.touch();
    out.phase("touched", Some(bytes))?;
    std::thread::sleep(hold);
    mapping.check()?;
    out.phase("free", Some(bytes))?;
    drop(mapping);
    out.phase("freed", Some(bytes))?;
    std::thread::sleep(stay);
    out.phase("end", Some(bytes))
}
