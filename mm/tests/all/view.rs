//! Tests of the view of the metadata from outside: correct on valid bytes, harmless on any bytes.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::arena::{range, words};
use ebb_mm::{
    Allocator, Config, CpuCache, Mobility, Order, Request, ZoneConfig, ZoneKind,
    attach::{Attached, BlockView, Usage},
    view::{View, ViewError},
};
use proptest::prelude::*;

const MIB: u64 = 256;

/// Returns metadata of three zones, partly in use, and the statistics that a reader should find.
/// The first two zones share a tree.
fn used_metadata() -> (Vec<AtomicU64>, u64, u64) {
    let dma = [range(0, 160), range(256, 15 * MIB)];
    let low = [range(16 * MIB, 285 * MIB)];
    let high = [
        range(1 << 20, 40 * MIB),
        range((1 << 20) + 50 * MIB, 60 * MIB),
    ];
    let zones = [
        ZoneConfig {
            kind: ZoneKind::Dma,
            node: 0,
            ranges: &dma,
        },
        ZoneConfig {
            kind: ZoneKind::Dma32,
            node: 0,
            ranges: &low,
        },
        ZoneConfig {
            kind: ZoneKind::Normal,
            node: 3,
            ranges: &high,
        },
    ];
    let mut figures = (0, 0);
    let memory = words(
        &Config::new(&zones).with_frame_marks(),
        |a: &Allocator<'_>| {
            let mut cache = CpuCache::new();
            let take = |cache: &mut CpuCache, order| {
                a.allocate(cache, Request::new(order, Mobility::Movable))
                    .expect("memory")
            };
            let frames: Vec<_> = (0..70_000).map(|_| take(&mut cache, Order::BASE)).collect();
            for &frame in &frames[..60_000] {
                a.free(&mut cache, frame, Order::BASE);
            }
            take(&mut cache, Order::PAGEBLOCK);
            a.drain(&mut cache);
            let stats = a.stats();
            figures = (stats.free_frames, stats.unreported_free_frames);
        },
    );
    (memory, figures.0, figures.1)
}

#[test]
fn a_reader_sees_what_the_allocator_says() {
    let (memory, free, unreported) = used_metadata();
    let view = View::new(&memory[..]).expect("metadata");
    assert!(unreported > 0);
    assert_eq!(view.free_frames(), Ok((free, unreported)));
    let zones: Vec<_> = view.zones().map(|zone| zone.expect("a zone")).collect();
    assert_eq!(zones.len(), 3);
    assert_eq!((zones[0].kind, zones[0].node), (ZoneKind::Dma, 0));
    assert_eq!((zones[1].kind, zones[1].node), (ZoneKind::Dma32, 0));
    assert_eq!((zones[2].kind, zones[2].node), (ZoneKind::Normal, 3));
    assert_eq!(zones[0].managed_frames, 15 * MIB + 160);
    assert_eq!(zones[2].managed_frames, 100 * MIB);
}

#[test]
fn the_map_is_that_of_one_who_takes_part() {
    let (memory, ..) = used_metadata();
    let view = View::new(&memory[..]).expect("metadata");
    let seen: Vec<BlockView> = view
        .blocks()
        .collect::<Result<_, _>>()
        .expect("consistent metadata");
    // An attached host needs the metadata at an aligned page.
    let mut aligned: Vec<AtomicU64> = Vec::with_capacity(memory.len() + 512);
    let skip = aligned.as_ptr().align_offset(4096);
    aligned.resize_with(skip, || AtomicU64::new(0));
    aligned.extend(memory.iter().map(|word| AtomicU64::new(word.load(Relaxed))));
    let base = NonNull::from(&aligned[skip..]).cast::<u8>();
    // SAFETY: the words are used only here, aligned, of this length, and accessed as atomics.
    let attached = unsafe { Attached::new(base, memory.len() * 8) }.expect("metadata");
    assert_eq!(seen, attached.blocks().collect::<Vec<_>>());
    let count = |wanted: fn(&Usage) -> bool| seen.iter().filter(|b| wanted(&b.usage)).count();
    assert_eq!(count(|usage| matches!(usage, Usage::Whole)), 1);
    assert!(count(|usage| matches!(usage, Usage::Partial(_) | Usage::Full)) >= 10_000 / 512);
    assert!(count(|usage| matches!(usage, Usage::Free { unreported: true })) > 0);
    assert!(count(|usage| matches!(usage, Usage::Free { unreported: false })) > 0);
    // The gap, and no block of other zones or outside of all zones.
    assert_eq!(count(|usage| matches!(usage, Usage::Missing)), 5);
    let mut starts: Vec<_> = seen.iter().map(|block| block.start).collect();
    starts.dedup();
    assert!(starts.is_sorted() && starts.len() == seen.len());
    let frames = 301 * MIB + 110 * MIB;
    assert_eq!(seen.len() as u64, frames.div_ceil(512));
}

#[test]
fn no_metadata_is_an_error() {
    let zero = [const { AtomicU64::new(0) }; 512];
    assert_eq!(View::new(&zero[..]).err(), Some(ViewError::Magic(0)));
    assert_eq!(View::new(&zero[..0]).err(), Some(ViewError::OutOfBounds(0)));
}

#[test]
fn metadata_cut_short_is_an_error() {
    let (memory, ..) = used_metadata();
    assert!(
        View::new(&memory[..512])
            .expect("a header")
            .free_frames()
            .is_err()
    );
    assert_eq!(
        View::new(&memory[..1]).err(),
        Some(ViewError::OutOfBounds(8))
    );
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(
        changes in prop::collection::vec((0..600usize, any::<u64>()), 0..40),
        length in 2..2000usize,
    ) {
        let (mut memory, ..) = used_metadata();
        for (word, value) in changes {
            // The magic and the version stay, so that the rest is read.
            if word > 1 {
                memory[word] = AtomicU64::new(value);
            }
        }
        let length = length.min(memory.len());
        if let Ok(view) = View::new(&memory[..length]) {
            for zone in view.zones().flatten() {
                prop_assert!(zone.free_frames <= zone.managed_frames);
                prop_assert!(zone.unreported_free_frames <= zone.managed_frames);
                prop_assert!(zone.isolated_frames <= zone.managed_frames);
            }
            let _ = view.free_frames();
            let most = length * 4;
            let mut blocks = view.blocks().take(most);
            let _ = blocks.find(Result::is_err);
        }
    }
}
