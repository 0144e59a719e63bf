//! Tests of per-CPU caches: they use different blocks, their frames are found if no other frame is
//! left, and they return a pageblock if they hold everything in use of it.

use std::{
    collections::HashSet,
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::arena::{range, with};
use ebb_mm::{
    AllocError, Allocator, Config, CpuCache, Events, Frame, FrameRange, Mobility, Order,
    PAGEBLOCK_FRAMES, ReportSink, Reporter, Request, Reserve, ZoneConfig, ZoneKind,
};

/// The number of frames in 64 MiB.
const TREE: u64 = 32 * PAGEBLOCK_FRAMES;

#[derive(Default)]
struct Calls(AtomicU64);

impl Events for Calls {
    fn report_requested(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Calls {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Host;

impl ReportSink for Host {
    type Error = ();

    fn report(&mut self, _: &[FrameRange]) -> Result<(), ()> {
        Ok(())
    }
}

fn in_memory(frames: u64, events: &dyn Events, test: impl FnOnce(&Allocator<'_>)) {
    let ranges = [range(0, frames)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), events, |a| {
        test(a);
        a.validate().expect("valid");
    });
}

fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

fn get(a: &Allocator<'_>, cache: &mut CpuCache, of: Order) -> Result<Frame, AllocError> {
    a.allocate(
        cache,
        Request::new(of, Mobility::Movable).reserve(Reserve::Use),
    )
}

fn many(a: &Allocator<'_>, cache: &mut CpuCache, frames: u64) -> Vec<Frame> {
    (0..frames)
        .map(|_| get(a, cache, Order::BASE).expect("there is memory"))
        .collect()
}

fn free(a: &Allocator<'_>, cache: &mut CpuCache, frames: &[Frame]) {
    for &frame in frames {
        a.free(cache, frame, Order::BASE);
    }
}

#[test]
fn caches_break_up_blocks_in_trees_of_their_own() {
    in_memory(8 * TREE, &(), |a| {
        let mut caches = [CpuCache::new(), CpuCache::new(), CpuCache::new()];
        let mut taken = [const { Vec::new() }; 3];
        for _ in 0..4 {
            for (cache, taken) in caches.iter_mut().zip(&mut taken) {
                taken.extend(many(a, cache, PAGEBLOCK_FRAMES));
            }
        }
        let pairs = taken.each_ref().map(|taken| {
            let pairs: HashSet<_> = taken
                .iter()
                .map(|frame| frame.number() / (2 * TREE))
                .collect();
            assert_eq!(pairs.len(), 1, "128 MiB are enough for 8");
            pairs
        });
        let all: HashSet<_> = pairs.iter().flatten().collect();
        assert_eq!(all.len(), 3, "each has its own");
        for (cache, taken) in caches.iter_mut().zip(&taken) {
            free(a, cache, taken);
            a.drain(cache);
        }
    });
}

/// Two caches that begin at the same time both find the same unused trees. Each breaks up one block
/// there, and after that they use different trees.
#[test]
fn caches_that_begin_at_once_come_apart() {
    const BLOCK: usize = 512;
    for _ in 0..300 {
        in_memory(16 * TREE, &(), |a| {
            let arrived = AtomicU64::new(0);
            let meet = |threads: u64| {
                arrived.fetch_add(1, Ordering::Relaxed);
                while arrived.load(Ordering::Relaxed) < threads {
                    spin_loop();
                }
            };
            let take = || {
                let mut cache = CpuCache::new();
                meet(2);
                let mut frames = many(a, &mut cache, 1);
                // Neither uses up its block before the other has one.
                meet(4);
                frames.extend(many(a, &mut cache, 4 * BLOCK as u64 - 1));
                // Neither returns its block during the other's search.
                meet(6);
                free(a, &mut cache, &frames);
                a.drain(&mut cache);
                let pairs = frames.iter().skip(BLOCK);
                pairs.map(|frame| frame.number() / (2 * TREE)).collect()
            };
            let [first, second]: [HashSet<u64>; 2] = thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(take));
                threads.map(|thread| thread.join().expect("no panic"))
            });
            assert!(first.is_disjoint(&second), "{first:?} and {second:?}");
        });
    }
}

#[test]
fn what_a_cache_holds_is_found_when_nothing_else_is_left() {
    in_memory(TREE, &(), |a| {
        let (mut one, mut other) = (CpuCache::new(), CpuCache::new());
        let frame = get(a, &mut one, Order::BASE).expect("all is free");
        let mut whole = Vec::new();
        while let Ok(block) = get(a, &mut other, Order::PAGEBLOCK) {
            whole.push(block);
        }
        assert_eq!(whole.len(), 31);
        // The rest of the word is in the cache: the block has seven runs of this order.
        let runs: Vec<_> = std::iter::from_fn(|| get(a, &mut other, order(6)).ok()).collect();
        assert_eq!(runs.len(), 7);
        assert_eq!(
            get(a, &mut other, Order::BASE),
            Err(AllocError::Exhausted {
                order: Order::BASE,
                zone: ZoneKind::Normal,
            })
        );
        for run in runs {
            a.free(&mut other, run, order(6));
        }
        // Everything, also for another mobility.
        let request = Request::new(order(3), Mobility::Unmovable).reserve(Reserve::Use);
        let run = a.allocate(&mut other, request).expect("it is taken over");
        a.free(&mut other, run, order(3));
        for block in whole {
            a.free(&mut other, block, Order::PAGEBLOCK);
        }
        a.free(&mut one, frame, Order::BASE);
        a.drain(&mut one);
        a.drain(&mut other);
    });
}

#[test]
fn a_block_that_is_whole_but_for_a_cache_is_given_back() {
    in_memory(4 * TREE, &(), |a| {
        let mut cache = CpuCache::new();
        let frames = many(a, &mut cache, 6 * 64);
        let elsewhere = many(a, &mut cache, 128 + 512);
        let block = frames[0];
        assert!(block.is_aligned(Order::PAGEBLOCK));
        free(a, &mut cache, &elsewhere[..128]);
        assert!(a.isolate(block).is_none(), "frames of it are in use");
        free(a, &mut cache, &frames);
        assert!(a.isolate(block).is_none(), "words of it are in the cache");
        // Needs the entry of one of the words.
        free(a, &mut cache, &elsewhere[128..129]);
        let isolated = a.isolate(block).expect("all of it was given back");
        a.put_back(isolated, ebb_mm::PutBack::Unchanged);
        assert!(cache.held() > 0, "the rest was not");
        free(a, &mut cache, &elsewhere[129..]);
        a.drain(&mut cache);
    });
}

#[test]
fn the_reporter_need_not_wait_for_a_cache_to_be_drained() {
    let calls = Calls::default();
    in_memory(4 * TREE, &calls, |a| {
        let mut cache = CpuCache::new();
        let mut reporter = Reporter::new();
        let frames = many(a, &mut cache, 2 * 64);
        let run = get(a, &mut cache, order(4)).expect("there is memory");
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let mut now = Duration::ZERO;
        while let Some(next) = reporter.poll(now, a, &mut Host).next {
            now = next;
        }
        let before = calls.count();
        a.free(&mut cache, run, order(4));
        free(a, &mut cache, &frames[..127]);
        assert_eq!(calls.count(), before, "a frame is in use");
        free(a, &mut cache, &frames[127..]);
        assert_eq!(calls.count(), before + 1, "the block is free");
        assert_eq!(a.stats().unreported_free_frames, PAGEBLOCK_FRAMES);
        a.drain(&mut cache);
    });
}

/// The frames of one word, freed before and after one of another mobility is allocated. Frames
/// freed before go to the slot, those freed after go to the word's entry.
#[test]
fn a_word_is_whole_wherever_in_the_cache_its_frames_are() {
    // The number of the word's frames that are allocated, freed before, freed after, and then
    // allocated again.
    let cases = [
        (64, 1, 63, 0),
        (64, 40, 24, 0),
        (64, 0, 64, 0),
        (60, 0, 30, 1),
        (60, 20, 30, 1),
        (2, 1, 1, 0),
    ];
    for (taken, before, after, again) in cases {
        let calls = Calls::default();
        in_memory(4 * TREE, &calls, |a| {
            let mut cache = CpuCache::new();
            let mut reporter = Reporter::new();
            a.set_reporting_order(Some(Order::PAGEBLOCK))
                .expect("an order that can be given back");
            let mut now = Duration::ZERO;
            while let Some(next) = reporter.poll(now, a, &mut Host).next {
                now = next;
            }
            let told = calls.count();
            let request = Request::new(Order::BASE, Mobility::Unmovable);
            let first = a.allocate(&mut cache, request).expect("there is memory");
            let mut frames = many(a, &mut cache, taken);
            let rest = frames.split_off(before);
            free(a, &mut cache, &frames);
            let second = a.allocate(&mut cache, request).expect("there is memory");
            let last = rest.len().min(after) - usize::from(again == 0);
            free(a, &mut cache, &rest[..last]);
            let more = many(a, &mut cache, again);
            free(a, &mut cache, &rest[last + 1..]);
            free(a, &mut cache, &more);
            assert_eq!(calls.count(), told, "a frame is in use");
            free(a, &mut cache, &rest[last..=last]);
            assert_eq!(calls.count(), told + 1, "{taken} {before} {after} {again}");
            free(a, &mut cache, &[first, second]);
            a.drain(&mut cache);
        });
    }
}

#[test]
fn a_run_taken_again_and_again_stays_in_the_cache() {
    in_memory(TREE, &(), |a| {
        let mut cache = CpuCache::new();
        for of in (1..=9).map(order) {
            let first = get(a, &mut cache, of).expect("there is memory");
            for _ in 0..10 {
                a.free(&mut cache, first, of);
                assert_eq!(cache.held(), of.frames());
                assert_eq!(get(a, &mut cache, of), Ok(first));
            }
            // A request of another mobility does not get it.
            a.free(&mut cache, first, of);
            let request = Request::new(of, Mobility::Unmovable).reserve(Reserve::Use);
            let other = a.allocate(&mut cache, request).expect("there is memory");
            assert_ne!(other, first);
            a.free(&mut cache, other, of);
            a.drain(&mut cache);
            assert_eq!(cache.held(), 0);
        }
        assert_eq!(a.stats().free_frames, TREE);
    });
}
