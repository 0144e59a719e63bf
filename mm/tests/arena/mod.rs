//! Metadata for tests: zeroed memory that outlives its allocator.
#![allow(dead_code, unreachable_pub, reason = "examples and benches use a part")]

use std::{
    alloc::{alloc_zeroed, dealloc, handle_alloc_error},
    mem::ManuallyDrop,
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

use ebb_mm::{
    Allocator, Config, CpuCache, Events, Frame, FrameRange, Mobility, Order, Request, Reserve,
    ZoneConfig, ZoneId, ZoneKind, metadata_layout,
};

/// The first zone of an allocator.
pub const ZONE: ZoneId = ZoneId::FIRST;

/// Returns a range of frames by numbers.
pub fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(Frame::new(start), frames)
}

/// Calls `test` with a new allocator.
pub fn with<R>(
    config: &Config<'_>,
    events: &dyn Events,
    test: impl FnOnce(&Allocator<'_>) -> R,
) -> R {
    let layout = metadata_layout(config).expect("a valid configuration");
    // SAFETY: the layout is not empty: it has a header.
    let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    // SAFETY: zeroed memory of this layout, freed after the allocator is gone.
    let allocator = unsafe { Allocator::new(base, config, events) }.expect("a valid configuration");
    let result = test(&allocator);
    // SAFETY: allocated above with this layout, and no reference to it is left.
    unsafe { dealloc(base.as_ptr(), layout) };
    result
}

/// Runs `run` on a new allocator. Returns the metadata that it leaves, as words.
pub fn words(config: &Config<'_>, run: impl FnOnce(&Allocator<'_>)) -> Vec<AtomicU64> {
    watched(config, |allocator, _| run(allocator))
}

/// Like [`words`], and lets `run` read the metadata during its run.
pub fn watched(
    config: &Config<'_>,
    run: impl FnOnce(&Allocator<'_>, &[AtomicU64]),
) -> Vec<AtomicU64> {
    let layout = metadata_layout(config).expect("a valid configuration");
    let length = layout.size().div_ceil(8);
    let page = layout.align() / 8;
    let memory: Vec<AtomicU64> = (0..length + page).map(|_| AtomicU64::new(0)).collect();
    let skip = memory.as_ptr().align_offset(layout.align());
    let base = NonNull::from(&memory[skip..]).cast();
    // SAFETY: zero, aligned, long enough, and in atomics, so that writing through `&` is sound.
    let allocator = unsafe { Allocator::new(base, config, &()) }.expect("a valid configuration");
    run(&allocator, &memory[skip..][..length]);
    memory.into_iter().skip(skip).collect()
}

/// The number of frames in a MiB.
pub const MIB: u64 = 256;

/// Returns an order.
pub fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

/// Calls `test` with an allocator of 64 MiB and a per-CPU cache.
pub fn in_small_memory(test: impl FnOnce(&Allocator<'_>, &mut CpuCache)) {
    let ranges = [range(0, 64 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    // A panic in the drop of the cache while a test panics would end the test in an abort.
    with(&Config::new(&zones), &(), |a| {
        test(a, &mut ManuallyDrop::new(CpuCache::new()))
    });
}

/// Allocates a movable block.
pub fn one(a: &Allocator<'_>, cache: &mut CpuCache, of: Order) -> Frame {
    a.allocate(cache, Request::new(of, Mobility::Movable))
        .expect("memory")
}

/// Allocates `blocks` movable blocks. They may come from the reserve.
pub fn take(a: &Allocator<'_>, cache: &mut CpuCache, order: Order, blocks: u64) -> Vec<Frame> {
    let request = Request::new(order, Mobility::Movable).reserve(Reserve::Use);
    (0..blocks)
        .map(|_| a.allocate(cache, request).expect("memory"))
        .collect()
}

/// Calls `test` with an allocator of a GiB that lacks its first tree of 64 MiB, and three whole
/// GiB, and with a cache.
pub fn with_gibs(test: impl FnOnce(&Allocator<'_>, &mut CpuCache)) {
    let ranges = [range((1 << 20) + 64 * MIB, 4032 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    let config = Config::new(&zones).with_frame_marks();
    with(&config, &(), |a| {
        a.set_watermarks(ZONE, ebb_mm::Watermarks::default())
            .expect("rising marks");
        test(a, &mut ManuallyDrop::new(CpuCache::new()))
    });
}

/// Drains the cache and checks every invariant of the metadata.
pub fn validate_after(a: &Allocator<'_>, cache: &mut CpuCache) {
    a.drain(cache);
    a.validate().expect("valid");
}
