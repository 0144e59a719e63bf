//! What a front takes from a zone: words that it hands single frames out from, and runs.

use crate::{
    Allocator, Frame, Front, Mobility, Order, Request,
    bitmap::WORD_FRAMES,
    frame::PAGEBLOCK_FRAMES,
    front::HeldBlock,
    words::{PLACES, Piece},
};

/// Freed frames of a word that the front did not take them from lately are handed out again if there
/// are so many. Fewer are better given back, and the next taken from the fullest block: or random
/// churn would keep every block in use for ever.
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
        let mobility = request.mobility;
        let mut near = front.near(zone, mobility);
        if !request.takes_any() {
            // What frames are handed out from is for requests that take any of any zone.
            let frame = at.take_frame(&mut near, mobility)?;
            self.count(zone, front, -1);
            front.fresh = at.zone.hand_out(frame, Order::BASE);
            // But what comes back is for the next such request.
            let (place, displaced) = front.words.place(Piece::of(frame).word);
            front.words.note_own(place, mobility);
            self.give_word(front, displaced);
            return Some(frame);
        }
        let last = HeldBlock::in_zone(front.held[mobility.index()], zone);
        let most = u32::try_from(spare).unwrap_or(WORD_FRAMES).min(WORD_FRAMES);
        let word = at.take_word(last, &mut near, mobility, most)?;
        self.count(zone, front, -i64::from(word.mask.count_ones()));
        front.settle_near(zone, mobility, near);
        let inside = word.base % PAGEBLOCK_FRAMES / u64::from(WORD_FRAMES);
        front.fresh = at.zone.hand_out_words(word.block, 1 << inside);
        if last != Some(word.block) {
            let held = HeldBlock {
                zone,
                block: word.block,
            };
            self.let_go(front.held[mobility.index()].replace(held));
        }
        let piece = Piece {
            word: word.base / u64::from(WORD_FRAMES),
            mask: word.mask,
        };
        self.begin(front, piece, mobility)
    }

    /// Takes frames from these from here on, and the first.
    fn begin(&self, front: &mut Front, piece: Piece, mobility: Mobility) -> Option<Frame> {
        let displaced = front.begin(piece, mobility);
        let frame = front.words.pop(mobility);
        self.give_word(front, displaced);
        frame
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
        let held = [front.held[mobility.index()], front.opened[mobility.index()]];
        let blocks = held.map(|held| HeldBlock::in_zone(held, zone));
        let mut near = front.near(zone, mobility);
        let frame = self
            .zone(zone)
            .take_run(blocks, &mut near, request.order, mobility)?;
        front.settle_near(zone, mobility, near);
        if let Some(block) = near.opened {
            let opened = HeldBlock { zone, block };
            let last = front.opened[mobility.index()].replace(opened);
            self.let_go(last.filter(|&last| last != opened));
        }
        Some(frame)
    }

    /// Hands out what this front holds besides the word that frames are handed out from: frames that
    /// came back to a word before it, freed ones if there are many of a word, or what is left of a
    /// fresh word.
    pub(crate) fn reuse(&self, front: &mut Front, request: Request) -> Option<Frame> {
        let mobility = request.mobility;
        for place in 0..PLACES {
            let piece = front.words.freed(place);
            let own = front.words.is_own(place, mobility);
            // Mostly none, and counting costs a dozen steps.
            if piece.mask == 0 || !own && piece.mask.count_ones() < REUSE_AT_LEAST {
                continue;
            }
            let (zone, block) = self.locate_managed(Frame::new(piece.base()));
            let at = self.zone(zone);
            let state = || at.zone.arrays.states[block].load();
            let other = || state().mobility() != mobility || state().is_emptying();
            if !self.suits(zone, front, request) || !own && other() {
                continue;
            }
            if !request.takes_any() {
                return front.words.pop_at(place);
            }
            front.words.hand_out_from(place, 0, mobility);
            return front.words.pop(mobility);
        }
        if !request.takes_any() {
            return None;
        }
        // Need not be known to be fresh any longer: this is for a request that does not ask.
        let fresh = &mut front.fresh_words[mobility.index()];
        let fresh = core::mem::replace(fresh, Piece::NONE);
        if fresh.mask == 0 {
            return None;
        }
        self.begin(front, fresh, mobility)
    }
}
