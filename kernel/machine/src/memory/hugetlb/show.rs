//! Shows the host the counters of the pools.

use super::PageSize;
use super::blocks::OPTIMIZED;
use super::pool::pool;
use crate::arch::header::HEADER;
use crate::arch::virt_to_phys;
use crate::memory::memmap::DESCRIPTOR_BYTES;
use core::ptr;
use core::sync::atomic::Ordering;
use ebb_mm::PAGEBLOCK_FRAMES;
use ebb_wire::header::pool as wire;

const _: () = assert!(
    PageSize::Mib2.bytes() == wire::PAGE_BYTES[0]
        && PageSize::Gib1.bytes() == wire::PAGE_BYTES[1]
        && PAGEBLOCK_FRAMES * DESCRIPTOR_BYTES == wire::DESCRIPTORS_BYTES
);

/// Publishes the addresses of the pools' counters, so that the host reads their present values at
/// no cost for the guest.
pub(in crate::memory) fn show_counts() {
    for size in PageSize::ALL {
        if size.is_supported() {
            let counts = ptr::from_ref(&pool(size).lock().counts);
            // Relaxed (both): the counters are there from the start.
            HEADER.pool_counts[size as usize].store(virt_to_phys(counts.cast()), Ordering::Relaxed);
        }
    }
    let given_up = virt_to_phys(ptr::from_ref(&OPTIMIZED).cast());
    HEADER.given_up.store(given_up, Ordering::Relaxed);
}
