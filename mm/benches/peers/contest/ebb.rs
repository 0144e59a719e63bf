//! This crate.
#![allow(unsafe_code, reason = "hands metadata to the allocator")]

use std::mem::ManuallyDrop;

use ebb_mm::{
    Allocator, Config, CpuCache, Frame, FrameRange, Mobility, Order, Request, Reserve, ZoneConfig,
    ZoneKind, metadata_layout,
};

use super::{Frames, mapping::Mapping};

/// Ebb.
pub struct Ebb {
    allocator: ManuallyDrop<Allocator<'static>>,
    metadata: Mapping,
}

#[inline]
fn order_of(order: u8) -> Option<Order> {
    if order == Order::GIB.get() {
        Some(Order::GIB)
    } else {
        Order::new(order)
    }
}

impl Drop for Ebb {
    fn drop(&mut self) {
        // SAFETY: not used after. It is dropped before the metadata that it refers to.
        unsafe { ManuallyDrop::drop(&mut self.allocator) };
    }
}

impl Frames for Ebb {
    const NAME: &'static str = "ebb-mm";
    const MAX_ORDER: u8 = 18;
    const PER_CPU: bool = true;
    type Cpu = CpuCache;

    fn new(frames: u64) -> Self {
        let ranges = [FrameRange::new(Frame::new(0), frames)];
        let zones = [ZoneConfig {
            kind: ZoneKind::Normal,
            node: 0,
            ranges: &ranges,
        }];
        let config = Config::new(&zones);
        let layout = metadata_layout(&config).expect("a valid configuration");
        let metadata = Mapping::new(layout.size(), layout.align());
        // SAFETY: zeroed memory of this layout, kept until after the allocator is gone.
        let allocator = unsafe { Allocator::new(metadata.base(), &config, &()) };
        Self {
            allocator: ManuallyDrop::new(allocator.expect("a valid configuration")),
            metadata,
        }
    }

    fn cpu(&self, _: usize) -> CpuCache {
        CpuCache::new()
    }

    #[inline]
    fn get(&self, cpu: &mut CpuCache, order: u8) -> Option<u64> {
        // Uses the reserve too, as the peers have none.
        let request = Request::new(order_of(order)?, Mobility::Movable).reserve(Reserve::Use);
        match self.allocator.allocate(cpu, request) {
            Ok(frame) => Some(frame.number()),
            Err(_) => None,
        }
    }

    #[inline]
    fn put(&self, cpu: &mut CpuCache, frame: u64, order: u8) {
        if let Some(order) = order_of(order) {
            self.allocator.free(cpu, Frame::new(frame), order);
        }
    }

    fn settle(&self, cpu: &mut CpuCache) {
        self.allocator.drain(cpu);
    }

    fn metadata(&self) -> u64 {
        self.metadata.resident()
    }
}
