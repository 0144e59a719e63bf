//! The block that a front took last, of each order from 1 to 9, which it keeps when it is freed: to
//! take a block and give it back again and again touches nothing shared.

use crate::frame::{PAGEBLOCK_FRAMES, index};
use crate::{Allocator, Frame, Front, Mobility, Order, Request, words::freed_twice};

/// A block that a front remembers. While it is `here` the front holds it: to all others it is
/// allocated.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Kept {
    /// Number of its first frame.
    pub(crate) base: u64,
    pub(crate) order: Order,
    /// Where its state word is.
    pub(crate) zone: usize,
    pub(crate) block: usize,
    /// The mobility that its state word names.
    pub(crate) mobility: Mobility,
    /// Whether the front holds it, rather than remembers it.
    pub(crate) here: bool,
}

impl Kept {
    /// No block starts there.
    pub(crate) const NONE: Self = Self {
        base: u64::MAX,
        order: Order::BASE,
        zone: 0,
        block: 0,
        mobility: Mobility::Unmovable,
        here: false,
    };

    /// How many frames of it the front holds.
    pub(crate) const fn frames(&self) -> u64 {
        if self.here { self.order.frames() } else { 0 }
    }
}

/// How many a front keeps: a run of each order from 1 to 8, and a pageblock.
pub(crate) const KEPT: usize = Order::PAGEBLOCK.get() as usize;

/// Which of them a block of this order is; none above the order of a pageblock.
#[inline]
pub(crate) const fn place(order: Order) -> Option<usize> {
    match order.get() {
        order @ 1..=9 => Some(order as usize - 1),
        _ => None,
    }
}

impl Front {
    /// The pageblock that it holds.
    pub(crate) fn kept_pageblock(&self) -> Option<Frame> {
        let kept = &self.kept[place(Order::PAGEBLOCK)?];
        kept.here.then(|| Frame::new(kept.base))
    }

    /// Hands the block out again that it holds, if it is as requested.
    #[inline]
    pub(crate) fn pop_kept(&mut self, order: Order, mobility: Mobility) -> Option<Frame> {
        let kept = &mut self.kept[place(order)?];
        if !kept.here || kept.order != order || kept.mobility != mobility {
            return None;
        }
        kept.here = false;
        Some(Frame::new(kept.base))
    }
}

impl Allocator<'_> {
    /// Notes where a block is, for when it is freed; unless the front holds another.
    pub(crate) fn remember(&self, zone: usize, front: &mut Front, frame: Frame, request: Request) {
        if let Some(place) = place(request.order)
            && let kept = &mut front.kept[place]
            && !kept.here
            && let Some(block) = self.zone(zone).zone.block_of(frame)
        {
            *kept = Kept {
                base: frame.number(),
                order: request.order,
                zone,
                block,
                mobility: request.mobility,
                here: false,
            };
        }
    }

    /// Keeps a block that is freed, if it is the one that the front remembers and nobody waits to
    /// hear of it. Should somebody wait for its pageblock and that be free but for what the front
    /// holds, all of it is given back.
    #[inline]
    pub(crate) fn keep(&self, front: &mut Front, frame: Frame, order: Order) -> bool {
        let Some(place) = place(order) else {
            return false;
        };
        let kept = &mut front.kept[place];
        if kept.base != frame.number() || kept.order != order || self.hub.awaits(order) {
            return false;
        }
        if kept.here {
            freed_twice(frame);
        }
        // Another front may have freed it since, and whoever took it then may have handed it to us.
        // One that is being emptied must not be handed out again.
        let state = self.zone(kept.zone).zone.arrays.states[kept.block].load();
        let in_use = if order == Order::PAGEBLOCK {
            state.stays_huge()
        } else {
            state.stays_in_use(1 << order.get())
        };
        if in_use {
            kept.mobility = state.mobility();
            kept.here = true;
            if self.hub.listens() {
                self.complete(front, frame, state.used());
            }
        }
        in_use
    }

    /// Gives the block of this order back that the front holds.
    pub(crate) fn give_kept(&self, front: &mut Front, order: Order) {
        let Some(place) = place(order) else {
            return;
        };
        let kept = &mut front.kept[place];
        if !kept.here {
            return;
        }
        kept.here = false;
        let Kept {
            base,
            order,
            zone,
            block,
            ..
        } = *kept;
        let at = self.zone(zone).block(block);
        if order == Order::PAGEBLOCK {
            at.give_whole();
        } else {
            at.give_run(index(base % PAGEBLOCK_FRAMES), order);
            self.hub.freed_run(Frame::new(base), order);
        }
        self.count(zone, front, order.frames().cast_signed());
    }
}
