//! Computes the costs and benefits of giving memory back in a run: the guest's instructions, the
//! host's CPU time, and the memory that the host holds although it is unused.

use super::column;
use super::figure::{Figure, lower};
use super::give_back_mode::GiveBackMode;
use super::moments::{ended, freed_bytes, moment, peak, resident_at};
use super::ratio::ratio;
use super::schema::{Better, Cell, Expense, Guest, Point, Row, Run, What};

/// The metric of the instructions of other tasks, which some programs report.
const OTHERS: &str = "others_ns";
/// The metric of the bytes that had left the host when the program ended, which is computed.
const RETURNED: &str = "returned";
/// The metric of the instructions per GiB given back, which is computed from the two.
const WORK: &str = "instructions_per_gib";
/// Bytes per GiB.
const GIB: f64 = 1_073_741_824.0;
/// The share of the freed memory that must leave the host. Less is only noise, and counts as
/// nothing.
const NOTHING: f64 = 0.05;
/// The last part of an idle guest's time, as a share, in which the cost of idling is measured.
const QUIET: f64 = 0.25;
/// The maximum share of a curve that may be missing at its start.
const UNKNOWN: f64 = 0.01;

/// Appends to `figures` the figure `returned`: the bytes that had left the host when the program
/// ended. Appends nothing if the program does not report the instructions of other tasks, or if
/// less than 5 % of the freed memory has left.
pub(crate) fn returned(run: &Run, figures: &mut Vec<Figure>) {
    let counted = run
        .events
        .iter()
        .any(|event| matches!(&event.what, What::Result { metric, .. } if metric == OTHERS));
    if let (true, Some(gib)) = (counted, returned_gib(run, ended(run))) {
        figures.push(Figure {
            better: Better::Higher,
            ..lower(RETURNED, "B", gib * GIB)
        });
    }
}

/// Returns the rows that are computed from other rows: the instructions per GiB given back, one row
/// for each shape of guest whose amounts are known.
pub(crate) fn derived(rows: &[Row]) -> Vec<Row> {
    rows.iter()
        .filter(|row| row.metric == OTHERS)
        .filter_map(|others| work_row(rows, others))
        .collect()
}

/// Returns the row of instructions per GiB that the guest gives back, or `None` if no amount is
/// known.
///
/// These are the instructions of other tasks after the program had freed its memory, minus those of
/// a guest that gives nothing back.
fn work_row(rows: &[Row], others: &Row) -> Option<Row> {
    let returned = rows.iter().find(|row| {
        row.metric == RETURNED
            && (&row.experiment, &row.labels) == (&others.experiment, &others.labels)
    })?;
    let cells: Vec<Cell> = others
        .cells
        .iter()
        .filter_map(|cell| {
            let off = column::cell(others, (cell.guest, GiveBackMode::OFF))?;
            let gib = column::cell(returned, (cell.guest, cell.give_back))?.median / GIB;
            let a_gib = |taken: f64| (taken - off.median).max(0.0) / gib;
            cell.give_back.gives_back().then(|| Cell {
                median: a_gib(cell.median),
                min: a_gib(cell.min),
                max: a_gib(cell.max),
                ..*cell
            })
        })
        .collect();
    let of = |guest| {
        let cell = |cell: &&Cell| (cell.guest, cell.give_back) == (guest, GiveBackMode::REPORTING);
        cells.iter().find(cell).map(|cell| cell.median)
    };
    let ratio = of(Guest::Ebb)
        .zip(of(Guest::Linux))
        .and_then(|(ebb, linux)| ratio(Better::Lower, ebb, linux));
    Some(Row {
        metric: WORK.to_owned(),
        better: Better::Lower,
        ratio,
        interval: None,
        cells,
        ..others.clone()
    })
}

/// Appends to `figures` the figure `host_cpu_per_gib`: the host's CPU seconds per GiB until the
/// memory was back, beyond those of an idle guest. `back_after_s` is the time from the freeing
/// until then, in seconds. Appends nothing if that is `None`, if the guest was not idle afterwards,
/// or if samples are missing.
pub(crate) fn host_cpu(run: &Run, back_after_s: Option<f64>, figures: &mut Vec<Figure>) {
    let figure = || {
        let freed = moment(run, "freed")?;
        let back = freed + back_after_s?;
        let end = ended(run)?;
        let quiet = end - (end - freed) * QUIET;
        let at = |seconds: f64| run.expenses.iter().find(|seen| seen.at_s >= seconds);
        let last = run.expenses.iter().rev().find(|seen| seen.at_s <= end)?;
        let before = run.expenses.iter().rev().find(|seen| seen.at_s <= freed)?;
        let (after, calm) = (at(back)?, at(quiet)?);
        // A guest that gives memory back until its end is never idle.
        if calm.at_s < after.at_s || last.at_s <= calm.at_s {
            return None;
        }
        let cpu = |from: &Expense, to: &Expense| {
            to.qemu_cpu_s - from.qemu_cpu_s + to.ebb_cpu_s - from.ebb_cpu_s
        };
        let idle = cpu(calm, last) / (last.at_s - calm.at_s);
        let spent = cpu(before, after) - idle * (after.at_s - before.at_s);
        Some(spent.max(0.0) / returned_gib(run, Some(after.at_s))?)
    };
    if let Some(seconds) = figure() {
        figures.push(lower("host_cpu_per_gib", "s", seconds));
    }
}

/// Appends to `figures` the wakeups per second of QEMU and of `ebb` while the guest is idle, and
/// their share of one CPU's time. Appends nothing if the program reports no phase `idle`, or if
/// there are fewer than two samples in it.
pub(crate) fn wakeups(run: &Run, figures: &mut Vec<Figure>) {
    let (Some(from), Some(to)) = (moment(run, "idle"), ended(run)) else {
        return;
    };
    let mut between = run
        .expenses
        .iter()
        .filter(|seen| (from..=to).contains(&seen.at_s));
    let (Some(first), Some(last)) = (between.next(), between.next_back()) else {
        return;
    };
    let seconds = last.at_s - first.at_s;
    if seconds <= 0.0 {
        return;
    }
    for (metric, before, after) in [
        ("qemu_wakeups", first.qemu_wakeups, last.qemu_wakeups),
        ("ebb_wakeups", first.ebb_wakeups, last.ebb_wakeups),
    ] {
        let count = u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX);
        figures.push(lower(metric, "1/s", f64::from(count) / seconds));
    }
    let cpu = |seen: &Expense| seen.qemu_cpu_s + seen.ebb_cpu_s;
    let share = (cpu(last) - cpu(first)) / seconds;
    figures.push(lower("idle_cpu", "share", share));
}

/// Appends to `figures` the areas under resident and used memory in GiB·s, their difference, and
/// the program's seconds. Only for a program that reports the phase `released`. With a balloon only
/// the area under resident memory. Appends no figure if a curve begins too late.
pub(crate) fn areas(run: &Run, figures: &mut Vec<Figure>) {
    let (Some(start), Some(_), Some(end)) =
        (moment(run, "start"), moment(run, "released"), ended(run))
    else {
        return;
    };
    let of = |amount: fn(&Point) -> Option<f64>| area(&run.timeline, start, end, amount);
    let (Some(resident), Some(used)) = (of(|point| point.resident), of(|point| point.used)) else {
        return;
    };
    let mut areas = vec![("resident_area", resident)];
    // While a balloon changes, the used memory is known only roughly: a stock guest tells its size
    // and the rest one after the other.
    if run.give_back != GiveBackMode::Balloon {
        areas.extend([("used_area", used), ("excess_area", resident - used)]);
    }
    for (metric, bytes) in areas {
        figures.push(lower(metric, "GiB·s", bytes / GIB));
    }
    figures.push(lower("job_s", "s", end - start));
}

/// Returns the area under a curve from `start` to `end`, in byte seconds. Each amount holds until
/// the next. Returns `None` if the first amount is known too late.
fn area(points: &[Point], start: f64, end: f64, amount: fn(&Point) -> Option<f64>) -> Option<f64> {
    let known: Vec<(f64, f64)> = points
        .iter()
        .filter_map(|point| Some((point.t_ms / 1e3, amount(point)?)))
        .collect();
    let (first, _) = *known.first()?;
    // A guest reports its used memory at intervals, the first time just after the start.
    if first > start + (end - start) * UNKNOWN {
        return None;
    }
    let ends = known.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let parts = known.iter().zip(ends).map(|((from, amount), to)| {
        let seconds = to.min(end) - from.max(start);
        amount * seconds.max(0.0)
    });
    Some(parts.sum())
}

/// Returns the GiB of freed memory that had left the host at time `at`. Returns `None` if that is a
/// negligible share.
fn returned_gib(run: &Run, at: Option<f64>) -> Option<f64> {
    let left = resident_at(&run.timeline, at?)?;
    let bytes = peak(run)? - left;
    (bytes > freed_bytes(run)? * NOTHING).then_some(bytes / GIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn point(t_ms: f64, resident: f64) -> Point {
        Point {
            t_ms,
            resident: Some(resident),
            ..Point::default()
        }
    }

    #[test]
    fn work_is_what_is_done_beyond_that_of_a_guest_that_gives_nothing_back() {
        let row = |metric: &str, values: &[(Guest, GiveBackMode, f64)]| Row {
            experiment: "give-back/counted".into(),
            metric: metric.into(),
            unit: "instructions".into(),
            better: Better::Lower,
            labels: BTreeMap::new(),
            cells: values
                .iter()
                .map(|&(guest, give_back, value)| Cell {
                    guest,
                    give_back,
                    median: value,
                    min: value,
                    max: value,
                    rounds: 1,
                })
                .collect(),
            ratio: None,
            interval: None,
        };
        let (ebb, linux) = (Guest::Ebb, Guest::Linux);
        let others = row(
            OTHERS,
            &[
                (ebb, GiveBackMode::OFF, 100.0),
                (ebb, GiveBackMode::REPORTING, 600.0),
                (linux, GiveBackMode::OFF, 1000.0),
                (linux, GiveBackMode::REPORTING, 3000.0),
                (linux, GiveBackMode::Balloon, 500.0),
            ],
        );
        let back = row(
            RETURNED,
            &[
                (ebb, GiveBackMode::REPORTING, GIB / 2.0),
                (linux, GiveBackMode::REPORTING, GIB),
                (linux, GiveBackMode::Balloon, GIB),
            ],
        );
        assert_eq!(derived(std::slice::from_ref(&others)), []);
        let [work] = &derived(&[others, back])[..] else {
            panic!("there is one")
        };
        let seen: Vec<_> = work
            .cells
            .iter()
            .map(|cell| (cell.guest, cell.median))
            .collect();
        assert_eq!(seen, [(ebb, 1000.0), (linux, 2000.0), (linux, 0.0)]);
        assert_eq!(work.ratio, Some(2.0));
    }

    #[test]
    fn an_area_is_of_the_time_between_its_ends() {
        let curve = [
            point(0.0, 10.0),
            point(1000.0, 20.0),
            Point {
                t_ms: 1500.0,
                ..Point::default()
            },
            point(3000.0, 5.0),
        ];
        let of = |start, end| area(&curve, start, end, |point| point.resident);
        assert_eq!(of(0.0, 1.0), Some(10.0));
        assert_eq!(of(0.5, 2.0), Some(25.0));
        assert_eq!(of(0.0, 5.0), Some(60.0));
        assert_eq!(of(3.5, 4.5), Some(5.0));
        assert_eq!(area(&curve, 0.0, 1.0, |point| point.used), None);
        assert_eq!(area(&curve[1..], 0.0, 1.0, |point| point.resident), None);
    }
}
