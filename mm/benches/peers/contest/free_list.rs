//! `free-list`, Hermit's: a sorted vector of free ranges, first fit, behind a spin lock.
#![allow(unsafe_code, reason = "hands ranges to the allocator")]

use free_list::{FreeList, PageLayout, PageRange};
use spin::Mutex;

use super::{Frames, heap};

const SHIFT: u32 = 12;
/// The first frame, as its ranges must not start at address 0.
const BASE: usize = 1 << 40;

/// `free-list`.
pub struct Ranges {
    inner: Mutex<FreeList<16>>,
    heap_before: u64,
}

fn range(frame: u64, frames: u64) -> PageRange {
    let start = BASE + ((frame as usize) << SHIFT);
    PageRange::from_start_len(start, (frames as usize) << SHIFT).expect("a range")
}

impl Frames for Ranges {
    const NAME: &'static str = "free-list 0.3";
    const MAX_ORDER: u8 = 18;
    /// Not measured, as each free moves the ranges behind it.
    const MOST_FRAGMENTED: u64 = 0;
    type Cpu = ();

    fn new(frames: u64) -> Self {
        let heap_before = heap::in_use();
        let mut inner = FreeList::new();
        // SAFETY: no memory is at these addresses; they are only numbers here.
        unsafe { inner.deallocate(range(0, frames)) }.expect("the first range");
        Self {
            inner: Mutex::new(inner),
            heap_before,
        }
    }

    fn cpu(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut (), order: u8) -> Option<u64> {
        let bytes = 1 << (SHIFT + u32::from(order));
        let layout = PageLayout::from_size_align(bytes, bytes).ok()?;
        let got = self.inner.lock().allocate(layout).ok()?;
        Some((got.start() - BASE) as u64 >> SHIFT)
    }

    #[inline]
    fn put(&self, (): &mut (), frame: u64, order: u8) {
        let range = range(frame, 1 << order);
        // SAFETY: the caller got the block from `get`, and does not use it after.
        unsafe { self.inner.lock().deallocate(range) }.expect("its range");
    }

    fn metadata(&self) -> u64 {
        heap::in_use().saturating_sub(self.heap_before)
    }
}
