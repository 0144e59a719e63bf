//! Reads saved reports of either kind.

use super::agreement::Other;
use super::own::OwnReport;
use super::report;
use super::schema::Report;
use crate::failure::Failure;
use crate::system::open_regular;
use crate::text::one_line;
use serde::Deserialize;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A saved report of either kind, which `--from` or `--against` names.
#[derive(Debug)]
pub(crate) enum Saved {
    /// Of experiments on both kernels.
    Kernels(Box<Report>),
    /// Of the user's own program, or of variants, in columns.
    Columns(Box<OwnReport>),
}

impl Other<Saved> {
    /// Returns the other report if it can be compared with experiments on both kernels.
    ///
    /// # Errors
    /// [`Failure::Usage`] if it is a report of columns.
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

    /// Returns the other report if it can be compared with columns.
    ///
    /// # Errors
    /// [`Failure::Usage`] if it is a report of experiments on both kernels.
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

/// The maximum size of a report that is read, in bytes.
const REPORT_BYTES_MAX: u64 = 256 << 20;

const KERNELS: &str = "experiments on both kernels";
const COLUMNS: &str = "columns";

/// Returns the failure that the report `name` has another kind.
fn another_kind(name: &str, there: &str, here: &str) -> Failure {
    Failure::Usage(format!(
        "{name} is of {there}, and this comparison is of {here} (a program of one's own and variants are columns)"
    ))
}

/// Reads reports from the files `paths`, and joins them into one. Only reports of experiments on
/// both kernels can be joined; a report of columns is read alone.
///
/// # Errors
/// [`Failure::Usage`] if there are no files, one cannot be read, is over 256 MiB or is not a valid
/// report, or if there are several and one is a report of columns.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Saved, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let bytes = content(path, REPORT_BYTES_MAX);
        let bytes = bytes.map_err(|error| report::unusable(path, &error.to_string()))?;
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

/// Returns the contents of the regular file at `path`.
///
/// # Errors
/// The host's; `FileTooLarge` if it has more than `most` bytes.
fn content(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let count = open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if u64::try_from(count).is_ok_and(|count| count <= most) {
        return Ok(bytes);
    }
    Err(io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it has more than {most} bytes, the most that a report may have"),
    ))
}

/// Returns whether the JSON is a report of columns. Returns `false` if it is not a report.
fn is_of_columns(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }
    serde_json::from_slice::<Kind>(bytes).is_ok_and(|Kind { kind }| kind.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_read_again_is_a_regular_file_of_bounded_length() {
        let path = std::env::temp_dir().join(format!("ebb-saved-{}", std::process::id()));
        fs::write(&path, "12345").unwrap();
        assert_eq!(content(&path, 5).unwrap(), b"12345");
        let error = content(&path, 4).unwrap_err();
        assert!(error.to_string().contains("more than 4 bytes"), "{error}");
        // The file is a hole, so the test of its size takes no memory.
        let sparse = fs::File::options().write(true).open(&path).unwrap();
        sparse.set_len(REPORT_BYTES_MAX + 1).unwrap();
        let error = read(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("more than 268435456 bytes"), "{error}");
        for path in ["/dev/zero", "/"] {
            let error = read(&[path.into()]).unwrap_err().to_string();
            assert!(error.contains("not a file"), "{error}");
        }
        fs::remove_file(&path).unwrap();
    }
}
