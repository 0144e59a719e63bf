//! The report as part of docs/measurements.md, the plots as files beside it.
//!
//! The document has several sources: this one writes what stands between its own two markers and
//! keeps the rest, so that each can be measured again without losing the others.

use super::experiments;
use super::figures;
use super::findings;
use super::output::Output;
use super::plots;
use super::schema::{Cell, Guest, Report, Row, Run};
use super::wording::{number, row_name, scale_of, speaks_alone, times};
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- ebb compare: begin -->";
const END: &str = "<!-- ebb compare: end -->";
/// The folder of the plots, beside the document.
const PLOTS: &str = "plots";

/// A new document, with room for what other programs measure.
const FRAME: (&str, &str) = (
    "# Measurements\n\nWritten by `make measure`. Each part stands between markers and is written \
     again alone; what is outside\nof them is kept.\n\n",
    "\n## The allocator beside others\n\n`make measure-allocator` fills this part.\n\n\
     <!-- allocator: begin -->\n<!-- allocator: end -->\n",
);

/// Why a document cannot take the part.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not have `{0}` once, in order with its counterpart; repair or remove the file")]
pub(crate) struct MarkerError(&'static str);

/// The document with its part replaced, or a new one.
pub(crate) fn placed(document: Option<&str>, part: &str) -> Result<String, MarkerError> {
    let Some(document) = document else {
        let (before, after) = FRAME;
        return Ok(format!("{before}{BEGIN}\n{part}{END}\n{after}"));
    };
    let once = |marker: &'static str| {
        let mut places = document.match_indices(marker).map(|(at, _)| at);
        match (places.next(), places.next()) {
            (None, _) => Ok(None),
            (Some(at), None) => Ok(Some(at)),
            _ => Err(MarkerError(marker)),
        }
    };
    match (once(BEGIN)?, once(END)?) {
        (Some(begin), Some(end)) if begin < end => Ok(format!(
            "{}\n{part}{}",
            &document[..begin + BEGIN.len()],
            &document[end..]
        )),
        (None, Some(_)) => Err(MarkerError(END)),
        _ => Err(MarkerError(BEGIN)),
    }
}

/// Writes the part into the document at `path` and the plots beside it.
pub(crate) fn write(report: &Report, path: &Path, document: Output) -> Result<(), Failure> {
    let folder = path.with_file_name(PLOTS);
    let failed = |path: PathBuf| move |source: io::Error| Failure::Write { path, source };
    let old = match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(path.to_owned())(error)),
    };
    let plots = plots::files(report);
    let part = part(
        report,
        &plots
            .iter()
            .map(|(name, plot)| (name.as_str(), plot.title()))
            .collect::<Vec<_>>(),
    );
    let text = placed(old.as_deref(), &part).map_err(|error| {
        failed(path.to_owned())(io::Error::new(io::ErrorKind::InvalidData, error))
    })?;
    fs::create_dir_all(&folder).map_err(failed(folder.clone()))?;
    for (name, plot) in &plots {
        let path = folder.join(format!("{name}.svg"));
        let svg = plot.standalone();
        Output::reserve(&path, u64::try_from(svg.len()).unwrap_or(0))?.write(svg.as_bytes())?;
    }
    document.write(text.as_bytes())
}

/// All that stands between the markers; `plots` are names of files and what they show.
fn part(report: &Report, plots: &[(&str, &str)]) -> String {
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
    line(
        "may be compared. *Counted* means guest instructions (`-icount shift=0,sleep=off`). [compare.md](compare.md) says what\neach figure is.\n",
    );
    let host = &report.host;
    line(&format!(
        "- Host: {}, {} CPUs, {}, {}",
        escaped(&host.cpu),
        host.cpus,
        crate::size::Rounded(host.memory_bytes),
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

fn experiment(line: &mut dyn FnMut(&str), report: &Report, name: &str) {
    let rows: Vec<&Row> = report
        .table
        .iter()
        .filter(|row| row.experiment == name && speaks_alone(row))
        .collect();
    let runs: Vec<&Run> = report
        .runs
        .iter()
        .filter(|run| run.experiment == name)
        .collect();
    line(&format!("\n### {}\n", escaped(name)));
    if let Some(known) = experiments::find(name) {
        line(&format!(
            "{}: {}.\n",
            name,
            known.summary.trim_end_matches('?')
        ));
    }
    let commands: BTreeSet<String> = runs
        .iter()
        // A hundred boots differ in a number each.
        .filter(|run| run.arguments.first().is_some_and(|program| program != "sh"))
        .map(|run| figures::program(run))
        .collect();
    if !commands.is_empty() {
        let list: Vec<String> = commands.iter().map(|command| code(command)).collect();
        line(&format!("{}\n", list.join(", ")));
    }
    if rows.is_empty() {
        line("No run ended well.");
        return;
    }
    let mut columns: Vec<(Guest, bool)> = rows
        .iter()
        .flat_map(|row| row.cells.iter().map(|cell| (cell.guest, cell.reporting)))
        .collect();
    columns.sort_by_key(|(guest, reporting)| (!reporting, *guest));
    columns.dedup();
    let heads: Vec<String> = columns
        .iter()
        .map(|(guest, reporting)| {
            let way = if *reporting { "" } else { ", not reporting" };
            format!(" {}{way} |", guest.name())
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
                let found = row
                    .cells
                    .iter()
                    .find(|cell| (cell.guest, cell.reporting) == *column);
                format!(
                    " {} |",
                    found.map_or_else(|| "–".to_owned(), |found| cell(found, &unit, divisor))
                )
            })
            .collect();
        let ratio = row.ratio.map_or_else(|| "–".to_owned(), times);
        line(&format!(
            "| {} |{} {ratio} |",
            escaped(&row_name(row, &others)),
            cells.concat()
        ));
    }
}

fn cell(cell: &Cell, unit: &str, divisor: f64) -> String {
    let median = number(cell.median / divisor);
    if cell.rounds > 1 {
        let (min, max) = (number(cell.min / divisor), number(cell.max / divisor));
        format!("{median} {unit} ({min} to {max})")
    } else {
        format!("{median} {unit}")
    }
}

/// Text that Markdown does not take for its own.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '[' | '\\' => safe.extend(['\\', letter]),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            '\n' | '\r' => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

/// Text as code, which nothing in it can end.
fn code(text: &str) -> String {
    let inner = text.replace('`', "'").replace(['\n', '\r'], " ");
    format!("`{inner}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_markers_is_replaced() {
        let fresh = placed(None, "one\n").unwrap();
        assert!(fresh.contains("one") && fresh.contains("<!-- allocator: begin -->"));
        let filled = fresh.replace(
            "<!-- allocator: begin -->\n",
            "<!-- allocator: begin -->\n| table |\n",
        );
        let again = placed(Some(&filled), "two\n").unwrap();
        assert_eq!(again, filled.replace("\none\n", "\ntwo\n"));
        assert_eq!(placed(Some(&again), "two\n").unwrap(), again);
    }

    #[test]
    fn a_document_with_broken_markers_is_left_alone() {
        for broken in [
            "# Mine\n".to_owned(),
            format!("{BEGIN}\n"),
            format!("{END}\n"),
            format!("{END}\n{BEGIN}\n"),
            format!("{BEGIN}\n{BEGIN}\n{END}\n"),
        ] {
            assert!(placed(Some(&broken), "x").is_err(), "{broken}");
        }
    }

    #[test]
    fn foreign_text_stays_text() {
        assert_eq!(escaped("a|b <c> _d_\n`e`"), "a\\|b &lt;c> \\_d\\_ \\`e\\`");
    }
}
