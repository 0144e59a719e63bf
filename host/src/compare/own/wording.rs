//! The names of rows and the contents of cells for columns, which are the same in the terminal, on
//! a page and in a document.

use super::super::reports;
use super::super::schema::{Better, Outcome, Run};
use super::super::wording::{metric, number, scale};
use super::measured::EXIT_STATUS;
use super::rows::{OwnCell, OwnRow};
use crate::text::printable;

/// Ratios closer to 1 than this are neither better nor worse.
const EVEN: f64 = 0.02;

/// The names of the metrics that are measured for any program.
const NAMES: [(&str, &str); 11] = [
    ("program_s", "time of the program"),
    ("program", "instructions"),
    ("boot_s", "until the program begins"),
    ("peak_used", "used at the peak"),
    ("peak_resident", "resident at the peak"),
    ("final_resident", "resident at the end"),
    ("stranded", "stranded at the end"),
    ("stranded_area", "stranded over time"),
    ("faults", "page faults"),
    ("host_cpu_s", "CPU time of QEMU and `ebb`"),
    (EXIT_STATUS, "exit status"),
];

/// Whether a column's figure is better than that of the first column.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Better,
    Even,
    Worse,
}

/// Returns whether `ratio`, a figure of `row` divided by that of the first column, is better or
/// worse than 1, as the row's direction says. Within 2 % it is even.
pub(crate) fn verdict(row: &OwnRow, ratio: f64) -> Verdict {
    let better = match row.better {
        Better::Lower => 1.0 / ratio,
        Better::Higher => ratio,
    };
    match better {
        better if better > 1.0 + EVEN => Verdict::Better,
        better if better < 1.0 - EVEN => Verdict::Worse,
        _ => Verdict::Even,
    }
}

/// Returns the name of a row for users: its metric in words, and its labels. It contains no control
/// characters.
pub(crate) fn name(row: &OwnRow) -> String {
    let known = NAMES
        .iter()
        .find(|(name, _)| *name == row.metric && !row.by_program);
    let mut title = match known {
        Some((_, words)) => (*words).to_owned(),
        None => printable(&metric(&row.metric)),
    };
    for (label, value) in &row.labels {
        title.push_str(&printable(&format!(", {label} {value}")));
    }
    title
}

/// Returns the unit in which a row's values are printed, and the divisor that converts them to it.
/// The smallest median decides. The divisor is 1 if the row's own unit has no scale.
pub(crate) fn unit(row: &OwnRow) -> (String, f64) {
    let least = row.cells.iter().map(|cell| cell.median.abs());
    let typical = least.fold(f64::INFINITY, f64::min);
    let typical = if typical.is_finite() { typical } else { 0.0 };
    scale(&row.unit, typical).map_or_else(
        || (printable(&row.unit), 1.0),
        |scale| (scale.unit.to_owned(), scale.divisor),
    )
}

/// Returns the distinct subjects of `rows` in the order of their first rows.
pub(crate) fn subjects(rows: &[OwnRow]) -> Vec<&str> {
    let mut subjects: Vec<&str> = Vec::new();
    for row in rows {
        if !subjects.contains(&row.subject.as_str()) {
            subjects.push(&row.subject);
        }
    }
    subjects
}

/// The contents of a cell of the table.
pub(crate) enum CellContent<'a> {
    /// A figure.
    Figure(&'a OwnCell),
    /// A text instead of a figure.
    Text(String),
}

/// Returns the contents of the cell of `row` in a column, given by its index and name. An exit
/// status is a text with all distinct statuses. If there is no figure, the text is a dash,
/// `unsupported`, `failed`, or `no report` if the guest reported no memory while it was measured.
pub(crate) fn place<'a>(
    row: &'a OwnRow,
    runs: &[(usize, Run)],
    (index, name): (usize, &str),
) -> CellContent<'a> {
    match row.cells.iter().find(|cell| cell.column == name) {
        Some(cell) if row.metric == EXIT_STATUS => {
            CellContent::Text(statuses(row, runs, index, cell))
        }
        Some(cell) => CellContent::Figure(cell),
        None => CellContent::Text(absent(row, runs, index).to_owned()),
    }
}

/// Returns all exit statuses of a column, each once.
fn statuses(row: &OwnRow, runs: &[(usize, Run)], column: usize, cell: &OwnCell) -> String {
    let mut seen: Vec<String> = Vec::new();
    for (of, run) in runs {
        if *of == column && run.experiment == row.subject {
            let code = run
                .record
                .as_ref()
                .and_then(|record| record.pointer("/status/code"));
            let code = code.map_or_else(|| "none".to_owned(), |code| printable(&code.to_string()));
            if !seen.contains(&code) {
                seen.push(code);
            }
        }
    }
    if seen.is_empty() {
        number(cell.median)
    } else {
        seen.join(", ")
    }
}

/// Returns the text for a column that does not have the figure.
fn absent(row: &OwnRow, runs: &[(usize, Run)], column: usize) -> &'static str {
    let of_column = || {
        runs.iter()
            .filter(|(of, run)| *of == column && run.experiment == row.subject)
            .map(|(_, run)| run.outcome)
    };
    let is_refused = |run: &Run| {
        let left_out = reports::refused(run);
        left_out
            .iter()
            .any(|figure| (&figure.metric, &figure.labels) == (&row.metric, &row.labels))
    };
    let mut of_subject = runs
        .iter()
        .filter(|(of, run)| *of == column && run.experiment == row.subject);
    if of_subject.any(|(_, run)| is_refused(run)) {
        "no report"
    } else if of_column().any(|outcome| outcome == Outcome::Ok) || of_column().next().is_none() {
        "–"
    } else if of_column().all(|outcome| outcome == Outcome::Unsupported) {
        "unsupported"
    } else {
        "failed"
    }
}
