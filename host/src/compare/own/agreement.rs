//! Checks whether two comparisons of columns agree, by their ratios to the first column.

use super::super::agreement::{Agreement, Pair};
use super::report::OwnReport;
use super::rows::{OwnCell, OwnRow};
use super::wording;
use crate::failure::Failure;
use crate::text::printable;

/// Compares every ratio of `here` with that of `there`, for the subjects and columns that both
/// have. A ratio that only one of them has is included, too. `with` is the name of the file of
/// `there`.
///
/// # Errors
/// [`Failure::Usage`] if the two reports have different first columns, since ratios are to the
/// first column.
pub(crate) fn of(here: &OwnReport, there: &OwnReport, with: String) -> Result<Agreement, Failure> {
    let first = |report: &OwnReport| report.names().first().map(|name| (*name).to_owned());
    let (ours, theirs) = (first(here), first(there));
    if ours != theirs {
        let shown = |name: Option<String>| printable(&name.unwrap_or_default());
        return Err(Failure::Usage(format!(
            "cannot compare with {with}: \
             its ratios are relative to its first column `{}`, and those here to `{}`",
            shown(theirs),
            shown(ours)
        )));
    }
    let both = |row: &OwnRow, cell: &OwnCell| {
        [here, there].iter().all(|report| {
            let has = |other: &OwnRow| other.subject == row.subject;
            report.table.iter().any(has) && report.names().contains(&cell.column.as_str())
        })
    };
    let pair = |of: &OwnReport, row: &OwnRow, cell: &OwnCell, ratios: [Option<f64>; 2]| {
        let mut name = wording::name(row);
        if of.names().len() > 2 {
            name = format!("{name}: {}", printable(&cell.column));
        }
        Pair::new(
            printable(&row.subject),
            name,
            ratios,
            of.is_counted(&row.subject, &cell.column),
        )
    };
    let mut pairs = Vec::new();
    for (row, cell) in cells(here).filter(|(row, cell)| both(row, cell)) {
        pairs.push(pair(here, row, cell, [cell.ratio, ratio(there, row, cell)]));
    }
    for (row, cell) in cells(there).filter(|(row, cell)| both(row, cell)) {
        if ratio(here, row, cell).is_none() {
            pairs.push(pair(there, row, cell, [None, cell.ratio]));
        }
    }
    Ok(Agreement::new(pairs, with))
}

/// Returns all cells that have a ratio.
fn cells(report: &OwnReport) -> impl Iterator<Item = (&OwnRow, &OwnCell)> {
    let rows = report.table.iter();
    let cells = rows.flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
    cells.filter(|(_, cell)| cell.ratio.is_some())
}

/// Returns the ratio in the same row and column of another report, or `None` if it has none.
fn ratio(report: &OwnReport, row: &OwnRow, cell: &OwnCell) -> Option<f64> {
    let same = report.table.iter().find(|other| other.is_same(row))?;
    let mut cells = same.cells.iter();
    cells.find(|other| other.column == cell.column)?.ratio
}
