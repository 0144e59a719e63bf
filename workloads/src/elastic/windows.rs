//! Rounds of three windows in which the same work is measured: a quiet one, one while memory leaves
//! the guest, and one while it returns.

use crate::Failure;
use crate::mapping::{Mapping, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::tasks::Child;
use std::time::Duration;

/// The parameters of a run: `rounds` rounds of three windows, each of the length `window`.
pub(super) struct Windows {
    /// Bytes that are touched and freed before the host takes memory.
    pub(super) bytes: usize,
    pub(super) window: Duration,
    pub(super) rounds: u64,
}

/// One figure about the work in one window. More is better.
pub(super) struct Sample {
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    /// The STREAM kernel that the figure is about, if there is one.
    pub(super) kernel: Option<&'static str>,
}

/// Work whose speed is measured, window by window.
pub(super) trait Work {
    /// Works for the time `window`, at least for one pass, and returns the figures about it.
    fn measure(&mut self, window: Duration) -> Vec<Sample>;
}

/// Measures `work` in every window of every round, and prints the phases and the figures. Before
/// the window `leave`, touches and frees memory in a child process, so that the host can take it.
/// Fails if that child cannot be forked or fails, or if printing fails.
pub(super) fn run(windows: &Windows, work: &mut dyn Work, out: &mut Output) -> Result<(), Failure> {
    // The first pass touches the memory of the work itself.
    work.measure(Duration::from_millis(1));
    for _ in 0..windows.rounds {
        out.phase("quiet", None)?;
        let quiet = work.measure(windows.window);
        fill(windows.bytes)?;
        out.phase("leave", Some(windows.bytes))?;
        let leave = work.measure(windows.window);
        out.phase("return", None)?;
        let back = work.measure(windows.window);
        for (window, samples) in [("quiet", quiet), ("leave", leave), ("return", back)] {
            for sample in samples {
                out.result(&metric(&sample, window))?;
            }
        }
    }
    out.phase("end", None)
}

fn metric(sample: &Sample, window: &str) -> Metric {
    let mut labels = Labels::from([("window", window.to_owned())]);
    if let Some(kernel) = sample.kernel {
        labels.insert("kernel", kernel.to_owned());
    }
    Metric {
        name: sample.name,
        value: sample.value,
        unit: sample.unit,
        better: Better::Higher,
        labels,
    }
}

/// Touches and frees `bytes` bytes in another process, so that the host holds memory that the guest
/// does not use.
fn fill(bytes: usize) -> Result<(), Failure> {
    let child = Child::fork(|| {
        Mapping::anonymous(bytes, PageSize::Default)?.touch();
        Ok(())
    })?;
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(Failure::Wrong(format!(
            "the process that fills memory ended with {status}"
        ))),
    }
}

/// Sorts `values` and returns the smallest value that has a hundredth of them, rounded down, before
/// it: the smallest of all if there are fewer than 100. Returns 0 if there are none.
pub(super) fn lowest_hundredth(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 100).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_hundredth_is_the_second_lowest_of_a_hundred() {
        let mut values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(lowest_hundredth(&mut values), 1.0);
        assert_eq!(lowest_hundredth(&mut [7.0, 3.0]), 3.0);
        assert_eq!(lowest_hundredth(&mut []), 0.0);
    }
}
