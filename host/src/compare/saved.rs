//! Reports read again, of either kind.

use super::agreement::Other;
use super::own::OwnReport;
use super::report;
use super::schema::Report;
use crate::failure::Failure;
use crate::text::one_line;
use serde::Deserialize;
use std::fs;
use std::path::PathBuf;

/// A report of `--from` or `--against`.
#[derive(Debug)]
pub(crate) enum Saved {
    /// Experiments on both kernels.
    Kernels(Box<Report>),
    /// A program of one's own, or variants.
    Columns(Box<OwnReport>),
}

impl Other<Saved> {
    /// To be held against experiments on both kernels.
    ///
    /// # Errors
    /// If it is of columns.
    pub(crate) fn of_kernels(self) -> Result<Other<Report>, Failure> {
        match self.report {
            Saved::Kernels(report) => Ok(Other {
                report: *report,
                name: self.name,
                alone: self.alone,
            }),
            Saved::Columns(_) => Err(another_kind(&self.name, COLUMNS, KERNELS)),
        }
    }

    /// To be held against columns.
    ///
    /// # Errors
    /// If it is of experiments on both kernels.
    pub(crate) fn of_columns(self) -> Result<Other<OwnReport>, Failure> {
        match self.report {
            Saved::Columns(report) => Ok(Other {
                report: *report,
                name: self.name,
                alone: self.alone,
            }),
            Saved::Kernels(_) => Err(another_kind(&self.name, KERNELS, COLUMNS)),
        }
    }
}

const KERNELS: &str = "experiments on both kernels";
const COLUMNS: &str = "columns";

fn another_kind(name: &str, there: &str, here: &str) -> Failure {
    Failure::Usage(format!(
        "{name} is of {there}, and this comparison is of {here} (a program of one's own and variants are columns)"
    ))
}

/// Reads reports, and makes one of several.
///
/// # Errors
/// For a file that is none, and for several that are not all of experiments on both kernels.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Saved, Failure> {
    let mut files = Vec::new();
    for path in paths {
        // Once: it may be a pipe.
        let bytes = fs::read(path).map_err(|error| report::unusable(path, &error.to_string()))?;
        files.push((path.as_path(), bytes));
    }
    let columns = files.iter().find(|(_, bytes)| is_of_columns(bytes));
    match (columns, files.len()) {
        (None, _) => Ok(Saved::Kernels(Box::new(report::of_files(&files)?))),
        (Some((path, bytes)), 1) => {
            let report = OwnReport::from_json(bytes);
            let report = report.map_err(|error| report::unusable(path, &report::chain(&error)))?;
            Ok(Saved::Columns(Box::new(report)))
        }
        (Some((path, _)), count) => Err(Failure::Usage(format!(
            "{} is of columns (a program of one's own, or variants), which stand alone; {count} files are given",
            one_line(path)
        ))),
    }
}

/// Whether the JSON says that it is of columns. What is no report says nothing.
fn is_of_columns(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }
    serde_json::from_slice::<Kind>(bytes).is_ok_and(|Kind { kind }| kind.is_some())
}
