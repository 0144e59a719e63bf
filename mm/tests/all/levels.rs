//! Tests that repeated allocations and frees do not write to the metadata, for any number of frames
//! in the cache and any earlier use of the memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::{MIB, order, range, validate_after, watched};
use ebb_mm::{
    Allocator, Config, CpuCache, Frame, Mobility, Order, Request, Reserve, ZoneConfig, ZoneKind,
};

/// The highest level: the number of frames in use.
const LEVELS: usize = 2000;
/// The number of rounds before the metadata must not change any more.
const WARM: usize = 4;
/// The number of rounds after that.
const ROUNDS: usize = 70;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Fresh,
    /// Every eighth frame is free: eight frames of a bitmap word.
    Holed,
    /// One frame of each bitmap word is free.
    Sparse,
    /// All memory was used before, and the cache is drained before each level.
    Drained,
}

struct Test<'a> {
    a: &'a Allocator<'a>,
    metadata: &'a [AtomicU64],
    cache: CpuCache,
    request: Request,
}

impl Test<'_> {
    fn get(&mut self) -> Frame {
        self.a
            .allocate(&mut self.cache, self.request)
            .expect("there is memory")
    }

    fn put(&mut self, frame: Frame) {
        self.a.free(&mut self.cache, frame, self.request.order);
    }

    fn snapshot(&self) -> Vec<u64> {
        let words = self.metadata.iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Allocates `depth` frames and frees them in the same order.
    fn round(&mut self, depth: usize) {
        let frames: Vec<_> = (0..depth).map(|_| self.get()).collect();
        frames.into_iter().for_each(|frame| self.put(frame));
    }

    /// Returns whether a number of rounds leaves the metadata unchanged, at the end and in between.
    /// An allocation from shared memory would change it.
    fn is_at_rest(&mut self, depth: usize) -> bool {
        (0..WARM).for_each(|_| self.round(depth));
        let before = self.snapshot();
        (0..ROUNDS).all(|round| {
            let frames: Vec<_> = (0..depth).map(|_| self.get()).collect();
            // A look costs more than the rest.
            let look = round % 16 == 0 || round + 1 == ROUNDS;
            let same = !look || self.snapshot() == before;
            frames.into_iter().for_each(|frame| self.put(frame));
            same
        }) && self.snapshot() == before
    }
}

fn at_each_level(state: State, request: Request, depth: usize, step: usize) {
    let frames = 512 * MIB;
    let ranges = [range(0, frames)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    let config = Config::new(&zones).with_use_marks();
    watched(&config, |a, metadata| {
        let mut test = Test {
            a,
            metadata,
            cache: CpuCache::new(),
            request: request.reserve(Reserve::Use),
        };
        let mut kept = Vec::new();
        if state != State::Fresh {
            let plain = Request {
                order: Order::BASE,
                ..test.request
            };
            while let Ok(frame) = a.allocate(&mut test.cache, plain) {
                kept.push(frame);
            }
            kept.retain(|&frame| {
                let freed = match state {
                    State::Holed => frame.number() % 8 == 3,
                    State::Sparse => frame.number() % 64 == 3 + frame.number() / 64 % 50,
                    _ => true,
                };
                if freed {
                    a.free(&mut test.cache, frame, Order::BASE);
                }
                !freed
            });
            a.drain(&mut test.cache);
        }
        let mut held = Vec::new();
        for level in 0..LEVELS / step {
            if state == State::Drained {
                a.drain(&mut test.cache);
            }
            assert!(
                test.is_at_rest(depth),
                "{state:?}, {depth} at once, with {} held",
                level * step
            );
            held.extend((0..step).map(|_| test.get()));
        }
        held.into_iter().for_each(|frame| test.put(frame));
        for frame in kept {
            a.free(&mut test.cache, frame, Order::BASE);
        }
        validate_after(a, &mut test.cache);
    });
}

const STATES: [State; 4] = [State::Fresh, State::Holed, State::Sparse, State::Drained];

#[test]
fn a_frame_taken_and_freed_again_and_again_touches_nothing_shared() {
    for state in STATES {
        at_each_level(state, Request::new(Order::BASE, Mobility::Movable), 1, 1);
    }
}

/// Several frames at once, each of another word where memory is sparse.
#[test]
fn nor_do_a_few() {
    for state in STATES {
        at_each_level(state, Request::new(Order::BASE, Mobility::Unmovable), 4, 7);
    }
}

/// A frame of a lower zone that is freed serves the next request for that zone.
#[test]
fn nor_do_those_of_a_lower_zone() {
    let request = Request::new(Order::BASE, Mobility::Movable).zone(ZoneKind::Dma32);
    for state in STATES {
        at_each_level(state, request, 1, 7);
    }
}

/// Runs of several orders at once: each stays in the cache.
#[test]
fn nor_do_runs_of_all_orders() {
    let ranges = [range(0, 64 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    watched(&Config::new(&zones), |a, metadata| {
        let mut cache = CpuCache::new();
        let mut round = |look: &mut dyn FnMut()| {
            let runs = (1..=9).map(|of| {
                let request = Request::new(order(of), Mobility::Movable).reserve(Reserve::Use);
                let run = a.allocate(&mut cache, request).expect("there is memory");
                (run, order(of))
            });
            let runs: Vec<_> = runs.collect();
            look();
            for (run, of) in runs {
                a.free(&mut cache, run, of);
            }
            look();
        };
        let snapshot = || -> Vec<u64> {
            let words = metadata.iter();
            words.map(|word| word.load(Ordering::Relaxed)).collect()
        };
        round(&mut || ());
        let before = snapshot();
        (0..4).for_each(|_| round(&mut || assert_eq!(snapshot(), before)));
        validate_after(a, &mut cache);
    });
}
