//! The report as JSON, schema 2: every run with its raw samples, and the table made from them.
//!
//! What a guest or a child process said is kept as it was said. Fields that a later version adds
//! are ignored; a report of another schema is refused by its number.

pub(crate) use super::guest::Guest;
use super::way::Way;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The number of the schema that this version writes and reads.
pub(crate) const SCHEMA: u32 = 2;

/// One `ebb compare`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    /// Every run that was planned took place, and none was cut short.
    pub(crate) complete: bool,
    /// When the first run began, RFC 3339, UTC.
    pub(crate) created: String,
    pub(crate) host: Host,
    pub(crate) ebb_version: String,
    pub(crate) qemu_version: String,
    /// The command line of this comparison.
    pub(crate) options: Vec<String>,
    pub(crate) guests: Vec<GuestFacts>,
    /// What is not the same in both guests, and whatever else a reader must know.
    pub(crate) differences: Vec<String>,
    pub(crate) runs: Vec<Run>,
    pub(crate) table: Vec<Row>,
}

/// What the runs took place on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) cpu: String,
    pub(crate) cpus: u64,
    pub(crate) kernel: String,
    pub(crate) memory_bytes: u64,
}

/// What one guest was made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct GuestFacts {
    pub(crate) name: Guest,
    pub(crate) release: String,
    pub(crate) machine: String,
    pub(crate) kernel_arguments: String,
}

/// One guest that ran one experiment once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) experiment: String,
    /// What the program was called with.
    pub(crate) arguments: Vec<String>,
    pub(crate) guest: Guest,
    pub(crate) give_back: Way,
    pub(crate) icount: bool,
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) round: u32,
    /// The `ebb run …` that did it.
    pub(crate) command: Vec<String>,
    /// What `--record` wrote.
    #[serde(default)]
    pub(crate) record: Option<serde_json::Value>,
    pub(crate) events: Vec<Event>,
    /// What each round cost the host, where guests take turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) turns: Vec<TurnCost>,
    /// The CPUs of the host that the guest was held to; none if it was not held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) host_cpus: Vec<u32>,
    pub(crate) timeline: Vec<Point>,
    /// What it took of the host, where ways to give memory back are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) expenses: Vec<Expense>,
    pub(crate) outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// What the turns of one round took, waiting apart.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct TurnCost {
    pub(crate) wall_s: f64,
    /// CPU time of QEMU, user and system.
    pub(crate) qemu_cpu_s: Option<f64>,
}

/// What a guest has taken of the host so far.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Expense {
    /// On the timeline's clock.
    pub(crate) at_s: f64,
    pub(crate) qemu_cpu_s: f64,
    pub(crate) ebb_cpu_s: f64,
    /// How often their threads have waited for something.
    pub(crate) qemu_wakeups: u64,
    pub(crate) ebb_wakeups: u64,
}

/// How a run ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Ok,
    /// The guest lacks what the experiment needs; `error` says what.
    Unsupported,
    Failed,
}

/// A line of the program, and when it reached the host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Host seconds on the timeline's clock, to the timeline's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_s: Option<f64>,
    #[serde(flatten)]
    pub(crate) what: What,
}

/// What a program says with `--json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum What {
    /// A part of the experiment begins.
    Phase {
        name: String,
        /// The guest's monotonic clock.
        at_s: f64,
        #[serde(default)]
        bytes: Option<f64>,
        #[serde(default)]
        mem_free_kib: Option<f64>,
    },
    /// One figure.
    Result {
        metric: String,
        value: f64,
        unit: String,
        better: Better,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    },
    /// Many figures, by percentile.
    Distribution {
        metric: String,
        unit: String,
        better: Better,
        /// Percentile and the value that so many percent do not exceed.
        percentiles: Vec<(f64, f64)>,
        #[serde(default)]
        count: u64,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    },
    /// This guest cannot do it.
    Unsupported { what: String },
}

/// Which direction of a figure is the good one.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// One sample of a guest. Amounts are bytes; what a guest does not tell is absent.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Host time since the guest's CPUs were started.
    pub(crate) t_ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resident: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreported: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reported: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) faults: Option<f64>,
}

/// One figure of one experiment, in every guest that gave it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) experiment: String,
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    /// What tells this row from its neighbours of the same metric, `icount` among it.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) cells: Vec<Cell>,
    /// How many times better Ebb is: the median of the ratios of all rounds. Absent where a figure
    /// of either side is not clearly more than nothing.
    pub(crate) ratio: Option<f64>,
    /// Where the ratio lies; absent with one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<Interval>,
}

/// Where the median of the ratios of many rounds lies.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// Ratios of a figure of Ebb to one of Linux next to it in time.
    pub(crate) pairs: u32,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// How sure that is, as a share; absent where there are too few pairs for more than the range
    /// of the ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) confidence: Option<f64>,
}

impl Interval {
    /// A ratio is settled where its interval is not wider than this share to each side.
    const SETTLED: f64 = 0.05;

    /// Half the width, as a share.
    pub(crate) fn half_width(self) -> f64 {
        (self.high / self.low).sqrt() - 1.0
    }

    /// Whether another comparison can be expected to give about the same ratio.
    pub(crate) fn is_settled(self) -> bool {
        self.half_width() <= Self::SETTLED
    }
}

/// The rounds of one guest.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) guest: Guest,
    pub(crate) give_back: Way,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: u32,
}

/// Why a file is not a report.
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
    /// Reads what was written of one.
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

    /// The rows of an experiment.
    pub(crate) fn rows_of<'a>(&'a self, experiment: &str) -> Vec<&'a Row> {
        let rows = self.table.iter();
        rows.filter(|row| row.experiment == experiment).collect()
    }

    /// The runs of an experiment.
    pub(crate) fn runs_of<'a>(&'a self, experiment: &str) -> Vec<&'a Run> {
        let runs = self.runs.iter();
        runs.filter(|run| run.experiment == experiment).collect()
    }

    /// The experiments in the order in which they first ran.
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
    /// A run of which nothing is known but that it ended well: for tests, which say what matters to them.
    pub(crate) fn blank(guest: Guest) -> Self {
        Self {
            experiment: "./mine".into(),
            arguments: Vec::new(),
            guest,
            give_back: Way::REPORTING,
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
