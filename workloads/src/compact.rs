//! `compact`: asks the kernel to compact all memory, and measures the cost.

use crate::clock::monotonic_ns;
use crate::output::{Better, Labels, Metric, Output};
use crate::vmstat::Vmstat;
use crate::{Experiment, Failure, args, buddyinfo};
use std::fs;

/// The experiment `compact`, with its arguments, help text and function: asks the kernel to compact
/// all memory, and measures the cost.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "compact",
    usage: "",
    summary: "write to compact_memory: time and frames moved for each block gained",
    help: "\
Writes to /proc/sys/vm/compact_memory. Run it under `fragment`, or there is nothing to compact.

Prints the time of a moved frame, all in (move_frame_ns), the blocks of 2 MiB that became free
(blocks_gained), and for each of them the frames that were moved (moved_per_block, by
pgmigrate_success) and looked at (scanned_per_block, by compact_migrate_scanned and
compact_free_scanned).",
    run,
};

const KNOB: &str = "/proc/sys/vm/compact_memory";
/// Number of frames in a block of 2 MiB.
const BLOCK: u64 = 512;

/// The kernel's counters and the free memory at one moment.
struct State {
    moved: u64,
    scanned: u64,
    free: u64,
}

impl State {
    fn now() -> Result<Self, Failure> {
        let vmstat = Vmstat::read()?;
        let free = buddyinfo::read()
            .ok_or_else(|| Failure::Unsupported("/proc/buddyinfo".to_owned()))?
            .pages_in_huge_blocks;
        Ok(Self {
            moved: vmstat.get("pgmigrate_success")?,
            scanned: vmstat.scanned()?,
            free,
        })
    }
}

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 0)?;
    let before = State::now()?;
    let begin = monotonic_ns();
    fs::write(KNOB, "1").map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Unsupported(KNOB.to_owned()),
        _ => Failure::system(KNOB)(error),
    })?;
    let ns = monotonic_ns() - begin;
    let after = State::now()?;
    let moved = after.moved - before.moved;
    let blocks = after.free.saturating_sub(before.free) / BLOCK;
    let mut tell = |name, value: f64, unit, better| {
        out.result(&Metric {
            name,
            value,
            unit,
            better,
            labels: Labels::new(),
        })
    };
    tell("blocks_gained", blocks as f64, "blocks", Better::Higher)?;
    if moved != 0 {
        tell(
            "move_frame_ns",
            ns as f64 / moved as f64,
            "ns",
            Better::Lower,
        )?;
    }
    if blocks != 0 {
        let scanned = after.scanned - before.scanned;
        let each = |frames: u64| frames as f64 / blocks as f64;
        tell("moved_per_block", each(moved), "frames", Better::Lower)?;
        tell("scanned_per_block", each(scanned), "frames", Better::Lower)?;
    }
    Ok(())
}
