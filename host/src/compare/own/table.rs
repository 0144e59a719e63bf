//! The table in the terminal: a row a figure, a column a configuration.

use super::super::schema::{Better, Outcome, Run};
use super::super::wording::{metric, number, percent, scale, times};
use super::measured::EXIT_STATUS;
use super::rows::{OwnCell, OwnRow};
use crate::text::printable;
use std::fmt::Write as _;

const NAME: usize = 30;
const CELL: usize = 13;
/// A figure and its ratio.
const WITH_RATIO: usize = 22;
/// Closer to 1 than this is neither better nor worse.
const EVEN: f64 = 0.02;

/// What the metrics of any program are called here.
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
    ("host_cpu_s", "CPU time of QEMU"),
    (EXIT_STATUS, "exit status"),
];

/// The report as text.
pub(crate) fn text(
    rows: &[OwnRow],
    runs: &[(usize, Run)],
    columns: &[String],
    colour: bool,
) -> String {
    let mut out = String::new();
    let mut subject: Option<&str> = None;
    let several = rows
        .windows(2)
        .any(|pair| pair[0].subject != pair[1].subject);
    heads(&mut out, columns);
    // Rows of a subject stand together.
    let mut subjects: Vec<&str> = Vec::new();
    for row in rows {
        if !subjects.contains(&row.subject.as_str()) {
            subjects.push(&row.subject);
        }
    }
    for name in subjects {
        for row in rows.iter().filter(|row| row.subject == name) {
            if several && subject != Some(name) {
                subject = Some(name);
                let _ = writeln!(out, "{}", printable(name));
            }
            row_line(&mut out, row, runs, columns, colour);
        }
    }
    out
}

fn heads(out: &mut String, columns: &[String]) {
    let mut line = " ".repeat(NAME);
    for (index, column) in columns.iter().enumerate() {
        let width = if index == 0 { CELL } else { WITH_RATIO };
        let _ = write!(line, " {:>width$}", printable(column), width = width - 1);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn row_line(
    out: &mut String,
    row: &OwnRow,
    runs: &[(usize, Run)],
    columns: &[String],
    colour: bool,
) {
    let least = row.cells.iter().map(|cell| cell.median.abs());
    let typical = least.fold(f64::INFINITY, f64::min);
    let typical = if typical.is_finite() { typical } else { 0.0 };
    let (unit, divisor) = scale(&row.unit, typical).map_or_else(
        || (printable(&row.unit), 1.0),
        |scale| (scale.unit.to_owned(), scale.divisor),
    );
    let title = title(row, &unit);
    if title.chars().count() >= NAME {
        let _ = writeln!(out, "{title}");
        let _ = write!(out, "{:NAME$}", "");
    } else {
        let _ = write!(out, "{title:<NAME$}");
    }
    let mut line = String::new();
    for (index, column) in columns.iter().enumerate() {
        let width = if index == 0 { CELL } else { WITH_RATIO };
        let found = row.cells.iter().find(|cell| cell.column == *column);
        let (plain, code) = match found {
            Some(cell) if row.metric == EXIT_STATUS => (statuses(row, runs, index, cell), None),
            Some(cell) => figure(row, cell, divisor),
            None => (absent(row, runs, index).to_owned(), None),
        };
        let blanks = width.saturating_sub(plain.chars().count()).max(1);
        line.push_str(&" ".repeat(blanks));
        match code.filter(|_| colour) {
            Some(code) => {
                let _ = write!(line, "\x1b[{code}m{plain}\x1b[0m");
            }
            None => line.push_str(&plain),
        }
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn title(row: &OwnRow, unit: &str) -> String {
    let known = NAMES
        .iter()
        .find(|(name, _)| *name == row.metric && !row.by_program);
    let mut title = match known {
        Some((_, words)) => format!("  {words}"),
        None => format!("  {}", printable(&metric(&row.metric))),
    };
    for (label, value) in &row.labels {
        title.push_str(&printable(&format!(", {label} {value}")));
    }
    if !unit.is_empty() {
        title.push_str(", ");
        title.push_str(unit);
    }
    title
}

/// The median, its spread, and its ratio to the first column.
fn figure(row: &OwnRow, cell: &OwnCell, divisor: f64) -> (String, Option<&'static str>) {
    let mut text = number(cell.median / divisor);
    if cell.rounds > 1 && cell.median != 0.0 {
        let spread = (cell.max - cell.min) / 2.0 / cell.median.abs();
        text.push_str(&format!(" ±{}", percent(spread)));
    }
    let Some(ratio) = cell.ratio else {
        return (text, None);
    };
    text.push_str(&format!(" {:>7}", times(ratio)));
    let better = match row.better {
        Better::Lower => 1.0 / ratio,
        Better::Higher => ratio,
    };
    let code = match better {
        better if better > 1.0 + EVEN => Some("32"),
        better if better < 1.0 - EVEN => Some("31"),
        _ => None,
    };
    (text, code)
}

/// All exit statuses of a column, each once.
fn statuses(row: &OwnRow, runs: &[(usize, Run)], column: usize, cell: &OwnCell) -> String {
    let mut seen: Vec<String> = Vec::new();
    for (of, run) in runs {
        if *of == column && run.experiment == row.subject {
            let code = run
                .record
                .as_ref()
                .and_then(|record| record.pointer("/status/code"));
            let code = code.map_or_else(|| "none".to_owned(), ToString::to_string);
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

/// What stands where a column has no figure.
fn absent(row: &OwnRow, runs: &[(usize, Run)], column: usize) -> &'static str {
    let of_column = || {
        runs.iter()
            .filter(|(of, run)| *of == column && run.experiment == row.subject)
            .map(|(_, run)| run.outcome)
    };
    if of_column().any(|outcome| outcome == Outcome::Ok) || of_column().next().is_none() {
        "–"
    } else if of_column().all(|outcome| outcome == Outcome::Unsupported) {
        "unsupported"
    } else {
        "failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn hostile_names_stay_on_their_line() {
        let row = OwnRow {
            subject: "./mine".into(),
            metric: "a\u{1b}[2Jb\nc".into(),
            unit: "x\r\ny".into(),
            better: Better::Lower,
            by_program: true,
            labels: BTreeMap::new(),
            cells: vec![
                OwnCell {
                    column: "Ebb".into(),
                    median: 2.0,
                    min: 1.0,
                    max: 3.0,
                    rounds: 3,
                    ratio: None,
                },
                OwnCell {
                    column: "other".into(),
                    median: 4.0,
                    min: 4.0,
                    max: 4.0,
                    rounds: 3,
                    ratio: Some(2.0),
                },
            ],
        };
        let text = text(&[row], &[], &["Ebb".into(), "other".into()], false);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            !text.contains('\u{1b}') && text.contains("2.00 ±50%"),
            "{text}"
        );
        assert!(text.contains("2.00×"), "{text}");
    }
}
