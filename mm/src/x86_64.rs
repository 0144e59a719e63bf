//! Frames for the page tables of the crate `x86_64`.
#![allow(unsafe_code, reason = "the traits are unsafe to implement, or to call")]

use ::x86_64::{
    PhysAddr,
    structures::paging::{
        FrameAllocator, FrameDeallocator, PageSize, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
    },
};

use crate::{Allocator, Frame, Front, Mobility, Order, Request};

/// An allocator with the front of a CPU, as `x86_64::structures::paging::Mapper` wants it. Pages of 4 KiB, 2 MiB and 1 GiB
/// are blocks of the orders 0, 9 and 18.
#[derive(Debug)]
pub struct PageFrames<'a, 'm> {
    allocator: &'a Allocator<'m>,
    front: &'a mut Front,
    request: Request,
}

impl<'a, 'm> PageFrames<'a, 'm> {
    /// Unmovable frames of any zone, as page tables are.
    pub fn new(allocator: &'a Allocator<'m>, front: &'a mut Front) -> Self {
        let request = Request::new(Order::BASE, Mobility::Unmovable);
        Self::with_request(allocator, front, request)
    }

    /// Frames as this request says, but for its order, which is that of the page.
    pub fn with_request(
        allocator: &'a Allocator<'m>,
        front: &'a mut Front,
        request: Request,
    ) -> Self {
        Self {
            allocator,
            front,
            request,
        }
    }

    fn take<S: PageSize>(&mut self, order: Order) -> Option<PhysFrame<S>> {
        let request = Request {
            order,
            ..self.request
        };
        let frame = self.allocator.allocate(self.front, request).ok()?;
        let address = PhysAddr::try_new(frame.address()).ok()?;
        PhysFrame::from_start_address(address).ok()
    }

    fn give<S: PageSize>(&mut self, frame: PhysFrame<S>, order: Order) {
        let frame = Frame::containing(frame.start_address().as_u64());
        self.allocator.free(self.front, frame, order);
    }
}

macro_rules! pages {
    ($($size:ty: $order:expr),*) => {$(
        // SAFETY: a block that was allocated is nobody else's until it is freed.
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

pages!(Size4KiB: Order::BASE, Size2MiB: Order::PAGEBLOCK, Size1GiB: Order::GIANT);
