//! An adapter that allocates frames for the page tables of the crate `x86_64`.
#![allow(unsafe_code, reason = "the traits are unsafe to implement, or to call")]

use ::x86_64::{
    PhysAddr,
    structures::paging::{
        FrameAllocator, FrameDeallocator, PageSize, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
    },
};

use crate::{Allocator, CpuCache, Frame, Mobility, Order, Request};

/// An allocator with the per-CPU cache of one CPU, as `x86_64::structures::paging::Mapper` expects
/// it. It implements `FrameAllocator` and `FrameDeallocator` for pages of 4 KiB, 2 MiB and 1 GiB,
/// which are blocks of the orders 0, 9 and 18.
#[derive(Debug)]
pub struct PageFrames<'a, 'm> {
    allocator: &'a Allocator<'m>,
    cache: &'a mut CpuCache,
    request: Request,
}

impl<'a, 'm> PageFrames<'a, 'm> {
    /// Returns an adapter that allocates unmovable frames of any zone, as page tables need them,
    /// through `cache`. It leaves the zones' reserves untouched.
    pub fn new(allocator: &'a Allocator<'m>, cache: &'a mut CpuCache) -> Self {
        let request = Request::new(Order::BASE, Mobility::Unmovable);
        Self::with_request(allocator, cache, request)
    }

    /// Returns an adapter that allocates by `request` through `cache`. The order of the request is
    /// replaced by that of the page.
    pub fn with_request(
        allocator: &'a Allocator<'m>,
        cache: &'a mut CpuCache,
        request: Request,
    ) -> Self {
        Self {
            allocator,
            cache,
            request,
        }
    }

    /// Allocates a block of `order`. Returns `None` if the allocator has none.
    fn take<S: PageSize>(&mut self, order: Order) -> Option<PhysFrame<S>> {
        let request = Request {
            order,
            ..self.request
        };
        let frame = self.allocator.allocate(self.cache, request).ok()?;
        let address = PhysAddr::try_new(frame.address()).ok()?;
        PhysFrame::from_start_address(address).ok()
    }

    /// Frees a block of `order`.
    fn give<S: PageSize>(&mut self, frame: PhysFrame<S>, order: Order) {
        let frame = Frame::containing(frame.start_address().as_u64());
        self.allocator.free(self.cache, frame, order);
    }
}

macro_rules! pages {
    ($($size:ty: $order:expr),*) => {$(
        // SAFETY: an allocated block belongs to the caller alone until it is freed. The allocator
        // guarantees that.
        unsafe impl FrameAllocator<$size> for PageFrames<'_, '_> {
            fn allocate_frame(&mut self) -> Option<PhysFrame<$size>> {
                self.take($order)
            }
        }

        impl FrameDeallocator<$size> for PageFrames<'_, '_> {
            unsafe fn deallocate_frame(&mut self, frame: PhysFrame<$size>) {
                self.give(frame, $order);
            }
        }
    )*};
}

pages!(Size4KiB: Order::BASE, Size2MiB: Order::PAGEBLOCK, Size1GiB: Order::GIB);
