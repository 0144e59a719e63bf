//! A `Hal` over the memory of the test process. Physical addresses are virtual addresses, and DMA
//! pages and shared buffers are counted.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

thread_local! {
    static PAGES: Cell<usize> = const { Cell::new(0) };
    static SHARED: Cell<usize> = const { Cell::new(0) };
    static PAGES_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The `Hal` of the tests. Each test runs in a thread of its own, so it has its own counts.
#[derive(Debug)]
pub(crate) struct TestHal;

impl TestHal {
    /// Returns the number of DMA pages in use.
    pub(crate) fn pages() -> usize {
        PAGES.get()
    }

    /// Returns the number of buffers shared with the device.
    pub(crate) fn shared() -> usize {
        SHARED.get()
    }

    /// Makes allocations fail after this number of pages.
    pub(crate) fn limit_pages(pages: usize) {
        PAGES_LEFT.set(pages);
    }
}

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).unwrap()
}

// SAFETY: memory comes zeroed and aligned from the global allocator, and each piece is allocated
// once.
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
        // SAFETY: the caller passes a result of `dma_alloc`.
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
