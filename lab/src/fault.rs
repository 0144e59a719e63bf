//! Figure 3, `fault`: instructions of a 4 KiB anonymous fault, all in.
//!
//! `page-fault 4k` maps 128 MiB, writes one byte a page and unmaps, in rounds, on one CPU under
//! `-icount shift=0,sleep=off`, where one nanosecond of guest time is one instruction. The figure
//! is the whole time of a round over its 32,768 faults: entry, allocation, clearing, page tables,
//! return, the program's own loop, and the freeing by `munmap`.

use crate::Failure;
use crate::guest::{Guests, Kind, Reporting, Shape};
use serde::Serialize;
use std::time::Duration;

const MEMORY_MIB: u64 = 1024;
/// Rounds that count, after one that warms up.
const ROUNDS: &str = "10r";
const LIMIT: Duration = Duration::from_secs(300);

/// What one guest took.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Fault {
    pub(crate) guest: Kind,
    pub(crate) shape: Shape,
    /// Mean over the rounds.
    pub(crate) instructions: f64,
    /// Means of the cheapest and the dearest round.
    pub(crate) by_round: (f64, f64),
}

pub(crate) fn measure(guests: &Guests, kind: Kind, reporting: Reporting) -> Result<Fault, Failure> {
    let shape = Shape {
        memory_mib: MEMORY_MIB,
        cpus: 1,
        reporting,
        icount: true,
    };
    let record = guests.experiment(kind, shape, &["page-fault", "4k", "1", ROUNDS], LIMIT)?;
    let line = record.line_with("page-fault: task 0:")?;
    let (instructions, by_round) =
        read(&line.text).ok_or_else(|| Failure::Guest(format!("no figures in {:?}", line.text)))?;
    Ok(Fault {
        guest: kind,
        shape,
        instructions,
        by_round,
    })
}

/// Mean, cheapest and dearest of `… s, 1168.0 ns a fault (1167.9 to 1170.2 by round), …`.
fn read(line: &str) -> Option<(f64, (f64, f64))> {
    let (before, after) = line.split_once(" ns a fault (")?;
    let mean = before.rsplit(' ').next()?.parse().ok()?;
    let (low, rest) = after.split_once(" to ")?;
    let high = rest.split(' ').next()?;
    Some((mean, (low.parse().ok()?, high.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_task_is_read() {
        let line = "page-fault: task 0: 327680 faults in 0.55 s, 1679.2 ns a fault \
                    (1577.1 to 2260.7 by round), 595520 a second";
        assert_eq!(read(line), Some((1679.2, (1577.1, 2260.7))));
        assert_eq!(read("page-fault: task 0:"), None);
    }
}
