//! The report as Markdown: a section of a document, with the plots as files in a folder next to it.

use super::absent;
use super::circumstances::circumstances;
use super::column;
use super::experiments;
use super::figures;
use super::findings;
use super::give_back_mode::GiveBackMode;
use super::histogram::{self, Histogram};
use super::output::Output;
use super::plots;
use super::schema::{Report, Row};
use super::statistics::Spread;
use super::svg::Plot;
use super::wording::{number, range, row_name, scale_of, sentence, speaks_alone, times};
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The name of the plots' folder, next to the document.
pub(super) const PLOTS: &str = "plots";

/// A section of a Markdown document, and its plots with the names of their files without extension.
pub(crate) struct Document {
    pub(crate) text: String,
    pub(crate) plots: Vec<(String, Plot)>,
}

impl Document {
    /// Writes the plots to a folder next to `path`, which is created if it is missing, and then the
    /// text to `document`, which was reserved for `path`. Fails if a file or the folder cannot be
    /// written. The text is not written if a plot failed.
    pub(crate) fn write(&self, path: &Path, document: Output) -> Result<(), Failure> {
        let folder = path.with_file_name(PLOTS);
        fs::create_dir_all(&folder).map_err(|source| Failure::Write {
            path: folder.clone(),
            source,
        })?;
        for (name, plot) in &self.plots {
            let path = folder.join(format!("{name}.svg"));
            let svg = plot.standalone();
            Output::reserve(&path, u64::try_from(svg.len()).unwrap_or(0))?.write(svg.as_bytes())?;
        }
        document.write(self.text.as_bytes())
    }
}

/// Returns the report as a section of a document, with its plots.
pub(crate) fn document(report: &Report) -> Document {
    let plots = plots::files(report);
    let shown: Vec<_> = plots
        .iter()
        .map(|(name, plot)| (name.as_str(), plot.title()))
        .collect();
    Document {
        text: text(report, &shown),
        plots,
    }
}

/// Returns the report's text. `plots` are names of plot files and their titles.
fn text(report: &Report, plots: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut line = |content: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{content}");
    };
    line("\n## Ebb beside stock Linux\n");
    line(
        "The same programs in guests of both kernels, in turn, in the same QEMU with the same machine type, memory, CPUs and",
    );
    line(
        "balloon. Figures are medians of the rounds with least and most. Times under TCG mean nothing alone; guests of one run",
    );
    line("may be compared. *Counted* means guest instructions (`-icount shift=0,sleep=off`).\n");
    let host = &report.host;
    line(&format!(
        "- Host: {}, {} CPUs, {}, {}",
        escaped(&host.cpu),
        host.cpus,
        crate::text::Rounded(host.memory_bytes),
        escaped(&host.kernel)
    ));
    line(&format!(
        "- QEMU {}, ebb {}, {}",
        escaped(&report.qemu_version),
        escaped(&report.ebb_version),
        escaped(&report.created)
    ));
    for guest in &report.guests {
        let arguments = findings::without_measured(&guest.kernel_arguments);
        line(&format!(
            "- {} guest: {}, machine {}, kernel arguments {}",
            guest.name.name(),
            escaped(&guest.release),
            code(&guest.machine),
            code(&arguments)
        ));
    }
    if !report.complete {
        line("\n**This comparison was cut short**: rounds are missing.");
    }
    let shown = |line: &mut dyn FnMut(&str), wanted: &dyn Fn(&str) -> bool| {
        for (name, title) in plots.iter().filter(|(name, _)| wanted(name)) {
            line(&format!("\n![{title}]({PLOTS}/{name}.svg)"));
        }
    };
    shown(&mut line, &|name| name == "ratios");
    for name in report.experiments() {
        experiment(&mut line, report, name);
        let file = name.replace('/', "-");
        shown(&mut line, &|plot| {
            plot.strip_prefix(file.as_str())
                .is_some_and(|rest| rest.starts_with("-memory") || rest.starts_with("-percentiles"))
        });
    }
    for paragraph in findings::paragraphs(report) {
        line(&format!("\n### {}\n", paragraph.title));
        for item in &paragraph.items {
            line(&format!("- {}", escaped(item)));
        }
    }
    line("");
    text
}

/// Appends the section of the experiment called `name`.
fn experiment(line: &mut dyn FnMut(&str), report: &Report, name: &str) {
    let mut rows = report.rows_of(name);
    rows.retain(|row| speaks_alone(row));
    let runs = report.runs_of(name);
    line(&format!("\n### {}\n", escaped(name)));
    if let Some(known) = experiments::find(name) {
        line(&format!("{}\n", sentence(known.summary)));
    }
    let commands: BTreeSet<String> = runs
        .iter()
        // The commands of a hundred boots, which only differ in a number, are left out.
        .filter(|run| run.arguments.first().is_some_and(|program| program != "sh"))
        .map(|run| figures::program(run))
        .collect();
    if !commands.is_empty() {
        let list: Vec<String> = commands.iter().map(|command| code(command)).collect();
        line(&format!("{}\n", list.join(", ")));
    }
    line(&format!("{}\n", circumstances(&runs)));
    if rows.is_empty() {
        line("No run ended well.");
        return;
    }
    let columns = column::columns(rows.iter().copied());
    let heads: Vec<String> = columns
        .iter()
        .map(|(guest, mode)| {
            let mark = if *mode == GiveBackMode::DEFAULT {
                ", the default"
            } else {
                ""
            };
            format!(" {}{mark} |", mode.label(*guest, true))
        })
        .collect();
    line(&format!("| |{} Ebb is better |", heads.concat()));
    line(&format!("|---|{}---|", "---|".repeat(columns.len())));
    for row in &rows {
        let others: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|other| other.metric == row.metric)
            .collect();
        let (unit, divisor) = scale_of(row);
        let cells: Vec<String> = columns
            .iter()
            .map(|column| {
                let found = column::cell(row, *column);
                format!(
                    " {} |",
                    found.map_or_else(
                        || absent::word(&report.runs, row, *column).to_owned(),
                        |found| cell(found.spread(), &unit, divisor)
                    )
                )
            })
            .collect();
        let ratio = row.ratio.map_or_else(
            || "–".to_owned(),
            |ratio| match row.interval {
                Some(interval) => format!("{} ({})", times(ratio), range(interval)),
                None => times(ratio),
            },
        );
        line(&format!(
            "| {} |{} {ratio} |",
            escaped(&row_name(row, &others)),
            cells.concat()
        ));
    }
    for Histogram { title, lines } in histogram::of(&runs) {
        line(&format!("\n{}\n", escaped(&title)));
        for text in lines {
            // Text that is indented is code.
            line(&format!("    {text}"));
        }
    }
}

/// Returns the text of a table's cell: the median with `unit`, and minimum and maximum if there is
/// more than one round. All are divided by `divisor`, which converts them to `unit`.
pub(super) fn cell(cell: Spread, unit: &str, divisor: f64) -> String {
    let median = format!("{} {unit}", number(cell.median / divisor));
    let median = median.trim_end();
    if cell.rounds > 1 {
        let (min, max) = (number(cell.min / divisor), number(cell.max / divisor));
        format!("{median} ({min} to {max})")
    } else {
        median.to_owned()
    }
}

/// Returns `text` with the characters escaped that have a meaning in Markdown. Control characters,
/// line breaks included, become blanks.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '[' | '\\' => safe.extend(['\\', letter]),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            letter if letter.is_control() => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

/// Returns `text` as inline code. Backticks in it become apostrophes, and line breaks become
/// blanks.
pub(super) fn code(text: &str) -> String {
    let inner = text.replace('`', "'").replace(['\n', '\r'], " ");
    format!("`{inner}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_text() {
        assert_eq!(escaped("a|b <c> _d_\n`e`"), "a\\|b &lt;c> \\_d\\_ \\`e\\`");
    }
}
