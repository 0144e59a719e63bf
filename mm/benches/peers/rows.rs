//! The measurements, which are the rows of the table.

use std::{
    cell::RefCell,
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
    levels::State,
};

/// The number of frames in a bulk: 256 MiB.
const BULK: usize = 1 << 16;
/// The number of bulks before the one that counts.
const WARM: usize = 1;
/// The number of CPUs that allocate and free at once.
pub(crate) const CPUS: usize = 2;
/// The number of frames that one CPU hands to the other at a time, and how often.
const BATCH: usize = 1024;
const BATCHES: usize = 32;
/// The approximate length of a round of single operations, in ns.
const ROUND_NS: f64 = 1e6;
/// The number of operations timed one by one in a round, which yields their median.
const SHOTS: usize = 101;

/// The unit of a row that is a ratio itself.
pub(crate) const TIMES: &str = "×";

/// The state of the memory that a row is measured on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// A few GiB, which were used and are free.
    Small,
    /// No memory: the row measures how it is made.
    None,
    /// The large memory, all of it free.
    Large,
    /// The large memory, all of it in use.
    Full,
    /// The large memory, in use except for one block of order 9 in the middle.
    OneBlock,
    /// The large memory with every second frame free.
    EverySecond,
}

/// A row of the table.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// The upper bound of Ebb's figure, or `None`.
    pub(crate) bar: Option<f64>,
}

/// A measurement, which yields one row or several.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    Pair0,
    Levels(State),
    Bulk,
    Shuffled,
    Pair9,
    Cross,
    Initialise,
    Pair18,
    Full9,
    OneBlock9,
    EverySecond3,
    Metadata,
}

/// All measurements, in the order in which they run and are printed.
pub(crate) const TABLE: [(Measure, Stage, &[Row]); 14] = {
    const fn row(name: &'static str, unit: &'static str, bar: Option<f64>) -> Row {
        Row { name, unit, bar }
    }
    const MEAN: Option<f64> = Some(4.0);
    const WORST: Option<f64> = Some(10.0);
    [
        (
            Measure::Pair0,
            Stage::Small,
            &[row("order 0, pair", "ns", Some(8.0))],
        ),
        (
            Measure::Levels(State::Fresh),
            Stage::Small,
            &[
                row("pair at 0 to 2000 held, fresh memory", "ns", MEAN),
                row("the worst of these", "ns", WORST),
                row("pair at 0 to 2000 held, fresh, two threads", "ns", MEAN),
                row("the worst of these, two threads", "ns", WORST),
            ],
        ),
        (
            Measure::Levels(State::Holed),
            Stage::Small,
            &[
                row("pair at 0 to 2000 held, 1 frame in 16 free", "ns", MEAN),
                row("the worst of these", "ns", WORST),
                row(
                    "pair at 0 to 2000 held, 1 in 16 free, two threads",
                    "ns",
                    MEAN,
                ),
                row("the worst of these, two threads", "ns", WORST),
            ],
        ),
        (
            Measure::Levels(State::Drained),
            Stage::Small,
            &[
                row("pair at 0 to 2000 held, drained before each", "ns", MEAN),
                row("the worst of these", "ns", WORST),
                row("pair at 0 to 2000 held, drained, two threads", "ns", MEAN),
                row("the worst of these, two threads", "ns", WORST),
            ],
        ),
        (
            Measure::Bulk,
            Stage::Small,
            &[
                row("order 0, bulk get", "ns", Some(9.0)),
                row("order 0, bulk put", "ns", Some(9.0)),
                row("order 0, bulk get, two threads", "ns", None),
                row("order 0, bulk put, two threads", "ns", None),
                row("bulk get, two threads to one", TIMES, Some(1.3)),
                row("bulk put, two threads to one", TIMES, Some(1.3)),
            ],
        ),
        (
            Measure::Shuffled,
            Stage::Small,
            &[row("order 0, bulk put in random order", "ns", None)],
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

/// Returns the nanoseconds of one of `count` runs. `count` grows until they are long enough to be
/// timed.
fn each(count: &mut u64, mut run: impl FnMut()) -> f64 {
    loop {
        let ns = time(|| (0..*count).for_each(|_| run()));
        if ns >= ROUND_NS || *count >= 1 << 24 {
            return ns / *count as f64;
        }
        *count *= if ns < ROUND_NS / 10.0 { 8 } else { 2 };
    }
}

/// Measures one block allocated and freed. Returns `None` if there is no block.
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

/// Calls `begin`, allocates many frames, and frees them in the order in which `arrange` puts them.
/// Returns the nanoseconds of one allocation and of one free.
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

/// Measures bulks on each of two CPUs alone and then on both at once. Returns the times of get and
/// put by one thread, of get and put by two threads, and the two ratios. Each time is that of the
/// slower CPU, in the last of `WARM` + 1 bulks. The same two threads do it all in a few
/// milliseconds, so that both rows and their ratio come from the same machine in the same state.
pub(crate) fn bulks<F: Frames>(frames: &F) -> [f64; 6] {
    let arrived = AtomicU32::new(0);
    let times = thread::scope(|scope| {
        let arrived = &arrived;
        let threads = [0, 1].map(|number| {
            scope.spawn(move || {
                pin(number);
                by_turns_and_together(frames, number, &mut Meeting::new(arrived, CPUS))
            })
        });
        threads.map(|thread| thread.join().expect("no panic"))
    });
    let [one, two] = [0, 1].map(|turn| {
        let slower = |what: usize| times[0][turn][what].max(times[1][turn][what]);
        [slower(0), slower(1)]
    });
    [
        one[0],
        one[1],
        two[0],
        two[1],
        two[0] / one[0],
        two[1] / one[1],
    ]
}

/// Returns the times of this CPU alone, and while the other CPU does the same.
fn by_turns_and_together<F: Frames>(
    frames: &F,
    number: usize,
    meeting: &mut Meeting<'_>,
) -> [[f64; 2]; 2] {
    let mut alone = [0.0; 2];
    for turn in 0..CPUS {
        meeting.meet();
        if turn == number {
            for _ in 0..=WARM {
                alone = bulk(frames, number, || (), |_| ());
            }
        }
    }
    let mut together = [0.0; 2];
    for _ in 0..=WARM {
        let meeting = RefCell::new(&mut *meeting);
        let meet = || meeting.borrow_mut().meet();
        // Also meets between get and put, so that no CPU begins while the other still frees its
        // frames.
        meet();
        together = bulk(frames, number, meet, |_| meet());
    }
    [alone, together]
}

/// A barrier at which the threads wait for each other.
pub(crate) struct Meeting<'a> {
    arrived: &'a AtomicU32,
    threads: usize,
    /// How often this thread has met the others.
    nth: usize,
}

impl<'a> Meeting<'a> {
    pub(crate) fn new(arrived: &'a AtomicU32, threads: usize) -> Self {
        Self {
            arrived,
            threads,
            nth: 0,
        }
    }

    /// Waits for the other threads. Does not sleep: a thread that is woken late would have the
    /// memory for itself at the end.
    pub(crate) fn meet(&mut self) {
        self.nth += 1;
        // `Relaxed`: it only says when to begin.
        self.arrived.fetch_add(1, Ordering::Relaxed);
        while (self.arrived.load(Ordering::Relaxed) as usize) < self.nth * self.threads {
            spin_loop();
        }
    }
}

/// Measures frames that one CPU allocates and another CPU frees, in batches. Returns the sum of
/// both times.
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

/// Measures an allocation that fails.
pub(crate) fn fails<F: Frames, const ORDER: u8>(frames: &F, count: &mut u64) -> f64 {
    let mut cpu = frames.cpu(0);
    let ns = each(count, || {
        let got = frames.get(&mut cpu, ORDER);
        assert!(black_box(got).is_none(), "there is no such block");
    });
    frames.settle(&mut cpu);
    ns
}

/// Measures the allocation of the only free block, with a new search each time. Returns `None` if a
/// freed block cannot be allocated again.
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
        // Fails, so that the allocator cannot remember where the block was.
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
