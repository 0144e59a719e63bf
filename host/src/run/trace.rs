//! The memory curve of a run, kept in bounded memory.

use crate::guest::Sample;
use std::time::Duration;

/// At this number of points every other one is dropped. The peaks are kept separately.
const POINTS_MAX: usize = 1 << 14;

/// A point of a run's memory curve.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    /// Time since the CPUs started.
    pub(crate) at: Duration,
    /// Bytes that the guest used.
    pub(crate) used: u64,
    /// Bytes of the guest's memory that the host held.
    pub(crate) resident: u64,
}

/// The memory curve of a run with its peaks. It keeps at most 2^14 points, however long the run
/// takes.
#[derive(Debug)]
pub(crate) struct Trace {
    points: Vec<Point>,
    /// One sample in `stride` becomes a point.
    stride: u64,
    samples: u64,
    /// The most bytes that the guest used. `None` if the guest never reported it.
    pub(crate) peak_used: Option<u64>,
    /// The most bytes in the balloon. `None` if the guest never reported it.
    pub(crate) peak_ballooned: Option<u64>,
    /// The most bytes of the guest's memory that the host held.
    pub(crate) peak_resident: u64,
    /// The latest sample.
    pub(crate) last: Sample,
}

impl Trace {
    /// Creates a curve without points.
    pub(crate) fn new() -> Self {
        Self {
            points: Vec::new(),
            stride: 1,
            samples: 0,
            peak_used: None,
            peak_ballooned: None,
            peak_resident: 0,
            last: Sample::default(),
        }
    }

    /// Adds a sample. It always counts for the peaks and as the last one. It becomes a point only
    /// if the guest reports its used memory. In a long run only one sample in a power of two
    /// becomes a point.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.peak_used = self.peak_used.max(sample.used);
        self.peak_ballooned = self.peak_ballooned.max(sample.ballooned);
        self.peak_resident = self.peak_resident.max(sample.resident);
        self.last = sample;
        let Some(used) = sample.used else { return };
        if self.samples.is_multiple_of(self.stride) {
            if self.points.len() == POINTS_MAX {
                let mut index = 0usize;
                self.points.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            self.points.push(Point {
                at: sample.at,
                used,
                resident: sample.resident,
            });
        }
        self.samples += 1;
    }

    /// Returns the points of the curve in order of time. Peaks may lie between them.
    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_cost_bounded_memory() {
        let mut trace = Trace::new();
        for tick in 0..100_000 {
            let used = if tick == 777 { 5000 } else { 10 };
            trace.add(Sample {
                at: Duration::from_millis(tick * 50),
                used: Some(used),
                resident: used + 1,
                ..Sample::default()
            });
        }
        assert!(trace.points().len() <= POINTS_MAX);
        assert!(trace.points().len() > POINTS_MAX / 4);
        assert!(trace.points().is_sorted_by_key(|point| point.at));
        assert_eq!((trace.peak_used, trace.peak_resident), (Some(5000), 5001));
        assert_eq!(trace.last.at, Duration::from_millis(99_999 * 50));
    }
}
