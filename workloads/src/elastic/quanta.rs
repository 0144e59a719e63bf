//! FTQ: counts the units of work in fixed time quanta.

use super::windows::{Sample, Work, lowest_hundredth};
use crate::clock::{monotonic_ns, ratio};
use std::hint::black_box;
use std::time::Duration;

const QUANTUM_NS: u64 = 1_000_000;
/// Number of generator steps in one unit of work. The clock is read after each unit.
const STEPS: u32 = 64;

/// The work of FTQ (fixed time quanta): steps of a pseudo-random generator, whose state this is.
/// Counts the units of work in each millisecond.
pub(super) struct Ftq(u64);

impl Ftq {
    /// Returns the work with the generator's initial state, the same in every run.
    pub(super) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    /// Does one unit of work.
    fn unit(&mut self) {
        for _ in 0..STEPS {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
        }
        black_box(self.0);
    }
}

impl Work for Ftq {
    fn measure(&mut self, window: Duration) -> Vec<Sample> {
        let begin = monotonic_ns();
        let quanta = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / QUANTUM_NS;
        let quanta = usize::try_from(quanta.max(1)).unwrap_or(usize::MAX);
        let mut counts = vec![0_u64; quanta];
        loop {
            // A unit counts in the quantum in which it ends. A quantum in which no unit ends has 0.
            self.unit();
            let at = (monotonic_ns() - begin) / QUANTUM_NS;
            match usize::try_from(at).ok().and_then(|at| counts.get_mut(at)) {
                Some(count) => *count += 1,
                None => break,
            }
        }
        let total: u64 = counts.iter().sum();
        let mut values: Vec<f64> = counts.iter().map(|count| ratio(*count, 1)).collect();
        let sample = |name, value| Sample {
            name,
            value,
            unit: "units",
            kernel: None,
        };
        vec![
            sample("quantum_work", ratio(total, counts.len() as u64)),
            sample("quantum_low", lowest_hundredth(&mut values)),
        ]
    }
}
