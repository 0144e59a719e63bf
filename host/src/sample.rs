//! Looks at a running guest: what it uses, and what it holds of the host.

use crate::header::{Header, Stage};
use crate::ram::GuestRam;
use ebb_mm::FRAME_SIZE;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The trace is thinned out to half when it has so many points; the peaks are kept apart.
const POINTS_MAX: usize = 1 << 14;

/// One look. All amounts are bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample {
    /// Since the guest's CPUs were started.
    pub(crate) at: Duration,
    /// Frames that the guest's allocator has handed out, and the kernel image; `None` until the
    /// allocator works. Its metadata is not counted: the guest never asked for it.
    pub(crate) used: Option<u64>,
    /// Frames that its allocator could hand out.
    pub(crate) free: Option<u64>,
    /// Free pageblocks that the host may still hold memory for.
    pub(crate) unreported: Option<u64>,
    /// What the guest's RAM occupies on the host.
    pub(crate) resident: u64,
    /// Sum of all ranges reported so far.
    pub(crate) reported: u64,
    pub(crate) reports: u64,
    pub(crate) reported_ranges: u64,
    /// What files in the guest occupy.
    pub(crate) file: u64,
    pub(crate) faults: u64,
    pub(crate) cpus: u32,
    /// Guest time at which the program started.
    pub(crate) first_user: Option<Duration>,
    pub(crate) stage: Option<Stage>,
}

/// Looks at one guest, again and again.
#[derive(Debug)]
pub(crate) struct Sampler {
    ram: Arc<GuestRam>,
    header: Header,
    image_bytes: u64,
    started: Instant,
}

impl Sampler {
    /// A sampler of the guest in `ram`, whose CPUs start now.
    pub(crate) fn new(ram: Arc<GuestRam>, header: Header, image_bytes: u64) -> Self {
        Self {
            ram,
            header,
            image_bytes,
            started: Instant::now(),
        }
    }

    /// Looks now.
    pub(crate) fn sample(&self) -> Sample {
        let frame = u64::try_from(FRAME_SIZE).unwrap_or(u64::MAX);
        let at = self.started.elapsed();
        // A memfd of our own can be asked for its size as long as it is open.
        let resident = self.ram.resident_bytes().unwrap_or(0);
        let Some(reading) = self.header.read() else {
            return Sample {
                at,
                resident,
                ..Sample::default()
            };
        };
        let bytes = |frames: u64| frames.saturating_mul(frame);
        let counts = self.header.counts(&reading);
        Sample {
            at,
            used: counts.map(|counts| bytes(counts.used).saturating_add(self.image_bytes)),
            free: counts.map(|counts| bytes(counts.free)),
            unreported: counts.map(|counts| bytes(counts.unreported)),
            resident,
            reported: bytes(reading.reported_frames),
            reports: reading.reports,
            reported_ranges: reading.reported_ranges,
            file: bytes(reading.file_frames),
            faults: reading.faults,
            cpus: reading.cpus,
            first_user: reading.first_user_ns.map(Duration::from_nanos),
            stage: Some(reading.stage),
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
