//! What the virtio drivers need from the machine: memory that the device can access, and mapped
//! registers.

use crate::arch::{map_device, phys_to_virt, virt_to_phys};
use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// The kernel as the platform of the virtio drivers. Physical memory is visible in the physmap, and
/// devices can access all of it.
#[derive(Debug)]
pub struct Platform;

fn layout(pages: usize) -> Option<Layout> {
    Layout::from_size_align(pages.checked_mul(PAGE_SIZE)?, PAGE_SIZE).ok()
}

// SAFETY: the heap gives whole, zeroed frames of the physmap for page-sized requests, which have no
// other user until they are given back; each request for a device mapping creates a new one.
unsafe impl Hal for Platform {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let memory = layout(pages)
            .filter(|layout| layout.size() > 0)
            .and_then(|layout| {
                // SAFETY: the size is not zero.
                NonNull::new(unsafe { alloc_zeroed(layout) })
            });
        match memory {
            Some(memory) => (virt_to_phys(memory.as_ptr()), memory),
            // Address 0 says that there is none.
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(phys: PhysAddr, memory: NonNull<u8>, pages: usize) -> i32 {
        debug_assert!(phys_to_virt(phys) == memory.as_ptr());
        if let Some(layout) = layout(pages) {
            // SAFETY: the caller frees memory that `dma_alloc` allocated, with its number of pages.
            unsafe { dealloc(memory.as_ptr(), layout) };
        }
        0
    }

    unsafe fn mmio_phys_to_virt(phys: PhysAddr, size: usize) -> NonNull<u8> {
        NonNull::new(map_device(phys, size)).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        virt_to_phys(buffer.cast::<u8>().as_ptr())
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
