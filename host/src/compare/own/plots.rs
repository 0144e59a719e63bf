//! Plots the memory curves of a comparison of columns: a panel for each column, all with the same
//! axes.

use super::super::plots::Picture;
use super::super::record;
use super::super::schema::{Outcome, Run};
use super::super::svg::{Curve, Panel};
use super::report::OwnReport;
use crate::text::printable;

/// The minimum duration of a program whose curve is shown, in seconds.
const CURVE_MIN_S: f64 = 0.5;

/// Returns the plot of the memory over time of the subject called `subject`, with a panel for each
/// column. It shows the column's first run that ended well and did not count instructions. Returns
/// `None` if no column has such a run of half a second or more.
pub(crate) fn memory<'a>(report: &'a OwnReport, subject: &str) -> Option<Picture<'a>> {
    let panels: Vec<Panel<'a>> = report
        .columns
        .iter()
        .enumerate()
        .filter_map(|(index, column)| {
            let mut runs = report.runs.iter();
            let (_, run) = runs.find(|(of, run)| {
                *of == index
                    && run.experiment == subject
                    && run.outcome == Outcome::Ok
                    && !run.icount
            })?;
            Some(Panel {
                heading: printable(&column.name),
                curves: vec![curve(run)?],
            })
        })
        .collect();
    (!panels.is_empty()).then_some(Picture::Memory(panels, "the program began"))
}

/// Returns the curve from the program's start on. Returns `None` if the record does not have the
/// start, or the run is too short.
fn curve(run: &Run) -> Option<Curve<'_>> {
    let zero_s = record::started_s(run.record.as_ref()?)?;
    let end_s = run.timeline.last()?.t_ms / 1e3;
    (end_s - zero_s >= CURVE_MIN_S).then_some(Curve {
        guest: run.guest,
        points: &run.timeline,
        zero_s,
        mark: None,
        end_s: None,
    })
}
