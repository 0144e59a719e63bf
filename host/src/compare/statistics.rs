//! From runs to rows: medians with their spread, and how many times better Ebb is.

use super::figures;
use super::schema::{Better, Cell, Guest, Outcome, Row, Run};
use std::collections::BTreeMap;

/// The middle of some figures; of an even number, the mean of the two in the middle.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values {
        [] => None,
        _ if values.len().is_multiple_of(2) => {
            Some(f64::midpoint(values[middle - 1], values[middle]))
        }
        _ => Some(values[middle]),
    }
}

/// How many times better `ebb` is than `linux`; above 1 where Ebb is ahead.
///
/// `None` where a figure is not positive, since "times" means nothing there.
pub(crate) fn ratio(better: Better, ebb: f64, linux: f64) -> Option<f64> {
    if !(ebb > 0.0 && linux > 0.0 && ebb.is_finite() && linux.is_finite()) {
        return None;
    }
    Some(match better {
        Better::Higher => ebb / linux,
        Better::Lower => linux / ebb,
    })
}

/// What identifies a row.
#[derive(PartialEq, Debug)]
struct Key {
    experiment: String,
    metric: String,
    unit: String,
    better: Better,
    labels: BTreeMap<String, String>,
}

/// The figures of all rounds: of guests that do not report (true) after those that do.
type Rounds = BTreeMap<(bool, Guest), Vec<f64>>;

/// The rows of all runs that ended well, in the order in which their figures first came.
pub(crate) fn rows(runs: &[Run]) -> Vec<Row> {
    let mut rows: Vec<(Key, Rounds)> = Vec::new();
    for run in runs.iter().filter(|run| run.outcome == Outcome::Ok) {
        for figure in figures::of(run) {
            let key = Key {
                experiment: run.experiment.clone(),
                metric: figure.metric,
                unit: figure.unit,
                better: figure.better,
                labels: figure.labels,
            };
            // Reporting first, as that is how guests run unless told otherwise.
            let column = (!run.reporting, run.guest);
            match rows.iter_mut().find(|(known, _)| *known == key) {
                Some((_, cells)) => cells.entry(column).or_default().push(figure.value),
                None => rows.push((key, BTreeMap::from([(column, vec![figure.value])]))),
            }
        }
    }
    let rows = rows.into_iter().map(|(key, cells)| row(key, cells));
    in_order(rows.collect())
}

fn row(key: Key, cells: Rounds) -> Row {
    let cells: Vec<Cell> = cells
        .into_iter()
        .filter_map(|((off, guest), mut values)| {
            let median = median(&mut values)?;
            Some(Cell {
                guest,
                reporting: !off,
                median,
                min: *values.first()?,
                max: *values.last()?,
                rounds: u32::try_from(values.len()).unwrap_or(u32::MAX),
            })
        })
        .collect();
    let of = |guest, reporting| {
        cells
            .iter()
            .find(|cell| cell.guest == guest && cell.reporting == reporting)
    };
    // Both sides with reporting; without it only where it was not asked for.
    let ratio = [true, false].into_iter().find_map(|reporting| {
        let (ebb, linux) = (of(Guest::Ebb, reporting)?, of(Guest::Linux, reporting)?);
        Some(ratio(key.better, ebb.median, linux.median))
    });
    Row {
        experiment: key.experiment,
        metric: key.metric,
        unit: key.unit,
        better: key.better,
        labels: key.labels,
        cells,
        ratio: ratio.flatten(),
    }
}

/// Rows of one experiment stand together, and in it those of one metric.
fn in_order(mut rows: Vec<Row>) -> Vec<Row> {
    let mut order: Vec<(String, String)> = Vec::new();
    for row in &rows {
        let place = (row.experiment.clone(), row.metric.clone());
        if !order.contains(&place) {
            order.push(place);
        }
    }
    rows.sort_by_key(|row| {
        let experiment = order.iter().position(|(name, _)| *name == row.experiment);
        let metric = order
            .iter()
            .position(|(e, m)| *e == row.experiment && *m == row.metric);
        (experiment, metric)
    });
    rows
}

/// Half the distance from least to most, as a share of the median; `None` with one round.
pub(crate) fn spread(cell: &Cell) -> Option<f64> {
    (cell.rounds > 1 && cell.median != 0.0).then(|| (cell.max - cell.min) / 2.0 / cell.median.abs())
}

/// By which share a figure is worse with reporting than without; negative where it is better.
pub(crate) fn cost(better: Better, on: f64, off: f64) -> Option<f64> {
    if !(on > 0.0 && off > 0.0) {
        return None;
    }
    Some(match better {
        Better::Higher => off / on - 1.0,
        Better::Lower => on / off - 1.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::{Event, What};

    fn run(guest: Guest, reporting: bool, value: f64) -> Run {
        let what = What::Result {
            metric: "faults_per_second".into(),
            value,
            unit: "1/s".into(),
            better: Better::Higher,
            labels: BTreeMap::new(),
        };
        Run {
            experiment: "page-fault/4k".into(),
            arguments: Vec::new(),
            guest,
            reporting,
            icount: false,
            cpus: 1,
            memory_bytes: 1 << 30,
            round: 1,
            command: Vec::new(),
            record: None,
            events: vec![Event { host_s: None, what }],
            timeline: Vec::new(),
            outcome: Outcome::Ok,
            error: None,
        }
    }

    #[test]
    fn medians_of_odd_and_even() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn better_is_more_or_less_as_the_figure_has_it() {
        assert_eq!(ratio(Better::Higher, 10.0, 5.0), Some(2.0));
        assert_eq!(ratio(Better::Lower, 10.0, 5.0), Some(0.5));
        for (ebb, linux) in [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0)] {
            assert_eq!(ratio(Better::Lower, ebb, linux), None);
        }
        assert_eq!(cost(Better::Higher, 50.0, 100.0), Some(1.0));
        assert_eq!(
            cost(Better::Lower, 110.0, 100.0).map(|c| (c * 1e3).round()),
            Some(100.0)
        );
        assert_eq!(cost(Better::Lower, 0.0, 100.0), None);
    }

    #[test]
    fn rounds_become_cells_and_the_ratio_is_of_the_reporting_guests() {
        let runs = [
            run(Guest::Linux, true, 10.0),
            run(Guest::Ebb, true, 40.0),
            run(Guest::Ebb, false, 90.0),
            run(Guest::Ebb, true, 60.0),
            run(Guest::Linux, true, 30.0),
            run(Guest::Linux, true, 20.0),
        ];
        let rows = rows(&runs);
        assert_eq!(rows.len(), 1);
        let cells = &rows[0].cells;
        let seen: Vec<_> = cells
            .iter()
            .map(|c| (c.guest, c.reporting, c.min, c.median, c.max, c.rounds))
            .collect();
        assert_eq!(
            seen,
            [
                (Guest::Ebb, true, 40.0, 50.0, 60.0, 2),
                (Guest::Linux, true, 10.0, 20.0, 30.0, 3),
                (Guest::Ebb, false, 90.0, 90.0, 90.0, 1),
            ]
        );
        assert_eq!(rows[0].ratio, Some(2.5));
        assert_eq!(spread(&cells[0]), Some(0.2));
        assert_eq!(spread(&cells[2]), None);
    }

    #[test]
    fn runs_that_did_not_end_well_have_no_figures() {
        let mut failed = run(Guest::Ebb, true, 1.0);
        failed.outcome = Outcome::Failed;
        let mut unsupported = run(Guest::Linux, true, 1.0);
        unsupported.outcome = Outcome::Unsupported;
        assert!(rows(&[failed, unsupported]).is_empty());
    }
}
