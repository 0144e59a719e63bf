//! What is measured.

use std::{
    hint::{black_box, spin_loop},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
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

/// The unit of a row that is a ratio itself.
pub(crate) const TIMES: &str = "×";

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

/// A row of the table.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// What Ebb's figure is to be at most.
    pub(crate) bar: Option<f64>,
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
    const fn row(name: &'static str, unit: &'static str, bar: Option<f64>) -> Row {
        Row { name, unit, bar }
    }
    [
        (
            Measure::Pair0,
            Stage::Small,
            &[row("order 0, pair", "ns", Some(8.0))],
        ),
        (
            Measure::Bulk,
            Stage::Small,
            &[
                row("order 0, bulk get", "ns", Some(9.0)),
                row("order 0, bulk put", "ns", Some(9.0)),
            ],
        ),
        (
            Measure::Shuffled,
            Stage::Small,
            &[row("order 0, bulk put in random order", "ns", None)],
        ),
        (
            Measure::TwoThreads,
            Stage::Small,
            &[
                row("order 0, bulk get, two threads", "ns", None),
                row("order 0, bulk put, two threads", "ns", None),
                row("bulk get, two threads to one", TIMES, Some(1.3)),
                row("bulk put, two threads to one", TIMES, Some(1.3)),
            ],
        ),
        (
            Measure::Pair9,
            Stage::Small,
            &[row("order 9, pair", "ns", Some(11.0))],
        ),
        (
            Measure::Cross,
            Stage::Small,
            &[row("get on CPU 0, put on CPU 1", "ns", Some(40.0))],
        ),
        (
            Measure::Initialise,
            Stage::None,
            &[row("initialise", "ms", Some(20.0))],
        ),
        (
            Measure::Pair18,
            Stage::Large,
            &[row("order 18, pair", "ns", Some(1000.0))],
        ),
        (
            Measure::Full9,
            Stage::Full,
            &[row("order 9, all in use (fails)", "ns", Some(1000.0))],
        ),
        (
            Measure::OneBlock9,
            Stage::OneBlock,
            &[row("order 9, one free in the middle", "ns", Some(2000.0))],
        ),
        (
            Measure::EverySecond3,
            Stage::EverySecond,
            &[row(
                "order 3, every second frame free (fails)",
                "ns",
                Some(5000.0),
            )],
        ),
        (
            Measure::Metadata,
            Stage::EverySecond,
            &[row("metadata in use, a GiB", "KiB", Some(34.0))],
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

/// Many frames taken after `begin`, then all given back in the order in which `arrange` puts them.
pub(crate) fn bulk<F: Frames>(
    frames: &F,
    number: usize,
    begin: impl FnOnce(),
    arrange: impl FnOnce(&mut [u64]),
) -> [f64; 2] {
    let mut cpu = frames.cpu(number);
    let mut held = vec![1; BULK];
    held.clear();
    begin();
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

/// The same on two CPUs at once, both taking and both giving: the slower, then how many times that
/// is the slower of the two CPUs each by itself, measured just before and just after in the same
/// way. So what the machine gives at that moment is in both, and so is what one of its CPUs is
/// slower by.
pub(crate) fn two_threads<F: Frames>(frames: &F) -> [f64; 4] {
    let [first] = together(frames, [0]);
    let [a, b] = together(frames, [0, 1]);
    let [second] = together(frames, [1]);
    let alone = [first[0].max(second[0]), first[1].max(second[1])];
    let both = [a[0].max(b[0]), a[1].max(b[1])];
    [both[0], both[1], both[0] / alone[0], both[1] / alone[1]]
}

/// What a bulk costs on each of these CPUs, which begin to take and to give at the same moment.
fn together<F: Frames, const CPUS: usize>(frames: &F, cpus: [usize; CPUS]) -> [[f64; 2]; CPUS] {
    let arrived = AtomicU32::new(0);
    // Waits without sleeping: one who is woken late has the memory for himself at the end.
    let meet = |nth: u32| {
        // `Relaxed`: says when to begin, and nothing else.
        arrived.fetch_add(1, Ordering::Relaxed);
        while (arrived.load(Ordering::Relaxed) as usize) < nth as usize * CPUS {
            spin_loop();
        }
    };
    thread::scope(|scope| {
        let meet = &meet;
        let threads = cpus.map(|number| {
            scope.spawn(move || {
                pin(number);
                bulk(frames, number, || meet(1), |_| meet(2))
            })
        });
        threads.map(|thread| thread.join().expect("no panic"))
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
