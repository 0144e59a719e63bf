//! `buddy_system_allocator`: a tree of free blocks for each order, behind a spin lock.

use buddy_system_allocator::LockedFrameAllocator;

use super::{Frames, GIB, heap};

/// `buddy_system_allocator`.
pub struct BuddySystem {
    inner: LockedFrameAllocator<19>,
    heap_before: u64,
}

impl Frames for BuddySystem {
    const NAME: &'static str = "buddy_system_allocator 0.13";
    const MAX_ORDER: u8 = 18;
    const MOST_FRAGMENTED: u64 = 16 * GIB;
    type Cpu = ();

    fn new(frames: u64) -> Self {
        let heap_before = heap::in_use();
        let inner = LockedFrameAllocator::new();
        inner.lock().add_frame(0, frames as usize);
        Self { inner, heap_before }
    }

    fn cpu(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut (), order: u8) -> Option<u64> {
        let frame = self.inner.lock().alloc(1 << order)?;
        Some(frame as u64)
    }

    #[inline]
    fn put(&self, (): &mut (), frame: u64, order: u8) {
        self.inner.lock().dealloc(frame as usize, 1 << order);
    }

    fn metadata(&self) -> u64 {
        heap::in_use().saturating_sub(self.heap_before)
    }
}
