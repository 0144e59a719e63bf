//! Measures an allocation and a free at orders 0 and 9, on one and two threads, and the functions
//! that return statistics. `cargo bench -p ebb-mm-benches`. A time is that of one block allocated
//! and freed.
#![allow(
    missing_docs,
    reason = "criterion's macros make public items without any"
)]

#[path = "../tests/arena/mod.rs"]
mod arena;

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use arena::{ZONE, range, with};
use criterion::{Criterion, criterion_group, criterion_main};
use ebb_mm::{Allocator, Config, CpuCache, Frame, Mobility, Order, Request, ZoneConfig, ZoneKind};

/// The number of frames: 4 GiB, from address 4 GiB on.
const FRAMES: u64 = 1 << 20;
/// The number of frames in a bulk: 256 MiB.
const BULK: u64 = 1 << 16;

fn with_memory(bench: impl FnOnce(&Allocator<'_>)) {
    let ranges = [range(1 << 20, FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        // Makes the metadata resident and the blocks touched, as they are after some use.
        let mut cache = CpuCache::new();
        let blocks: Vec<_> = (0..FRAMES / 512 * 9 / 10)
            .map(|_| take(a, &mut cache, Order::PAGEBLOCK))
            .collect();
        for block in blocks {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        bench(a);
    });
}

#[inline]
fn take(a: &Allocator<'_>, cache: &mut CpuCache, order: Order) -> Frame {
    a.allocate(cache, Request::new(order, Mobility::Movable))
        .expect("memory")
}

/// Allocates and frees one block at a time.
fn pairs(a: &Allocator<'_>, order: Order, count: u64) -> Duration {
    let mut cache = CpuCache::new();
    let start = Instant::now();
    for _ in 0..count {
        let frame = black_box(take(a, &mut cache, order));
        a.free(&mut cache, frame, order);
    }
    let time = start.elapsed();
    a.drain(&mut cache);
    time
}

/// Allocates many frames, then frees them in the order of allocation.
fn bulk(a: &Allocator<'_>, _: Order, count: u64) -> Duration {
    let mut cache = CpuCache::new();
    let mut held = Vec::with_capacity(1 << 16);
    let start = Instant::now();
    let mut left = count;
    while left != 0 {
        let round = left.min(BULK);
        held.extend((0..round).map(|_| take(a, &mut cache, Order::BASE)));
        for frame in held.drain(..) {
            a.free(&mut cache, frame, Order::BASE);
        }
        left -= round;
    }
    let time = start.elapsed();
    a.drain(&mut cache);
    time
}

type Run = fn(&Allocator<'_>, Order, u64) -> Duration;

/// Does the same on several threads at once. Returns the longest time.
fn on_threads(threads: usize, a: &Allocator<'_>, run: Run, order: Order, count: u64) -> Duration {
    if threads == 1 {
        return run(a, order, count);
    }
    let barrier = Barrier::new(threads);
    let one = || {
        barrier.wait();
        run(a, order, count)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let times = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        times.max().unwrap_or_default()
    })
}

fn benches(c: &mut Criterion) {
    let cases: [(&str, Run, Order); 3] = [
        ("order 0, pair", pairs, Order::BASE),
        ("order 0, bulk", bulk, Order::BASE),
        ("order 9, pair", pairs, Order::PAGEBLOCK),
    ];
    for (name, run, order) in cases {
        let mut group = c.benchmark_group(name);
        group.sample_size(20);
        group.measurement_time(Duration::from_secs(2));
        group.warm_up_time(Duration::from_millis(500));
        for threads in [1, 2] {
            with_memory(|a| {
                group.bench_function(format!("{threads} threads"), |b| {
                    b.iter_custom(|count| on_threads(threads, a, run, order, count));
                });
                a.validate().expect("valid after the bench");
            });
        }
        group.finish();
    }
}

/// Measures the statistics on 64 GiB in which every pageblock is partly used.
fn figures(c: &mut Criterion) {
    const LARGE: u64 = 64 << 18;
    let ranges = [range(1 << 20, LARGE)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let mut cache = CpuCache::new();
        for frame in (0..LARGE).step_by(64) {
            let one = range((1 << 20) + frame + frame / 512 % 64, 1);
            a.allocate_range(&mut cache, one, Mobility::Movable)
                .expect("free");
        }
        let mut group = c.benchmark_group("figures, 64 GiB");
        group.sample_size(10);
        group.measurement_time(Duration::from_secs(2));
        group.warm_up_time(Duration::from_millis(500));
        group.bench_function("zone_stats", |b| b.iter(|| black_box(a.zone_stats(ZONE))));
        group.bench_function("estimate", |b| b.iter(|| black_box(a.estimate(ZONE))));
        group.bench_function("free_areas", |b| b.iter(|| black_box(a.free_areas(ZONE))));
        group.finish();
    });
}

criterion_group!(allocate, benches, figures);
criterion_main!(allocate);
