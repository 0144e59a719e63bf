//! `--timeline FILE`: the curve of a run as JSON lines.
//!
//! Each line is an object. `t_ms` is host time since the guest's CPUs were started; amounts are in
//! bytes; `used` is null until the guest's allocator works. The last line, written when the guest
//! has ended, also has `summary`.

use crate::failure::Failure;
use crate::sample::Sample;
use crate::summary::Summary;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A timeline under way.
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
    reported: u64,
    reports: u64,
    ranges: u64,
    file: u64,
    faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a Summary>,
}

impl Timeline {
    /// Begins the file, or says at once that it cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|source| Failure::Write {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            error: None,
        })
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.write(sample, None);
    }

    /// Adds the last line. The first error of all writes comes out here: a program must not be
    /// stopped for want of space for its curve.
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
            reports: sample.reports,
            ranges: sample.reported_ranges,
            file: sample.file,
            faults: sample.faults,
            summary,
        };
        let result = serde_json::to_vec(&line)
            .map_err(io::Error::from)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                // One write a line, so that a reader who follows the file sees whole lines.
                self.file.write_all(&bytes)
            });
        self.error = result.err();
    }
}
