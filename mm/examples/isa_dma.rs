//! The zones of a PC: the first 16 MiB for ISA devices, the memory below 4 GiB, and the rest. A
//! kernel uses up all memory that it can get, and a sound card still gets its buffers.
//!
//!     cargo run -p ebb-mm --example isa_dma
#![allow(unsafe_code, reason = "the metadata is the caller's")]

use std::{alloc::alloc_zeroed, ptr::NonNull};

use ebb_mm::{
    Allocator, Config, CpuCache, FrameRange, Mobility, Order, Request, ZoneConfig, ZoneKind,
    metadata_layout,
};

/// The memory map of a PC with 6 GiB: the start of each range, and its bytes.
const MEMORY_MAP: [(u64, u64); 3] = [(0, 640 << 10), (1 << 20, 3071 << 20), (4 << 30, 3072 << 20)];

/// Returns the memory of the map between the addresses `from` and `to`.
fn ranges(from: u64, to: u64) -> Vec<FrameRange> {
    let within = MEMORY_MAP.iter().map(|&(start, bytes)| {
        let (first, end) = (start.max(from), (start + bytes).min(to));
        FrameRange::inside(first, end.saturating_sub(first))
    });
    within.filter(|range| !range.is_empty()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut from = 0;
    let by_kind = ZoneKind::ALL.map(|kind| {
        let to = kind.limit().unwrap_or(u64::MAX);
        (kind, ranges(std::mem::replace(&mut from, to), to))
    });
    let zones: Vec<_> = by_kind
        .iter()
        .map(|(kind, ranges)| ZoneConfig {
            kind: *kind,
            node: 0,
            ranges,
        })
        .collect();
    let config = Config::new(&zones);
    let layout = metadata_layout(&config)?;
    // SAFETY: the layout is not empty.
    let metadata = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or("no memory")?;
    // SAFETY: zeroed memory of that layout, which is used for nothing else and never freed.
    let allocator = unsafe { Allocator::new(metadata, &config, &()) }?;
    let show = |when: &str| {
        println!("{when}");
        for zone in allocator.zone_ids() {
            let stats = allocator.zone_stats(zone);
            println!(
                "  {:6} {:8} of {:8} frames free, min {:4}, kept from ordinary requests {:5}",
                format!("{:?}", stats.kind),
                stats.free_frames,
                stats.managed_frames,
                stats.watermarks.min,
                allocator.lowmem_reserve(zone, ZoneKind::Normal),
            );
        }
    };
    show("At first:");

    let mut cache = CpuCache::new();
    let page = Request::new(Order::BASE, Mobility::Movable);
    let mut pages = Vec::new();
    while let Ok(frame) = allocator.allocate(&mut cache, page) {
        pages.push(frame);
    }
    show(&format!(
        "{} pages later, when an ordinary request fails:",
        pages.len()
    ));

    // A buffer of 64 KiB. The block is aligned to its size, so it crosses no boundary of the DMA
    // controller.
    let order = Order::at_least(16).ok_or("an order")?;
    let request = Request::new(order, Mobility::Unmovable).zone(ZoneKind::Dma);
    let buffer = allocator.allocate(&mut cache, request)?;
    println!(
        "A buffer of 64 KiB for the sound card at {:#x}",
        buffer.address()
    );
    // Twelve adjacent pages below 1 MiB. The range limits the address for devices with fewer
    // address lines.
    let low = FrameRange::inside(0, 1 << 20);
    let unmovable = Request::new(Order::BASE, Mobility::Unmovable).zone(ZoneKind::Dma);
    let twelve = allocator.allocate_contiguous(&mut cache, 12, Some(low), unmovable)?;
    println!("Twelve pages below 1 MiB at {:#x}", twelve.start.address());

    allocator.free(&mut cache, buffer, order);
    allocator.free_range(&mut cache, twelve);
    allocator.free_bulk(&mut cache, &pages, Order::BASE);
    allocator.drain(&mut cache);
    allocator.validate()?;
    show("At the end:");
    Ok(())
}
