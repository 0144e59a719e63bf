//! Computes the rows of the table from runs: medians with their spread, and how many times better
//! Ebb is.

use super::column;
use super::costs;
use super::figures;
use super::give_back_mode::GiveBackMode;
use super::ratio::ratio;
use super::reports;
use super::schema::{Better, Cell, Guest, Interval, Outcome, Row, Run};
use std::collections::BTreeMap;

/// The median and range of the values of several rounds.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The number of values.
    pub(crate) rounds: u32,
}

impl Cell {
    /// Returns the cell's median, minimum, maximum and number of values.
    pub(crate) fn spread(&self) -> Spread {
        Spread {
            median: self.median,
            min: self.min,
            max: self.max,
            rounds: self.rounds,
        }
    }
}

/// Sorts `values` and returns their median. For an even number it is the mean of the two in the
/// middle. Returns `None` if there are no values.
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

/// The identity of a row.
#[derive(PartialEq, Debug)]
struct Key {
    experiment: String,
    metric: String,
    unit: String,
    better: Better,
    labels: BTreeMap<String, String>,
}

/// The round of a figure: the boot, the number of the figure within the boot, and, if several
/// reports were joined, the number of the report.
type Round = (u32, u32, u32);

/// The values of one guest by round.
type Rounds = BTreeMap<Round, f64>;

/// The values of a row, in the order of the modes of giving memory back.
type Columns = BTreeMap<(GiveBackMode, Guest), Rounds>;

/// A row while its values are collected.
struct RowValues {
    key: Key,
    columns: Columns,
    /// The value up to which figures are not different from zero.
    noise: f64,
    comparable: bool,
}

/// Returns the rows of all runs that ended well, with medians and ratios, in the order in which
/// their figures first appear. Counted figures of guests that report memory and made no report
/// meanwhile are left out. Rows of one experiment and metric are together. Rows that are
/// computed from other rows are included.
pub(crate) fn rows(runs: &[Run]) -> Vec<Row> {
    let mut rows: Vec<RowValues> = Vec::new();
    for run in runs.iter().filter(|run| run.outcome == Outcome::Ok) {
        // The number of figures that this run has had for each row.
        let mut seen: BTreeMap<usize, u32> = BTreeMap::new();
        let figures = figures::of(run);
        for figure in &figures {
            if reports::is_refused(run, &figures, figure) {
                continue;
            }
            let figure = figure.clone();
            let key = Key {
                experiment: run.experiment.clone(),
                metric: figure.metric,
                unit: figure.unit,
                better: figure.better,
                labels: figure.labels,
            };
            let at = rows
                .iter()
                .position(|row| row.key == key)
                .unwrap_or_else(|| {
                    rows.push(RowValues {
                        key,
                        columns: BTreeMap::new(),
                        noise: 0.0,
                        comparable: figure.comparable,
                    });
                    rows.len() - 1
                });
            let row = &mut rows[at];
            row.noise = row.noise.max(figure.noise);
            let count = seen.entry(at).or_default();
            let column = row.columns.entry((run.give_back, run.guest)).or_default();
            let mut round = (run.round, *count, 0);
            while column.contains_key(&round) {
                round.2 += 1;
            }
            column.insert(round, figure.value);
            *count += 1;
        }
    }
    let mut rows: Vec<Row> = rows.into_iter().map(row).collect();
    rows.extend(costs::derived(&rows));
    in_order(rows)
}

/// Returns the finished row.
fn row(row: RowValues) -> Row {
    let RowValues {
        key,
        columns,
        noise,
        comparable,
    } = row;
    let of = |guest, mode| columns.get(&(mode, guest));
    let sides = column::COMPARED
        .into_iter()
        .find_map(|mode| Some((of(Guest::Ebb, mode)?, of(Guest::Linux, mode)?)));
    let (ratio, interval) = match sides {
        Some((ebb, linux)) if comparable => ratio_of(key.better, ebb, linux, noise),
        _ => (None, None),
    };
    let cells = columns.iter().filter_map(|(&(give_back, guest), rounds)| {
        let mut values: Vec<f64> = rounds.values().copied().collect();
        Some(Cell {
            guest,
            give_back,
            median: median(&mut values)?,
            min: *values.first()?,
            max: *values.last()?,
            rounds: u32::try_from(values.len()).unwrap_or(u32::MAX),
        })
    });
    Row {
        experiment: key.experiment,
        metric: key.metric,
        unit: key.unit,
        better: key.better,
        labels: key.labels,
        cells: cells.collect(),
        ratio,
        interval,
    }
}

/// Returns the median of the boots' ratios, and its interval. The ratio of a boot is the median of
/// the ratios of its figures that are next to each other in time. Returns `None` for both if a
/// figure is not above `noise`.
fn ratio_of(
    better: Better,
    ebb: &Rounds,
    linux: &Rounds,
    noise: f64,
) -> (Option<f64>, Option<Interval>) {
    let clear = |rounds: &Rounds| rounds.values().all(|value| *value > noise);
    if !clear(ebb) || !clear(linux) {
        return (None, None);
    }
    let mut boots: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
    for (round @ (boot, _, report), ebb) in ebb {
        let linux = linux.get(round);
        if let Some(ratio) = linux.and_then(|linux| ratio(better, *ebb, *linux)) {
            boots.entry((*boot, *report)).or_default().push(ratio);
        }
    }
    if boots.is_empty() {
        // The guests share no round, as in joined reports.
        let of = |rounds: &Rounds| median(&mut rounds.values().copied().collect::<Vec<_>>());
        let both = of(ebb).zip(of(linux));
        return (
            both.and_then(|(ebb, linux)| ratio(better, ebb, linux)),
            None,
        );
    }
    let mut ratios: Vec<f64> = boots
        .values_mut()
        .filter_map(|ratios| median(ratios))
        .collect();
    let middle = median(&mut ratios);
    (middle, interval(&ratios))
}

/// The minimum confidence of an interval.
const CONFIDENCE: f64 = 0.95;

/// Returns the interval that contains the median of the distribution from which `sorted` was drawn.
/// No assumption about that distribution is needed. This is the sign test: the bounds are the k-th
/// smallest and k-th largest value, and the confidence follows from the binomial distribution.
///
/// Returns the range of the values if there are too few, and `None` if there are fewer than two.
fn interval(sorted: &[f64]) -> Option<Interval> {
    let count = u32::try_from(sorted.len()).ok().filter(|n| *n > 1)?;
    let (mut cut, mut confidence) = (0, None);
    // The probability of at most `cut` heads in `count` tosses of a coin, summed from its first
    // term.
    let mut term = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut tail = term;
    for k in 0..count / 2 {
        if 1.0 - 2.0 * tail < CONFIDENCE {
            break;
        }
        (cut, confidence) = (k, Some(1.0 - 2.0 * tail));
        term *= f64::from(count - k) / f64::from(k + 1);
        tail += term;
    }
    let cut = usize::try_from(cut).ok()?;
    Some(Interval {
        boots: count,
        low: sorted[cut],
        high: sorted[sorted.len() - 1 - cut],
        confidence,
    })
}

/// Sorts rows so that those of one experiment are together, and within it those of one metric.
fn in_order(mut rows: Vec<Row>) -> Vec<Row> {
    let mut order: Vec<(String, String)> = Vec::new();
    for row in &rows {
        let place = (row.experiment.clone(), row.metric.clone());
        if !order.contains(&place) {
            order.push(place);
        }
    }
    rows.sort_by_cached_key(|row| {
        let experiment = order.iter().position(|(name, _)| *name == row.experiment);
        let metric = order
            .iter()
            .position(|(e, m)| *e == row.experiment && *m == row.metric);
        // The number of CPUs may vary from round to round, so the first row need not have the
        // smallest.
        let cpus = row.labels.get("cpus").and_then(|n| n.parse::<u32>().ok());
        (experiment, metric, row.labels.contains_key("icount"), cpus)
    });
    rows
}

/// Returns half the distance from minimum to maximum, as a share of the median. Returns `None` if
/// there is only one value or the median is 0.
pub(crate) fn spread(cell: &Cell) -> Option<f64> {
    (cell.rounds > 1 && cell.median != 0.0).then(|| (cell.max - cell.min) / 2.0 / cell.median.abs())
}

/// Returns the share by which a figure is worse with reporting (`on`) than without (`off`),
/// negative if it is better. For example, 0.1 means 10 % worse. Returns `None` if a value is not
/// positive.
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

    fn run(guest: Guest, give_back: GiveBackMode, value: f64) -> Run {
        let what = What::Result {
            metric: "faults_per_second".into(),
            value,
            unit: "1/s".into(),
            better: Better::Higher,
            labels: BTreeMap::new(),
        };
        Run {
            experiment: "page-fault/4k".into(),
            give_back,
            events: vec![Event { host_s: None, what }],
            ..Run::blank(guest)
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

    /// Returns runs of both guests in one boot, with a figure per round.
    fn boot(number: u32, ebb: &[f64], linux: &[f64]) -> [Run; 2] {
        [(Guest::Ebb, ebb), (Guest::Linux, linux)].map(|(guest, values)| {
            let runs = values
                .iter()
                .map(|value| run(guest, GiveBackMode::REPORTING, *value));
            let events = runs.flat_map(|run| run.events).collect();
            Run {
                round: number,
                events,
                ..run(guest, GiveBackMode::REPORTING, 0.0)
            }
        })
    }

    #[test]
    fn a_ratio_is_of_figures_that_stand_next_to_each_other() {
        // The machine is twice as fast in the second round. Both guests show it, but the ratio does
        // not.
        let mut runs = boot(1, &[40.0, 80.0, 42.0], &[10.0, 20.0, 10.0]).to_vec();
        runs.extend(boot(2, &[21.0], &[5.0]));
        runs.push(run(Guest::Ebb, GiveBackMode::OFF, 90.0));
        let rows = rows(&runs);
        assert_eq!(rows.len(), 1);
        let seen: Vec<_> = rows[0]
            .cells
            .iter()
            .map(|c| (c.guest, c.give_back, c.min, c.median, c.max, c.rounds))
            .collect();
        assert_eq!(
            seen,
            [
                (Guest::Ebb, GiveBackMode::REPORTING, 21.0, 41.0, 80.0, 4),
                (Guest::Linux, GiveBackMode::REPORTING, 5.0, 10.0, 20.0, 4),
                (Guest::Ebb, GiveBackMode::OFF, 90.0, 90.0, 90.0, 1),
            ]
        );
        // Three rounds of one boot count as one.
        assert_eq!(rows[0].ratio, Some(4.1));
        let interval = rows[0].interval.expect("there are two boots");
        assert_eq!((interval.boots, interval.low, interval.high), (2, 4.0, 4.2));
        assert!(interval.is_settled() && interval.confidence.is_none());
        assert_eq!(spread(&rows[0].cells[2]), None);
    }

    #[test]
    fn reports_that_are_put_together_keep_all_their_boots() {
        let mut runs = boot(1, &[40.0, 80.0], &[10.0, 20.0]).to_vec();
        runs.extend(boot(1, &[60.0], &[10.0]));
        let rows = rows(&runs);
        assert_eq!(rows[0].interval.map(|i| (i.boots, i.high)), Some((2, 6.0)));
        assert_eq!(rows[0].ratio, Some(5.0));
    }

    #[test]
    fn an_interval_is_as_narrow_as_the_number_of_coins_allows() {
        let sample = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        let of = |n| interval(&sample(n)).map(|i| (i.low, i.high, i.confidence.is_some()));
        assert_eq!(of(0), None);
        assert_eq!(of(1), None);
        // Five coins all show the same side once in sixteen tosses, which is too often.
        assert_eq!(of(5), Some((1.0, 5.0, false)));
        assert_eq!(of(6), Some((1.0, 6.0, true)));
        // From tables of the sign test.
        assert_eq!(of(12), Some((3.0, 10.0, true)));
        assert_eq!(of(20), Some((6.0, 15.0, true)));
        let sure = interval(&sample(12)).and_then(|i| i.confidence);
        assert_eq!(sure.map(|share| (share * 1e4).round()), Some(9614.0));
        assert!(interval(&sample(1000)).is_some_and(|i| i.confidence >= Some(0.95)));
    }

    #[test]
    fn what_is_as_good_as_nothing_has_no_ratio() {
        let rounds = |values: &[f64]| (1..).zip(values).map(|(n, v)| ((n, 0, 0), *v)).collect();
        let of = |ebb: &[f64], linux: &[f64], noise| {
            ratio_of(Better::Lower, &rounds(ebb), &rounds(linux), noise).0
        };
        assert_eq!(of(&[4.0, 4.0], &[8.0, 8.0], 1.0), Some(2.0));
        assert_eq!(of(&[4.0, 4.0], &[8.0, 8.0], 5.0), None);
        assert_eq!(of(&[4.0, 4.0], &[12.0, -0.1], 0.0), None);
    }

    #[test]
    fn runs_that_did_not_end_well_have_no_figures() {
        let mut failed = run(Guest::Ebb, GiveBackMode::REPORTING, 1.0);
        failed.outcome = Outcome::Failed;
        let mut unsupported = run(Guest::Linux, GiveBackMode::REPORTING, 1.0);
        unsupported.outcome = Outcome::Unsupported;
        assert!(rows(&[failed, unsupported]).is_empty());
    }
}
