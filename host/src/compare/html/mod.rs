//! The report as one self-contained HTML page.

use super::absent;
use super::circumstances::circumstances;
use super::column::{self, Column};
use super::experiments;
use super::figures;
use super::findings::{self, Paragraph};
use super::give_back_mode::GiveBackMode;
use super::histogram;
use super::plots::{self, Picture};
use super::schema::{Guest, Host, Report, Row, Run};
use super::statistics::Spread;
use super::svg::{self, NARROW, WIDE};
use super::wording::{number, range, row_name, scale_of, sentence, times};
use crate::text::{Rounded, printable};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeSet;

/// Returns the HTML page of `report`, a comparison of experiments on both kernels.
pub(crate) fn page(report: &Report) -> String {
    let paragraphs = findings::paragraphs(report);
    Page {
        title: title(report),
        lead: "The same programs in guests of both kernels, in turn, in the same QEMU with the same memory, \
               CPUs and balloon. Figures are medians of the rounds; what differs between the guests stands at the end.",
        complete: report.complete,
        facts: facts(report),
        main: html! {
            (overview(report))
            @for (index, name) in report.experiments().iter().enumerate() {
                (experiment(report, name, index))
            }
            @for paragraph in &paragraphs {
                (list(paragraph))
            }
            (conditions(report))
        },
        ebb_version: &report.ebb_version,
        created: &report.created,
    }
    .text()
}

/// The parts of an HTML page that all reports have.
pub(crate) struct Page<'a> {
    /// The heading and title.
    pub(crate) title: &'a str,
    /// The paragraph below the heading, which explains the figures.
    pub(crate) lead: &'a str,
    /// Whether all planned rounds have run.
    pub(crate) complete: bool,
    /// The conditions of the measurement, as names and values.
    pub(crate) facts: Vec<(&'static str, String)>,
    /// The contents between header and footer.
    pub(crate) main: Markup,
    /// The version of `ebb` that measured.
    pub(crate) ebb_version: &'a str,
    /// When the report was made.
    pub(crate) created: &'a str,
}

impl Page<'_> {
    /// Returns the whole page as the text of an HTML file, with its style.
    pub(crate) fn text(self) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(svg::STYLE)) (PreEscaped(include_str!("style.css"))) }
                }
                body {
                    header {
                        h1 { (self.title) }
                        p class="lead" { (self.lead) }
                        @if !self.complete {
                            div class="banner" role="alert" {
                                strong { "Cut short. " } "Not all that was planned has run; the figures stand on what had."
                            }
                        }
                        dl class="facts" {
                            @for (name, value) in self.facts {
                                div { dt { (name) } dd { (printable(&value)) } }
                            }
                        }
                    }
                    main { (self.main) }
                    footer {
                        "Written by ebb " (printable(self.ebb_version)) " compare, " (printable(self.created))
                        ". The JSON beside it has every sample."
                    }
                }
            }
        }
        .into_string()
    }
}

/// Returns the page's title.
fn title(report: &Report) -> &'static str {
    let linux = report
        .guests
        .iter()
        .find(|guest| guest.name == Guest::Linux);
    match linux {
        Some(_) => "Ebb beside stock Linux",
        None => "Ebb, measured",
    }
}

/// Returns facts for the head of a page, as names and values: the date of `created`, which is in
/// RFC 3339, and the host's CPUs, memory and kernel.
pub(crate) fn host_facts(host: &Host, created: &str) -> Vec<(&'static str, String)> {
    let day = created.split('T').next().unwrap_or(created);
    vec![
        ("Date", day.to_owned()),
        ("Host", format!("{}, {} CPUs", host.cpu, host.cpus)),
        ("Memory", Rounded(host.memory_bytes).to_string()),
        ("Host kernel", host.kernel.clone()),
    ]
}

/// Returns the conditions of the measurement, as names and values.
fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let guests = report.guests.iter();
    let mut facts: Vec<_> = guests
        .map(|guest| (guest.name.name(), guest.release.clone()))
        .collect();
    facts.push(("QEMU", qemu(report)));
    let mut all = host_facts(&report.host, &report.created);
    // Inserted behind the date.
    all.splice(1..1, facts);
    all
}

/// Returns QEMU's version, and what ran the guests' instructions.
fn qemu(report: &Report) -> String {
    let accels: BTreeSet<String> = report
        .runs
        .iter()
        .filter_map(|run| super::record::accel(run.record.as_ref()?))
        .collect();
    let accels: Vec<_> = accels.into_iter().collect();
    if accels.is_empty() {
        report.qemu_version.clone()
    } else {
        format!("{} on {}", report.qemu_version, accels.join(" and "))
    }
}

/// Draws a plot in both of its widths; the page shows the one that fits. `id` is the prefix of the
/// ids of its elements and must be unique in the page.
pub(crate) fn picture(picture: &Picture, id: &str) -> Markup {
    html! {
        (picture.draw(WIDE).inline(&format!("{id}-w"), "wide"))
        (picture.draw(NARROW).inline(&format!("{id}-n"), "narrow"))
    }
}

/// Returns the section with the plot of all ratios.
fn overview(report: &Report) -> Markup {
    let Some(overview) = plots::overview(report) else {
        return html! {};
    };
    html! {
        section aria-labelledby="overview" {
            h2 id="overview" { "How many times better Ebb is" }
            p class="note" {
                "Right of 1× Ebb is ahead, left of it behind; of the guests that report free memory."
            }
            (picture(&overview, "ratios"))
        }
    }
}

/// Returns the section of the experiment called `name`.
fn experiment(report: &Report, name: &str, index: usize) -> Markup {
    let rows = report.rows_of(name);
    let runs = report.runs_of(name);
    let summary = experiments::find(name).map(|known| known.summary);
    let id = format!("e{index}");
    let main = plots::memory_is_the_matter(&runs);
    let memory = plots::memory(&runs);
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (name) }
            p class="note" {
                @if let Some(summary) = summary { (sentence(summary)) " " }
                (circumstances(&runs))
            }
            @if main {
                @for (number, plot) in memory.iter().enumerate() { (picture(plot, &format!("{id}-memory{number}"))) }
            }
            @for (number, plot) in plots::distributions(&runs).iter().enumerate() {
                (picture(plot, &format!("{id}-spread{number}")))
            }
            @if let Some(plot) = plots::bars(&rows, name) { (picture(&plot, &format!("{id}-bars"))) }
            @if !rows.is_empty() { (table(&rows, &report.runs)) }
            @for found in histogram::of(&runs) {
                h3 { (found.title) }
                pre class="histogram" { (found.lines.join("\n")) }
            }
            @if rows.is_empty() { p { "No run of it ended well; see below." } }
            @if !main && !memory.is_empty() {
                details {
                    summary { "Memory over time" }
                    @for (number, plot) in memory.iter().enumerate() { (picture(plot, &format!("{id}-memory{number}"))) }
                }
            }
            (commands(&runs))
        }
    }
}

/// Returns the table of `rows`.
fn table(rows: &[&Row], all: &[Run]) -> Markup {
    let columns = column::columns(rows.iter().copied());
    let ratio = rows.iter().any(|row| row.ratio.is_some());
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Figures" {
            table {
                thead {
                    tr {
                        th scope="col" { "Median" }
                        @for (guest, mode) in &columns {
                            th scope="col" {
                                span class={ (guest_class(*guest)) } { (guest.name()) }
                                @if *mode == GiveBackMode::OFF { br; "not reporting" }
                                @else if *mode != GiveBackMode::REPORTING { br; (mode.caption()) }
                            }
                        }
                        @if ratio { th scope="col" { (BETTER) } }
                    }
                }
                tbody {
                    @for row in rows {
                        @let others: Vec<&Row> = rows.iter().copied().filter(|other| other.metric == row.metric).collect();
                        @let (unit, divisor) = scale_of(row);
                        tr {
                            th scope="row" { (row_name(row, &others)) }
                            @for column in &columns {
                                (labelled(&name_of(*column), &html! {
                                    @match column::cell(row, *column) {
                                        Some(found) => { (cell(found.spread(), &unit, divisor)) }
                                        None => { (absent::word(all, row, *column)) }
                                    }
                                }))
                            }
                            @if ratio {
                                (labelled(BETTER, &html! {
                                    @if let Some(ratio) = row.ratio {
                                        span class=(ratio_class(ratio)) { (times(ratio)) }
                                        @if let Some(interval) = row.interval { small { (range(interval)) } }
                                    }
                                    @else { "–" }
                                }))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The head of the column of ratios.
const BETTER: &str = "Ebb is better";

/// Returns the name of a column on one line, for its cells on narrow screens.
fn name_of((guest, mode): Column) -> String {
    match mode {
        GiveBackMode::DEFAULT => format!("{}, {}", guest.name(), mode.caption()),
        mode => mode.label(guest, true),
    }
}

/// Returns a table's cell with `contents`. On a narrow screen rows are stacked: each cell is a line
/// of its own, which begins with `column`, the name of the cell's column.
pub(crate) fn labelled(column: &str, contents: &Markup) -> Markup {
    html! { td data-column=(column) { span class="value" { (contents) } } }
}

/// Returns the contents of a table's cell: the median with `unit`, and minimum and maximum if there
/// is more than one round. All are divided by `divisor`, which converts them to `unit`.
pub(crate) fn cell(cell: Spread, unit: &str, divisor: f64) -> Markup {
    html! {
        (number(cell.median / divisor)) " " span class="unit" { (unit) }
        @if cell.rounds > 1 {
            small { (number(cell.min / divisor)) " to " (number(cell.max / divisor)) }
        }
    }
}

fn guest_class(guest: Guest) -> &'static str {
    match guest {
        Guest::Ebb => "ebb-name",
        Guest::Linux => "linux-name",
    }
}

fn ratio_class(ratio: f64) -> &'static str {
    match ratio {
        ratio if ratio > 1.02 => "ahead-text",
        ratio if ratio < 0.98 => "behind-text",
        _ => "",
    }
}

/// Returns the list of the runs' commands.
fn commands(runs: &[&Run]) -> Markup {
    let mut seen: Vec<String> = Vec::new();
    for run in runs {
        let command = figures::command_in_short(run);
        if !seen.contains(&command) {
            seen.push(command);
        }
    }
    html! {
        details {
            summary { "Commands" }
            pre { (seen.join("\n")) }
        }
    }
}

/// Returns the section with a list of findings.
fn list(paragraph: &Paragraph) -> Markup {
    html! {
        section {
            h2 { (paragraph.title) }
            ul { @for item in &paragraph.items { li { (item) } } }
        }
    }
}

/// Returns the section about the options, the kernels, and QEMU's command lines.
fn conditions(report: &Report) -> Markup {
    html! {
        section {
            h2 { "How it was run" }
            pre { (report.options.join(" ")) }
            div class="scroll" tabindex="0" role="region" aria-label="Guests" {
                table {
                    thead { tr { th scope="col" { "Guest" } @for guest in &report.guests { th scope="col" { (guest.name.name()) } } } }
                    tbody {
                        tr {
                            th scope="row" { "Kernel" }
                            @for guest in &report.guests { (labelled(guest.name.name(), &html! { (guest.release) })) }
                        }
                    }
                }
            }
            @for guest in &report.guests {
                h3 { (guest.name.name()) ": machine and kernel arguments" }
                pre { (guest.machine) "\n" (findings::without_measured(&guest.kernel_arguments)) }
            }
            @for guest in [Guest::Ebb, Guest::Linux] {
                @if let Some(command) = first_qemu(report, guest) {
                    details { summary { "QEMU's command line for " (guest.name()) } pre { (command) } }
                }
            }
        }
    }
}

/// Returns QEMU's command line of the first run with this kernel, or `None` if no run has it.
fn first_qemu(report: &Report, guest: Guest) -> Option<String> {
    let run = report.runs.iter().find(|run| {
        let usual = run.give_back.host_pages().is_none();
        run.guest == guest && run.record.is_some() && usual
    })?;
    Some(super::record::qemu_command(run.record.as_ref()?)?.join(" "))
}
