//! Tests how many whole pageblocks are left after many allocations and frees.

use crate::arena::{MIB, ZONE, order, range, validate_after, with};
use ebb_mm::{
    Allocator, Config, CpuCache, Mobility, Order, Request, Reserve, ZoneConfig, ZoneKind,
};
use std::mem::ManuallyDrop;

const FRAMES: u64 = 512 * MIB;
const LARGEST: u8 = 6;

/// A random number generator: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random order, half as often as the order below it.
    fn order(&mut self) -> Order {
        loop {
            let of = u8::try_from(self.next().trailing_zeros()).expect("at most 64");
            if of <= LARGEST {
                return order(of);
            }
        }
    }
}

/// Fills `fill` percent of the memory with blocks of orders 0 to 6, then replaces a tenth of them
/// one by one, `rounds` times. Returns the free pageblocks in percent of those that the free memory
/// would fill.
fn whole_after(a: &Allocator<'_>, fill: u64, rounds: u32, seed: u64) -> u64 {
    let mut random = Random(seed);
    // A panic in the drop of the cache while a test panics would end the test in an abort.
    let cache = &mut *ManuallyDrop::new(CpuCache::new());
    let (mut live, mut used) = (Vec::new(), 0);
    let fill_up = |live: &mut Vec<_>, used: &mut u64, random: &mut Random, cache: &mut CpuCache| {
        while *used < FRAMES * fill / 100 {
            let of = random.order();
            let request = Request::new(of, Mobility::Movable).reserve(Reserve::Use);
            live.push((a.allocate(cache, request).expect("there is memory"), of));
            *used += of.frames();
        }
    };
    fill_up(&mut live, &mut used, &mut random, cache);
    for _ in 0..rounds {
        for _ in 0..live.len() / 10 {
            let at = usize::try_from(random.next() % live.len() as u64).expect("an index");
            let (frame, of) = live.swap_remove(at);
            a.free(cache, frame, of);
            used -= of.frames();
            fill_up(&mut live, &mut used, &mut random, cache);
        }
    }
    validate_after(a, cache);
    let whole =
        a.free_areas(ZONE).count(order(9), None) + 2 * a.free_areas(ZONE).count(order(10), None);
    for (frame, of) in live {
        a.free(cache, frame, of);
    }
    validate_after(a, cache);
    whole * 100 / ((FRAMES - used) / 512)
}

fn check(fill: u64, rounds: &[u32], least: u64) {
    for (seed, &rounds) in (1..).zip(rounds) {
        let ranges = [range(0, FRAMES)];
        let zones = [ZoneConfig {
            kind: ZoneKind::Normal,
            node: 0,
            ranges: &ranges,
        }];
        with(&Config::new(&zones), &(), |a| {
            let whole = whole_after(a, fill, rounds, seed);
            assert!(
                whole >= least,
                "{whole} % after {rounds} rounds at {fill} %, seed {seed}"
            );
        });
    }
}

#[test]
fn half_full_memory_stays_whole() {
    check(50, &[0, 2, 20], 94);
}

#[test]
fn mostly_full_memory_stays_whole() {
    check(70, &[0, 2, 20], 88);
}

#[test]
fn nearly_full_memory_stays_whole() {
    check(85, &[0, 2, 20], 78);
}
