//! The table in the terminal: a row for each figure, a column for each configuration.

use super::super::schema::Run;
use super::super::wording::{number, percent, times};
use super::rows::{OwnCell, OwnRow};
use super::wording::{self, CellContent, Verdict};
use crate::text::{Styled, printable};
use std::fmt::Write as _;

/// The width of the row names in characters.
const NAME: usize = 30;
/// The width of a cell without a ratio in characters.
const CELL: usize = 13;
/// The width of a cell with a ratio in characters.
const WITH_RATIO: usize = 22;

/// Returns the table as text: the names of the columns, then a line for each of `rows`. `columns`
/// are the columns' names, and each of `runs` has the index of its column. Columns in which a
/// subject did not run are left out for it. `colour` adds colours for better and worse.
pub(crate) fn text(
    rows: &[OwnRow],
    runs: &[(usize, Run)],
    columns: &[String],
    colour: bool,
) -> Styled {
    let mut out = Styled::default();
    let subjects = wording::subjects(rows);
    let shown: Vec<Vec<Column<'_>>> = subjects
        .iter()
        .map(|subject| shown(subject, rows, runs, columns))
        .collect();
    // The heading is printed once if all subjects have the same columns.
    let one = shown.windows(2).all(|pair| pair[0] == pair[1]);
    for (index, (name, columns)) in subjects.iter().zip(&shown).enumerate() {
        if index == 0 || !one {
            heads(&mut out, columns);
        }
        if subjects.len() > 1 {
            let _ = writeln!(out, "{}", printable(name));
        }
        for row in rows.iter().filter(|row| row.subject == *name) {
            row_line(&mut out, row, runs, columns, colour);
        }
    }
    out
}

/// A column by its index and name.
type Column<'a> = (usize, &'a str);

/// Returns the columns in which a subject ran or has a figure. Returns all columns if there are no
/// runs.
fn shown<'a>(
    subject: &str,
    rows: &[OwnRow],
    runs: &[(usize, Run)],
    columns: &'a [String],
) -> Vec<Column<'a>> {
    let columns = columns.iter().map(String::as_str).enumerate();
    let is_shown = |(index, name): &Column<'_>| {
        let mut of_subject = rows.iter().filter(|row| row.subject == subject);
        runs.is_empty()
            || runs
                .iter()
                .any(|(of, run)| of == index && run.experiment == subject)
            || of_subject.any(|row| row.cells.iter().any(|cell| cell.column == *name))
    };
    columns.filter(is_shown).collect()
}

/// Returns the width of a cell in characters. Cells of the first column have no ratio.
fn width(index: usize) -> usize {
    if index == 0 { CELL } else { WITH_RATIO }
}

/// Appends the line of column names.
fn heads(out: &mut Styled, columns: &[Column<'_>]) {
    let mut line = " ".repeat(NAME);
    for (index, column) in columns {
        let width = width(*index);
        let _ = write!(line, " {:>width$}", printable(column), width = width - 1);
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// Appends the line of `row`.
fn row_line(
    out: &mut Styled,
    row: &OwnRow,
    runs: &[(usize, Run)],
    columns: &[Column<'_>],
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
    for &(index, column) in columns {
        let width = width(index);
        let (plain, code) = match wording::place(row, runs, (index, column)) {
            CellContent::Figure(cell) => figure(row, cell, divisor),
            CellContent::Text(words) => (words, None),
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

/// Returns a cell's text and colour code: the median, its spread, and its ratio to the first
/// column.
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
    fn a_subject_shows_the_columns_in_which_it_ran() {
        let row = |subject: &str, column: &str| OwnRow {
            subject: subject.into(),
            metric: "rate".into(),
            unit: String::new(),
            better: Better::Higher,
            by_program: true,
            labels: BTreeMap::new(),
            cells: vec![OwnCell {
                column: column.into(),
                median: 2.0,
                min: 2.0,
                max: 2.0,
                rounds: 1,
                ratio: None,
            }],
        };
        let run = |column: usize, subject: &str| {
            let run = Run {
                experiment: subject.into(),
                ..Run::blank(crate::compare::guest::Guest::Ebb)
            };
            (column, run)
        };
        let rows = [row("a", "first"), row("b", "second")];
        let columns = ["first".to_owned(), "second".to_owned()];
        let table = text(&rows, &[run(0, "a"), run(1, "b")], &columns, false);
        let heads: Vec<&str> = table.as_str().lines().map(str::trim).collect();
        assert_eq!((heads[0], heads[3]), ("first", "second"), "{heads:?}");
        let table = text(&rows, &[run(0, "a"), run(0, "b")], &columns[..1], false);
        assert_eq!(table.as_str().matches("first").count(), 1);
    }

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
