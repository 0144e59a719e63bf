//! The report as JSON: every run with its curve, and the table. When a file is read, the table is
//! computed again from its runs.

use super::super::figures;
use super::super::report::host;
use super::super::schema::{Host, Outcome, ReadError, Run};
use super::super::variant::Variant;
use super::rows::{OwnRow, rows};
use crate::text::printable;
use serde::{Deserialize, Serialize, Serializer};

/// The kind of this report in JSON. A report of experiments on both kernels has no kind.
const KIND: &str = "columns";
/// The maximum number of columns of a comparison or of a report that is read.
pub(crate) const COLUMNS_MAX: usize = 16;
/// The schema version that this version writes and reads.
const SCHEMA: u32 = 2;

/// The report of a comparison of columns: configurations of guests, in which the same programs or
/// experiments ran.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OwnReport {
    /// Always `columns`. A report of experiments on both kernels has no such field.
    kind: &'static str,
    /// The version of the format, which is 2. Reports of another version are refused.
    schema: u32,
    /// Whether all planned runs are there.
    pub(crate) complete: bool,
    /// When the first run began, in RFC 3339 and UTC.
    pub(crate) created: String,
    /// The facts about the host.
    pub(crate) host: Host,
    /// The version of `ebb` that measured, with the commit in brackets if the build knew it.
    pub(crate) ebb_version: String,
    /// The command line of this comparison.
    pub(crate) options: Vec<String>,
    /// The columns.
    pub(crate) columns: Vec<ColumnFacts>,
    /// The runs, each with the index of its column.
    #[serde(serialize_with = "flat")]
    #[cfg_attr(test, schemars(with = "Vec<Numbered<Run>>"))]
    pub(crate) runs: Vec<(usize, Run)>,
    /// The figures of all runs.
    pub(crate) table: Vec<OwnRow>,
}

/// The name and the options of a column of the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Column"))]
pub(crate) struct ColumnFacts {
    /// The column's name.
    pub(crate) name: String,
    /// Options of `ebb run` that this column has besides those of all columns.
    pub(crate) options: Vec<String>,
}

impl OwnReport {
    /// Creates the report of `runs`, each with the index of its column in `columns`. Computes the
    /// table, and adds the facts about this host and this command line. `created` is in RFC 3339
    /// and UTC.
    pub(crate) fn new(
        complete: bool,
        created: String,
        columns: &[Variant],
        runs: Vec<(usize, Run)>,
    ) -> Self {
        let facts = columns.iter().map(|column| ColumnFacts {
            name: column.name.clone(),
            options: column.options.clone(),
        });
        Self::of(Stored {
            complete,
            created,
            host: host(),
            ebb_version: crate::embedded::version().to_owned(),
            options: std::env::args_os()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            columns: facts.collect(),
            runs: runs
                .into_iter()
                .map(|(column, run)| Numbered { column, run })
                .collect(),
        })
    }

    /// Reads the JSON of a report and computes its table again. Fails if the JSON is not valid or
    /// of another kind or schema version. Fails, too, if it has no columns or more than
    /// [`COLUMNS_MAX`], two columns with the same name, or a run without a column.
    pub(crate) fn from_json(bytes: &[u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
            schema: u64,
        }
        let Kind { kind, schema } = serde_json::from_slice(bytes)?;
        if kind != KIND {
            return Err(ReadError::Kind(kind));
        }
        if schema != u64::from(SCHEMA) {
            return Err(ReadError::Schema {
                found: schema,
                read: SCHEMA,
            });
        }
        let stored: Stored = serde_json::from_slice(bytes)?;
        let count = stored.columns.len();
        if count == 0 || count > COLUMNS_MAX {
            return Err(ReadError::Columns(count));
        }
        for (index, column) in stored.columns.iter().enumerate() {
            let mut before = stored.columns[..index].iter();
            if before.any(|other| other.name == column.name) {
                return Err(ReadError::Twice(column.name.clone()));
            }
        }
        let mut runs = stored.runs.iter();
        match runs.find(|run| run.column >= count) {
            Some(run) => Err(ReadError::NoColumn {
                column: run.column,
                count,
            }),
            None => Ok(Self::of(stored)),
        }
    }

    fn of(stored: Stored) -> Self {
        let names: Vec<String> = stored.columns.iter().map(|c| c.name.clone()).collect();
        let runs = stored.runs.into_iter();
        let runs: Vec<(usize, Run)> = runs.map(|run| (run.column, run.run)).collect();
        Self {
            kind: KIND,
            schema: SCHEMA,
            complete: stored.complete,
            created: stored.created,
            host: stored.host,
            ebb_version: stored.ebb_version,
            options: stored.options,
            columns: stored.columns,
            table: rows(&runs, &names),
            runs,
        }
    }

    /// Returns the columns' names, in the order of their indices.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.columns
            .iter()
            .map(|column| column.name.as_str())
            .collect()
    }

    /// Returns whether instructions are counted in all runs of `subject` in the first column and in
    /// the column called `column`. The ratio of `column` is computed from these. Returns `true` if
    /// there are no such runs.
    pub(crate) fn is_counted(&self, subject: &str, column: &str) -> bool {
        let names = self.names();
        let mut runs = self.runs.iter().filter(|(of, run)| {
            run.experiment == subject && (*of == 0 || names.get(*of) == Some(&column))
        });
        runs.all(|(_, run)| run.icount)
    }

    /// Returns whether a run has the outcome `Failed`. A run that the guest does not support has
    /// not failed.
    pub(crate) fn has_failed(&self) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|(_, run)| run.outcome == Outcome::Failed)
    }

    /// Returns a line for each run that has an error, with the subject, column and round. It
    /// contains no control characters.
    pub(crate) fn failures(&self) -> Vec<String> {
        let names = self.names();
        let failed = self.runs.iter().filter_map(|(column, run)| {
            let error = run.error.as_ref()?;
            let name = names[*column];
            Some(printable(&format!(
                "{} on {name}, round {}: {error}",
                run.experiment, run.round
            )))
        });
        failed.collect()
    }

    /// Returns the distinct `ebb run` commands of all runs, in the order of the runs.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        for (_, run) in &self.runs {
            let command = printable(&figures::command_in_short(run));
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        commands
    }

    /// Returns the runs, each with the name of its column.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &Run)> {
        let runs = self.runs.iter();
        runs.map(|(column, run)| (self.columns[*column].name.as_str(), run))
    }
}

/// The fields of a report that are read from a file. The table is not read.
#[derive(Deserialize)]
struct Stored {
    complete: bool,
    created: String,
    host: Host,
    ebb_version: String,
    options: Vec<String>,
    columns: Vec<ColumnFacts>,
    runs: Vec<Numbered<Run>>,
}

/// A run in a column.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ColumnRun"))]
struct Numbered<R> {
    /// The index of the column, from 0.
    column: usize,
    #[serde(flatten)]
    run: R,
}

/// Serialises the runs with the indices of their columns.
fn flat<S: Serializer>(runs: &[(usize, Run)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(runs.iter().map(|(column, run)| Numbered {
        column: *column,
        run,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::guest::Guest;

    #[test]
    fn the_json_is_as_its_schema_says_and_can_be_read() {
        let columns = [
            Variant::new("Ebb", &[]).unwrap(),
            Variant::new("small", &["-m", "256M"]).unwrap(),
        ];
        let run = |wall_s: f64| Run {
            record: Some(serde_json::json!({"wall_s": wall_s, "status": {"code": 0}})),
            ..Run::blank(Guest::Ebb)
        };
        let runs = vec![(0, run(2.0)), (1, run(1.0))];
        let report = OwnReport::new(true, "2026-11-29T12:00:00Z".into(), &columns, runs);
        assert!(!report.table.is_empty());
        let json = serde_json::to_value(&report).unwrap();
        let wrong = crate::pages::problems_of("compare-columns", &json);
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(json["runs"][1]["column"], 1);
        let read = OwnReport::from_json(json.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
    }
}
