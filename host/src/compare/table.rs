//! The table in the terminal.

use super::absent;
use super::column::{self, Column};
use super::findings;
use super::give_back_mode::GiveBackMode;
use super::schema::{Guest, Report, Row, Run};
use super::statistics::spread;
use super::wording::{number, percent, row_name, scale_of, speaks_alone, times};
use crate::text::Styled;
use std::fmt::Write as _;

/// The width of a figure's column in characters.
const CELL: usize = 11;
/// The width of the ratio's column in characters.
const RATIO: usize = 12;
/// The minimum width of the name's column in characters. It gets what the others leave. If they
/// leave less, each name gets a line of its own.
const NAME_MIN: usize = 24;
/// The width that names have in a line of figures if each has a line of its own.
const NAME_APART: usize = 2;
/// The maximum width of the name's column in characters.
const NAME_MAX: usize = 46;
/// Ratios closer to 1 than this are neither ahead nor behind.
const EVEN: f64 = 0.02;

const BOLD: u8 = 1;
const DIM: u8 = 2;
const AHEAD: u8 = 32;
const BEHIND: u8 = 31;

/// How the table is printed on the terminal.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Look {
    /// The width in characters.
    pub(crate) columns: usize,
    /// Whether colours are used.
    pub(crate) colour: bool,
}

impl Look {
    /// Appends `text` in the colour or style `code`, if colours are used.
    fn paint(self, out: &mut Styled, code: u8, text: &str) {
        if self.colour && !text.trim().is_empty() {
            out.paint(code, text);
        } else {
            out.push(text);
        }
    }
}

/// Returns the whole report as text for the terminal: the rows that a report shows on their own, by
/// experiment, and then the findings.
pub(crate) fn text(report: &Report, look: Look) -> Styled {
    let mut out = Styled::default();
    let columns = column::columns(&report.table);
    let left = look
        .columns
        .saturating_sub(columns.len() * CELL + RATIO + 1);
    let name = if left < NAME_MIN {
        NAME_APART
    } else {
        left.min(NAME_MAX)
    };
    if !report.table.is_empty() {
        heads(&mut out, look, name, &columns);
    }
    for experiment in report.experiments() {
        let mut rows = report.rows_of(experiment);
        rows.retain(|row| speaks_alone(row));
        if rows.is_empty() {
            continue;
        }
        look.paint(&mut out, BOLD, experiment);
        out.push("\n");
        for row in &rows {
            let others: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|other| other.metric == row.metric)
                .collect();
            row_line(&mut out, look, name, &columns, (row, &report.runs), &others);
        }
    }
    let paragraphs = findings::paragraphs(report);
    for paragraph in paragraphs {
        out.push("\n");
        look.paint(&mut out, BOLD, &paragraph.title);
        out.push("\n");
        for item in &paragraph.items {
            line(&mut out, &wrapped(item, look.columns));
        }
    }
    out
}

/// Appends the lines of column names.
fn heads(out: &mut Styled, look: Look, name: usize, columns: &[Column]) {
    let many_modes = columns
        .iter()
        .any(|(_, mode)| *mode != GiveBackMode::REPORTING);
    let mut first = " ".repeat(name);
    let mut second = first.clone();
    for (guest, mode) in columns {
        let _ = write!(first, "{:>CELL$}", guest.name());
        let _ = write!(second, "{:>CELL$}", mode.name());
    }
    if columns.iter().any(|(guest, _)| *guest == Guest::Linux) {
        let _ = write!(first, "{:>RATIO$}", "Ebb is");
        let _ = write!(second, "{:>RATIO$}", "better");
    }
    look.paint(out, BOLD, first.trim_end());
    out.push("\n");
    if many_modes || second.contains("better") {
        look.paint(out, DIM, second.trim_end());
        out.push("\n");
    }
}

/// Appends the line of `row`.
fn row_line(
    out: &mut Styled,
    look: Look,
    name: usize,
    columns: &[Column],
    (row, runs): (&Row, &[Run]),
    others: &[&Row],
) {
    let (unit, divisor) = scale_of(row);
    let title = format!("  {}, {unit}", row_name(row, others));
    let mut text = Styled::default();
    // A long name gets a line of its own, so that figures stay aligned.
    if title.chars().count() >= name {
        line(out, &title);
        text.push(&" ".repeat(name));
    } else {
        let _ = write!(text, "{title:<name$}");
    }
    for column in columns {
        let cell = column::cell(row, *column);
        let figure = cell.map_or_else(
            || absent::word(runs, row, *column).to_owned(),
            |cell| number(cell.median / divisor),
        );
        let spread = cell
            .and_then(spread)
            .map(|share| format!(" ±{}", percent(share)))
            .unwrap_or_default();
        let blanks = CELL.saturating_sub(figure.chars().count() + spread.chars().count());
        let _ = write!(text, "{}{figure}", " ".repeat(blanks.max(1)));
        look.paint(&mut text, DIM, &spread);
    }
    if let Some(ratio) = row.ratio {
        let code = match ratio {
            ratio if ratio > 1.0 + EVEN => AHEAD,
            ratio if ratio < 1.0 - EVEN => BEHIND,
            _ => DIM,
        };
        let spread = row
            .interval
            .map(|interval| format!(" ±{}", percent(interval.half_width())))
            .unwrap_or_default();
        let figure = times(ratio);
        let blanks = RATIO.saturating_sub(figure.chars().count() + spread.chars().count());
        text.push(&" ".repeat(blanks.max(1)));
        look.paint(&mut text, code, &figure);
        look.paint(&mut text, DIM, &spread);
    }
    text.trim_end();
    out.append(&text);
    out.push("\n");
}

/// Returns an item of a list, broken into lines at spaces.
fn wrapped(item: &str, columns: usize) -> String {
    let mut text = String::from("  ");
    let mut column = 2;
    for word in item.split_whitespace() {
        let length = word.chars().count();
        if column > 4 && column + length >= columns {
            text.push_str("\n    ");
            column = 4;
        } else if column > 2 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

/// Appends a line.
fn line(out: &mut Styled, text: &str) {
    out.push(text);
    out.push("\n");
}
