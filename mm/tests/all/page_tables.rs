//! Tests of page tables of the crate `x86_64` on frames of the allocator.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    mem::ManuallyDrop,
};

use crate::arena::{with, with_gibs};
use ebb_mm::{
    Config, CpuCache, FRAME_SIZE, Frame, FrameRange, Mobility, Order, PageFrames, Request,
    ZoneConfig, ZoneKind,
};
use x86_64::{
    VirtAddr,
    structures::paging::{
        FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags,
        PhysFrame, Size1GiB, Size2MiB, Size4KiB, Translate, mapper::CleanUp,
    },
};

#[test]
fn page_tables_are_built_and_taken_down() {
    const BYTES: usize = 4 << 20;
    let layout = Layout::from_size_align(BYTES, 2 << 20).expect("a layout");
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) };
    assert!(!memory.is_null());
    // Frames are numbered by physical addresses; the offset leads to the memory.
    let ranges = [FrameRange::inside(0, BYTES as u64)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let cache = &mut *ManuallyDrop::new(CpuCache::new());
        let request = Request::new(Order::BASE, Mobility::Unmovable);
        let root = a.allocate(cache, request).expect("memory");
        let at =
            |frame: Frame| memory.wrapping_add(usize::try_from(frame.address()).expect("small"));
        // SAFETY: a frame of zeroed memory that is used only here: an empty table.
        let table = unsafe { &mut *at(root).cast::<PageTable>() };
        let offset = VirtAddr::new(memory.expose_provenance() as u64);
        // SAFETY: all frames of the allocator are at this offset, and are zeroed or tables.
        let mut tables = unsafe { OffsetPageTable::new(table, offset) };
        let mut frames = PageFrames::new(a, cache);
        let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
        let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x5555_0000_0000));
        let frame: PhysFrame<Size4KiB> = frames.allocate_frame().expect("memory");
        // SAFETY: these tables are never loaded.
        let mapped = unsafe { tables.map_to(page, frame, flags, &mut frames) };
        mapped.expect("mapped").ignore();
        assert_eq!(
            tables.translate_addr(page.start_address()),
            Some(frame.start_address())
        );
        let (unmapped, flush) = tables.unmap(page).expect("mapped");
        flush.ignore();
        assert_eq!(unmapped, frame);
        // SAFETY: the frames are unused, as the tables are not loaded.
        unsafe {
            tables.clean_up(&mut frames);
            frames.deallocate_frame(frame);
        }
        a.free(cache, root, Order::BASE);
        a.drain(cache);
        assert_eq!(a.stats().free_frames, (BYTES / FRAME_SIZE) as u64);
        a.validate().expect("valid");
    });
    // SAFETY: allocated above with this layout.
    unsafe { dealloc(memory, layout) };
}

#[test]
fn large_pages_are_blocks_of_their_orders() {
    with_gibs(|a, cache| {
        let free = a.stats().free_frames;
        let mut frames = PageFrames::new(a, cache);
        let huge: PhysFrame<Size2MiB> = frames.allocate_frame().expect("memory");
        let gib: PhysFrame<Size1GiB> = frames.allocate_frame().expect("memory");
        assert_eq!(a.stats().free_frames, free - 512 - (1 << 18));
        // SAFETY: the frames are unused.
        unsafe {
            frames.deallocate_frame(huge);
            frames.deallocate_frame(gib);
        }
        a.drain(cache);
        assert_eq!(a.stats().free_frames, free);
        a.validate().expect("valid");
    });
}
