//! Reports read again, of either kind.

use super::own::OwnReport;
use super::report;
use super::schema::Report;
use crate::failure::Failure;
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

/// The comparison of `--against`, and where it came from.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) report: Saved,
    pub(crate) name: String,
    /// Nothing was run: whoever asks does not want the table once more.
    pub(crate) alone: bool,
}

impl Other {
    /// Whether it is of a program of one's own, or of variants.
    pub(crate) const fn is_of_columns(&self) -> bool {
        matches!(self.report, Saved::Columns(_))
    }

    /// What says that a comparison of another kind cannot be held against this one.
    pub(crate) fn is_of_another_kind(&self) -> Failure {
        let (there, here) = match self.report {
            Saved::Kernels(_) => ("experiments on both kernels", "columns"),
            Saved::Columns(_) => ("columns", "experiments on both kernels"),
        };
        Failure::Usage(format!(
            "{} is of {there}, and this comparison is of {here} (a program of one's own and variants are columns)",
            self.name
        ))
    }
}

/// Reads reports, and makes one of several.
///
/// # Errors
/// For a file that is none, and for several that are not all of experiments on both kernels.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Saved, Failure> {
    let mut files = Vec::new();
    for path in paths {
        // Once: it may be a pipe.
        let bytes = fs::read(path).map_err(|error| unusable(path, &error.to_string()))?;
        files.push((path.as_path(), bytes));
    }
    let columns = files.iter().find(|(_, bytes)| is_of_columns(bytes));
    match (columns, files.len()) {
        (None, _) => Ok(Saved::Kernels(Box::new(report::of_files(&files)?))),
        (Some((path, bytes)), 1) => {
            let report = OwnReport::from_json(bytes);
            let report = report.map_err(|error| unusable(path, &report::chain(&error)))?;
            Ok(Saved::Columns(Box::new(report)))
        }
        (Some((path, _)), count) => Err(Failure::Usage(format!(
            "{} is of columns (a program of one's own, or variants), which stand alone; {count} files are given",
            path.display()
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

/// A file that is no report.
pub(super) fn unusable(path: &std::path::Path, why: &str) -> Failure {
    Failure::Usage(format!("cannot read {}: {why}", path.display()))
}
