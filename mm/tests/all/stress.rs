//! Stress tests with threads at mixed orders, which check the owner of each frame.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::arena::{ZONE, range, with};
use ebb_mm::{
    AllocError, Allocator, Config, CpuCache, Events, Frame, FrameRange, HintList, Hinter, Mobility,
    Order, PutBack, ReportSink, Reporter, Request, Reserve, ZoneConfig, ZoneKind,
};

/// How long each stress runs; `EBB_STRESS_SECONDS` sets another time.
const SECONDS: u64 = 4;
const THREADS: u64 = 4;
const FRAMES: u64 = 40 * 512 + 77;
const HELD: usize = 400;

fn time() -> Duration {
    let seconds = std::env::var("EBB_STRESS_SECONDS")
        .ok()
        .and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(SECONDS))
}

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

/// A hint list for each thread.
struct Lists(Vec<HintList>);

impl Events for Lists {
    fn report_requested(&self) {}

    fn hints(&self) -> Option<&HintList> {
        self.0.get(CPU.get())
    }
}

/// A random number generator: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }
}

/// The owner of each frame; 0 = free.
struct Owners(Vec<AtomicU8>);

impl Owners {
    fn new(frames: u64) -> Self {
        Self((0..frames).map(|_| AtomicU8::new(0)).collect())
    }

    fn take(&self, range: FrameRange, owner: u8) {
        for frame in range.start.number()..range.end().number() {
            let old = self.of(frame).swap(owner, Ordering::Relaxed);
            assert_eq!(old, 0, "frame {frame:#x} for {owner} is in use");
        }
    }

    fn give(&self, range: FrameRange, owner: u8) {
        for frame in range.start.number()..range.end().number() {
            let old = self.of(frame).swap(0, Ordering::Relaxed);
            assert_eq!(old, owner, "frame {frame:#x} of {owner} was taken");
        }
    }

    fn of(&self, frame: u64) -> &AtomicU8 {
        &self.0[usize::try_from(frame).expect("small")]
    }
}

struct Host<'a>(&'a Owners);

impl ReportSink for Host<'_> {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        for &range in ranges {
            self.0.take(range, 255);
        }
        thread::yield_now();
        for &range in ranges {
            self.0.give(range, 255);
        }
        Ok(())
    }
}

struct Stress<'a, 'm> {
    a: &'a Allocator<'m>,
    owners: &'a Owners,
    stop: &'a AtomicBool,
    operations: &'a AtomicU64,
    /// The number of operations after which a thread stops by itself.
    most: u64,
}

impl Stress<'_, '_> {
    /// Allocates and frees blocks of random orders until `stop` is set or `most` operations are
    /// done.
    fn allocate(&self, owner: u8, seed: u64, orders: &[u8]) {
        let mut random = Random(seed);
        let mut cache = CpuCache::new();
        let mut held: Vec<(Frame, Order)> = Vec::new();
        let mut done = 0;
        while done < self.most && !self.stop.load(Ordering::Relaxed) {
            let take = held.is_empty() || held.len() < HELD && random.below(100) < 52;
            if take {
                let order = orders[random.index(orders.len())];
                let order = Order::new(order).unwrap_or(Order::GIB);
                let mobility = Mobility::ALL[random.index(3)];
                let request = Request::new(order, mobility).reserve(Reserve::Use);
                match self.a.allocate(&mut cache, request) {
                    Ok(frame) => {
                        assert!(frame.is_aligned(order));
                        self.owners
                            .take(FrameRange::new(frame, order.frames()), owner);
                        held.push((frame, order));
                    }
                    Err(AllocError::Isolated { .. }) => thread::yield_now(),
                    Err(AllocError::Exhausted { .. }) => {
                        for _ in 0..held.len() / 2 {
                            self.give(owner, &mut cache, held.swap_remove(0));
                        }
                    }
                }
            } else {
                let which = random.index(held.len());
                let block = held.swap_remove(which);
                if block.1 >= Order::PAGEBLOCK && random.below(4) == 0 {
                    self.split(block, random.below(9), &mut held);
                } else {
                    self.give(owner, &mut cache, block);
                }
            }
            if self.a.drain_requested(&cache) || random.below(1000) == 0 {
                self.a.drain(&mut cache);
            }
            done += 1;
        }
        for block in held {
            self.give(owner, &mut cache, block);
        }
        self.a.drain(&mut cache);
        self.operations.fetch_add(done, Ordering::Relaxed);
    }

    fn give(&self, owner: u8, cache: &mut CpuCache, (frame, order): (Frame, Order)) {
        self.owners
            .give(FrameRange::new(frame, order.frames()), owner);
        self.a.free(cache, frame, order);
    }

    /// Splits a block into pageblocks, or into blocks of order `into`.
    fn split(&self, (frame, order): (Frame, Order), into: u64, held: &mut Vec<(Frame, Order)>) {
        let into = match u8::try_from(into).ok().and_then(Order::new) {
            Some(into) if order < Order::GIB => into,
            _ => Order::PAGEBLOCK,
        };
        self.a.split(frame, order, into);
        let parts = order.frames() / into.frames();
        held.extend((0..parts).map(|part| (frame.offset(part * into.frames()), into)));
    }

    /// Isolates free blocks and puts them back until the end of the run.
    fn isolate(&self, owner: u8, seed: u64, lists: &[HintList]) {
        CPU.set(lists.len() - 2);
        let mut random = Random(seed);
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(block) = self
                .a
                .isolate(Frame::new(random.below(self.owners.0.len() as u64)))
            {
                self.owners.take(block.range(), owner);
                thread::yield_now();
                self.owners.give(block.range(), owner);
                self.a.put_back(block, PutBack::Unchanged);
            }
            thread::yield_now();
        }
    }

    /// Reports and hints at changing orders until the end of the run.
    fn report(&self, seed: u64, lists: &[HintList]) {
        CPU.set(lists.len() - 1);
        let mut random = Random(seed);
        let (mut reporter, mut hinter) = (Reporter::new(), Hinter::new());
        let mut now = Duration::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            if random.below(50) == 0 {
                let order = u8::try_from(random.below(12)).ok().and_then(Order::new);
                match order.filter(|_| random.below(2) == 0) {
                    Some(order) => self
                        .a
                        .set_hinting_order(order)
                        .expect("an order that can be given back"),
                    None => self
                        .a
                        .set_reporting_order(order)
                        .expect("an order that can be given back"),
                }
            }
            let mut host = Host(self.owners);
            let poll = if self.a.is_hinting() {
                hinter.poll(now, self.a, lists, 1 + random.index(20), &mut host)
            } else {
                reporter.poll(now, self.a, &mut host)
            };
            now = poll.next.unwrap_or(now);
            thread::yield_now();
        }
    }
}

/// The parameters of a stress test.
struct Course {
    seed: u64,
    frames: u64,
    /// The orders of blocks. 18 is a GiB.
    orders: &'static [u8],
    threads: u64,
    /// Whether other threads report and isolate at the same time.
    report: bool,
    /// The number of operations of each thread. `None`: until the time has passed.
    operations: Option<u64>,
}

impl Course {
    const fn new(seed: u64, orders: &'static [u8]) -> Self {
        Self {
            seed,
            frames: FRAMES,
            orders,
            threads: THREADS,
            report: false,
            operations: None,
        }
    }

    fn run(&self) {
        let ranges = [range(0, self.frames)];
        let zones = [ZoneConfig {
            kind: ZoneKind::Dma32,
            node: 0,
            ranges: &ranges,
        }];
        // The threads that report and isolate have lists too.
        let lists = Lists((0..self.threads + 3).map(|_| HintList::new()).collect());
        with(&Config::new(&zones).with_frame_marks(), &lists, |a| {
            let owners = Owners::new(self.frames);
            let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
            let run = &Stress {
                a,
                owners: &owners,
                stop: &stop,
                operations: &operations,
                most: self.operations.unwrap_or(u64::MAX),
            };
            a.set_watermarks(ZONE, ebb_mm::Watermarks::default())
                .expect("rising marks");
            let start = Instant::now();
            thread::scope(|scope| {
                let threads: Vec<_> = (0..self.threads)
                    .map(|thread| {
                        let owner = u8::try_from(thread + 1).expect("few");
                        scope.spawn(move || {
                            CPU.set(owner.into());
                            run.allocate(owner, self.seed + thread, self.orders);
                        })
                    })
                    .collect();
                if self.report {
                    scope.spawn(|| run.isolate(200, self.seed + 100, &lists.0));
                    scope.spawn(|| run.report(self.seed + 101, &lists.0));
                }
                if self.operations.is_none() {
                    thread::sleep(time());
                    stop.store(true, Ordering::Relaxed);
                }
                for thread in threads {
                    thread.join().expect("no panic");
                }
                stop.store(true, Ordering::Relaxed);
            });
            let done = operations.into_inner();
            println!(
                "seed {}: {done} operations in {:?}",
                self.seed,
                start.elapsed()
            );
            a.validate().expect("valid");
            assert_eq!(a.stats().free_frames, self.frames);
        });
    }
}

const MIXED: &[u8] = &[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const SPANNING: &[u8] = &[0, 0, 0, 0, 6, 7, 8, 9];

#[test]
fn mixed_orders_with_reports_and_isolation() {
    Course {
        report: true,
        ..Course::new(1, MIXED)
    }
    .run();
}

#[test]
fn orders_that_span_words_against_single_frames() {
    Course::new(2, SPANNING).run();
}

#[test]
fn a_gib_against_its_parts() {
    const ORDERS: [u8; 200] = {
        let mut orders = [9; 200];
        let mut at = 0;
        while at < 100 {
            orders[at] = MIXED[at % MIXED.len()];
            at += 1;
        }
        orders[0] = 18;
        orders
    };
    Course {
        frames: 3 << 18,
        report: true,
        ..Course::new(3, &ORDERS)
    }
    .run();
}

/// Two threads, with enough operations for rare interleavings: `make stress`.
#[test]
#[ignore = "10^8 operations: `make stress` runs it"]
fn a_hundred_million_operations() {
    for (seed, orders) in [(11, SPANNING), (12, MIXED)] {
        Course {
            threads: 2,
            operations: Some(25_000_000),
            ..Course::new(seed, orders)
        }
        .run();
    }
    Course {
        threads: 2,
        report: true,
        operations: Some(5_000_000),
        ..Course::new(13, MIXED)
    }
    .run();
}
