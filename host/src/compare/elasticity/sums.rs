//! Computes figures from samples: areas and peaks, losses, and shares of a guest that gives nothing
//! back.

use super::super::schema::{Better, Event, Outcome, Run, What};
use super::super::statistics::median;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes per GiB.
const GIB: f64 = 1_073_741_824.0;
/// Figures of builds, and the names of their shares.
const SHARES: [(&str, &str); 2] = [("held_area", "area_of_off"), ("held_peak", "peak_of_off")];
/// The figures of windows whose loss is computed.
const WORK: [&str; 2] = ["stream", "quantum_work"];

/// Returns an event with the value of one metric in `unit`. `labels` are names and values. It has
/// no time.
pub(super) fn result(
    metric: &str,
    value: f64,
    unit: &str,
    better: Better,
    labels: &[(&str, &str)],
) -> Event {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Event {
        host_s: None,
        what: What::Result {
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            better,
            labels: labels.collect(),
        },
    }
}

/// The curve of the host's memory over time, reduced to its area and peak. Each sample holds until
/// the next one.
#[derive(Clone, Default, Debug)]
pub(super) struct MemoryCurve {
    last: Option<(Duration, f64)>,
    begin: Duration,
    bytes_s: f64,
    peak: f64,
}

impl MemoryCurve {
    /// Adds a sample of `bytes` at time `at`. A sample before the last one adds no area.
    #[expect(clippy::cast_precision_loss, reason = "memory is below 2^53 bytes")]
    pub(super) fn add(&mut self, at: Duration, bytes: u64) {
        let bytes = bytes as f64;
        match self.last {
            Some((since, curve)) => self.bytes_s += curve * at.saturating_sub(since).as_secs_f64(),
            None => self.begin = at,
        }
        self.peak = self.peak.max(bytes);
        self.last = Some((at, bytes));
    }

    /// Returns the area below the curve in GiB·s, from the first sample to the last. It is 0 with
    /// fewer than two samples.
    pub(super) fn area(&self) -> f64 {
        self.bytes_s / GIB
    }

    /// Returns the largest sample in bytes, or 0 if there is no sample.
    pub(super) fn peak(&self) -> f64 {
        self.peak
    }

    /// Returns the seconds from the first sample to the last, or 0 if there is no sample.
    pub(super) fn seconds(&self) -> f64 {
        let end = self.last.map_or(self.begin, |(at, _)| at);
        end.saturating_sub(self.begin).as_secs_f64()
    }
}

/// Returns the losses of STREAM or FTQ while memory left and returned: a figure `loss` for each
/// round and window, as a share of the rate in the quiet window of that round. With several kernels
/// of STREAM it is their median. A round without both windows has no loss.
pub(super) fn losses(events: &[Event]) -> Vec<Event> {
    // The values per round, by figure and kernel, then by window.
    let mut seen: BTreeMap<(String, String), BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for event in events {
        let What::Result {
            metric,
            value,
            labels,
            ..
        } = &event.what
        else {
            continue;
        };
        if let (true, Some(window)) = (WORK.contains(&metric.as_str()), labels.get("window")) {
            let kernel = labels.get("kernel").cloned().unwrap_or_default();
            let windows = seen.entry((metric.clone(), kernel)).or_default();
            windows.entry(window.clone()).or_default().push(*value);
        }
    }
    let mut losses = Vec::new();
    for window in ["leave", "return"] {
        let rounds = seen.values().filter_map(|windows| windows.get(window));
        let rounds = rounds.map(Vec::len).max().unwrap_or(0);
        for round in 0..rounds {
            let of_kernels = seen.values().filter_map(|windows| {
                let quiet = windows.get("quiet")?.get(round)?;
                let then = windows.get(window)?.get(round)?;
                (*quiet > 0.0).then(|| 1.0 - then / quiet)
            });
            let mut of_kernels: Vec<f64> = of_kernels.collect();
            if let Some(loss) = median(&mut of_kernels) {
                let label = [("window", window)];
                losses.push(result("loss", loss, "share", Better::Lower, &label));
            }
        }
    }
    losses
}

/// Appends to each run of builds its area and its peak as shares of those without giving back, in
/// the same round and with the same kernel. Each run comes with its column's index. `none_of`
/// returns the index of the column without giving back for a column's index. Failed runs, and runs
/// without a counterpart, get no shares.
pub(super) fn add_shares(runs: &mut [(usize, Run)], none_of: impl Fn(usize) -> Option<usize>) {
    let mut known: BTreeMap<(usize, String, u32, &str), f64> = BTreeMap::new();
    for (column, run) in runs.iter() {
        for (metric, _) in SHARES {
            if let (Some(value), Outcome::Ok) = (figure(run, metric), run.outcome) {
                known.insert((*column, run.experiment.clone(), run.round, metric), value);
            }
        }
    }
    for (column, run) in runs {
        let Some(none) = none_of(*column).filter(|none| none != column) else {
            continue;
        };
        for (metric, share) in SHARES {
            let of = (none, run.experiment.clone(), run.round, metric);
            let whole = known.get(&of).copied().filter(|whole| *whole > 0.0);
            if let (Some(part), Some(whole), Outcome::Ok) =
                (figure(run, metric), whole, run.outcome)
            {
                let event = result(share, part / whole, "", Better::Lower, &[]);
                run.events.push(event);
            }
        }
    }
}

/// Returns the value of the figure called `wanted`, or `None` if the run does not have it.
fn figure(run: &Run, wanted: &str) -> Option<f64> {
    run.events.iter().find_map(|event| match &event.what {
        What::Result { metric, value, .. } if metric == wanted => Some(*value),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::guest::Guest;

    #[test]
    fn an_area_is_what_is_held_until_the_next_sample() {
        let mut curve = MemoryCurve::default();
        let seconds = Duration::from_secs;
        curve.add(seconds(10), 1 << 30);
        curve.add(seconds(12), 3 << 30);
        curve.add(seconds(13), 0);
        curve.add(seconds(20), 0);
        assert_eq!((curve.area(), curve.seconds()), (5.0, 10.0));
        assert_eq!(curve.peak(), 3.0 * GIB);
        assert_eq!(MemoryCurve::default().seconds(), 0.0);
    }

    fn work(window: &str, kernel: &str, value: f64) -> Event {
        let labels = [("window", window), ("kernel", kernel)];
        result("stream", value, "B/s", Better::Higher, &labels)
    }

    #[test]
    fn a_loss_is_of_the_quiet_window_of_its_own_round() {
        let events = [
            work("quiet", "copy", 100.0),
            work("leave", "copy", 90.0),
            work("return", "copy", 100.0),
            work("quiet", "copy", 200.0),
            work("leave", "copy", 100.0),
        ];
        let losses: Vec<f64> = losses(&events)
            .iter()
            .filter_map(|event| match &event.what {
                What::Result { value, .. } => Some((value * 100.0).round()),
                _ => None,
            })
            .collect();
        assert_eq!(losses, [10.0, 50.0, 0.0]);
    }

    #[test]
    fn shares_are_of_the_same_round_and_experiment() {
        let run = |round: u32, area: f64| Run {
            round,
            events: vec![result("held_area", area, "GiB·min", Better::Lower, &[])],
            ..Run::blank(Guest::Ebb)
        };
        let mut runs = [
            (0, run(1, 2.0)),
            (1, run(1, 4.0)),
            (0, run(2, 9.0)),
            (1, run(2, 10.0)),
            (0, run(3, 1.0)),
        ];
        add_shares(&mut runs, |_| Some(1));
        let shares: Vec<Option<f64>> = runs
            .iter()
            .map(|(_, run)| figure(run, "area_of_off"))
            .collect();
        assert_eq!(shares, [Some(0.5), None, Some(0.9), None, None]);
    }
}
