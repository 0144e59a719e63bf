//! The page that holds the driver's request buffers, at an address that does not move when the
//! driver does.

use crate::page::PAGE_SIZE;
use core::marker::PhantomData;
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// One page of memory that the device may read, from the `Hal`.
///
/// The device may also write it although it should not, so nothing is ever read back from it.
pub(crate) struct DmaPage<H: Hal> {
    address: PhysAddr,
    start: NonNull<u8>,
    hal: PhantomData<H>,
}

impl<H: Hal> DmaPage<H> {
    pub(crate) fn new() -> Option<Self> {
        let (address, start) = H::dma_alloc(1, BufferDirection::DriverToDevice);
        // How a `Hal` says that it has no memory. There is then nothing to drop.
        if address == 0 {
            return None;
        }
        Some(Self {
            address,
            start,
            hal: PhantomData,
        })
    }

    /// Part of the page.
    pub(crate) fn part(&self, offset: usize, len: usize) -> NonNull<[u8]> {
        assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset);
        // SAFETY: the offset lies within the page that `start` points to, as just asserted.
        let start = unsafe { self.start.add(offset) };
        NonNull::slice_from_raw_parts(start, len)
    }
}

impl<H: Hal> Drop for DmaPage<H> {
    fn drop(&mut self) {
        // SAFETY: address, pointer and page count are those of `dma_alloc`, and it is freed once.
        // A refusal is not our memory error: there is nobody to tell.
        let _ = unsafe { H::dma_dealloc(self.address, self.start, 1) };
    }
}
