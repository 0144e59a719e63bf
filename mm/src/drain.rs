//! What a front gives back: words of freed frames as their place is needed, all that it holds of a
//! pageblock that is free but for that, and everything when it is asked to.

use crate::{
    Allocator, Frame, Front, Mobility,
    bitmap::{Taken, WORD_FRAMES},
    frame::{PAGEBLOCK_FRAMES, index},
    front::HeldBlock,
    words::{PLACES, Piece},
};

impl Allocator<'_> {
    /// Notes a freed frame that does not just join others: its word is not at home, or complete.
    #[inline(never)]
    pub(crate) fn free_word(&self, front: &mut Front, frame: Frame) {
        let freed = Piece::of(frame);
        if front.words.notes(freed.word) {
            self.completed(front, freed);
        } else {
            self.free_piece(front, freed);
        }
    }

    /// Notes freed frames of one word.
    pub(crate) fn free_piece(&self, front: &mut Front, freed: Piece) {
        let displaced = front.note_piece(freed);
        self.give_word(front, displaced);
        self.completed(front, freed);
    }

    /// Unless somebody waits for a block, a word of which all is here is as well kept to be handed
    /// out again.
    fn completed(&self, front: &mut Front, freed: Piece) {
        if self.hub.listens() && front.words.is_whole(freed.word) {
            self.complete_block(front, Frame::new(freed.base()));
        }
    }

    /// Gives all back that the front holds of this frame's pageblock, if that is all that is in use
    /// of it.
    pub(crate) fn complete_block(&self, front: &mut Front, frame: Frame) {
        let (zone, block) = self.locate_managed(frame);
        let state = self.zone(zone).zone.arrays.states[block].load();
        self.complete(front, frame, state.used());
    }

    /// Gives freed frames of one word back, and what else the front holds of their pageblock if it
    /// is free then.
    pub(crate) fn give_word(&self, front: &mut Front, freed: Piece) {
        if freed.mask != 0 {
            let left = self.give_piece(front, freed);
            if left != 0 {
                self.complete(front, Frame::new(freed.base()), left);
            }
        }
    }

    /// Gives all back that the front holds of this frame's pageblock, if that is all that is in use
    /// of it: so many frames.
    #[inline]
    pub(crate) fn complete(&self, front: &mut Front, frame: Frame, left: u32) {
        let first = frame.number() / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES;
        if front.holds_all(first, left) {
            self.give_all_of(front, first);
        }
    }

    #[cold]
    fn give_all_of(&self, front: &mut Front, first: u64) {
        let inside = |base: u64| base / PAGEBLOCK_FRAMES == first / PAGEBLOCK_FRAMES;
        let (zone, block) = self.locate_managed(Frame::new(first));
        for mobility in Mobility::ALL {
            // It goes elsewhere for the next.
            let held = &mut front.held[mobility.index()];
            self.let_go(held.take_if(|held| *held == HeldBlock { zone, block }));
            let fresh = front.fresh_words[mobility.index()];
            if fresh.mask != 0 && inside(fresh.base()) {
                self.give_fresh(front, mobility);
            }
        }
        for place in 0..PLACES {
            if front.words.has(place, inside) {
                self.give_place(front, place);
            }
        }
        for kept in front.kept {
            if kept.here && inside(kept.base) {
                self.give_kept(front, kept.order);
            }
        }
    }

    /// Gives frames of one word back; how many are left in use in their pageblock.
    fn give_piece(&self, front: &mut Front, freed: Piece) -> u32 {
        let (zone, block) = self.locate_managed(Frame::new(freed.base()));
        let word = index(freed.word % (PAGEBLOCK_FRAMES / u64::from(WORD_FRAMES)));
        let left = self.zone(zone).block(block).give_word(Taken {
            word,
            mask: freed.mask,
        });
        self.hub.freed_in_word(Frame::new(freed.base()), left.word);
        self.count(zone, front, i64::from(freed.mask.count_ones()));
        left.frames
    }

    /// Gives back what is left of a fresh word.
    fn give_fresh(&self, front: &mut Front, mobility: Mobility) {
        let fresh = core::mem::replace(&mut front.fresh_words[mobility.index()], Piece::NONE);
        if fresh.mask != 0 {
            self.give_piece(front, fresh);
        }
    }

    fn give_place(&self, front: &mut Front, place: usize) {
        let freed = front.words.empty(place);
        if freed.mask != 0 {
            self.give_piece(front, freed);
        }
    }

    /// Gives back all that a front holds. To be called when its CPU goes idle, when
    /// [`drain_requested`](Self::drain_requested) says so, and before the front is dropped.
    pub fn drain(&self, front: &mut Front) {
        front.drains = self.hub.drains();
        for mobility in Mobility::ALL {
            self.let_go(front.held[mobility.index()].take());
            self.let_go(front.opened[mobility.index()].take());
            self.give_fresh(front, mobility);
        }
        for place in 0..PLACES {
            self.give_place(front, place);
        }
        for kept in front.kept {
            self.give_kept(front, kept.order);
        }
        self.tell(front);
        // Others go on while this CPU is idle.
        (front.home, front.seen_free) = (Default::default(), 0);
    }
}
