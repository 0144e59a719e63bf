//! `--csv` and `--timeline-csv`: figures and timelines for other programs. docs/compare.md lists
//! the fields.

use super::figure::Figure;
use super::schema::{Better, Run};
use crate::failure::Failure;
use csv::{Writer, WriterBuilder};
use serde::Serialize;

/// A line of the CSV with a figure of a run.
#[derive(Serialize)]
struct FigureLine<'a> {
    experiment: &'a str,
    column: &'a str,
    kernel: &'a str,
    give_back: &'a str,
    cpus: u32,
    memory_bytes: u64,
    icount: bool,
    round: u32,
    metric: &'a str,
    unit: &'a str,
    better: &'a str,
    value: f64,
    labels: String,
}

/// A line of the CSV with a sample of a run.
#[derive(Serialize)]
struct SampleLine<'a> {
    experiment: &'a str,
    column: &'a str,
    cpus: u32,
    memory_bytes: u64,
    round: u32,
    t_ms: f64,
    used_bytes: Option<f64>,
    resident_bytes: Option<f64>,
    unreported_bytes: Option<f64>,
    reported_bytes: Option<f64>,
    file_bytes: Option<f64>,
    faults: Option<f64>,
}

const FIGURE_FIELDS: [&str; 13] = [
    "experiment",
    "column",
    "kernel",
    "give_back",
    "cpus",
    "memory_bytes",
    "icount",
    "round",
    "metric",
    "unit",
    "better",
    "value",
    "labels",
];
const SAMPLE_FIELDS: [&str; 12] = [
    "experiment",
    "column",
    "cpus",
    "memory_bytes",
    "round",
    "t_ms",
    "used_bytes",
    "resident_bytes",
    "unreported_bytes",
    "reported_bytes",
    "file_bytes",
    "faults",
];

/// Returns `figures` as CSV with a header line, one figure per line. Each figure comes with the
/// name of its column and its run. Fails if a line cannot be converted.
pub(crate) fn figures<'a>(
    figures: impl Iterator<Item = (impl AsRef<str>, &'a Run, Figure)>,
) -> Result<Vec<u8>, Failure> {
    let mut writer = writer(&FIGURE_FIELDS)?;
    for (column, run, figure) in figures {
        let labels = figure.labels.iter();
        let labels: Vec<String> = labels
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        put(
            &mut writer,
            &FigureLine {
                experiment: &run.experiment,
                column: column.as_ref(),
                kernel: run.guest.name(),
                give_back: run.give_back.name(),
                cpus: run.cpus,
                memory_bytes: run.memory_bytes,
                icount: run.icount,
                round: run.round,
                metric: &figure.metric,
                unit: &figure.unit,
                better: match figure.better {
                    Better::Higher => "higher",
                    Better::Lower => "lower",
                },
                value: figure.value,
                labels: labels.join(";"),
            },
        )?;
    }
    bytes(writer)
}

/// Returns the timelines of `runs` as CSV with a header line, one sample per line. Each run comes
/// with the name of its column. Fails if a line cannot be converted.
pub(crate) fn timelines<'a>(
    runs: impl Iterator<Item = (impl AsRef<str>, &'a Run)>,
) -> Result<Vec<u8>, Failure> {
    let mut writer = writer(&SAMPLE_FIELDS)?;
    for (column, run) in runs {
        for point in &run.timeline {
            put(
                &mut writer,
                &SampleLine {
                    experiment: &run.experiment,
                    column: column.as_ref(),
                    cpus: run.cpus,
                    memory_bytes: run.memory_bytes,
                    round: run.round,
                    t_ms: point.t_ms,
                    used_bytes: point.used,
                    resident_bytes: point.resident,
                    unreported_bytes: point.unreported,
                    reported_bytes: point.reported,
                    file_bytes: point.file,
                    faults: point.faults,
                },
            )?;
        }
    }
    bytes(writer)
}

/// Creates a writer and writes the header line, which is there even if no line follows.
fn writer(fields: &[&str]) -> Result<Writer<Vec<u8>>, Failure> {
    let mut writer = WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    writer.write_record(fields).map_err(failed)?;
    Ok(writer)
}

/// Appends a line.
fn put(writer: &mut Writer<Vec<u8>>, line: &impl Serialize) -> Result<(), Failure> {
    writer.serialize(line).map_err(failed)
}

/// Returns the written CSV.
fn bytes(writer: Writer<Vec<u8>>) -> Result<Vec<u8>, Failure> {
    let written = writer.into_inner();
    written.map_err(|error| Failure::setup("the CSV")(error.into_error()))
}

fn failed(error: csv::Error) -> Failure {
    Failure::setup("the CSV")(std::io::Error::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::figure::lower;
    use crate::compare::guest::Guest;
    use crate::compare::schema::Point;

    fn run() -> Run {
        Run {
            experiment: "sh -c 'echo \"a,b\"\n'".into(),
            cpus: 2,
            round: 3,
            timeline: vec![Point {
                t_ms: 50.5,
                resident: Some(4096.0),
                ..Point::default()
            }],
            ..Run::blank(Guest::Linux)
        }
    }

    /// Returns the values of the field called `field`, one per line.
    fn read(bytes: &[u8], field: &str) -> Vec<String> {
        let mut reader = csv::Reader::from_reader(bytes);
        let at = reader
            .headers()
            .unwrap()
            .iter()
            .position(|name| name == field);
        let at = at.unwrap_or_else(|| panic!("{field}"));
        reader
            .records()
            .map(|line| line.unwrap()[at].to_owned())
            .collect()
    }

    #[test]
    fn every_field_stands_below_its_name() {
        let run = run();
        let mut figure = lower("faults", "1/s", 2.5);
        figure.labels.insert("kind".into(), "a,\"b\"".into());
        let written = figures([("a \"column\"", &run, figure)].into_iter()).unwrap();
        for (field, value) in [
            ("experiment", run.experiment.as_str()),
            ("column", "a \"column\""),
            ("kernel", "Linux"),
            ("give_back", "reporting"),
            ("cpus", "2"),
            ("icount", "false"),
            ("round", "3"),
            ("metric", "faults"),
            ("unit", "1/s"),
            ("better", "lower"),
            ("value", "2.5"),
            ("labels", "kind=a,\"b\""),
        ] {
            assert_eq!(read(&written, field), [value], "{field}");
        }
        let written = timelines([("c", &run)].into_iter()).unwrap();
        for (field, value) in [
            ("column", "c"),
            ("t_ms", "50.5"),
            ("resident_bytes", "4096.0"),
            ("used_bytes", ""),
        ] {
            assert_eq!(read(&written, field), [value], "{field}");
        }
        let none = timelines(std::iter::empty::<(&str, &Run)>()).unwrap();
        assert_eq!(read(&none, "t_ms").len(), 0);
    }
}
