//! The findings that a reader needs in addition to the figures: where Ebb is behind, what reporting
//! costs, and what failed, is not supported, or differs.

use super::column;
use super::give_back_mode::GiveBackMode;
use super::ratio::ratio;
use super::reports::{self, Reported};
use super::schema::{Cell, Guest, Outcome, Report, Row};
use super::statistics::{cost, spread};
use super::wording::{number, range, row_name, scale, scale_of, speaks_alone, times};
use crate::machine::GiveBack;
use ebb_wire::boot::EPOCH;
use std::collections::BTreeSet;

/// A list of sentences under a title.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Paragraph {
    pub(crate) title: String,
    pub(crate) items: Vec<String>,
}

/// Ratios closer to 1 than this are neither ahead nor behind.
const EVEN: f64 = 0.02;

/// Returns all findings about `report`, the most important first. A finding without any item is
/// left out.
pub(crate) fn paragraphs(report: &Report) -> Vec<Paragraph> {
    let mut all = Vec::new();
    let mut add = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            all.push(Paragraph {
                title: title.to_owned(),
                items,
            });
        }
    };
    if !report.complete {
        let text = "It was cut short: rounds are missing, and the figures stand on what had run.";
        add("This report is not complete", vec![text.to_owned()]);
    }
    add("Failed", failures(report, Outcome::Failed));
    add(
        "Not supported, and no pass",
        failures(report, Outcome::Unsupported),
    );
    add("Where Ebb is behind", behind(report));
    add(
        &format!("In Ebb's default mode, {}", GiveBackMode::DEFAULT.name()),
        default_mode(report),
    );
    add("Not settled", unsettled(report));
    add("What giving memory back costs", cost_of_giving_back(report));
    add(
        "Reports while instructions were counted",
        reports::sentences(&report.runs),
    );
    add(
        "What differs between the guests",
        report.differences.clone(),
    );
    all
}

/// Returns the name of a row, with its experiment.
fn name_in(report: &Report, row: &Row) -> String {
    let others: Vec<&Row> = report
        .table
        .iter()
        .filter(|other| other.experiment == row.experiment && other.metric == row.metric)
        .collect();
    format!("{}: {}", row.experiment, row_name(row, &others))
}

/// Returns each distinct failure once, with the number of runs, the experiment and the guest.
fn failures(report: &Report, outcome: Outcome) -> Vec<String> {
    let mut seen: Vec<(String, u32)> = Vec::new();
    for run in report.runs.iter().filter(|run| run.outcome == outcome) {
        // The lines behind the first differ from run to run; the JSON has them.
        let error = run.error.as_deref().and_then(|error| error.lines().next());
        let error = error.unwrap_or("no reason was given");
        let text = format!("{} on {}: {error}", run.experiment, run.guest.name());
        match seen.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => seen.push((text, 1)),
        }
    }
    seen.into_iter()
        .map(|(text, count)| match count {
            1 => text,
            count => format!("{text} ({count} runs)"),
        })
        .collect()
}

/// Returns the rows in which Ebb is behind.
fn behind(report: &Report) -> Vec<String> {
    let rows = report
        .table
        .iter()
        .filter(|row| speaks_alone(row) && row.ratio.is_some_and(|ratio| ratio < 1.0 - EVEN));
    rows.map(|row| {
        let (unit, divisor) = scale_of(row);
        let sides = column::compared(row);
        let figure = |guest| {
            let cell = sides.and_then(|sides| sides.into_iter().find(|cell| cell.guest == guest));
            cell.map_or_else(String::new, |cell| {
                format!("{} {unit}", number(cell.median / divisor))
            })
        };
        format!(
            "{}: {} against {}, {}",
            name_in(report, row),
            figure(Guest::Ebb),
            figure(Guest::Linux),
            times(row.ratio.unwrap_or(1.0))
        )
    })
    .collect()
}

/// Returns the ratios that have not settled, which another comparison may not reproduce.
fn unsettled(report: &Report) -> Vec<String> {
    let rows = report.table.iter().filter(|row| speaks_alone(row));
    rows.filter_map(|row| {
        let (ratio, interval) = (row.ratio?, row.interval?);
        (!interval.is_settled()).then(|| {
            let sure = match interval.confidence {
                Some(share) => format!("with {:.0} % confidence", share * 100.0),
                None => "range of all boots".to_owned(),
            };
            format!(
                "{}: {}, that is {} ({sure}, {} boots)",
                name_in(report, row),
                times(ratio),
                range(interval),
                interval.boots
            )
        })
    })
    .collect()
}

/// A figure of Ebb's default mode is listed if it differs from that with reporting by more than
/// this share, and by more than the spread of the rounds.
const DIFFERENT: f64 = 0.05;
/// The spread that a figure of one round is taken to have, as a share.
const UNKNOWN_SPREAD: f64 = 0.25;

/// Returns the figures that are different in Ebb's default mode and with reporting, with the ratio
/// to Linux with reporting, which is the default of a stock guest.
fn default_mode(report: &Report) -> Vec<String> {
    let rows = report.table.iter().filter(|row| speaks_alone(row));
    rows.filter_map(|row| {
        let usual = column::cell(row, (Guest::Ebb, GiveBackMode::DEFAULT))?;
        let reporting = column::cell(row, (Guest::Ebb, GiveBackMode::REPORTING))?;
        let apart = (usual.median / reporting.median - 1.0).abs();
        let noise = [usual, reporting].map(|cell| spread(cell).unwrap_or(UNKNOWN_SPREAD));
        let positive = usual.median > 0.0 && reporting.median > 0.0;
        let linux = column::cell(row, (Guest::Linux, GiveBackMode::REPORTING));
        // A figure that is compared with none of Linux's may be as good as nothing.
        let comparable = row.ratio.is_some() || linux.is_none();
        if !comparable || !positive || apart <= DIFFERENT.max(noise[0] + noise[1]) {
            return None;
        }
        let figure = |cell: &Cell| {
            let scale = scale(&row.unit, cell.median);
            let (unit, divisor) = scale.map_or((row.unit.as_str(), 1.0), |scale| {
                (scale.unit, scale.divisor)
            });
            format!("{} {unit}", number(cell.median / divisor))
        };
        let beside = linux
            .and_then(|linux| ratio(row.better, usual.median, linux.median))
            .map_or_else(String::new, |ratio| {
                format!("; beside Linux with reporting {}", times(ratio))
            });
        Some(format!(
            "{}: {}, with reporting {}{beside}",
            name_in(report, row),
            figure(usual).trim_end(),
            figure(reporting).trim_end()
        ))
    })
    .collect()
}

/// Returns how reporting, hinting and Ebb's default mode change each cost that should not depend on
/// them. Where the guest made no report while it measured, says so in place of a cost.
fn cost_of_giving_back(report: &Report) -> Vec<String> {
    let mut items = Vec::new();
    for row in report.table.iter().filter(|row| matters(row)) {
        let compared = [
            (Guest::Ebb, GiveBackMode::REPORTING),
            (Guest::Ebb, GiveBackMode::Guest(GiveBack::Hinting)),
            (Guest::Ebb, GiveBackMode::DEFAULT),
            (Guest::Linux, GiveBackMode::REPORTING),
        ];
        let parts: Vec<String> = compared
            .into_iter()
            .filter_map(|(guest, mode)| {
                let on = column::cell(row, (guest, mode))?;
                let off = column::cell(row, (guest, GiveBackMode::OFF))?;
                let cost = cost(row.better, on.median, off.median)?;
                let noise = [on, off].map(|cell| spread(cell).unwrap_or(0.0));
                let column = format!("on {} with {}", guest.name(), mode.name());
                let reported = mode
                    .reports()
                    .then(|| reports::reported_in(&report.table, row, (guest, mode)));
                if reported == Some(Reported::No) {
                    return Some(format!("no report {column} meanwhile"));
                }
                let within = if cost.abs() <= noise[0] + noise[1] {
                    " (within the spread of the rounds)"
                } else {
                    ""
                };
                let unknown = if reported == Some(Reported::Unknown) {
                    " (not known whether it reported meanwhile)"
                } else {
                    ""
                };
                Some(format!("{:+.2} % {column}{within}{unknown}", cost * 100.0))
            })
            .collect();
        if !parts.is_empty() {
            items.push(format!("{}: {}", name_in(report, row), parts.join(", ")));
        }
    }
    items
}

/// Returns whether the row is the cost of an operation that should not depend on giving back.
/// Figures
/// of returning memory, and of touching it again, do depend on it.
fn matters(row: &Row) -> bool {
    row.metric == "fault_ns" && row.experiment != super::give_back::AGAIN
}

/// The beginning of the sentence about starts in which Linux hung.
const HUNG: &str = "Linux hung before its first process";

/// Returns sentences about the differences between the guests of the two kernels, as far as the
/// records of `runs` show them. Also says how often Linux had to be started again. A fact that only
/// one kernel's records contain is left out.
pub(crate) fn differences(runs: &[super::schema::Run]) -> Vec<String> {
    type Read = fn(&serde_json::Value) -> Option<String>;
    const FACTS: [(&str, Read); 5] = [
        ("kernel", super::record::kernel),
        ("machine", super::record::machine),
        ("CPU", super::record::cpu),
        ("kernel arguments", super::record::kernel_arguments),
        ("accelerator", super::record::accel),
    ];
    let mut all = Vec::new();
    for icount in [false, true] {
        for (name, read) in FACTS {
            let of = |guest: Guest| -> BTreeSet<String> {
                runs.iter()
                    .filter(|run| run.guest == guest && run.icount == icount)
                    .filter_map(|run| run.record.as_ref().and_then(read))
                    .map(|text| without_measured(&text))
                    .collect()
            };
            let (ebb, linux) = (of(Guest::Ebb), of(Guest::Linux));
            if ebb.is_empty() || linux.is_empty() || ebb == linux {
                continue;
            }
            let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" or ");
            let how = if icount {
                ", counting instructions"
            } else {
                ""
            };
            let text = format!("{name}{how}: Ebb {}; Linux {}", list(ebb), list(linux));
            if !all.contains(&text) {
                all.push(text);
            }
        }
    }
    let again: u64 = runs
        .iter()
        .filter(|run| run.guest == Guest::Linux)
        .filter_map(|run| super::record::attempts(run.record.as_ref()?))
        .map(|attempts| attempts.saturating_sub(1))
        .sum();
    if again > 0 {
        all.push(format!(
            "{HUNG} and was started again, {again} times in all; only starts that came through \
             are measured"
        ));
    }
    all
}

/// Returns whether `difference` is a sentence that [`differences`] makes, so that it can be made
/// again from the runs.
pub(crate) fn is_of_runs(difference: &str) -> bool {
    difference.contains(": Ebb ") || difference.starts_with(HUNG)
}

/// Returns a kernel command line without values that are measured at each start: Ebb's time of day
/// is left out, and Linux's clock frequency is replaced by a word.
pub(crate) fn without_measured(text: &str) -> String {
    const RATE: &str = "tsc_early_khz=";
    let words = text
        .split(' ')
        .filter(|word| word.split_once('=').is_none_or(|(name, _)| name != EPOCH))
        .map(|word| {
            if word.starts_with(RATE) {
                "tsc_early_khz=RATE"
            } else {
                word
            }
        });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::{Better, Event, Host, Run, SCHEMA, What};
    use crate::compare::statistics;
    use std::collections::BTreeMap;

    /// Returns a report of runs with a fault each, and with requests if their number is given.
    fn report(icount: bool, runs: &[(Guest, GiveBackMode, f64, Option<f64>)]) -> Report {
        let event = |metric: &str, unit: &str, value: f64| Event {
            host_s: None,
            what: What::Result {
                metric: metric.into(),
                value,
                unit: unit.into(),
                better: Better::Lower,
                labels: BTreeMap::new(),
            },
        };
        let runs: Vec<Run> = runs
            .iter()
            .map(|&(guest, give_back, fault, reports)| {
                let mut events = vec![event("fault_ns", "ns", fault)];
                events.extend(reports.map(|count| event("reports", "requests", count)));
                Run {
                    experiment: "page-fault/4k".into(),
                    give_back,
                    icount,
                    events,
                    ..Run::blank(guest)
                }
            })
            .collect();
        Report {
            schema: SCHEMA,
            complete: true,
            created: String::new(),
            host: Host {
                cpu: String::new(),
                cpus: 2,
                kernel: String::new(),
                memory_bytes: 0,
            },
            ebb_version: String::new(),
            qemu_version: String::new(),
            options: Vec::new(),
            guests: Vec::new(),
            differences: Vec::new(),
            table: statistics::rows(&runs),
            runs,
        }
    }

    #[test]
    fn a_cost_of_reporting_needs_a_report() {
        let (ebb, linux) = (Guest::Ebb, Guest::Linux);
        let (on, off) = (GiveBackMode::REPORTING, GiveBackMode::OFF);
        let told = |icount, ebb_reports, linux_reports| {
            let runs = [
                (ebb, on, 101.0, ebb_reports),
                (ebb, off, 100.0, Some(0.0)),
                (linux, on, 103.0, linux_reports),
                (linux, off, 100.0, None),
            ];
            cost_of_giving_back(&report(icount, &runs)).join("\n")
        };
        let text = told(false, Some(2.0), None);
        assert!(text.contains("+1.00 % on Ebb with reporting,"), "{text}");
        assert!(
            text.contains("+3.00 % on Linux with reporting (not known"),
            "{text}"
        );
        let text = told(false, Some(0.0), Some(1.0));
        assert!(
            text.contains("no report on Ebb with reporting meanwhile"),
            "{text}"
        );
        assert!(text.ends_with("+3.00 % on Linux with reporting"), "{text}");
        // A counted figure without a report is in no row.
        let text = told(true, Some(0.0), Some(1.0));
        assert!(!text.contains("Ebb") && text.contains("Linux"), "{text}");
    }

    #[test]
    fn what_is_behind_is_said_by_the_figures_of_its_ratio() {
        let runs = [
            (Guest::Ebb, GiveBackMode::REPORTING, 200.0, Some(0.0)),
            (Guest::Ebb, GiveBackMode::OFF, 120.0, Some(0.0)),
            (Guest::Linux, GiveBackMode::REPORTING, 90.0, Some(1.0)),
            (Guest::Linux, GiveBackMode::OFF, 60.0, None),
        ];
        let told = behind(&report(true, &runs));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("120 instr. against 60.0 instr., 0.50×"),
            "{told:?}"
        );
    }

    #[test]
    fn starts_that_differ_in_a_measured_rate_are_alike() {
        let line = |rate: &str| format!("quiet ebb.epoch=12{rate} tsc_early_khz={rate} panic=-1");
        assert_eq!(
            without_measured(&line("2300001")),
            without_measured(&line("2300045"))
        );
        assert_eq!(
            without_measured(&line("1")),
            "quiet tsc_early_khz=RATE panic=-1"
        );
    }

    #[test]
    fn what_the_user_was_told_beside_the_runs_is_kept() {
        assert!(is_of_runs(
            "CPU, counting instructions: Ebb max; Linux max,-erms"
        ));
        assert!(!is_of_runs(
            "Another comparison ran at the same time: times disturbed one another."
        ));
    }
}
