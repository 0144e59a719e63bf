//! The report of columns as Markdown: a section of a document, with the memory curves as files in a
//! folder next to it.

use super::super::markdown::{Document, PLOTS, cell, code, escaped};
use super::super::svg::WIDE;
use super::super::wording::times;
use super::plots;
use super::report::OwnReport;
use super::rows::OwnRow;
use super::wording::{self, CellContent};
use crate::text::{Rounded, printable};
use std::fmt::Write as _;

/// Returns `report`, a comparison of columns, as a section of a document with its plots.
pub(crate) fn document(report: &OwnReport) -> Document {
    let mut text = String::new();
    let mut line = |content: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{content}");
    };
    let names = report.names();
    line("\n## Guests beside each other\n");
    line("One guest after the other; figures are medians of the rounds with least and most.");
    if let [first, _, ..] = names.as_slice() {
        let first = escaped(&printable(first));
        line(&format!("× is a figure divided by that of {first}."));
    }
    let host = &report.host;
    line(&format!(
        "\n- Host: {}, {} CPUs, {}, {}",
        escaped(&host.cpu),
        host.cpus,
        Rounded(host.memory_bytes),
        escaped(&host.kernel)
    ));
    line(&format!(
        "- ebb {}, {}",
        escaped(&report.ebb_version),
        escaped(&report.created)
    ));
    for column in &report.columns {
        let options = match column.options.as_slice() {
            [] => "as `ebb run` runs by itself".to_owned(),
            options => code(&printable(&options.join(" "))),
        };
        line(&format!(
            "- {}: {options}",
            escaped(&printable(&column.name))
        ));
    }
    if !report.complete {
        line("\n**This comparison was cut short**: runs are missing.");
    }
    let mut files = Vec::new();
    for (index, name) in wording::subjects(&report.table).into_iter().enumerate() {
        let rows = report.table.iter().filter(|row| row.subject == name);
        line(&format!("\n### {}\n", escaped(&printable(name))));
        table(&mut line, report, rows);
        if let Some(picture) = plots::memory(report, name) {
            // The file's name has a number, since a program's name may contain any character.
            let file = format!("columns-memory-{}", index + 1);
            let plot = picture.draw(WIDE);
            line(&format!("\n![{}]({PLOTS}/{file}.svg)", plot.title()));
            files.push((file, plot));
        }
    }
    let failures = report.failures();
    if !failures.is_empty() {
        line("\n### What did not end well\n");
        for failure in failures {
            line(&format!("- {}", escaped(&failure)));
        }
    }
    line("");
    Document { text, plots: files }
}

/// Appends the table of `rows`.
fn table<'a>(
    line: &mut dyn FnMut(&str),
    report: &OwnReport,
    rows: impl Iterator<Item = &'a OwnRow>,
) {
    let names = report.names();
    let heads = names
        .iter()
        .map(|name| format!(" {} |", escaped(&printable(name))));
    line(&format!("| |{}", heads.collect::<String>()));
    line(&format!("|---|{}", "---|".repeat(names.len())));
    for row in rows {
        let (unit, divisor) = wording::unit(row);
        let cells = names.iter().copied().enumerate().map(|column| {
            let text = match wording::place(row, &report.runs, column) {
                CellContent::Text(words) => escaped(&words),
                CellContent::Figure(found) => {
                    let ratio = found.ratio.map(|ratio| format!(", {}", times(ratio)));
                    let figure = cell(found.spread(), &escaped(&unit), divisor);
                    format!("{figure}{}", ratio.unwrap_or_default())
                }
            };
            format!(" {text} |")
        });
        line(&format!(
            "| {} |{}",
            escaped(&wording::name(row)),
            cells.collect::<String>()
        ));
    }
}
