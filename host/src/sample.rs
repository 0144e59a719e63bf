//! Looks at a running guest: what it uses, and what it holds of the host.

use crate::guest::Guest;
use crate::ram::GuestRam;
use crate::record::Started;
use crate::stage::Stage;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The trace is thinned out to half when it has so many points; the peaks are kept apart.
const POINTS_MAX: usize = 1 << 14;

/// One look. All amounts are bytes. What is `None` is not known: yet, or of this kernel.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample {
    /// Since the guest's CPUs were started.
    pub(crate) at: Duration,
    /// Frames that the guest's allocator has handed out, and the kernel image; `None` until the
    /// allocator works. Its metadata is not counted: the guest never asked for it.
    ///
    /// Of a Linux guest, its total memory less what is free, as it last told its balloon.
    pub(crate) used: Option<u64>,
    /// Memory that its allocator could hand out.
    pub(crate) free: Option<u64>,
    /// Free pageblocks that the host may still hold memory for.
    pub(crate) unreported: Option<u64>,
    /// What the guest's RAM occupies on the host.
    pub(crate) resident: u64,
    /// Sum of all ranges reported so far.
    pub(crate) reported: Option<u64>,
    pub(crate) reports: Option<u64>,
    pub(crate) reported_ranges: Option<u64>,
    /// What files in the guest occupy.
    pub(crate) file: Option<u64>,
    pub(crate) faults: Option<u64>,
    pub(crate) cpus: u32,
    /// Guest time at which the program started.
    pub(crate) first_user: Option<Duration>,
    pub(crate) stage: Option<Stage>,
}

/// Looks at one guest, again and again.
#[derive(Debug)]
pub(crate) struct Sampler {
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
    started: Instant,
}

impl Sampler {
    /// A sampler of the guest in `ram`, whose CPUs start now.
    pub(crate) fn new(ram: Arc<GuestRam>, guest: Arc<dyn Guest>) -> Self {
        Self {
            ram,
            guest,
            started: Instant::now(),
        }
    }

    /// The guest that is looked at.
    pub(crate) fn guest(&self) -> &dyn Guest {
        &*self.guest
    }

    /// This moment, if the program has started by now.
    pub(crate) fn started(&self) -> Option<Started> {
        let runs = matches!(self.guest.stage(), Some(Stage::Running | Stage::Exited(_)));
        runs.then(|| Started {
            at: self.started.elapsed(),
            resident: self.ram.resident_bytes().unwrap_or(0),
        })
    }

    /// Looks now.
    pub(crate) fn sample(&self) -> Sample {
        let at = self.started.elapsed();
        // A memfd of our own can be asked for its size as long as it is open.
        let resident = self.ram.resident_bytes().unwrap_or(0);
        Sample {
            at,
            resident,
            ..self.guest.look()
        }
    }
}

/// A point of the curve that is kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) at: Duration,
    pub(crate) used: u64,
    pub(crate) resident: u64,
}

/// The curve of a run, in bounded memory however long it takes.
#[derive(Debug)]
pub(crate) struct Trace {
    points: Vec<Point>,
    /// One sample in so many is kept.
    stride: u64,
    samples: u64,
    pub(crate) peak_used: Option<u64>,
    pub(crate) peak_resident: u64,
    pub(crate) last: Sample,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self {
            points: Vec::new(),
            stride: 1,
            samples: 0,
            peak_used: None,
            peak_resident: 0,
            last: Sample::default(),
        }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.peak_used = self.peak_used.max(sample.used);
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

    /// The points that were kept, in order.
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
