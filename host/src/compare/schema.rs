//! The report as JSON, schema 2: every run with its raw samples, and the table computed from them.
//!
//! The output of guests and child processes is kept unchanged. Fields that a later version adds are
//! ignored; a report of another schema is refused by its number. The comments on fields are the
//! text of docs/json.md.

use super::give_back_mode::GiveBackMode;
pub(crate) use super::guest::Guest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The schema version that this version writes and reads. Reports with another one are refused.
pub(crate) const SCHEMA: u32 = 2;

/// The report of one `ebb compare` of experiments on both kernels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// The version of the format, which is 2. Reports of another version are refused.
    pub(crate) schema: u32,
    /// Whether all planned runs have run, and none was ended early.
    pub(crate) complete: bool,
    /// When the first run began, in RFC 3339 and UTC.
    pub(crate) created: String,
    /// The facts about the host.
    pub(crate) host: Host,
    /// The version of `ebb` that measured, with the commit in brackets if the build knew it.
    pub(crate) ebb_version: String,
    /// The version of QEMU.
    pub(crate) qemu_version: String,
    /// The command line of this comparison.
    pub(crate) options: Vec<String>,
    /// The facts about each guest kernel.
    pub(crate) guests: Vec<GuestFacts>,
    /// Sentences about differences between the guests, and anything else that a reader must know.
    pub(crate) differences: Vec<String>,
    /// All runs, in their order.
    pub(crate) runs: Vec<Run>,
    /// The figures of all runs.
    pub(crate) table: Vec<Row>,
}

/// The facts about the host of a comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Host {
    /// The CPU's model name.
    pub(crate) cpu: String,
    /// The number of CPUs.
    pub(crate) cpus: u64,
    /// The kernel's name and release.
    pub(crate) kernel: String,
    /// The host's memory.
    pub(crate) memory_bytes: u64,
}

/// The facts about one guest kernel and its machine, from the first run with a record. They are
/// `unknown` without one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GuestFacts {
    /// The kernel.
    pub(crate) name: Guest,
    /// The kernel's version.
    pub(crate) release: String,
    /// The machine type, as QEMU's command line names it.
    pub(crate) machine: String,
    /// The kernel's command line.
    pub(crate) kernel_arguments: String,
}

/// One run of an experiment, or of several rounds in turns, in one guest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run {
    /// The name of the experiment or program.
    pub(crate) experiment: String,
    /// The program and its arguments.
    pub(crate) arguments: Vec<String>,
    /// The guest's kernel.
    pub(crate) guest: Guest,
    /// How the guest gave memory back.
    pub(crate) give_back: GiveBackMode,
    /// Whether instructions were counted.
    pub(crate) icount: bool,
    /// The number of virtual CPUs.
    pub(crate) cpus: u32,
    /// The guest's RAM.
    pub(crate) memory_bytes: u64,
    /// The number of the round, from 1. For guests that take turns: the number of the boot.
    pub(crate) round: u32,
    /// The command line of `ebb run`.
    pub(crate) command: Vec<String>,
    /// The record that `ebb run --record` wrote, unchanged. Null if it could not be read.
    #[serde(default)]
    #[cfg_attr(
        test,
        schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")
    )]
    pub(crate) record: Option<serde_json::Value>,
    /// The program's events.
    pub(crate) events: Vec<Event>,
    /// The cost of each round, if guests take turns. Left out otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) turns: Vec<TurnCost>,
    /// The numbers of the host's CPUs to which the guest was restricted. Left out if it was not
    /// restricted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) host_cpus: Vec<u32>,
    /// The samples of memory.
    pub(crate) timeline: Vec<Point>,
    /// The host's costs over time, if the ways to give memory back are compared. Left out
    /// otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) expenses: Vec<Expense>,
    /// How the run ended.
    pub(crate) outcome: Outcome,
    /// The reason why the outcome is not `ok`. Left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// The cost of one round of a guest that takes turns, without the time in which it waited.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TurnCost {
    /// The elapsed time.
    pub(crate) wall_s: f64,
    /// QEMU's CPU time, user and system. Null if it is unknown.
    pub(crate) qemu_cpu_s: Option<f64>,
}

/// The host's costs of a guest since its start, as sampled at one moment.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Expense {
    /// The moment, on the timeline's clock.
    pub(crate) at_s: f64,
    /// QEMU's CPU time.
    pub(crate) qemu_cpu_s: f64,
    /// The CPU time of `ebb run`.
    pub(crate) ebb_cpu_s: f64,
    /// The number of voluntary context switches of QEMU's threads.
    pub(crate) qemu_wakeups: u64,
    /// The number of voluntary context switches of the threads of `ebb run`.
    pub(crate) ebb_wakeups: u64,
}

/// How a run ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The program ended well.
    Ok,
    /// The guest lacks something that the experiment needs; the run's `error` says what.
    Unsupported,
    /// The run failed; its `error` says why.
    Failed,
}

/// An event that the program printed, and when it reached the host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Event {
    /// When the line came, on the timeline's clock. Left out if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_s: Option<f64>,
    #[serde(flatten)]
    pub(crate) what: What,
}

/// An event: one JSON object on a line of a program's standard output.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum What {
    /// A part of the experiment begins.
    Phase {
        /// The part's name.
        name: String,
        /// The time on the guest's monotonic clock.
        at_s: f64,
        /// Bytes that the phase used or freed, if the program tells.
        #[serde(default)]
        bytes: Option<f64>,
        /// Free memory of the guest, if the program tells.
        #[serde(default)]
        mem_free_kib: Option<f64>,
    },
    /// A single figure.
    Result {
        /// The figure's name. The same name with the same `unit` and `labels` is the same row of
        /// the table.
        metric: String,
        /// The value, in the unit that `unit` names.
        value: f64,
        /// The unit. `B`, `B/s`, `KiB`, `s`, `ns`, `1/s` and `share` are scaled for people.
        unit: String,
        /// The better direction.
        better: Better,
        /// Names and values that distinguish this figure from others of the same metric.
        #[serde(default)]
        labels: BTreeMap<String, String>,
    },
    /// A distribution by percentile. Its 50th, 95th and 100th percentile stand in the table of a
    /// report, and its histogram below it.
    Distribution {
        /// The name of the distributed figure.
        metric: String,
        /// The unit of all values.
        unit: String,
        /// The better direction.
        better: Better,
        /// Pairs of a percentage and the value that this percentage of all values does not exceed.
        percentiles: Vec<(f64, f64)>,
        /// The number of values.
        #[serde(default)]
        count: u64,
        /// The values counted by ranges, if the program tells.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        histogram: Vec<Bucket>,
        /// Names and values that distinguish this figure from others of the same metric.
        #[serde(default)]
        labels: BTreeMap<String, String>,
    },
    /// The guest lacks something that the experiment needs.
    Unsupported {
        /// The name of the missing part.
        what: String,
    },
}

/// The number of values in a range, in the unit of the distribution.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bucket {
    /// The least value of the range.
    pub(crate) low: f64,
    /// The end of the range. A value that equals it is in the next range.
    pub(crate) high: f64,
    /// The number of values.
    pub(crate) count: u64,
}

/// Whether higher or lower values of a metric are better.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// Higher values are better.
    Higher,
    /// Lower values are better.
    Lower,
}

/// A sample of a guest in the timeline. A figure that the guest does not report is left out.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Point {
    /// Host time since the start of the guest's CPUs.
    pub(crate) t_ms: f64,
    /// Bytes in use in the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<f64>,
    /// Bytes of the guest's RAM that are resident on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resident: Option<f64>,
    /// Bytes of free pageblocks that the host may still hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreported: Option<f64>,
    /// Bytes of all ranges that the guest has reported as free so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reported: Option<f64>,
    /// Bytes of files in the guest's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<f64>,
    /// The number of page faults so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) faults: Option<f64>,
}

/// A row of the table: one figure of an experiment, in every guest that has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Row {
    /// The experiment's name.
    pub(crate) experiment: String,
    /// The figure's name.
    pub(crate) metric: String,
    /// The unit of the values, which are not scaled. Empty for a plain count.
    pub(crate) unit: String,
    /// The better direction.
    pub(crate) better: Better,
    /// The labels that distinguish this row from others of the same metric, `icount` included.
    pub(crate) labels: BTreeMap<String, String>,
    /// The values of each guest and way to give memory back.
    pub(crate) cells: Vec<Cell>,
    /// How many times better Ebb is: the median of the boots' ratios, each the median of its
    /// rounds' ratios. Null if a value of either guest is not clearly above zero, or the guests
    /// cannot be compared.
    pub(crate) ratio: Option<f64>,
    /// The interval in which the ratio lies. Left out if there is only one boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<Interval>,
}

/// The interval in which the median of the ratios of all boots lies. Rounds of one boot may have a
/// common error, so they count as one.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Interval {
    /// The number of boots with a ratio. Each is the median of the ratios of its rounds, and these
    /// compare a figure of Ebb with one of Linux next to it in time.
    pub(crate) boots: u32,
    /// The lower bound.
    pub(crate) low: f64,
    /// The upper bound.
    pub(crate) high: f64,
    /// The confidence, as a share. Left out if there are too few boots; the interval is the range
    /// of their ratios then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) confidence: Option<f64>,
}

impl Interval {
    /// The maximum half width of a settled ratio, as a share.
    const SETTLED: f64 = 0.05;

    /// Returns half the width of the interval, as a share of its geometric middle. For example,
    /// 0.05 means that the bounds are about 5 % below and above.
    pub(crate) fn half_width(self) -> f64 {
        (self.high / self.low).sqrt() - 1.0
    }

    /// Returns whether the half width is at most 5 %, so that another comparison should give about
    /// the same ratio.
    pub(crate) fn is_settled(self) -> bool {
        self.half_width() <= Self::SETTLED
    }
}

/// The values of one guest in one mode of giving memory back, in all rounds of a row.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cell {
    /// The guest's kernel.
    pub(crate) guest: Guest,
    /// How the guest gave memory back.
    pub(crate) give_back: GiveBackMode,
    /// The median of all values.
    pub(crate) median: f64,
    /// The least value.
    pub(crate) min: f64,
    /// The greatest value.
    pub(crate) max: f64,
    /// The number of values.
    pub(crate) rounds: u32,
}

/// The reason why a file is not a report that can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("it is not JSON of a comparison")]
    Json(#[from] serde_json::Error),
    #[error("its schema is {found}; this version reads schema {read}")]
    Schema { found: u64, read: u32 },
    #[error("it is of the kind {0:?}, which this version does not know")]
    Kind(String),
    #[error("it has {0} columns")]
    Columns(usize),
    #[error("two of its columns are called {0:?}")]
    Twice(String),
    #[error("a run of it is of column {column}, of {count} that are numbered from 0")]
    NoColumn { column: usize, count: usize },
}

impl Report {
    /// Reads the JSON of a report. Does not check the table against the runs. Fails if the JSON is
    /// not valid or has another schema version.
    pub(crate) fn from_json(bytes: &[u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Numbered {
            schema: u64,
        }
        let Numbered { schema } = serde_json::from_slice(bytes)?;
        if schema != u64::from(SCHEMA) {
            return Err(ReadError::Schema {
                found: schema,
                read: SCHEMA,
            });
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// Returns the rows of the experiment called `experiment`, in the order of the table. The list
    /// is empty if there is none.
    pub(crate) fn rows_of<'a>(&'a self, experiment: &str) -> Vec<&'a Row> {
        let rows = self.table.iter();
        rows.filter(|row| row.experiment == experiment).collect()
    }

    /// Returns the runs of the experiment called `experiment`, in their order, failed ones
    /// included. The list is empty if there is none.
    pub(crate) fn runs_of<'a>(&'a self, experiment: &str) -> Vec<&'a Run> {
        let runs = self.runs.iter();
        runs.filter(|run| run.experiment == experiment).collect()
    }

    /// Returns the distinct names of the experiments of all runs, in the order in which they first
    /// ran.
    pub(crate) fn experiments(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.experiment.as_str()) {
                names.push(&run.experiment);
            }
        }
        names
    }
}

#[cfg(test)]
impl Run {
    /// Returns a run that ended well and has no other data, for tests that fill in more.
    pub(crate) fn blank(guest: Guest) -> Self {
        Self {
            experiment: "./mine".into(),
            arguments: Vec::new(),
            guest,
            give_back: GiveBackMode::REPORTING,
            icount: false,
            cpus: 1,
            memory_bytes: 1 << 30,
            round: 1,
            command: Vec::new(),
            record: None,
            events: Vec::new(),
            turns: Vec::new(),
            host_cpus: Vec::new(),
            timeline: Vec::new(),
            expenses: Vec::new(),
            outcome: Outcome::Ok,
            error: None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Unsupported => "unsupported",
            Self::Failed => "failed",
        })
    }
}
