//! Makes the report of finished runs, and reads reports from files.

use super::csv;
use super::figures;
use super::files::Written;
use super::findings;
use super::html;
use super::markdown::{self, Document};
use super::record;
use super::schema::{Guest, GuestFacts, Host, Report, Run, SCHEMA};
use super::statistics;
use crate::failure::Failure;
use crate::text::one_line;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// The runs of a comparison so far, from which the report is made.
#[derive(Debug)]
pub(crate) struct CollectedRuns {
    created: String,
    /// Whether another comparison ran at the same time.
    disturbed: bool,
    pub(crate) runs: Vec<Run>,
}

impl CollectedRuns {
    /// Starts a comparison without runs, with the present time. `disturbed` says that another
    /// comparison is running.
    pub(crate) fn begin(disturbed: bool) -> Self {
        Self {
            created: now(),
            disturbed,
            runs: Vec::new(),
        }
    }

    /// Returns the report of the collected runs, with the table, this host and the differences
    /// between the guests. `complete` says whether all planned runs have run.
    pub(crate) fn report(self, complete: bool) -> Report {
        let mut differences = findings::differences(&self.runs);
        if self.disturbed {
            differences.push(
                "Another comparison ran at the same time: times disturbed one another.".into(),
            );
        }
        let qemu = self
            .runs
            .iter()
            .find_map(|run| record::qemu_version(run.record.as_ref()?));
        Report {
            schema: SCHEMA,
            complete,
            created: self.created,
            host: host(),
            ebb_version: crate::embedded::version().to_owned(),
            qemu_version: qemu.unwrap_or_else(|| "unknown".to_owned()),
            options: std::env::args().collect(),
            guests: guests(&self.runs),
            differences,
            table: statistics::rows(&self.runs),
            runs: self.runs,
        }
    }
}

/// Returns the current time in RFC 3339 and UTC, in whole seconds.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

impl Report {
    /// Returns the runs, each with the name of its column.
    fn named(&self) -> impl Iterator<Item = (String, &Run)> {
        let label = |run: &Run| run.give_back.label(run.guest, true);
        self.runs.iter().map(move |run| (label(run), run))
    }
}

impl Written for Report {
    fn figures(&self) -> Result<Vec<u8>, Failure> {
        csv::figures(self.named().flat_map(|(name, run)| {
            let told = figures::of(run).into_iter();
            told.map(move |figure| (name.clone(), run, figure))
        }))
    }

    fn timelines(&self) -> Result<Vec<u8>, Failure> {
        csv::timelines(self.named())
    }

    fn page(&self) -> String {
        html::page(self)
    }

    fn document(&self) -> Document {
        markdown::document(self)
    }
}

/// Returns this host's CPU model, number of CPUs, kernel and memory. A model that cannot be read is
/// `unknown`, and memory that cannot be read is 0.
pub(crate) fn host() -> Host {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let system = rustix::system::uname();
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    Host {
        cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
        cpus: std::thread::available_parallelism()
            .map_or(1, |n| u64::try_from(n.get()).unwrap_or(1)),
        kernel: format!(
            "{} {}",
            system.sysname().to_string_lossy(),
            system.release().to_string_lossy()
        ),
        memory_bytes: memory_kib.unwrap_or(0) << 10,
    }
}

/// Returns the facts about each guest kernel, from the first run that has a record.
fn guests(runs: &[Run]) -> Vec<GuestFacts> {
    let facts = |name: Guest| {
        let record = runs
            .iter()
            .filter(|run| run.guest == name)
            .find_map(|run| run.record.as_ref());
        let unknown = || "unknown".to_owned();
        Some(GuestFacts {
            name,
            release: record.and_then(record::kernel).unwrap_or_else(unknown),
            machine: record.and_then(record::machine).unwrap_or_else(unknown),
            kernel_arguments: record
                .and_then(record::kernel_arguments)
                .unwrap_or_else(unknown),
        })
        .filter(|_| runs.iter().any(|run| run.guest == name))
    };
    [Guest::Ebb, Guest::Linux]
        .into_iter()
        .filter_map(facts)
        .collect()
}

/// Reads reports from the contents of `files`, each with its path, and joins them into one.
/// Computes the table again. Fails if a file is not a valid report or there are no files. Reports
/// of several hosts are joined, too, and the result says so.
pub(crate) fn of_files(files: &[(&Path, Vec<u8>)]) -> Result<Report, Failure> {
    let mut whole: Option<Report> = None;
    for (path, bytes) in files {
        let report = Report::from_json(bytes).map_err(|error| unusable(path, &chain(&error)))?;
        whole = Some(match whole {
            None => report,
            Some(whole) => joined(whole, report),
        });
    }
    let mut whole = whole.ok_or_else(|| Failure::Usage("no report to read".into()))?;
    // Computed from the samples, and not as an older version may have computed it.
    whole.table = statistics::rows(&whole.runs);
    let known = guests(&whole.runs);
    if whole.runs.iter().any(|run| run.record.is_some()) {
        whole.guests = known;
        whole.differences.retain(|told| !findings::is_of_runs(told));
        let mut of_runs = findings::differences(&whole.runs);
        of_runs.append(&mut whole.differences);
        whole.differences = of_runs;
    }
    Ok(whole)
}

/// Returns the failure for the file `path`, which is not a usable report. `why` is the text of the
/// reason.
pub(crate) fn unusable(path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("cannot read {}: {why}", one_line(path)))
}

/// Returns an error's message, followed by those of its causes, separated by colons.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Joins two reports. The table is not updated.
fn joined(mut whole: Report, more: Report) -> Report {
    whole.complete &= more.complete;
    if whole.host != more.host {
        whole.differences.push(format!(
            "The runs took place on several hosts: {}, {}; {}, {}.",
            whole.host.cpu, whole.host.kernel, more.host.cpu, more.host.kernel
        ));
    }
    for difference in more.differences {
        if !whole.differences.contains(&difference) {
            whole.differences.push(difference);
        }
    }
    for guest in more.guests {
        if !whole.guests.iter().any(|known| known.name == guest.name) {
            whole.guests.push(guest);
        }
    }
    whole.options.push("+".into());
    whole.options.extend(more.options);
    whole.runs.extend(more.runs);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::give_back_mode::GiveBackMode;
    use crate::compare::schema::{Better, Bucket, Event, Expense, Outcome, Point, TurnCost, What};
    use std::collections::BTreeMap;

    fn run(guest: Guest, round: u32) -> Run {
        let result = What::Result {
            metric: "rate".into(),
            value: f64::from(round),
            unit: "1/s".into(),
            better: Better::Higher,
            labels: BTreeMap::from([("size".into(), "4k".into())]),
        };
        let distribution = What::Distribution {
            metric: "latency".into(),
            unit: "ns".into(),
            better: Better::Lower,
            percentiles: vec![(50.0, 800.0), (100.0, 950.5)],
            count: 2,
            histogram: vec![Bucket {
                low: 512.0,
                high: 1024.0,
                count: 2,
            }],
            labels: BTreeMap::new(),
        };
        let phase = What::Phase {
            name: "start".into(),
            at_s: 0.25,
            bytes: None,
            mem_free_kib: Some(4096.0),
        };
        let events = [
            (None, phase),
            (Some(0.5), result),
            (Some(0.75), distribution),
        ];
        Run {
            experiment: "page-fault".into(),
            round,
            record: Some(serde_json::json!({"schema": 1})),
            events: events.map(|(host_s, what)| Event { host_s, what }).into(),
            turns: vec![TurnCost {
                wall_s: 1.5,
                qemu_cpu_s: None,
            }],
            host_cpus: vec![0, 1],
            timeline: vec![Point {
                resident: Some(4096.0),
                ..Point::default()
            }],
            expenses: vec![Expense {
                at_s: 1.0,
                qemu_cpu_s: 0.5,
                ebb_cpu_s: 0.25,
                qemu_wakeups: 100,
                ebb_wakeups: 10,
            }],
            ..Run::blank(guest)
        }
    }

    #[test]
    fn the_json_is_as_its_schema_says_and_can_be_read() {
        let mut collected = CollectedRuns::begin(true);
        for round in 1..=2 {
            collected.runs.push(run(Guest::Ebb, round));
            collected.runs.push(run(Guest::Linux, round));
        }
        collected.runs.push(Run {
            give_back: GiveBackMode::OffInBasePages,
            outcome: Outcome::Failed,
            error: Some("no reason".into()),
            ..Run::blank(Guest::Ebb)
        });
        let report = collected.report(false);
        assert!(report.table.iter().any(|row| row.interval.is_some()));
        let json = serde_json::to_value(&report).unwrap();
        let wrong = crate::pages::problems_of("compare", &json);
        assert!(wrong.is_empty(), "{wrong:#?}");
        let read = Report::from_json(json.to_string().as_bytes()).unwrap();
        assert_eq!(read, report);
    }
}
