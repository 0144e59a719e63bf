//! Computes the rows of the table from runs: the median of each column, and its ratio to the first.

use super::super::schema::{Better, Outcome, Run};
use super::super::statistics::Spread;
use super::super::statistics::median;
use super::measured;
use serde::Serialize;
use std::collections::BTreeMap;

/// The maximum number of rows. Figures of a program that reports more are left out.
const ROWS_MAX: usize = 500;

/// A row of the table: one figure of one program or experiment, in all columns that have it.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ColumnsRow"))]
pub(crate) struct OwnRow {
    /// The program or experiment that ran.
    pub(crate) subject: String,
    /// The figure's name.
    pub(crate) metric: String,
    /// The unit of the values, which are not scaled. Empty for a plain count.
    pub(crate) unit: String,
    /// The better direction.
    pub(crate) better: Better,
    /// Whether the figure is taken from the program's events, not by the host.
    pub(crate) by_program: bool,
    /// The labels that distinguish this row from others of the same metric.
    pub(crate) labels: BTreeMap<String, String>,
    /// The cells of those columns that have the figure.
    pub(crate) cells: Vec<OwnCell>,
}

impl OwnRow {
    /// Returns whether `other` is a row of the same figure: the same subject, metric, unit, labels
    /// and source. The cells may differ.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let of = |row: &Self| (row.better, row.by_program);
        of(self) == of(other)
            && self.subject == other.subject
            && self.metric == other.metric
            && self.unit == other.unit
            && self.labels == other.labels
    }
}

/// The values that one figure has in all rounds of one column.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ColumnsCell"))]
pub(crate) struct OwnCell {
    /// The column's name.
    pub(crate) column: String,
    /// The median of all values.
    pub(crate) median: f64,
    /// The least value.
    pub(crate) min: f64,
    /// The greatest value.
    pub(crate) max: f64,
    /// The number of values.
    pub(crate) rounds: u32,
    /// The figure divided by that of the first column: the median of the quotients of all rounds.
    /// Left out in the first column, if a figure is not above zero, if the figure must not be
    /// compared, and if no round has runs of both columns that ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
}

impl OwnCell {
    /// Returns the median, minimum, maximum and number of the cell's values.
    pub(crate) fn spread(&self) -> Spread {
        Spread {
            median: self.median,
            min: self.min,
            max: self.max,
            rounds: self.rounds,
        }
    }
}

/// A row while its values are collected: by column, then by round and position in it.
struct RowValues {
    row: OwnRow,
    comparable: bool,
    columns: Vec<BTreeMap<(u32, u32), RoundValue>>,
}

/// The value of a figure in one round.
#[derive(Copy, Clone)]
struct RoundValue {
    value: f64,
    /// Whether the run ended well. Values of failed runs are shown and not compared.
    is_comparable: bool,
}

/// Returns the rows of all runs, at most 500, in the order in which the runs have their figures.
/// Each run comes with the index of its column in `columns`, which are the columns' names.
pub(crate) fn rows(runs: &[(usize, Run)], columns: &[String]) -> Vec<OwnRow> {
    let mut rows: Vec<RowValues> = Vec::new();
    for (column, run) in runs {
        let mut seen: BTreeMap<usize, u32> = BTreeMap::new();
        for told in measured::of(run) {
            let figure = told.figure;
            let row = OwnRow {
                subject: run.experiment.clone(),
                metric: figure.metric,
                unit: figure.unit,
                better: figure.better,
                by_program: told.by_program,
                labels: figure.labels,
                cells: Vec::new(),
            };
            let at = match rows.iter().position(|known| known.row.is_same(&row)) {
                Some(at) => at,
                None if rows.len() >= ROWS_MAX => continue,
                None => {
                    rows.push(RowValues {
                        row,
                        comparable: figure.comparable,
                        columns: vec![BTreeMap::new(); columns.len()],
                    });
                    rows.len() - 1
                }
            };
            let place = seen.entry(at).or_default();
            if let Some(figures) = rows[at].columns.get_mut(*column) {
                let value = RoundValue {
                    value: figure.value,
                    is_comparable: run.outcome == Outcome::Ok,
                };
                figures.insert((run.round, *place), value);
            }
            *place += 1;
        }
    }
    rows.into_iter().map(|row| finished(row, columns)).collect()
}

/// Returns the finished row.
fn finished(row: RowValues, columns: &[String]) -> OwnRow {
    let RowValues {
        mut row,
        comparable,
        columns: figures,
    } = row;
    let first = figures.first().cloned().unwrap_or_default();
    for (index, (name, rounds)) in columns.iter().zip(&figures).enumerate() {
        let mut values: Vec<f64> = rounds.values().map(|round| round.value).collect();
        let Some(middle) = median(&mut values) else {
            continue;
        };
        let mut quotients: Vec<f64> = rounds
            .iter()
            .filter_map(|(round, value)| {
                let first = first.get(round)?;
                let both_ended_well = value.is_comparable && first.is_comparable;
                both_ended_well.then(|| quotient(value.value, first.value))?
            })
            .collect();
        row.cells.push(OwnCell {
            column: name.clone(),
            median: middle,
            min: values.first().copied().unwrap_or(middle),
            max: values.last().copied().unwrap_or(middle),
            rounds: u32::try_from(values.len()).unwrap_or(u32::MAX),
            ratio: median(&mut quotients).filter(|_| comparable && index > 0),
        });
    }
    row
}

/// Returns the quotient, or `None` if a value is not above zero.
fn quotient(value: f64, first: f64) -> Option<f64> {
    let quotient = value / first;
    (value > 0.0 && first > 0.0 && quotient.is_finite()).then_some(quotient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::guest::Guest;
    use crate::compare::schema::{Event, What};

    fn run(column: usize, round: u32, values: &[f64]) -> (usize, Run) {
        let event = |value: &f64| Event {
            host_s: None,
            what: What::Result {
                metric: "rate".into(),
                value: *value,
                unit: "1/s".into(),
                better: Better::Higher,
                labels: BTreeMap::new(),
            },
        };
        let run = Run {
            round,
            events: values.iter().map(event).collect(),
            ..Run::blank(Guest::Ebb)
        };
        (column, run)
    }

    #[test]
    fn ratios_are_to_the_first_column_round_by_round() {
        let columns = ["a", "b", "c"].map(str::to_owned);
        let runs = [
            run(0, 1, &[10.0]),
            run(1, 1, &[5.0]),
            run(0, 2, &[20.0]),
            run(1, 2, &[12.0]),
            run(2, 2, &[0.0]),
        ];
        let rows = rows(&runs, &columns);
        assert_eq!(rows.len(), 1);
        let seen: Vec<_> = rows[0]
            .cells
            .iter()
            .map(|cell| (cell.column.as_str(), cell.median, cell.ratio, cell.rounds))
            .collect();
        assert_eq!(
            seen,
            [
                ("a", 15.0, None, 2),
                ("b", 8.5, Some(0.55), 2),
                ("c", 0.0, None, 1)
            ]
        );
    }

    #[test]
    fn failed_runs_are_not_compared() {
        let mut failed = run(1, 1, &[5.0]);
        failed.1.outcome = Outcome::Failed;
        let names = ["a", "b"].map(str::to_owned);
        let ratio = |runs: &[(usize, Run)]| rows(runs, &names)[0].cells[1].ratio;
        assert_eq!(ratio(&[run(0, 1, &[10.0]), failed.clone()]), None);
        let more = [
            run(0, 1, &[10.0]),
            failed,
            run(0, 2, &[10.0]),
            run(1, 2, &[20.0]),
        ];
        assert_eq!(ratio(&more), Some(2.0));
    }

    #[test]
    fn a_program_has_no_more_rows_than_fit() {
        let mut many = run(0, 1, &[1.0; 2000]);
        for (number, event) in many.1.events.iter_mut().enumerate() {
            if let What::Result { metric, .. } = &mut event.what {
                *metric = format!("m{number}");
            }
        }
        assert_eq!(rows(&[many], &["a".to_owned()]).len(), ROWS_MAX);
    }
}
