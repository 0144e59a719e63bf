//! One allocator in the comparison: one column of the table.

use std::time::{Duration, Instant};

use crate::{
    clock::{pin, time},
    contest::{Frames, GIB},
    levels::{self, State},
    rows::{self, Measure, Stage},
};

const SMALL: u64 = 4 * GIB;
/// A measurement that takes longer runs in at most `SLOW_ROUNDS` rounds.
const SLOW: Duration = Duration::from_millis(300);
const SLOW_ROUNDS: usize = 3;

/// An allocator in the comparison. Its calls are static inside of each measurement.
pub(crate) trait Column {
    fn name(&self) -> &'static str;
    /// Returns the number of frames on which the allocator is measured in `stage`, or `None` if it
    /// is not.
    fn size(&self, stage: Stage, large: u64) -> Option<u64>;
    /// Brings the memory into the state that `stage` is measured on.
    fn prepare(&mut self, stage: Stage, large: u64);
    /// Measures once. Returns `None` if the allocator cannot be measured, or was measured often
    /// enough.
    fn round(&mut self, measure: Measure, large: u64) -> Option<Vec<f64>>;
}

/// The column of the allocator `F`.
pub(crate) struct Contestant<F> {
    frames: Option<F>,
    size: u64,
    /// The number of runs in a round, found in the first round.
    count: (Option<Measure>, u64),
    slow: usize,
    metadata_kib: f64,
}

impl<F> Contestant<F> {
    pub(crate) fn new() -> Self {
        Self {
            frames: None,
            size: 0,
            count: (None, 1),
            slow: 0,
            metadata_kib: 0.0,
        }
    }
}

impl<F: Frames> Contestant<F> {
    /// Allocates all memory, in the largest possible blocks up to `order`.
    fn take_all(frames: &F, order: u8) {
        let mut cpu = frames.cpu(0);
        for order in (0..=order.min(F::MAX_ORDER)).rev() {
            while frames.get(&mut cpu, order).is_some() {}
        }
    }

    fn arrange(&mut self, stage: Stage, large: u64) {
        match stage {
            Stage::None => {}
            Stage::Small => {
                let frames = F::new(SMALL);
                let mut cpu = frames.cpu(0);
                let blocks: Vec<_> = (0..SMALL / 512 * 9 / 10)
                    .map_while(|_| frames.get(&mut cpu, 9))
                    .collect();
                for block in blocks {
                    frames.put(&mut cpu, block, 9);
                }
                frames.settle(&mut cpu);
                self.frames = Some(frames);
            }
            Stage::Large => self.frames = Some(F::new(self.size)),
            Stage::Full => {
                // The stage before leaves all memory free.
                if let Some(frames) = &self.frames {
                    Self::take_all(frames, 9);
                }
            }
            Stage::OneBlock => {
                if let Some(frames) = &self.frames {
                    let mut cpu = frames.cpu(0);
                    frames.put(&mut cpu, large / 2, 9);
                    frames.settle(&mut cpu);
                }
            }
            Stage::EverySecond => {
                let frames = F::new(self.size);
                Self::take_all(&frames, 0);
                let mut cpu = frames.cpu(0);
                for frame in (frames.first() | 1..self.size).step_by(2) {
                    frames.put(&mut cpu, frame, 0);
                }
                frames.settle(&mut cpu);
                self.metadata_kib = frames.metadata() as f64 / 1024.0 / (self.size / GIB) as f64;
                self.frames = Some(frames);
            }
        }
    }
}

impl<F: Frames> Column for Contestant<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn size(&self, stage: Stage, large: u64) -> Option<u64> {
        match stage {
            Stage::Small => Some(SMALL),
            Stage::EverySecond => {
                let size = large.min(F::MOST_FRAGMENTED);
                (size != 0).then_some(size)
            }
            _ => (large <= F::MOST).then_some(large),
        }
    }

    fn prepare(&mut self, stage: Stage, large: u64) {
        pin(0);
        if !matches!(stage, Stage::Full | Stage::OneBlock) {
            self.frames = None;
        }
        self.size = self.size(stage, large).unwrap_or(0);
        if self.size != 0 {
            self.arrange(stage, large);
        }
    }

    fn round(&mut self, measure: Measure, large: u64) -> Option<Vec<f64>> {
        if self.count.0 != Some(measure) {
            self.count = (Some(measure), 1);
            self.slow = 0;
        }
        if self.slow >= SLOW_ROUNDS {
            return None;
        }
        let start = Instant::now();
        let count = &mut self.count.1;
        pin(0);
        let figures = if measure == Measure::Initialise {
            if large > F::MOST {
                return None;
            }
            let mut made = None;
            let ns = time(|| made = Some(F::new(large)));
            Some(vec![ns / 1e6])
        } else if let Measure::Levels(state) = measure {
            if state == State::Holed && F::MOST_FRAGMENTED == 0 {
                return None;
            }
            Some(levels::pairs::<F>(state).to_vec())
        } else {
            let frames = self.frames.as_ref()?;
            match measure {
                Measure::Pair0 => rows::pair::<F, 0>(frames, count).map(|ns| vec![ns]),
                Measure::Pair9 => rows::pair::<F, 9>(frames, count).map(|ns| vec![ns]),
                Measure::Pair18 => rows::pair::<F, 18>(frames, count).map(|ns| vec![ns]),
                Measure::Bulk => Some(rows::bulks(frames).to_vec()),
                Measure::Shuffled => {
                    let mut seed = 0x9e37_79b9_7f4a_7c15;
                    let [_, put] = rows::bulk(frames, 0, || (), |held| shuffle(held, &mut seed));
                    Some(vec![put])
                }
                Measure::Cross => Some(vec![rows::cross(frames)]),
                Measure::Full9 => Some(vec![rows::fails::<F, 9>(frames, count)]),
                Measure::OneBlock9 => rows::finds::<F, 9>(frames).map(|ns| vec![ns]),
                Measure::EverySecond3 => Some(vec![rows::fails::<F, 3>(frames, count)]),
                Measure::Metadata => Some(vec![self.metadata_kib]),
                Measure::Levels(_) | Measure::Initialise => None,
            }
        };
        if start.elapsed() > SLOW {
            self.slow += 1;
        }
        figures
    }
}

/// Shuffles by Fisher and Yates's method, with xorshift.
fn shuffle(items: &mut [u64], seed: &mut u64) {
    for last in (1..items.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let other = usize::try_from(*seed % (last as u64 + 1)).unwrap_or(0);
        items.swap(last, other);
    }
}
