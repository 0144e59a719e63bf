//! The file of `--timeline`: the memory curve of a run as JSON lines.
//!
//! Each line is an object. The last one is written when the guest has ended. The comments on fields
//! are the text of docs/json.md.

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

/// A sample of a guest's memory.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line<'a> {
    /// Host time since the start of the guest's CPUs.
    t_ms: f64,
    /// The host's monotonic clock (`CLOCK_MONOTONIC`) when the line was written. Another process of
    /// the host can find by it when an event of its own happened on the guest's timeline.
    monotonic_s: f64,
    /// Bytes of memory that the guest uses, without its balloon. Null until its kernel tells.
    used: Option<u64>,
    /// Bytes in the guest's balloon. Null until its kernel tells.
    ballooned: Option<u64>,
    /// Bytes of the guest's memory that are resident on the host.
    resident: u64,
    /// Bytes of free pageblocks that the host may still hold. Null if the guest's kernel does not
    /// tell.
    unreported: Option<u64>,
    /// Bytes of all ranges that the guest has reported as free so far. Null if its kernel does not
    /// tell.
    reported: Option<u64>,
    /// Bytes that the host has taken by itself so far. Null for a guest from which the host takes
    /// no memory by itself.
    taken: Option<u64>,
    /// The number of reports so far. Null if the guest's kernel does not tell.
    reports: Option<u64>,
    /// The number of reported ranges so far. Null if the guest's kernel does not tell.
    ranges: Option<u64>,
    /// Bytes of files in the guest's memory. Null until its kernel tells.
    file: Option<u64>,
    /// The number of page faults in the guest so far. Null until its kernel tells.
    faults: Option<u64>,
    /// Always true: the virtual CPUs were stopped. Left out while they ran.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stands_still: bool,
    /// The figures of the whole run. Only the last line has them.
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
            monotonic_s: crate::system::monotonic_seconds(),
            used: sample.used,
            ballooned: sample.ballooned,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::Reclaimed;
    use crate::run::summary::Facts;
    use crate::run::trace::Trace;
    use std::time::Duration;

    #[test]
    fn lines_are_as_their_schema_says() {
        let path = std::env::temp_dir().join(format!("ebb-timeline-{}", std::process::id()));
        let mut timeline = Timeline::create(&path).unwrap();
        let mut trace = Trace::new();
        let sample = |ms, used| Sample {
            at: Duration::from_millis(ms),
            used,
            resident: 1 << 30,
            first_user: used.map(|_| Duration::from_millis(123)),
            ..Sample::default()
        };
        for sample in [
            sample(0, None),
            sample(50, Some(1 << 29)),
            sample(100, Some(0)),
        ] {
            trace.add(sample);
            timeline.add(&sample);
        }
        let facts = Facts {
            memory: 1 << 30,
            accel: "TCG".into(),
            give_back: "shared",
            kernel: Some("Linux 6.1".into()),
            qemu: None,
            qemu_pss: None,
            taken: Some(Reclaimed {
                bytes: 4096,
                ranges: 1,
                time: Duration::from_micros(1500),
                punching: Duration::ZERO,
            }),
            guest_time_is_host_time: true,
        };
        let summary = Summary::new(&trace, facts);
        timeline.finish(&sample(150, Some(0)), &summary).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 4);
        for line in text.lines() {
            let json = serde_json::from_str(line).unwrap();
            let wrong = crate::pages::problems_of("timeline", &json);
            assert!(wrong.is_empty(), "{line}: {wrong:?}");
        }
    }
}
