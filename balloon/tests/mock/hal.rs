//! A `Hal` over the test process's own memory: addresses are as they are, and what is shared or
//! allocated is counted.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

thread_local! {
    static PAGES: Cell<usize> = const { Cell::new(0) };
    static SHARED: Cell<usize> = const { Cell::new(0) };
    static PAGES_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// See the module. Each test has a thread of its own, and so its own counts.
#[derive(Debug)]
pub(crate) struct TestHal;

impl TestHal {
    /// DMA pages in use.
    pub(crate) fn pages() -> usize {
        PAGES.get()
    }

    /// Buffers that are shared with the device.
    pub(crate) fn shared() -> usize {
        SHARED.get()
    }

    /// Lets allocations fail after this many pages.
    pub(crate) fn limit_pages(pages: usize) {
        PAGES_LEFT.set(pages);
    }
}

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).unwrap()
}

// SAFETY: memory comes zeroed and aligned from the global allocator, and is given out once.
unsafe impl Hal for TestHal {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let Some(left) = PAGES_LEFT.get().checked_sub(pages) else {
            return (0, NonNull::dangling());
        };
        PAGES_LEFT.set(left);
        PAGES.set(PAGES.get() + pages);
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout(pages)) }).unwrap();
        (start.as_ptr().expose_provenance() as PhysAddr, start)
    }

    unsafe fn dma_dealloc(_address: PhysAddr, start: NonNull<u8>, pages: usize) -> i32 {
        PAGES.set(PAGES.get() - pages);
        // SAFETY: the caller passes what `dma_alloc` returned.
        unsafe { dealloc(start.as_ptr(), layout(pages)) };
        0
    }

    unsafe fn mmio_phys_to_virt(_address: PhysAddr, _size: usize) -> NonNull<u8> {
        unreachable!("no device registers")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        assert!(!buffer.is_empty());
        SHARED.set(SHARED.get() + 1);
        buffer.as_ptr().cast::<u8>().expose_provenance() as PhysAddr
    }

    unsafe fn unshare(address: PhysAddr, buffer: NonNull<[u8]>, _direction: BufferDirection) {
        assert_eq!(address, buffer.as_ptr().cast::<u8>().addr() as PhysAddr);
        SHARED.set(SHARED.get() - 1);
    }
}
