//! Whether a guest reported free memory to the host while its program measured.
//!
//! A figure of a guest that reports free memory shows the cost of reporting only if a report
//! happened in the same part of the program. The figure `reports` ([`requests`](super::requests))
//! counts them. Where instructions are counted, a figure without a report is left out
//! ([`is_refused`]).

use super::column;
use super::figure::Figure;
use super::figures;
use super::give_back_mode::GiveBackMode;
use super::requests::REPORTS;
use super::schema::{Guest, Outcome, Row, Run};
use super::wording;

/// Whether a guest reported memory while a figure was measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Reported {
    /// It made at least one report.
    Yes,
    /// It made none.
    No,
    /// The program or the kernel does not tell.
    Unknown,
}

/// Returns whether reports happened while `figure`, one of the `figures` of a run, was measured: by
/// the figures `reports` with the same labels.
fn reported(figures: &[Figure], figure: &Figure) -> Reported {
    let mut counts = figures
        .iter()
        .filter(|other| other.metric == REPORTS && other.labels == figure.labels)
        .peekable();
    if counts.peek().is_none() {
        Reported::Unknown
    } else if counts.any(|count| count.value >= 1.0) {
        Reported::Yes
    } else {
        Reported::No
    }
}

/// Returns whether `figure`, one of the `figures` of `run`, is left out of the table: instructions
/// were counted in a guest that reports free memory, and it made no report while `figure` was
/// measured.
pub(super) fn is_refused(run: &Run, figures: &[Figure], figure: &Figure) -> bool {
    run.icount
        && run.give_back.reports()
        && figure.metric != REPORTS
        && reported(figures, figure) == Reported::No
}

/// Returns the figures of `run` that are left out of the table, as [`is_refused`] says.
pub(super) fn refused(run: &Run) -> Vec<Figure> {
    let figures = figures::of(run);
    let left_out = figures
        .iter()
        .filter(|figure| is_refused(run, &figures, figure));
    left_out.cloned().collect()
}

/// Returns whether the figure of `row` is left out of the table for `run`.
pub(super) fn is_refused_in(run: &Run, row: &Row) -> bool {
    refused(run).iter().any(|figure| {
        (&figure.metric, &figure.unit, &figure.labels) == (&row.metric, &row.unit, &row.labels)
    })
}

/// Returns whether reports happened while the figures in the cell of `row` and a column were
/// measured: by the row `reports` with the same labels in `rows`, which are those of the table.
pub(super) fn reported_in(
    rows: &[Row],
    row: &Row,
    (guest, mode): (Guest, GiveBackMode),
) -> Reported {
    let count = rows
        .iter()
        .filter(|other| {
            other.metric == REPORTS
                && (&other.experiment, &other.labels) == (&row.experiment, &row.labels)
        })
        .find_map(|other| column::cell(other, (guest, mode)));
    match count {
        None => Reported::Unknown,
        Some(count) if count.max >= 1.0 => Reported::Yes,
        Some(_) => Reported::No,
    }
}

/// Returns a sentence for each experiment and guest whose counted figures are left out because no
/// report happened, or of which that is not known. A guest that is compared with no guest in the
/// mode `off` is named only if its figures are left out.
pub(super) fn sentences(runs: &[Run]) -> Vec<String> {
    let mut all = Vec::new();
    let counted = |run: &&Run| run.icount && run.outcome == Outcome::Ok;
    for run in runs.iter().filter(counted) {
        if !run.give_back.reports() {
            continue;
        }
        let who = format!(
            "{} on {} with {}",
            run.experiment,
            run.guest.name(),
            run.give_back.name()
        );
        let figures = figures::of(run);
        let mut add = |text: String| {
            if !all.contains(&text) {
                all.push(text);
            }
        };
        let mut names: Vec<String> = Vec::new();
        for figure in refused(run) {
            let name = wording::metric(&figure.metric);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if !names.is_empty() {
            add(format!(
                "{who}: no report happened while this was measured, so it is left out: {}",
                names.join(", ")
            ));
        }
        let beside_off = runs.iter().filter(counted).any(|other| {
            (&other.experiment, other.guest, other.give_back)
                == (&run.experiment, run.guest, GiveBackMode::OFF)
        });
        let unknown = figures.iter().any(|figure| {
            figure.metric != REPORTS && reported(&figures, figure) == Reported::Unknown
        });
        if beside_off && unknown {
            add(format!(
                "{who}: it is not known whether a report happened while figures were measured"
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::{Better, Event, What};
    use crate::compare::{absent, statistics};
    use crate::machine::GiveBack;
    use std::collections::BTreeMap;

    fn result(metric: &str, unit: &str, value: f64, part: &str) -> Event {
        Event {
            host_s: None,
            what: What::Result {
                metric: metric.into(),
                value,
                unit: unit.into(),
                better: Better::Lower,
                labels: BTreeMap::from([("part".to_owned(), part.to_owned())]),
            },
        }
    }

    fn run(guest: Guest, give_back: GiveBackMode, events: Vec<Event>) -> Run {
        Run {
            experiment: "page-fault/4k".into(),
            give_back,
            icount: true,
            events,
            ..Run::blank(guest)
        }
    }

    #[test]
    fn a_counted_figure_without_a_report_is_left_out() {
        let events = |reports: f64| {
            vec![
                result("fault_ns", "ns", 400.0, "a"),
                result("touch_s", "s", 1.0, "b"),
                result("reports", "requests", reports, "a"),
            ]
        };
        let runs = [
            run(Guest::Ebb, GiveBackMode::REPORTING, events(0.0)),
            run(Guest::Ebb, GiveBackMode::OFF, events(0.0)),
            run(
                Guest::Ebb,
                GiveBackMode::Guest(GiveBack::Hinting),
                events(2.0),
            ),
        ];
        let rows = statistics::rows(&runs);
        let of = |metric: &str| {
            let row = rows.iter().find(|row| row.metric == metric).expect(metric);
            let modes: Vec<&str> = row.cells.iter().map(|cell| cell.give_back.name()).collect();
            (row, modes)
        };
        let (fault, modes) = of("fault_ns");
        assert_eq!(modes, ["off", "hinting"]);
        assert_eq!(of("touch_s").1, ["reporting", "off", "hinting"]);
        assert_eq!(of("reports").1, ["reporting", "off", "hinting"]);
        let column = (Guest::Ebb, GiveBackMode::REPORTING);
        assert_eq!(absent::word(&runs, fault, column), "no report");
        let known = |mode| reported_in(&rows, fault, (Guest::Ebb, mode));
        assert_eq!(known(GiveBackMode::REPORTING), Reported::No);
        assert_eq!(known(GiveBackMode::Guest(GiveBack::Hinting)), Reported::Yes);
        assert_eq!(known(GiveBackMode::DEFAULT), Reported::Unknown);
        let told = sentences(&runs);
        assert!(told[0].contains("left out: a fault, all in"), "{told:?}");
        // Nothing was printed about the part b.
        assert!(told[1].contains("reporting: it is not known"), "{told:?}");
        assert!(told[2].contains("hinting: it is not known"), "{told:?}");
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn linux_is_judged_by_its_interrupts() {
        let of = |interrupts: f64, mode| {
            let events = vec![
                result("fault_ns", "ns", 4000.0, "a"),
                result("balloon_interrupts", "interrupts", interrupts, "a"),
                result("watched_s", "s", 5.5, "a"),
            ];
            statistics::rows(&[run(Guest::Linux, mode, events)])
        };
        let names =
            |rows: &[Row]| -> Vec<String> { rows.iter().map(|row| row.metric.clone()).collect() };
        assert_eq!(
            names(&of(8.0, GiveBackMode::REPORTING)),
            ["fault_ns", "reports"]
        );
        assert_eq!(names(&of(3.0, GiveBackMode::REPORTING)), ["reports"]);
        assert_eq!(names(&of(6.0, GiveBackMode::REPORTING)), ["fault_ns"]);
        assert_eq!(names(&of(3.0, GiveBackMode::OFF)), ["fault_ns", "reports"]);
    }

    #[test]
    fn timed_figures_stay() {
        let events = vec![
            result("fault_ns", "ns", 400.0, "a"),
            result("reports", "requests", 0.0, "a"),
        ];
        let timed = Run {
            icount: false,
            ..run(Guest::Ebb, GiveBackMode::REPORTING, events)
        };
        assert_eq!(statistics::rows(&[timed]).len(), 2);
    }
}
