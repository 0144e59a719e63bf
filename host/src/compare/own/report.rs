//! The report as JSON: every run with its curve, and the table.

use super::super::schema::Run;
use super::super::variant::Variant;
use super::rows::{OwnRow, rows};
use crate::failure::Failure;
use serde::{Serialize, Serializer};

/// What kind of report this is; one of experiments on both kernels has none.
const KIND: &str = "columns";
const SCHEMA: u32 = 1;

/// One comparison of columns.
#[derive(Debug, Serialize)]
pub(crate) struct OwnReport {
    kind: &'static str,
    schema: u32,
    pub(crate) complete: bool,
    ebb_version: &'static str,
    /// The command line of this comparison.
    options: Vec<String>,
    columns: Vec<ColumnFacts>,
    /// Each with the number of its column.
    #[serde(serialize_with = "flat")]
    pub(crate) runs: Vec<(usize, Run)>,
    pub(crate) table: Vec<OwnRow>,
}

#[derive(Clone, Debug, Serialize)]
struct ColumnFacts {
    name: String,
    /// Options of `ebb run` that it has beside those of all.
    options: Vec<String>,
}

impl OwnReport {
    pub(crate) fn new(complete: bool, columns: &[Variant], runs: Vec<(usize, Run)>) -> Self {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let facts = columns.iter().map(|column| ColumnFacts {
            name: column.name.clone(),
            options: column.options.clone(),
        });
        Self {
            kind: KIND,
            schema: SCHEMA,
            complete,
            ebb_version: env!("CARGO_PKG_VERSION"),
            options: std::env::args_os()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            columns: facts.collect(),
            table: rows(&runs, &names),
            runs,
        }
    }

    /// The report as a file.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, Failure> {
        let mut bytes = serde_json::to_vec(self)
            .map_err(std::io::Error::from)
            .map_err(Failure::setup("the JSON report"))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// A run with the number of its column among its fields.
#[derive(Serialize)]
struct Numbered<'a> {
    column: usize,
    #[serde(flatten)]
    run: &'a Run,
}

fn flat<S: Serializer>(runs: &[(usize, Run)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(runs.iter().map(|(column, run)| Numbered {
        column: *column,
        run,
    }))
}
