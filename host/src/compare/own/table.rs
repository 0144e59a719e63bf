//! The table in the terminal: a row a figure, a column a configuration.

use super::super::schema::Run;
use super::super::wording::{number, percent, times};
use super::rows::{OwnCell, OwnRow};
use super::wording::{self, Place, Verdict};
use crate::text::{Styled, printable};
use std::fmt::Write as _;

const NAME: usize = 30;
const CELL: usize = 13;
/// A figure and its ratio.
const WITH_RATIO: usize = 22;

/// The report as text.
pub(crate) fn text(
    rows: &[OwnRow],
    runs: &[(usize, Run)],
    columns: &[String],
    colour: bool,
) -> Styled {
    let mut out = Styled::default();
    let subjects = wording::subjects(rows);
    heads(&mut out, columns);
    for name in &subjects {
        if subjects.len() > 1 {
            let _ = writeln!(out, "{}", printable(name));
        }
        for row in rows.iter().filter(|row| row.subject == *name) {
            row_line(&mut out, row, runs, columns, colour);
        }
    }
    out
}

fn heads(out: &mut Styled, columns: &[String]) {
    let mut line = " ".repeat(NAME);
    for (index, column) in columns.iter().enumerate() {
        let width = if index == 0 { CELL } else { WITH_RATIO };
        let _ = write!(line, " {:>width$}", printable(column), width = width - 1);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn row_line(
    out: &mut Styled,
    row: &OwnRow,
    runs: &[(usize, Run)],
    columns: &[String],
    colour: bool,
) {
    let (unit, divisor) = wording::unit(row);
    let mut title = format!("  {}", wording::name(row));
    if !unit.is_empty() {
        title.push_str(", ");
        title.push_str(&unit);
    }
    if title.chars().count() >= NAME {
        let _ = writeln!(out, "{title}");
        let _ = write!(out, "{:NAME$}", "");
    } else {
        let _ = write!(out, "{title:<NAME$}");
    }
    let mut line = Styled::default();
    for (index, column) in columns.iter().enumerate() {
        let width = if index == 0 { CELL } else { WITH_RATIO };
        let (plain, code) = match wording::place(row, runs, (index, column)) {
            Place::Figure(cell) => figure(row, cell, divisor),
            Place::Words(words) => (words, None),
        };
        let blanks = width.saturating_sub(plain.chars().count()).max(1);
        line.push(&" ".repeat(blanks));
        match code.filter(|_| colour) {
            Some(code) => line.paint(code, &plain),
            None => line.push(&plain),
        }
    }
    line.trim_end();
    out.append(&line);
    out.push("\n");
}

/// The median, its spread, and its ratio to the first column.
fn figure(row: &OwnRow, cell: &OwnCell, divisor: f64) -> (String, Option<u8>) {
    let mut text = number(cell.median / divisor);
    if cell.rounds > 1 && cell.median != 0.0 {
        let spread = (cell.max - cell.min) / 2.0 / cell.median.abs();
        text.push_str(&format!(" ±{}", percent(spread)));
    }
    let Some(ratio) = cell.ratio else {
        return (text, None);
    };
    text.push_str(&format!(" {:>7}", times(ratio)));
    let code = match wording::verdict(row, ratio) {
        Verdict::Better => Some(32),
        Verdict::Worse => Some(31),
        Verdict::Even => None,
    };
    (text, code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::Better;
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
        let text = text.as_str();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            !text.contains('\u{1b}') && text.contains("2.00 ±50%"),
            "{text}"
        );
        assert!(text.contains("2.00×"), "{text}");
    }
}
