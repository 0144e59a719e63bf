//! The figures that the authors of the paper published, as columns of their own.
//!
//! HyperAlloc: Efficient VM Memory De/Inflation via Hypervisor-Shared Page-Frame Allocators,
//! EuroSys '25. The figures are those of its artifact,
//! <https://github.com/luhsra/hyperalloc-bench>: `inflate/inflate.dref`,
//! `stream/stream_percentile.dref`, `stream/ftq_percentile.dref`,
//! `compiling/clang-auto_extra.dref`, `compiling/clang-baseline_extra.dref` and
//! `multivm/clang_extra.dref`. They were measured with guests of 20 GiB (16 GiB for builds) on KVM
//! and a machine with two sockets.

use super::super::elastic::Kind;
use super::super::give_back_mode::GiveBackMode;
use super::super::guest::Guest;
use super::super::schema::{Better, Event, Outcome, Run};
use super::super::variant::Variant;
use super::setup::subject;
use super::sums::result;
use crate::text::Size;

/// Rates in GiB/s: reclaim, reclaim untouched, return, return and install.
type Rates = [f64; 4];

/// The published result of one way to take memory.
struct PublishedResult {
    name: &'static str,
    rates: Rates,
    /// The slowest hundredth of STREAM with one thread, in GB/s.
    stream_low: f64,
    /// The slowest hundredth of FTQ with one thread, in its own units.
    quantum_low: f64,
    /// The area under the memory of a compile in one guest and in three, in GiB·min.
    areas: [Option<f64>; 2],
}

/// The medians of the first series of each figure.
const PUBLISHED: [PublishedResult; 3] = [
    PublishedResult {
        name: "paper: HyperAlloc",
        rates: [331.89, 5062.31, 8525.42, 4.01],
        stream_low: 10.317,
        quantum_low: 9_498_493.86,
        areas: [Some(293.54), Some(14_732.90)],
    },
    PublishedResult {
        name: "paper: virtio-balloon",
        rates: [0.917, 1.677, 2.308, 0.699],
        stream_low: 6.214,
        quantum_low: 5_928_255.04,
        areas: [Some(380.07), Some(19_467.50)],
    },
    PublishedResult {
        name: "paper: virtio-mem",
        rates: [34.69, 41.85, 101.88, 4.04],
        stream_low: 10.231,
        quantum_low: 9_455_050.92,
        areas: [None, None],
    },
];
/// The areas without giving memory back, in GiB·min.
const WITHOUT: [f64; 2] = [645.04, 21_934.62];

/// Returns a column for each published result, with a name and without options.
///
/// # Errors
/// If a column's name is not valid.
pub(super) fn columns() -> Result<Vec<Variant>, String> {
    PUBLISHED
        .iter()
        .map(|result| Variant::new(result.name, &[]))
        .collect()
}

/// Appends the published figures for `kinds` to `runs`, as runs of the columns that [`columns`]
/// returns. `first` is the index of the first of these columns. Leaves out an experiment that has
/// no run in `runs`.
pub(super) fn add(kinds: &[(Kind, Size)], first: usize, runs: &mut Vec<(usize, Run)>) {
    for (column, result) in (first..).zip(&PUBLISHED) {
        for &(kind, memory) in kinds {
            // Only experiments that have runs get the paper's figures, so that they are in the same
            // rows.
            let Some((_, ours)) = runs
                .iter()
                .find(|(_, run)| run.experiment.starts_with(kind.name()))
            else {
                continue;
            };
            let cpus = ours.cpus;
            runs.push((
                column,
                Run {
                    experiment: subject(kind, memory, cpus),
                    arguments: vec![result.name.to_owned()],
                    guest: Guest::Linux,
                    give_back: GiveBackMode::OFF,
                    icount: false,
                    cpus,
                    memory_bytes: memory.bytes(),
                    // No real round has this number, so no ratio is computed from two machines'
                    // figures.
                    round: 0,
                    command: Vec::new(),
                    record: None,
                    events: result.events(kind),
                    turns: Vec::new(),
                    host_cpus: Vec::new(),
                    timeline: Vec::new(),
                    expenses: Vec::new(),
                    outcome: Outcome::Ok,
                    error: None,
                },
            ));
        }
    }
}

impl PublishedResult {
    /// Returns the figures of the experiment `kind`, as events.
    fn events(&self, kind: Kind) -> Vec<Event> {
        let higher = |metric: &str, value: f64, unit: &str, label: (&str, &str)| {
            result(metric, value, unit, Better::Higher, &[label])
        };
        let area = |index: usize| -> Vec<Event> {
            let lower = |metric, value, unit| result(metric, value, unit, Better::Lower, &[]);
            self.areas[index].map_or_else(Vec::new, |area| {
                vec![
                    lower("held_area", area, "GiB·min"),
                    lower("area_of_off", area / WITHOUT[index], ""),
                ]
            })
        };
        match kind {
            Kind::Memory => {
                let [touched, untouched, back, filled] = self.rates;
                vec![
                    higher("shrink", untouched, "GiB/s", ("pages", "untouched")),
                    higher("shrink", touched, "GiB/s", ("pages", "touched")),
                    higher("grow", back, "GiB/s", ("pages", "touched")),
                    higher("grow_and_fill", filled, "GiB/s", ("pages", "touched")),
                ]
            }
            Kind::Stream => vec![higher(
                "stream_low",
                self.stream_low * 1e9,
                "B/s",
                ("window", "leave"),
            )],
            Kind::Ftq => vec![higher(
                "quantum_low",
                self.quantum_low,
                "units",
                ("window", "leave"),
            )],
            Kind::Build => area(0),
            Kind::Builds => area(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::What;

    #[test]
    fn the_paper_says_what_its_abstract_says() {
        let [hyperalloc, balloon, mem] = &PUBLISHED;
        // "362 times faster than virtio-balloon and 10 times faster than virtio-mem"
        assert!((hyperalloc.rates[0] / balloon.rates[0] - 362.0).abs() < 1.0);
        assert!((hyperalloc.rates[0] / mem.rates[0] - 10.0).abs() < 1.0);
    }

    #[test]
    fn a_ratio_of_areas_is_of_the_guest_that_gives_nothing_back() {
        let events = PUBLISHED[0].events(Kind::Builds);
        let share = events.iter().find_map(|event| match &event.what {
            What::Result { metric, value, .. } if metric == "area_of_off" => Some(*value),
            _ => None,
        });
        assert!(share.is_some_and(|share| (share - 0.672).abs() < 0.001));
        assert!(PUBLISHED[2].events(Kind::Build).is_empty());
    }
}
