//! What is measured.

use std::{
    hint::black_box,
    sync::{Barrier, mpsc},
    thread,
    time::Instant,
};

use crate::{
    clock::{pin, thread_ns, time},
    contest::Frames,
};

/// Frames of a bulk: 256 MiB.
const BULK: usize = 1 << 16;
/// Frames handed from one CPU to the other at a time, and how often.
const BATCH: usize = 1024;
const BATCHES: usize = 32;
/// A round of single operations lasts about so long.
const ROUND_NS: f64 = 1e6;
/// Shots of which a round takes the median, where operations are timed one by one.
const SHOTS: usize = 101;

/// The memory that a row is measured on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// A few GiB, all free but used before.
    Small,
    /// None: it is made.
    None,
    /// The large memory, all free.
    Large,
    /// The large memory, none free.
    Full,
    /// The same but for one block of order 9 in the middle.
    OneBlock,
    /// Every second frame of the large memory is free.
    EverySecond,
}

/// A limit on Ebb's figure.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Bar {
    None,
    /// At most this.
    Most(f64),
    /// At most so many times that row's figure.
    Times(f64, usize),
}

/// A row of the table.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) bar: Bar,
}

/// What gives one or two rows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    Pair0,
    Bulk,
    Shuffled,
    TwoThreads,
    Pair9,
    Cross,
    Initialise,
    Pair18,
    Full9,
    OneBlock9,
    EverySecond3,
    Metadata,
}

/// All of it, in the order in which it is measured and printed.
pub(crate) const TABLE: [(Measure, Stage, &[Row]); 12] = {
    const fn row(name: &'static str, unit: &'static str, bar: Bar) -> Row {
        Row { name, unit, bar }
    }
    [
        (
            Measure::Pair0,
            Stage::Small,
            &[row("order 0, pair", "ns", Bar::Most(8.0))],
        ),
        (
            Measure::Bulk,
            Stage::Small,
            &[
                row("order 0, bulk get", "ns", Bar::Most(9.0)),
                row("order 0, bulk put", "ns", Bar::Most(9.0)),
            ],
        ),
        (
            Measure::Shuffled,
            Stage::Small,
            &[row("order 0, bulk put in random order", "ns", Bar::None)],
        ),
        (
            Measure::TwoThreads,
            Stage::Small,
            &[
                row("order 0, bulk get, two threads", "ns", Bar::Times(1.3, 1)),
                row("order 0, bulk put, two threads", "ns", Bar::Times(1.3, 2)),
            ],
        ),
        (
            Measure::Pair9,
            Stage::Small,
            &[row("order 9, pair", "ns", Bar::Most(11.0))],
        ),
        (
            Measure::Cross,
            Stage::Small,
            &[row("get on CPU 0, put on CPU 1", "ns", Bar::Most(40.0))],
        ),
        (
            Measure::Initialise,
            Stage::None,
            &[row("initialise", "ms", Bar::Most(20.0))],
        ),
        (
            Measure::Pair18,
            Stage::Large,
            &[row("order 18, pair", "ns", Bar::Most(1000.0))],
        ),
        (
            Measure::Full9,
            Stage::Full,
            &[row("order 9, all in use (fails)", "ns", Bar::Most(1000.0))],
        ),
        (
            Measure::OneBlock9,
            Stage::OneBlock,
            &[row(
                "order 9, one free in the middle",
                "ns",
                Bar::Most(2000.0),
            )],
        ),
        (
            Measure::EverySecond3,
            Stage::EverySecond,
            &[row(
                "order 3, every second frame free (fails)",
                "ns",
                Bar::Most(5000.0),
            )],
        ),
        (
            Measure::Metadata,
            Stage::EverySecond,
            &[row("metadata in use, a GiB", "KiB", Bar::Most(34.0))],
        ),
    ]
};

/// Nanoseconds of one of `count` runs; `count` grows until they last long enough to be timed.
fn each(count: &mut u64, mut run: impl FnMut()) -> f64 {
    loop {
        let ns = time(|| (0..*count).for_each(|_| run()));
        if ns >= ROUND_NS || *count >= 1 << 24 {
            return ns / *count as f64;
        }
        *count *= if ns < ROUND_NS / 10.0 { 8 } else { 2 };
    }
}

/// A block taken and given back.
pub(crate) fn pair<F: Frames, const ORDER: u8>(frames: &F, count: &mut u64) -> Option<f64> {
    let mut cpu = frames.cpu(0);
    let block = frames.get(&mut cpu, ORDER);
    let done = block.map(|block| {
        frames.put(&mut cpu, block, ORDER);
        each(count, || {
            let block = frames
                .get(&mut cpu, ORDER)
                .expect("the block just given back");
            frames.put(&mut cpu, black_box(block), ORDER);
        })
    });
    frames.settle(&mut cpu);
    done
}

/// Many frames taken, then all given back in the order in which `arrange` puts them.
pub(crate) fn bulk<F: Frames>(
    frames: &F,
    number: usize,
    arrange: impl FnOnce(&mut [u64]),
) -> [f64; 2] {
    let mut cpu = frames.cpu(number);
    let mut held = vec![1; BULK];
    held.clear();
    let get = time(|| {
        for _ in 0..BULK {
            held.push(frames.get(&mut cpu, 0).expect("there is memory"));
        }
    });
    arrange(&mut held);
    let put = time(|| {
        for &frame in &held {
            frames.put(&mut cpu, frame, 0);
        }
    });
    frames.settle(&mut cpu);
    [get, put].map(|ns| ns / BULK as f64)
}

/// The same on two CPUs at once, both taking and both giving: the slower.
pub(crate) fn two_threads<F: Frames>(frames: &F) -> [f64; 2] {
    let barrier = Barrier::new(2);
    let one = |number: usize| {
        pin(number);
        barrier.wait();
        bulk(frames, number, |_| {
            barrier.wait();
        })
    };
    thread::scope(|scope| {
        let threads = [0, 1].map(|number| scope.spawn(move || one(number)));
        let [a, b] = threads.map(|thread| thread.join().expect("no panic"));
        [a[0].max(b[0]), a[1].max(b[1])]
    })
}

/// Frames taken by one CPU and given back by another, in batches: both parts of it.
pub(crate) fn cross<F: Frames>(frames: &F) -> f64 {
    let (filled, to_put) = mpsc::sync_channel::<Vec<u64>>(2);
    thread::scope(|scope| {
        let get = scope.spawn(move || {
            pin(0);
            let mut cpu = frames.cpu(0);
            let mut ns = 0.0;
            for _ in 0..BATCHES {
                let mut batch = vec![1; BATCH];
                batch.clear();
                ns += time(|| {
                    for _ in 0..BATCH {
                        batch.push(frames.get(&mut cpu, 0).expect("there is memory"));
                    }
                });
                filled.send(batch).expect("the other thread runs");
            }
            frames.settle(&mut cpu);
            ns
        });
        let put = scope.spawn(move || {
            pin(1);
            let mut cpu = frames.cpu(1);
            let mut ns = 0.0;
            for batch in to_put {
                ns += time(|| {
                    for &frame in &batch {
                        frames.put(&mut cpu, frame, 0);
                    }
                });
            }
            frames.settle(&mut cpu);
            ns
        });
        let ns = [get, put].map(|thread| thread.join().expect("no panic"));
        ns.iter().sum::<f64>() / (BATCH * BATCHES) as f64
    })
}

/// An allocation that fails.
pub(crate) fn fails<F: Frames, const ORDER: u8>(frames: &F, count: &mut u64) -> f64 {
    let mut cpu = frames.cpu(0);
    let ns = each(count, || {
        let got = frames.get(&mut cpu, ORDER);
        assert!(black_box(got).is_none(), "there is no such block");
    });
    frames.settle(&mut cpu);
    ns
}

/// An allocation of the one block that there is, sought anew each time. `None` if a block given
/// back cannot be had again.
pub(crate) fn finds<F: Frames, const ORDER: u8>(frames: &F) -> Option<f64> {
    let mut cpu = frames.cpu(0);
    let clock = median((0..SHOTS).map(|_| {
        let start = Instant::now();
        black_box(start).elapsed().as_nanos() as f64
    }));
    let mut shots = Vec::with_capacity(SHOTS);
    let begin = thread_ns();
    for _ in 0..SHOTS {
        let start = Instant::now();
        let block = black_box(frames.get(&mut cpu, ORDER));
        shots.push(start.elapsed().as_nanos() as f64);
        let block = block?;
        // While there is none, so that nothing is remembered of where it was.
        assert!(frames.get(&mut cpu, ORDER).is_none(), "there is one block");
        frames.put(&mut cpu, block, ORDER);
        frames.settle(&mut cpu);
        if thread_ns() - begin > 100.0 * ROUND_NS {
            break;
        }
    }
    Some((median(shots.into_iter()) - clock).max(0.0))
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
