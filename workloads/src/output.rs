//! The output of an experiment: lines for people, or one JSON object a line (`--json`).

use crate::clock::{monotonic_ns, ratio, seconds};
use crate::{Failure, histogram, meminfo, size};
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use write_json::{Array, Object};

/// The format of the output: for people or for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Lines for people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// The direction in which a value improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

impl Better {
    /// Returns the direction's name in JSON.
    fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// The circumstances of a figure, as names and values. Figures with the same name and equal labels
/// can be compared.
pub(crate) type Labels = BTreeMap<&'static str, String>;

/// One figure, a result of an experiment.
#[derive(Debug, Clone)]
pub(crate) struct Metric {
    /// The name in snake case, with the unit, as in `fault_ns`.
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) labels: Labels,
}

/// The distribution of many values of one kind, by percentile.
#[derive(Debug, Clone)]
pub(crate) struct Distribution {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// Pairs of a percentile and the value that this percentage of the values does not exceed.
    pub(crate) percentiles: Vec<(u32, u64)>,
    pub(crate) count: usize,
    /// The values counted by powers of two; empty if they are not shown so.
    pub(crate) histogram: Vec<Bucket>,
    pub(crate) labels: Labels,
}

/// The number of values in a range, from `low` to below `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) count: usize,
}

/// One line of `--json`.
enum Event<'a> {
    Phase {
        name: &'a str,
        at_s: f64,
        bytes: Option<usize>,
        mem_free_kib: Option<u64>,
    },
    Result(&'a Metric),
    Distribution(&'a Distribution),
    Unsupported {
        what: &'a str,
    },
}

impl Event<'_> {
    /// Returns the event as one JSON object. It has no fields for options that are `None`, nor for
    /// an empty histogram.
    fn json(&self) -> String {
        let mut text = String::new();
        let mut object = write_json::object(&mut text);
        match self {
            Self::Phase {
                name,
                at_s,
                bytes,
                mem_free_kib,
            } => {
                object.string("event", "phase").string("name", name);
                number(&mut object, "at_s", *at_s);
                if let Some(bytes) = bytes {
                    object.number("bytes", as_f64(*bytes));
                }
                if let Some(kib) = mem_free_kib {
                    object.number("mem_free_kib", ratio(*kib, 1));
                }
            }
            Self::Result(metric) => {
                object
                    .string("event", "result")
                    .string("metric", metric.name);
                number(&mut object, "value", metric.value);
                object
                    .string("unit", metric.unit)
                    .string("better", metric.better.name());
                labels(&mut object, &metric.labels);
            }
            Self::Distribution(spread) => {
                object
                    .string("event", "distribution")
                    .string("metric", spread.name)
                    .string("unit", spread.unit)
                    .string("better", spread.better.name());
                percentiles(object.array("percentiles"), &spread.percentiles);
                object.number("count", as_f64(spread.count));
                if !spread.histogram.is_empty() {
                    buckets(object.array("histogram"), &spread.histogram);
                }
                labels(&mut object, &spread.labels);
            }
            Self::Unsupported { what } => {
                object.string("event", "unsupported").string("what", what);
            }
        }
        drop(object);
        text
    }
}

/// Writes `value` to `object` as `key`, and `null` if it is infinite or not a number: JSON has no
/// form for these.
fn number(object: &mut Object<'_>, key: &str, value: f64) {
    if value.is_finite() {
        object.number(key, value);
    } else {
        object.null(key);
    }
}

/// Writes `labels` to `object` as an object of strings.
fn labels(object: &mut Object<'_>, labels: &Labels) {
    let mut object = object.object("labels");
    for (name, value) in labels {
        object.string(name, value);
    }
}

/// Writes each pair of a percentile and its value as an array of two.
fn percentiles(mut array: Array<'_>, pairs: &[(u32, u64)]) {
    for &(percent, value) in pairs {
        array.array().number(percent.into()).number(ratio(value, 1));
    }
}

/// Writes each bucket as an object.
fn buckets(mut array: Array<'_>, buckets: &[Bucket]) {
    for bucket in buckets {
        array
            .object()
            .number("low", ratio(bucket.low, 1))
            .number("high", ratio(bucket.high, 1))
            .number("count", as_f64(bucket.count));
    }
}

/// Returns `value` as JSON has numbers: exact up to 2^53.
fn as_f64(value: usize) -> f64 {
    ratio(value as u64, 1)
}

/// The longest line that is read for a turn, in bytes.
const MAX_GO: u64 = 4096;

/// Whether the program runs on its own or in turns with others (`--turns`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The program runs without waiting.
    Own,
    /// The program waits for its turn, which is a line on standard input.
    Turns,
}

/// Standard output in one of the formats, with the name of the experiment. Every line is flushed at
/// once, even into a pipe. All methods that print fail with `System` if standard output cannot be
/// written.
#[derive(Debug)]
pub(crate) struct Output {
    experiment: &'static str,
    format: Format,
    pace: Pace,
}

impl Output {
    /// Returns an output for the experiment of the name `experiment`. Prints nothing.
    pub(crate) fn new(experiment: &'static str, format: Format, pace: Pace) -> Self {
        Self {
            experiment,
            format,
            pace,
        }
    }

    /// Waits for this program's turn: prints the phase `name` and reads a line from standard input.
    /// Returns `true` when the line has come, and `false` if standard input has ended. Returns
    /// `true` at once, without printing, if the program does not run in turns. Fails with `System`
    /// if reading or printing fails.
    pub(crate) fn turn(&mut self, name: &str) -> Result<bool, Failure> {
        if self.pace == Pace::Own {
            return Ok(true);
        }
        self.phase(name, None)?;
        let mut line = Vec::new();
        std::io::stdin()
            .lock()
            .take(MAX_GO)
            .read_until(b'\n', &mut line)
            .map_err(Failure::system("wait for a turn on stdin"))?;
        Ok(!line.is_empty())
    }

    /// Returns whether the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Returns whether the program runs in turns with others (`--turns`), so that [`Self::turn`]
    /// waits.
    pub(crate) fn takes_turns(&self) -> bool {
        self.pace == Pace::Turns
    }

    /// Lets other programs have their turn in the middle of a run, as the phase `rest`: see
    /// [`Self::rest_as`].
    pub(crate) fn rest(&mut self) -> Result<(), Failure> {
        self.rest_as("rest")
    }

    /// Prints the phase `name` and waits for a line on standard input, in the middle of a run. Does
    /// nothing if the program does not run in turns. Fails with `Wrong` if standard input ends.
    pub(crate) fn rest_as(&mut self, name: &str) -> Result<(), Failure> {
        if self.turn(name)? {
            Ok(())
        } else {
            Err(Failure::Wrong(
                "stdin ended in the middle of a run".to_owned(),
            ))
        }
    }

    /// Prints the line `text`, after the experiment's name. Prints nothing in JSON.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), Failure> {
        match self.format {
            Format::Text => line(&format!("{}: {text}", self.experiment)),
            Format::Json => Ok(()),
        }
    }

    /// Prints that the experiment has reached the step `name`, with the guest's monotonic time and
    /// its `MemFree`. `bytes` is the size of the memory that the step is about, if there is one.
    pub(crate) fn phase(&mut self, name: &str, bytes: Option<usize>) -> Result<(), Failure> {
        let now_ns = monotonic_ns();
        let mem_free_kib = meminfo::kib("MemFree");
        match self.format {
            Format::Text => {
                let size = bytes.map(size::mebibytes);
                let free = mem_free_kib.map(|kib| format!("MemFree {kib} kB"));
                let details: Vec<String> = size.into_iter().chain(free).collect();
                let text = format!("{} s {name:<7} {}", seconds(now_ns), details.join(", "));
                self.say(text.trim_end())
            }
            Format::Json => event(&Event::Phase {
                name,
                at_s: ratio(now_ns / 1_000, 1_000_000),
                bytes,
                mem_free_kib,
            }),
        }
    }

    /// Prints the figure `metric`, with its unit and labels, as a result of the experiment.
    pub(crate) fn result(&mut self, metric: &Metric) -> Result<(), Failure> {
        match self.format {
            Format::Text => {
                let name = words(metric.name, metric.unit);
                let unit = if metric.unit == "1/s" {
                    ""
                } else {
                    metric.unit
                };
                let text = format!("{name}: {} {unit}", plain(metric.value));
                let text = format!("{} {}", text.trim_end(), in_brackets(&metric.labels));
                self.say(text.trim_end())
            }
            Format::Json => event(&Event::Result(metric)),
        }
    }

    /// Prints the memory figure `name`, `value` KiB at the phase `phase`, in JSON only. For people,
    /// the caller prints a line of its own.
    pub(crate) fn fact(
        &mut self,
        name: &'static str,
        value: u64,
        phase: &str,
    ) -> Result<(), Failure> {
        if self.format == Format::Text {
            return Ok(());
        }
        self.result(&Metric {
            name,
            value: ratio(value, 1),
            unit: "KiB",
            better: Better::Higher,
            labels: Labels::from([("phase", phase.to_owned())]),
        })
    }

    /// Prints the distribution `spread`: in JSON in one line, for people in a line for each
    /// percentile, and one for each part of the histogram if it has one.
    pub(crate) fn distribution(&mut self, spread: &Distribution) -> Result<(), Failure> {
        match self.format {
            Format::Text => {
                let name = words(spread.name, spread.unit);
                let labels = in_brackets(&spread.labels);
                let head = format!(
                    "{name}, {} values in {} {labels}",
                    spread.count, spread.unit
                );
                self.say(head.trim_end())?;
                self.say("percentile       value")?;
                for (percent, value) in &spread.percentiles {
                    self.say(&format!("{percent:>10}  {value:>10}"))?;
                }
                for line in histogram::lines(&spread.histogram) {
                    self.say(&line)?;
                }
                Ok(())
            }
            Format::Json => event(&Event::Distribution(spread)),
        }
    }

    /// Prints that the guest lacks `what`, in JSON only. For people, the program prints it to
    /// standard error.
    pub(crate) fn unsupported(&mut self, what: &str) -> Result<(), Failure> {
        match self.format {
            Format::Text => Ok(()),
            Format::Json => event(&Event::Unsupported { what }),
        }
    }
}

fn event(event: &Event<'_>) -> Result<(), Failure> {
    line(&event.json())
}

fn line(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|source| Failure::System {
            what: "write to stdout".to_owned(),
            source,
        })
}

/// Returns a metric's name in words, without the unit, which follows the value.
fn words(name: &str, unit: &str) -> String {
    let name = name.strip_suffix(&unit.to_lowercase()).unwrap_or(name);
    name.trim_end_matches('_').replace('_', " ")
}

/// Formats whole numbers without decimals, and small ones with enough of them.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value.abs() < 0.1 {
        format!("{value:.6}")
    } else if value.abs() < 10.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.1}")
    }
}

/// Formats labels in brackets. Returns an empty string if there are none.
fn in_brackets(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let list: Vec<String> = labels.iter().map(|(k, v)| format!("{k} {v}")).collect();
    format!("({})", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn json_of(event: &Event<'_>) -> serde_json::Value {
        serde_json::from_str(&event.json()).expect("an event is JSON")
    }

    #[test]
    fn events_have_the_fields_that_readers_expect() {
        let metric = Metric {
            name: "faults_per_second",
            value: 12.5,
            unit: "1/s",
            better: Better::Higher,
            labels: Labels::from([("mode", "4k".to_owned())]),
        };
        assert_eq!(
            json_of(&Event::Result(&metric)),
            json!({"event": "result", "metric": "faults_per_second", "value": 12.5, "unit": "1/s",
                "better": "higher", "labels": {"mode": "4k"}})
        );
        let spread = Distribution {
            name: "huge_fault_ns",
            unit: "ns",
            better: Better::Lower,
            percentiles: vec![(5, 100), (100, 9000)],
            count: 640,
            histogram: Vec::new(),
            labels: Labels::new(),
        };
        assert_eq!(
            json_of(&Event::Distribution(&spread)),
            json!({"event": "distribution", "metric": "huge_fault_ns", "unit": "ns", "better": "lower",
                "percentiles": [[5, 100], [100, 9000]], "count": 640, "labels": {}})
        );
        let bucket = Bucket {
            low: 64,
            high: 128,
            count: 3,
        };
        let counted = Distribution {
            histogram: vec![bucket],
            ..spread
        };
        assert_eq!(
            json_of(&Event::Distribution(&counted))["histogram"],
            json!([{"low": 64, "high": 128, "count": 3}])
        );
        let phase = Event::Phase {
            name: "touched",
            at_s: 1.25,
            bytes: Some(4096),
            mem_free_kib: None,
        };
        assert_eq!(
            json_of(&phase),
            json!({"event": "phase", "name": "touched", "at_s": 1.25, "bytes": 4096})
        );
        assert_eq!(
            json_of(&Event::Unsupported { what: "swap" }),
            json!({"event": "unsupported", "what": "swap"})
        );
    }

    #[test]
    fn people_read_words_and_not_too_many_digits() {
        assert_eq!(words("faults_per_second", "1/s"), "faults per second");
        assert_eq!(words("fault_ns", "ns"), "fault");
        assert_eq!(words("saved_kib", "KiB"), "saved");
        assert_eq!(plain(12.0), "12");
        assert_eq!(plain(0.1234), "0.123");
        assert_eq!(plain(0.000_123), "0.000123");
        assert_eq!(plain(1234.56), "1234.6");
    }
}
