//! Measures an allocation and a free of order 0 at every fill level of a per-CPU cache: while up to
//! 2000 frames are allocated. A cache that exchanges frames with shared memory at some levels shows
//! in the worst of them.

use std::{
    hint::black_box,
    sync::atomic::AtomicU32,
    thread,
    time::{Duration, Instant},
};

use crate::{
    clock::pin,
    contest::{Frames, GIB},
    rows::{CPUS, Meeting},
};

/// The number of frames of the memory.
const MEMORY: u64 = GIB;
/// The highest level: the most frames that are allocated at a time.
const LEVELS: usize = 2000;
/// The number of pairs that are timed together.
const PAIRS: u32 = 256;
/// The number of repetitions. The fastest counts, as other load only slows them.
const REPEATS: usize = 3;
/// In memory with holes one frame in this many is free, at random: four in a bitmap word.
const HOLES: u64 = 16;

/// What was done with the memory before the measurement.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The memory was never used.
    Fresh,
    /// Most is in use, and frames are free at random.
    Holed,
    /// All was used and freed. Before each level the CPU drains its cache.
    Drained,
}

/// Returns the mean and the worst of all levels with one thread, then of the slower of two threads
/// at once.
pub(crate) fn pairs<F: Frames>(state: State) -> [f64; 4] {
    let [one, two] = [1, CPUS].map(|threads| {
        let frames = prepare::<F>(state);
        let arrived = AtomicU32::new(0);
        thread::scope(|scope| {
            let (frames, arrived) = (&frames, &arrived);
            let threads: Vec<_> = (0..threads)
                .map(|number| {
                    let mut meeting = Meeting::new(arrived, threads);
                    scope.spawn(move || {
                        pin(number);
                        at_each_level(frames, number, state, &mut meeting)
                    })
                })
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.fold([0.0_f64; 2], |slowest, figures| {
                let figures = figures.expect("no panic");
                [slowest[0].max(figures[0]), slowest[1].max(figures[1])]
            })
        })
    });
    [one[0], one[1], two[0], two[1]]
}

fn prepare<F: Frames>(state: State) -> F {
    let frames = F::new(MEMORY);
    if state == State::Fresh {
        return frames;
    }
    let mut cpu = frames.cpu(0);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut held = vec![];
    while let Some(frame) = frames.get(&mut cpu, 0) {
        held.push(frame);
    }
    for frame in held {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if state == State::Drained || seed.is_multiple_of(HOLES) {
            frames.put(&mut cpu, frame, 0);
        }
    }
    frames.settle(&mut cpu);
    frames
}

/// Returns the mean and the worst of all levels.
fn at_each_level<F: Frames>(
    frames: &F,
    number: usize,
    state: State,
    meeting: &mut Meeting<'_>,
) -> [f64; 2] {
    let mut cpu = frames.cpu(number);
    let mut held = Vec::with_capacity(LEVELS);
    let (mut sum, mut worst) = (0.0, 0.0_f64);
    meeting.meet();
    for _ in 0..=LEVELS {
        if state == State::Drained {
            frames.settle(&mut cpu);
        }
        let fastest = (0..REPEATS).fold(Duration::MAX, |fastest, _| {
            let start = Instant::now();
            for _ in 0..PAIRS {
                let frame = frames.get(&mut cpu, 0).expect("there is memory");
                frames.put(&mut cpu, black_box(frame), 0);
            }
            fastest.min(start.elapsed())
        });
        let ns = fastest.as_secs_f64() * 1e9 / f64::from(PAIRS);
        sum += ns;
        worst = worst.max(ns);
        held.push(frames.get(&mut cpu, 0).expect("there is memory"));
    }
    meeting.meet();
    for frame in held {
        frames.put(&mut cpu, frame, 0);
    }
    frames.settle(&mut cpu);
    [sum / (LEVELS + 1) as f64, worst]
}
