//! `frame-alloc`: a buddy tree of bitmaps with summaries, a magazine for each CPU and a shared
//! depot. Its metadata lies in the memory that it manages.
#![allow(unsafe_code, reason = "hands memory to the allocator")]

use std::{cell::Cell, num::NonZeroUsize, ptr::NonNull};

use frame_alloc::{
    CpuId, DepotAllocator, PageSize, PhysicalAllocator, Provenance, RegionInit,
    SummaryBuddyAllocator,
};

use super::{Frames, mapping::Mapping};

const ORDERS: usize = 19;
const SHIFT: u32 = 12;
const BASE: PageSize = PageSize::from_log2(12);
const CPUS: usize = 8;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

struct ThisThread;

impl CpuId for ThisThread {
    #[inline]
    fn current_cpu() -> usize {
        CPU.get()
    }
}

struct Exposed;

// SAFETY: the mapping is one allocation whose provenance `Depot::new` exposes; it holds all
// addresses that the allocator is given.
unsafe impl Provenance for Exposed {
    unsafe fn create(address: usize) -> NonNull<u8> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("not at 0")
    }

    unsafe fn destroy<T>(pointer: NonNull<T>) -> usize {
        pointer.addr().get()
    }
}

type Inner = DepotAllocator<SummaryBuddyAllocator<ORDERS, Exposed>, ThisThread, CPUS>;

/// `frame-alloc`.
pub struct Depot {
    inner: Box<Inner>,
    base: usize,
    memory: Mapping,
    frames: u64,
}

impl Depot {
    /// Returns the bytes of its bitmaps: a bit for each block of each order, and their summaries.
    fn bitmap_bytes(frames: u64) -> u64 {
        (0..ORDERS)
            .map(|order| {
                let words = frames.div_ceil(1 << order).div_ceil(64);
                8 * (words + if words >= 128 { words.div_ceil(64) } else { 0 })
            })
            .sum()
    }
}

impl Frames for Depot {
    const NAME: &'static str = "frame-alloc 0.1";
    const MAX_ORDER: u8 = 18;
    const PER_CPU: bool = true;
    type Cpu = ();

    fn new(frames: u64) -> Self {
        let bytes = usize::try_from(frames << SHIFT).expect("64 bits");
        let memory = Mapping::new(bytes, 1 << 30);
        let base = memory.base().as_ptr().expose_provenance();
        let inner = Box::new(Inner::new(BASE, SummaryBuddyAllocator::new(BASE)));
        // SAFETY: only the allocator uses the memory, through `Exposed`, and no other thread calls
        // it yet.
        unsafe { inner.init_region(base, bytes) };
        Self {
            inner,
            base,
            memory,
            frames,
        }
    }

    fn cpu(&self, number: usize) {
        CPU.set(number);
    }

    #[inline]
    fn get(&self, (): &mut (), order: u8) -> Option<u64> {
        let count = NonZeroUsize::new(1 << order)?;
        match self.inner.allocate_physical(BASE, count) {
            Ok(address) => Some((address - self.base) as u64 >> SHIFT),
            Err(_) => None,
        }
    }

    #[inline]
    fn put(&self, (): &mut (), frame: u64, order: u8) {
        let count = NonZeroUsize::MIN
            .saturating_mul(NonZeroUsize::new(1 << order).expect("a power of two is not 0"));
        let address = self.base + ((frame as usize) << SHIFT);
        // SAFETY: the caller got the block from `get` at this order, and does not use it after.
        unsafe { self.inner.deallocate_physical(BASE, count, address) };
    }

    fn settle(&self, (): &mut ()) {
        self.inner.flush();
    }

    fn first(&self) -> u64 {
        Self::bitmap_bytes(self.frames).div_ceil(1 << SHIFT)
    }

    fn metadata(&self) -> u64 {
        debug_assert!(self.memory.base().addr().get() == self.base);
        Self::bitmap_bytes(self.frames)
    }
}
