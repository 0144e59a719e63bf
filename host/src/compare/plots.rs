//! Selects the plots of a report. [`svg`] draws them, for a page and for files alike.

use super::experiments;
use super::figures;
use super::give_back_mode::GiveBackMode;
use super::moments;
use super::schema::{Guest, Outcome, Report, Row, Run, What};
use super::svg::{self, Curve, Line, NamedRatio, Panel, Plot};
use super::wording::{headline, metric, number, row_name};
use std::collections::BTreeSet;

/// The contents of a plot, which can be drawn at any width.
pub(crate) enum Picture<'a> {
    Ratios(Vec<NamedRatio>),
    Bars(Vec<&'a Row>, String),
    Memory(Vec<Panel<'a>>, &'static str),
    Distribution {
        lines: Vec<Line>,
        name: String,
        unit: String,
    },
}

impl Picture<'_> {
    /// Draws the plot `width` units wide, in the units of SVG.
    pub(crate) fn draw(&self, width: f64) -> Plot {
        match self {
            Self::Ratios(rows) => svg::ratios(rows, width),
            Self::Bars(rows, title) => svg::bars(rows, title, width),
            Self::Memory(panels, zero) => svg::curves(panels, zero, width),
            Self::Distribution { lines, name, unit } => svg::percentiles(lines, name, unit, width),
        }
    }
}

/// Returns the plot of all ratios that a report shows on its own, or `None` if there are none.
pub(crate) fn overview(report: &Report) -> Option<Picture<'_>> {
    let rows: Vec<NamedRatio> = report
        .table
        .iter()
        .filter(|row| headline(row))
        .filter_map(|row| {
            let others: Vec<&Row> = report
                .table
                .iter()
                .filter(|other| other.experiment == row.experiment && other.metric == row.metric)
                .collect();
            Some(NamedRatio {
                name: format!("{}: {}", row.experiment, row_name(row, &others)),
                ratio: row.ratio?,
                interval: row.interval,
            })
        })
        .collect();
    (!rows.is_empty()).then_some(Picture::Ratios(rows))
}

/// Returns the plot of `rows` as bars. `name` is the experiment's name, for the title. Leaves out
/// rows that are no headlines or have a negative median. Returns `None` if no row is left.
pub(crate) fn bars<'a>(rows: &[&'a Row], name: &str) -> Option<Picture<'a>> {
    let rows: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| headline(row) && row.cells.iter().all(|cell| cell.median >= 0.0))
        .collect();
    (!rows.is_empty()).then(|| Picture::Bars(rows, format!("{name}: figures by guest")))
}

/// Returns whether an experiment is about memory over time and not about a rate: the program of one
/// of `runs` reports when it freed memory.
pub(crate) fn memory_is_the_matter(runs: &[&Run]) -> bool {
    runs.iter()
        .any(|run| moments::moment(run, "freed").is_some())
}

/// The minimum duration of a run whose curve is shown, in seconds.
const CURVE_MIN_S: f64 = 1.0;

/// Returns the plots of memory over time: one for each size of memory and number of CPUs, with a
/// panel for each mode of giving memory back. Each guest's curve is that of its first run that
/// ended well and took a second or more. Runs that count instructions have no curve.
pub(crate) fn memory<'a>(runs: &[&'a Run]) -> Vec<Picture<'a>> {
    let mut shapes: Vec<(u64, u32)> = Vec::new();
    let good: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|run| {
            let length = run.timeline.last().map_or(0.0, |point| point.t_ms / 1e3);
            !run.icount && run.outcome == Outcome::Ok && length - moments::began(run) >= CURVE_MIN_S
        })
        .collect();
    for run in &good {
        if !shapes.contains(&(run.memory_bytes, run.cpus)) {
            shapes.push((run.memory_bytes, run.cpus));
        }
    }
    let zero = if memory_is_the_matter(runs) {
        "the memory was freed"
    } else {
        "the program's first line"
    };
    shapes
        .iter()
        .filter_map(|shape| {
            let of_shape: Vec<&Run> = good
                .iter()
                .copied()
                .filter(|run| (run.memory_bytes, run.cpus) == *shape)
                .collect();
            let modes: BTreeSet<GiveBackMode> = of_shape.iter().map(|run| run.give_back).collect();
            let panels: Vec<Panel<'a>> = modes
                .into_iter()
                .filter_map(|mode| panel(&of_shape, mode, shapes.len() > 1))
                .collect();
            (!panels.is_empty()).then_some(Picture::Memory(panels, zero))
        })
        .collect()
}

/// Returns the panel of one way to give memory back, or `None` if there is no curve.
fn panel<'a>(runs: &[&'a Run], mode: GiveBackMode, many: bool) -> Option<Panel<'a>> {
    let curves: Vec<Curve<'a>> = [Guest::Ebb, Guest::Linux]
        .into_iter()
        .filter_map(|guest| {
            let run = runs
                .iter()
                .copied()
                .find(|run| run.guest == guest && run.give_back == mode)?;
            Some(curve(run))
        })
        .collect();
    let run = runs.first()?;
    let mode = mode.heading();
    let heading = if many {
        let memory = crate::text::Size(run.memory_bytes);
        format!("{mode}, {} CPUs, {memory}", run.cpus)
    } else {
        mode
    };
    (!curves.is_empty()).then_some(Panel { heading, curves })
}

/// Returns the curve of a run.
fn curve(run: &Run) -> Curve<'_> {
    let freed = moments::moment(run, "freed");
    let zero_s = freed.unwrap_or_else(|| moments::began(run));
    let back = figures::of(run)
        .into_iter()
        .find(|figure| figure.metric == "nearly_all_returned")
        .map(|figure| {
            (
                figure.value,
                format!("95 % back after {} s", number(figure.value)),
            )
        });
    Curve {
        guest: run.guest,
        points: &run.timeline,
        zero_s,
        mark: freed.and(back),
        end_s: moments::ended(run).map(|end| end - zero_s),
    }
}

/// Returns the plots of distributions by percentile: one for each metric, labels and number of
/// CPUs. Each has a line for each guest and mode, from the first run that ended well.
pub(crate) fn distributions(runs: &[&Run]) -> Vec<Picture<'static>> {
    let mut pictures: Vec<(String, Picture<'static>)> = Vec::new();
    let both = runs
        .iter()
        .any(|run| run.give_back != GiveBackMode::REPORTING);
    for run in runs.iter().filter(|run| run.outcome == Outcome::Ok) {
        for event in &run.events {
            let What::Distribution {
                metric: key,
                unit,
                percentiles,
                labels,
                ..
            } = &event.what
            else {
                continue;
            };
            let details: Vec<String> = labels.values().cloned().collect();
            let mut name = metric(key);
            if !details.is_empty() {
                name = format!("{name}, {}", details.join(", "));
            }
            let counted = run.icount && unit == "ns";
            let line = Line {
                guest: run.guest,
                give_back: run.give_back,
                name: run.give_back.label(run.guest, both),
                percentiles: percentiles.clone(),
            };
            let key = format!("{name} {counted} {}", run.cpus);
            let place = pictures.iter().position(|(known, _)| *known == key);
            match place.map(|at| &mut pictures[at].1) {
                Some(Picture::Distribution { lines, .. }) => {
                    if !lines.iter().any(|known| known.name == line.name) {
                        lines.push(line);
                    }
                }
                _ => pictures.push((
                    key,
                    Picture::Distribution {
                        lines: vec![line],
                        name,
                        unit: if counted {
                            "instructions".to_owned()
                        } else {
                            unit.clone()
                        },
                    },
                )),
            }
        }
    }
    pictures.into_iter().map(|(_, picture)| picture).collect()
}

/// Returns the plots of a report for files: the ratios, memory over time, and distributions. Each
/// comes with a file name without extension. Experiments that this version does not know are left
/// out.
pub(crate) fn files(report: &Report) -> Vec<(String, Plot)> {
    let mut files = Vec::new();
    if let Some(picture) = overview(report) {
        files.push(("ratios".to_owned(), picture.draw(svg::WIDE)));
    }
    for name in report.experiments() {
        // An experiment that this version does not know may have any text as its name.
        if experiments::find(name).is_none() {
            continue;
        }
        let file = name.replace('/', "-");
        let runs = report.runs_of(name);
        if memory_is_the_matter(&runs) {
            for (index, picture) in memory(&runs).iter().enumerate() {
                let number = if index == 0 {
                    String::new()
                } else {
                    format!("-{}", index + 1)
                };
                files.push((format!("{file}-memory{number}"), picture.draw(svg::WIDE)));
            }
        }
        for (index, picture) in distributions(&runs).iter().enumerate() {
            let number = if index == 0 {
                String::new()
            } else {
                format!("-{}", index + 1)
            };
            files.push((
                format!("{file}-percentiles{number}"),
                picture.draw(svg::WIDE),
            ));
        }
    }
    files
}
