//! The file of `--timeline`: the memory curve of a run as JSON lines.
//!
//! Each line is an object. `t_ms` is host time since the guest's CPUs were started, and amounts are
//! in bytes. `used` is null until the guest reports it. A figure that the guest's kernel does not
//! know is always null. While the guest's CPUs are stopped, a line has `stands_still`: true. The
//! last line, written when the guest has ended, also has `summary`.

use super::summary::Summary;
use crate::failure::Failure;
use crate::guest::Sample;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

/// The file of `--timeline` that is being written. It keeps the first error, and then writes
/// nothing more.
#[derive(Debug)]
pub(crate) struct Timeline {
    path: PathBuf,
    file: File,
    error: Option<io::Error>,
}

#[derive(Serialize)]
struct Line<'a> {
    t_ms: f64,
    used: Option<u64>,
    resident: u64,
    unreported: Option<u64>,
    reported: Option<u64>,
    taken: Option<u64>,
    reports: Option<u64>,
    ranges: Option<u64>,
    file: Option<u64>,
    faults: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stands_still: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a Summary>,
}

impl Timeline {
    /// Creates the file at `path`, or truncates the one that is there.
    ///
    /// # Errors
    /// Fails if the file cannot be created or opened for writing.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = crate::system::create_file(path).map_err(|source| Failure::Write {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            error: None,
        })
    }

    /// Removes all lines, because the guest is started again. A pipe or device keeps its lines. An
    /// error is returned later by [`Self::finish`].
    pub(crate) fn restart(&mut self) {
        let empty = self.file.set_len(0).and_then(|()| self.file.rewind());
        // A pipe keeps its lines, and its reader sees time begin again.
        if self.error.is_none() && !empty.as_ref().is_err_and(is_not_a_file) {
            self.error = empty.err();
        }
    }

    /// Writes a line for `sample`. Does nothing after an error, which [`Self::finish`] returns
    /// later.
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.write(sample, None);
    }

    /// Writes the last line, with `sample` and `summary`.
    ///
    /// # Errors
    /// Returns the first error of all writes. It comes only now, so that a full disk does not end
    /// the program.
    pub(crate) fn finish(mut self, sample: &Sample, summary: &Summary) -> Result<(), Failure> {
        self.write(sample, Some(summary));
        match self.error {
            None => Ok(()),
            Some(source) => Err(Failure::Write {
                path: self.path,
                source,
            }),
        }
    }

    fn write(&mut self, sample: &Sample, summary: Option<&Summary>) {
        if self.error.is_some() {
            return;
        }
        let line = Line {
            t_ms: (sample.at.as_secs_f64() * 1e6).round() / 1e3,
            used: sample.used,
            resident: sample.resident,
            unreported: sample.unreported,
            reported: sample.reported,
            taken: sample.taken,
            reports: sample.reports,
            ranges: sample.reported_ranges,
            file: sample.file,
            faults: sample.faults,
            stands_still: sample.standstill.is_some(),
            summary,
        };
        let result = serde_json::to_vec(&line)
            .map_err(io::Error::from)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                // One write for each line, so that a reader who follows the file sees whole lines.
                self.file.write_all(&bytes)
            });
        self.error = result.err();
    }
}

/// Returns whether `error` means that the file cannot be shortened because it is a pipe or a
/// device.
fn is_not_a_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotSeekable};
    matches!(error.kind(), InvalidInput | NotSeekable)
}
