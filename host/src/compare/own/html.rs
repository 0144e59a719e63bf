//! The report of columns as one self-contained HTML page.

use super::super::html::{Page, cell, host_facts, labelled, picture};
use super::super::wording::times;
use super::plots;
use super::report::OwnReport;
use super::rows::OwnRow;
use super::wording::{self, CellContent, Verdict};
use crate::text::{Size, printable};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// Returns the HTML page of `report`, a comparison of columns.
pub(crate) fn page(report: &OwnReport) -> String {
    let subjects = wording::subjects(&report.table);
    let title = match subjects.as_slice() {
        [one] => format!("{}, measured", printable(one)),
        _ => "Guests, measured".to_owned(),
    };
    let names: Vec<String> = report.names().into_iter().map(printable).collect();
    let mut facts = host_facts(&report.host, &report.created);
    facts.push(("Columns", names.join(", ")));
    let lead = match names.as_slice() {
        [one] => {
            format!("Figures of {one} are medians of the rounds, with the least and the most.")
        }
        [first, ..] => format!(
            "One guest after the other. Figures are medians of the rounds, with the least and the most; × is a figure \
             divided by that of {first}."
        ),
        [] => String::new(),
    };
    Page {
        title: &title,
        lead: &lead,
        complete: report.complete,
        facts,
        main: html! {
            @for (index, name) in subjects.iter().enumerate() {
                (subject(report, name, index))
            }
            @if subjects.is_empty() { section { p { "No run ended well." } } }
            (failures(report))
            (conditions(report))
        },
        ebb_version: &report.ebb_version,
        created: &report.created,
    }
    .text()
}

/// Returns the section of the subject called `name`.
fn subject(report: &OwnReport, name: &str, index: usize) -> Markup {
    let id = format!("s{index}");
    let rows: Vec<&OwnRow> = report
        .table
        .iter()
        .filter(|row| row.subject == name)
        .collect();
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (printable(name)) }
            p class="note" { (circumstances(report, name)) }
            (table(report, &rows))
            @if let Some(plot) = plots::memory(report, name) {
                h3 { "Memory over time" }
                (picture(&plot, &format!("{id}-memory")))
            }
        }
    }
}

/// Returns a sentence about the guests and the number of rounds.
fn circumstances(report: &OwnReport, subject: &str) -> String {
    let runs = || {
        let runs = report.runs.iter().map(|(_, run)| run);
        runs.filter(|run| run.experiment == subject)
    };
    let rounds = runs().map(|run| run.round).max().unwrap_or(0);
    let shapes: BTreeSet<(u64, u32)> = runs().map(|run| (run.memory_bytes, run.cpus)).collect();
    let shapes = shapes.into_iter().map(|(memory, cpus)| {
        let plural = if cpus == 1 { "" } else { "s" };
        format!("{} and {cpus} CPU{plural}", Size(memory))
    });
    let plural = if rounds == 1 { "" } else { "s" };
    let counted = if runs().any(|run| run.icount) {
        "; instructions are counted"
    } else {
        ""
    };
    let shapes: Vec<String> = shapes.collect();
    format!(
        "Guests with {}; {rounds} round{plural}{counted}.",
        shapes.join(", or ")
    )
}

/// Returns the table of `rows`.
fn table(report: &OwnReport, rows: &[&OwnRow]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Figures" {
            table {
                thead {
                    tr {
                        th scope="col" { "Median" }
                        @for column in &report.columns { th scope="col" { (printable(&column.name)) } }
                    }
                }
                tbody {
                    @for row in rows {
                        @let (unit, divisor) = wording::unit(row);
                        tr {
                            th scope="row" { (wording::name(row)) }
                            @for column in report.names().into_iter().enumerate() {
                                (labelled(&printable(column.1), &html! {
                                    @match wording::place(row, &report.runs, column) {
                                        CellContent::Text(words) => { (words) }
                                        CellContent::Figure(found) => {
                                            (cell(found.spread(), &unit, divisor))
                                            @if let Some(ratio) = found.ratio {
                                                small { span class=(class(row, ratio)) { (times(ratio)) } }
                                            }
                                        }
                                    }
                                }))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the CSS class of a ratio.
fn class(row: &OwnRow, ratio: f64) -> &'static str {
    match wording::verdict(row, ratio) {
        Verdict::Better => "ahead-text",
        Verdict::Even => "",
        Verdict::Worse => "behind-text",
    }
}

/// Returns the section with the runs that failed.
fn failures(report: &OwnReport) -> Markup {
    let told = report.failures();
    html! {
        @if !told.is_empty() {
            section { h2 { "What did not end well" } ul { @for line in told { li { (line) } } } }
        }
    }
}

/// Returns the section with the options and commands.
fn conditions(report: &OwnReport) -> Markup {
    html! {
        section {
            h2 { "How it was run" }
            pre { (printable(&report.options.join(" "))) }
            details {
                summary { "Commands" }
                pre { (report.commands().join("\n")) }
            }
        }
    }
}
