//! The page with the driver's request buffers. It stays at one address when the driver is moved.

use crate::page::PAGE_SIZE;
use core::marker::PhantomData;
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// One page (4 KiB) of DMA memory from the `Hal` that the device may read. A drop frees it.
///
/// The device might also write to it although it must not, so the driver never reads it back.
pub(crate) struct DmaPage<H: Hal> {
    address: PhysAddr,
    start: NonNull<u8>,
    hal: PhantomData<H>,
}

impl<H: Hal> DmaPage<H> {
    /// Allocates the page. Returns `None` if the `Hal` has no memory.
    pub(crate) fn new() -> Option<Self> {
        let (address, start) = H::dma_alloc(1, BufferDirection::DriverToDevice);
        // A `Hal` without memory returns address 0. There is then nothing to free.
        if address == 0 {
            return None;
        }
        Some(Self {
            address,
            start,
            hal: PhantomData,
        })
    }

    /// Returns a pointer to the `len` bytes at byte `offset` in the page. Panics if they do not lie
    /// inside it.
    pub(crate) fn part(&self, offset: usize, len: usize) -> NonNull<[u8]> {
        assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset);
        // SAFETY: the offset lies within the page that `start` points to, as just asserted.
        let start = unsafe { self.start.add(offset) };
        NonNull::slice_from_raw_parts(start, len)
    }
}

impl<H: Hal> Drop for DmaPage<H> {
    fn drop(&mut self) {
        // SAFETY: address, pointer and page count are those of `dma_alloc`, and it is freed once. A
        // failure is ignored, since a drop cannot return an error.
        let _ = unsafe { H::dma_dealloc(self.address, self.start, 1) };
    }
}
