//! What a front takes from a zone: words for its slots, and runs.

use crate::{
    Allocator, Frame, Front, Order, Request, bitmap::WORD_FRAMES, frame::PAGEBLOCK_FRAMES,
    front::HeldBlock,
};

/// Freed frames of a word are handed out again by their front if there are so many. Fewer are better
/// given back, and the next taken from the fullest block: or random churn would keep every block in
/// use for ever.
const REUSE_AT_LEAST: u32 = 8;

impl Allocator<'_> {
    /// Takes one frame, and where any will do the rest of its word.
    pub(crate) fn refill(
        &self,
        zone: usize,
        front: &mut Front,
        request: Request,
        spare: u64,
    ) -> Option<Frame> {
        let at = self.zone(zone);
        let mut near = front.near(zone);
        if !request.takes_any() {
            // The slots are for requests that take frames of any zone.
            let frame = at.take_frame(&mut near, request.mobility)?;
            self.count(zone, front, -1);
            front.fresh = at.zone.hand_out(frame, Order::BASE);
            return Some(frame);
        }
        let slot = &front.slots[request.mobility.index()];
        debug_assert!(slot.mask == 0, "refilled while it holds frames");
        let last = HeldBlock::in_zone(slot.held, zone);
        let most = u32::try_from(spare).unwrap_or(WORD_FRAMES).min(WORD_FRAMES);
        let word = at.take_word(last, &mut near, request.mobility, most)?;
        self.count(zone, front, -i64::from(word.mask.count_ones()));
        front.settle_near(zone, near);
        let slot = &mut front.slots[request.mobility.index()];
        slot.mask = word.mask;
        slot.base = word.base;
        let inside = word.base % PAGEBLOCK_FRAMES / u64::from(WORD_FRAMES);
        front.fresh = at.zone.hand_out_words(word.block, 1 << inside);
        if last != Some(word.block) {
            let held = HeldBlock {
                zone,
                block: word.block,
            };
            self.let_go(slot.held.replace(held));
        }
        slot.pop()
    }

    /// A front takes its frames elsewhere from here on.
    pub(crate) fn let_go(&self, held: Option<HeldBlock>) {
        if let Some(HeldBlock { zone, block }) = held {
            self.zone(zone).block(block).let_go();
        }
    }

    /// Takes a run.
    pub(crate) fn take_run(
        &self,
        zone: usize,
        front: &mut Front,
        request: Request,
    ) -> Option<Frame> {
        let mobility = request.mobility;
        let held = [
            front.slots[mobility.index()].held,
            front.opened[mobility.index()],
        ];
        let blocks = held.map(|held| HeldBlock::in_zone(held, zone));
        let mut near = front.near(zone);
        let frame = self
            .zone(zone)
            .take_run(blocks, &mut near, request.order, mobility)?;
        front.settle_near(zone, near);
        if let Some(block) = near.opened {
            let opened = HeldBlock { zone, block };
            let last = front.opened[mobility.index()].replace(opened);
            self.let_go(last.filter(|&last| last != opened));
        }
        Some(frame)
    }

    /// Hands out what this front holds besides its slots: what is left of a fresh word, or freed
    /// frames.
    pub(crate) fn reuse(&self, front: &mut Front, request: Request) -> Option<Frame> {
        if request.takes_any()
            && let Some(frame) = front.use_fresh_word(request.mobility)
        {
            return Some(frame);
        }
        for place in 0..front.freed.len() {
            let freed = front.freed[place];
            // Mostly none, and counting costs a dozen steps.
            if freed.mask == 0 || freed.mask.count_ones() < REUSE_AT_LEAST {
                continue;
            }
            let (zone, block) = self.locate_managed(Frame::new(freed.base()));
            let at = self.zone(zone);
            if !self.suits(zone, front, request)
                || at.zone.arrays.states[block].load().mobility() != request.mobility
            {
                continue;
            }
            if !request.takes_any() {
                let freed = &mut front.freed[place];
                let bit = freed.mask.trailing_zeros();
                freed.mask &= freed.mask - 1;
                return Some(Frame::new(freed.base() + u64::from(bit)));
            }
            front.freed[place].mask = 0;
            let slot = &mut front.slots[request.mobility.index()];
            debug_assert!(slot.mask == 0, "refilled while it holds frames");
            slot.mask = freed.mask;
            slot.base = freed.base();
            return slot.pop();
        }
        None
    }
}
