//! Says how the runs of an experiment were made: the guests' memory and CPUs, and the number of
//! boots and rounds of each column.

use super::column::Column;
use super::schema::Run;
use std::collections::{BTreeMap, BTreeSet};

/// Returns sentences about the guests of `runs`, which are all runs of one experiment: memory, CPUs
/// and, for each column, the number of rounds. Where a boot has several rounds, the number of boots
/// is in brackets. Failed runs count, too.
pub(super) fn circumstances(runs: &[&Run]) -> String {
    let memories: BTreeSet<u64> = runs.iter().map(|run| run.memory_bytes).collect();
    let memories: Vec<String> = memories
        .into_iter()
        .map(|bytes| crate::text::Size(bytes).to_string())
        .collect();
    let cpus: BTreeSet<u32> = runs.iter().map(|run| run.cpus).collect();
    let plural = if cpus.iter().all(|cpus| *cpus == 1) {
        ""
    } else {
        "s"
    };
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let (counted, timed): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.icount);
    let rounds = if counted.is_empty() {
        format!("Rounds: {}.", rounds(&timed))
    } else if timed.is_empty() {
        format!("Rounds: {}. Instructions are counted.", rounds(&counted))
    } else {
        let (timed, counted) = (rounds(&timed), rounds(&counted));
        format!("Rounds: {timed}. Rounds that count instructions: {counted}.")
    };
    format!(
        "Guests with {} and {} CPU{plural}. {rounds}",
        memories.join(" or "),
        cpus.join(" or "),
    )
}

/// The numbers of boots and of rounds of guests of one shape.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
struct Count {
    boots: usize,
    rounds: usize,
}

/// The counts of a column's guests, by their memory in bytes and their CPUs.
type Shapes = BTreeMap<(u64, u32), Count>;

/// Returns the number of rounds of each column, with the number of boots in brackets if a boot has
/// several rounds. Guests of different memory or CPUs may have different numbers; then it is a
/// range.
fn rounds(runs: &[&Run]) -> String {
    let mut counts: BTreeMap<Column, Shapes> = BTreeMap::new();
    for run in runs {
        let shapes = counts.entry((run.guest, run.give_back)).or_default();
        let count = shapes.entry((run.memory_bytes, run.cpus)).or_default();
        count.boots += 1;
        count.rounds += run.turns.len().max(1);
    }
    let columns = counts.into_iter().map(|((guest, mode), shapes)| {
        let range = |of: fn(&Count) -> usize| {
            let (least, most) = (shapes.values().map(of).min(), shapes.values().map(of).max());
            match (least.unwrap_or(0), most.unwrap_or(0)) {
                (least, most) if least == most => most.to_string(),
                (least, most) => format!("{least} to {most}"),
            }
        };
        let boots = if shapes.values().any(|count| count.boots != count.rounds) {
            format!(" (boots: {})", range(|count| count.boots))
        } else {
            String::new()
        };
        let label = mode.label(guest, true);
        format!("{label} {}{boots}", range(|count| count.rounds))
    });
    columns.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::give_back_mode::GiveBackMode;
    use crate::compare::schema::{Guest, TurnCost};

    #[test]
    fn rounds_and_boots_of_each_column_are_counted() {
        let turn = TurnCost {
            wall_s: 1.0,
            qemu_cpu_s: None,
        };
        let run = |guest, cpus, turns| Run {
            give_back: GiveBackMode::REPORTING,
            memory_bytes: 1 << 30,
            cpus,
            turns: vec![turn; turns],
            ..Run::blank(guest)
        };
        let runs = [
            run(Guest::Ebb, 1, 3),
            run(Guest::Ebb, 1, 3),
            run(Guest::Ebb, 2, 3),
            run(Guest::Linux, 1, 0),
        ];
        assert_eq!(
            circumstances(&runs.each_ref()),
            "Guests with 1G and 1 or 2 CPUs. Rounds: Ebb 3 to 6 (boots: 1 to 2); Linux 1."
        );
        let counted = Run {
            icount: true,
            ..runs[3].clone()
        };
        assert_eq!(
            circumstances(&[&counted]),
            "Guests with 1G and 1 CPU. Rounds: Linux 1. Instructions are counted."
        );
        assert_eq!(
            circumstances(&[&runs[3], &counted]),
            "Guests with 1G and 1 CPU. Rounds: Linux 1. Rounds that count instructions: Linux 1."
        );
    }
}
