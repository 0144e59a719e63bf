//! Reuse of blocks of orders 1 to 9 in the per-CPU cache. For each order the cache remembers the
//! block that it allocated last, and keeps that block when it is freed. So allocating and freeing
//! such a block again and again accesses no shared memory but for a read of its state.

use crate::{
    Allocator, CpuCache, Frame, Mobility, Order, Request, ZoneId,
    frame::{PAGEBLOCK_FRAMES, index},
    group_cache::freed_twice,
    ids::{BlockId, Id},
};

/// A block that a per-CPU cache remembers. While `is_held` is set, the cache holds the block as a
/// free one, and for other CPUs the block is allocated.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CachedBlock {
    /// Number of the block's first frame.
    pub(crate) base: u64,
    /// The order of the block.
    pub(crate) order: Order,
    /// The zone of the block.
    pub(crate) zone: ZoneId,
    /// Its pageblock.
    pub(crate) block: BlockId,
    /// The mobility in the pageblock's state word.
    pub(crate) mobility: Mobility,
    /// Whether the cache holds the block, rather than only remembers it.
    pub(crate) is_held: bool,
}

impl CachedBlock {
    /// No block remembered. No block starts at this frame number.
    pub(crate) const NONE: Self = Self {
        base: u64::MAX,
        order: Order::BASE,
        zone: ZoneId::FIRST,
        block: BlockId::FIRST,
        mobility: Mobility::Unmovable,
        is_held: false,
    };

    /// Returns the number of the block's frames if the per-CPU cache holds the block, otherwise 0.
    pub(crate) const fn frames(&self) -> u64 {
        if self.is_held { self.order.frames() } else { 0 }
    }
}

/// Number of blocks that a per-CPU cache remembers: one for each order from 1 to 9.
pub(crate) const CACHED_BLOCKS: usize = Order::PAGEBLOCK.get() as usize;

/// Returns the index in [`CpuCache::blocks`] for this order. Returns `None` for order 0 and orders
/// above 9.
#[inline]
pub(crate) const fn slot(order: Order) -> Option<usize> {
    match order.get() {
        order @ 1..=9 => Some(order as usize - 1),
        _ => None,
    }
}

impl CpuCache {
    /// Returns the first frame of the free pageblock that this per-CPU cache holds, or `None` if it
    /// holds none.
    pub(crate) fn cached_pageblock(&self) -> Option<Frame> {
        let cached = &self.blocks[slot(Order::PAGEBLOCK)?];
        cached.is_held.then(|| Frame::new(cached.base))
    }

    /// Allocates the free block of this order that this per-CPU cache holds. Returns `None` if it
    /// holds none, if that block has another mobility, or if the order is 0 or above 9.
    #[inline]
    pub(crate) fn take_cached(&mut self, order: Order, mobility: Mobility) -> Option<Frame> {
        let cached = &mut self.blocks[slot(order)?];
        if !cached.is_held || cached.order != order || cached.mobility != mobility {
            return None;
        }
        cached.is_held = false;
        Some(Frame::new(cached.base))
    }
}

impl Allocator<'_> {
    /// Remembers the block at `frame`, which `request` has just allocated from the zone, in the
    /// per-CPU `cache`, for when it is freed. Does nothing for order 0 and orders above 9, or if
    /// the cache holds a free block of this order already.
    pub(crate) fn remember(
        &self,
        zone: ZoneId,
        cache: &mut CpuCache,
        frame: Frame,
        request: Request,
    ) {
        if let Some(slot) = slot(request.order)
            && let cached = &mut cache.blocks[slot]
            && !cached.is_held
            && let Some(block) = self.zone(zone).zone.block_of(frame)
        {
            *cached = CachedBlock {
                base: frame.number(),
                order: request.order,
                zone,
                block,
                mobility: request.mobility,
                is_held: false,
            };
        }
    }

    /// Keeps the block at `frame`, which is being freed, in the per-CPU `cache`, to be allocated
    /// again. Returns `true` if the cache has it now.
    ///
    /// Returns `false` if the caller must free the block to its zone: the order is 0 or above 9, it
    /// is not the block that the cache remembers, a reporter waits for blocks of this order, or its
    /// pageblock is being emptied or is not in use.
    ///
    /// If the cache has kept the block and a reporter waits for pageblocks, this frees all that the
    /// cache holds of the block's pageblock to the zone, if no other frame of that is in use.
    ///
    /// # Panics
    /// If the cache holds the block as a free one already: it was freed twice.
    #[inline]
    pub(crate) fn cache_block(&self, cache: &mut CpuCache, frame: Frame, order: Order) -> bool {
        let Some(slot) = slot(order) else {
            return false;
        };
        let cached = &mut cache.blocks[slot];
        if cached.base != frame.number() || cached.order != order || self.shared.awaits(order) {
            return false;
        }
        if cached.is_held {
            freed_twice(frame);
        }
        // Another cache may have freed the block, and the CPU that allocated it then may have
        // passed it to this one. A block that is being emptied must not be allocated again.
        let state = self.zone(cached.zone).zone.arrays.states[cached.block].load();
        let in_use = if order == Order::PAGEBLOCK {
            state.stays_huge()
        } else {
            state.stays_in_use(1 << order.get())
        };
        if in_use {
            cached.mobility = state.mobility();
            cached.is_held = true;
            if self.shared.listens() {
                self.complete(cache, frame, state.used());
            }
        }
        in_use
    }

    /// Frees the block of this order that the per-CPU `cache` holds to its zone. Does nothing if it
    /// holds none, or if the order is 0 or above 9.
    pub(crate) fn free_cached(&self, cache: &mut CpuCache, order: Order) {
        let Some(slot) = slot(order) else {
            return;
        };
        let cached = &mut cache.blocks[slot];
        if !cached.is_held {
            return;
        }
        cached.is_held = false;
        let CachedBlock {
            base,
            order,
            zone,
            block,
            ..
        } = *cached;
        let at = self.zone(zone).block(block);
        if order == Order::PAGEBLOCK {
            at.give_whole();
        } else {
            let left = at.give_run(index(base % PAGEBLOCK_FRAMES), order);
            self.shared.freed_in_word(Frame::new(base), left.word);
        }
        self.count(zone, cache, order.frames().cast_signed());
    }
}
