//! `bitmap-allocator`: a tree of 16-bit sets, behind a spin lock. (`axallocator`'s page allocator
//! is this one.)
#![allow(
    unsafe_code,
    reason = "makes 36 MiB of zeroes without a stack that holds them"
)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use bitmap_allocator::{BitAlloc, BitAlloc256M};
use spin::Mutex;

use super::{Frames, GIB};

/// `bitmap-allocator`.
pub struct Bitmap(Mutex<Box<BitAlloc256M>>, u64);

impl Frames for Bitmap {
    const NAME: &'static str = "bitmap-allocator 0.4";
    const MAX_ORDER: u8 = 18;
    const MOST_FRAGMENTED: u64 = 16 * GIB;
    type Cpu = ();

    fn new(frames: u64) -> Self {
        let layout = Layout::new::<BitAlloc256M>();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) }.cast::<BitAlloc256M>();
        if memory.is_null() {
            handle_alloc_error(layout)
        }
        // SAFETY: allocated with the layout of a box, and zero is its `DEFAULT`: integers, all 0.
        let mut inner = unsafe { Box::from_raw(memory) };
        inner.insert(0..frames as usize);
        Self(Mutex::new(inner), frames)
    }

    fn cpu(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut (), order: u8) -> Option<u64> {
        let mut inner = self.0.lock();
        let frame = if order == 0 {
            inner.alloc()
        } else {
            inner.alloc_contiguous(None, 1 << order, usize::from(order))
        };
        frame.map(|frame| frame as u64)
    }

    #[inline]
    fn put(&self, (): &mut (), frame: u64, order: u8) {
        let mut inner = self.0.lock();
        if order == 0 {
            inner.dealloc(frame as usize);
        } else {
            inner.dealloc_contiguous(frame as usize, 1 << order);
        }
    }

    fn metadata(&self) -> u64 {
        // The type is for 1 TiB; there are smaller ones.
        size_of::<BitAlloc256M>() as u64 * self.1 / BitAlloc256M::CAP as u64
    }
}
