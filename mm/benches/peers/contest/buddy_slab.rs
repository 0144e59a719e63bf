//! `buddy-slab-allocator`: the page allocator below its slabs, with lists of free blocks in an
//! array of 12 bytes for each frame, behind a spin lock.
#![allow(unsafe_code, reason = "hands memory to the allocator")]

use buddy_slab_allocator::BuddyAllocator;
use spin::Mutex;

use super::{Frames, GIB, mapping::Mapping};

const SHIFT: u32 = 12;
const ALIGN: usize = 1 << 30;

/// `buddy-slab-allocator`.
pub struct BuddySlab {
    inner: Mutex<BuddyAllocator>,
    base: usize,
    frames: u64,
    _memory: Mapping,
}

impl Frames for BuddySlab {
    const NAME: &'static str = "buddy-slab-allocator 0.6";
    const MAX_ORDER: u8 = 18;
    const MOST: u64 = 16 * GIB;
    type Cpu = ();

    fn new(frames: u64) -> Self {
        let bytes = usize::try_from(frames << SHIFT).expect("64 bits");
        // The metadata goes before the frames, so that these are aligned for every order.
        let before = BuddyAllocator::<0x1000>::required_meta_size(bytes)
            .next_multiple_of(1 << SHIFT)
            + (1 << SHIFT);
        let memory = Mapping::new(bytes + ALIGN, ALIGN);
        let mut inner = BuddyAllocator::new();
        // SAFETY: inside the mapping, of which `before` is less than `ALIGN`.
        let start = unsafe { memory.base().as_ptr().add(ALIGN - before) };
        // SAFETY: the memory is mapped, zero, and used only by this allocator, which is dropped
        // before the mapping.
        let region = unsafe { std::slice::from_raw_parts_mut(start, before + bytes) };
        // SAFETY: the memory is mapped, zero, and used only by this allocator.
        unsafe { inner.init(region) }.expect("a region");
        let base = memory.base().as_ptr().expose_provenance() + ALIGN;
        let section = inner.section(0).expect("the region");
        assert_eq!(
            section.total_pages as u64, frames,
            "the metadata lies before"
        );
        Self {
            inner: Mutex::new(inner),
            base,
            frames,
            _memory: memory,
        }
    }

    fn cpu(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut (), order: u8) -> Option<u64> {
        let got = self
            .inner
            .lock()
            .alloc_pages(1 << order, 1 << (SHIFT + u32::from(order)));
        got.ok()
            .map(|address| (address - self.base) as u64 >> SHIFT)
    }

    #[inline]
    fn put(&self, (): &mut (), frame: u64, order: u8) {
        let address = self.base + ((frame as usize) << SHIFT);
        self.inner.lock().dealloc_pages(address, 1 << order);
    }

    fn metadata(&self) -> u64 {
        BuddyAllocator::<0x1000>::required_meta_size((self.frames as usize) << SHIFT) as u64
    }
}
