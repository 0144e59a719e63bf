//! What a front gives back: words of freed frames as their place is needed, all that it holds of a
//! pageblock that is free but for that, and everything when it is asked to.

use crate::{
    Allocator, Frame, Front, Mobility,
    bitmap::{Taken, WORD_FRAMES},
    frame::{PAGEBLOCK_FRAMES, index},
    front::Freed,
};

impl Allocator<'_> {
    /// Notes a freed frame that does not just join others: it starts a word, or ends one.
    pub(crate) fn free_word(&self, front: &mut Front, frame: Frame) {
        let word = frame.number() / u64::from(WORD_FRAMES);
        if front.freed_at(word).word == word {
            // Unless somebody waits for a block, the word is as well kept to be handed out again.
            if self.hub.listens() {
                let (zone, block) = self.locate_managed(frame);
                let state = self.zone(zone).zone.arrays.states[block].load();
                self.complete(front, frame, state.count());
            }
        } else {
            let freed = front.start_word(frame);
            self.give_word(front, freed);
        }
    }

    /// Gives freed frames of one word back, and what else the front holds of their pageblock if it
    /// is free then.
    pub(crate) fn give_word(&self, front: &mut Front, freed: Freed) {
        if freed.mask != 0 {
            let left = self.give_freed(front, freed);
            if left != 0 {
                self.complete(front, Frame::new(freed.base()), left);
            }
        }
    }

    /// Gives all back that the front holds of this frame's pageblock, if that is all that is in use
    /// of it: so many frames.
    #[inline]
    fn complete(&self, front: &mut Front, frame: Frame, left: u32) {
        let first = frame.number() / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES;
        if front.holds_all(first, left) {
            self.give_all_of(front, first);
        }
    }

    #[cold]
    fn give_all_of(&self, front: &mut Front, first: u64) {
        let inside = |word: u64| {
            word * u64::from(WORD_FRAMES) / PAGEBLOCK_FRAMES == first / PAGEBLOCK_FRAMES
        };
        for mobility in Mobility::ALL {
            let slot = &front.slots[mobility.index()];
            if slot.mask != 0 && inside(slot.base / u64::from(WORD_FRAMES)) {
                self.give_slot(front, mobility);
            }
            if inside(front.fresh_words[mobility.index()].word) {
                self.give_fresh(front, mobility);
            }
        }
        for place in 0..front.freed.len() {
            if inside(front.freed[place].word) {
                self.give_place(front, place);
            }
        }
        for place in 0..front.kept.len() {
            let kept = front.kept[place];
            if kept.here && kept.base / PAGEBLOCK_FRAMES == first / PAGEBLOCK_FRAMES {
                self.give_kept(front, kept.order);
            }
        }
    }

    /// Gives frames of one word back; how many are left in use in their pageblock.
    fn give_freed(&self, front: &mut Front, freed: Freed) -> u32 {
        let (zone, block) = self.locate_managed(Frame::new(freed.base()));
        let word = index(freed.word % (PAGEBLOCK_FRAMES / u64::from(WORD_FRAMES)));
        let left = self.zone(zone).block(block).give_word(Taken {
            word,
            mask: freed.mask,
        });
        self.hub.freed_in_word(left.word);
        self.count(zone, front, i64::from(freed.mask.count_ones()));
        left.frames
    }

    /// Gives back what is left of a word that was taken, and goes elsewhere for the next.
    fn give_slot(&self, front: &mut Front, mobility: Mobility) {
        let slot = &mut front.slots[mobility.index()];
        let freed = Freed {
            word: slot.base / u64::from(WORD_FRAMES),
            mask: slot.mask,
        };
        slot.mask = 0;
        self.let_go(slot.held.take());
        if freed.mask != 0 {
            self.give_freed(front, freed);
        }
    }

    /// Gives back what is left of a fresh word.
    fn give_fresh(&self, front: &mut Front, mobility: Mobility) {
        let fresh = core::mem::replace(&mut front.fresh_words[mobility.index()], Freed::NONE);
        if fresh.mask != 0 {
            self.give_freed(front, fresh);
        }
    }

    fn give_place(&self, front: &mut Front, place: usize) {
        let freed = front.freed[place];
        front.freed[place].mask = 0;
        if freed.mask != 0 {
            self.give_freed(front, freed);
        }
    }

    /// Gives back all that a front holds. To be called when its CPU goes idle, when
    /// [`drain_requested`](Self::drain_requested) says so, and before the front is dropped.
    pub fn drain(&self, front: &mut Front) {
        front.drains = self.hub.drains();
        for mobility in Mobility::ALL {
            self.give_slot(front, mobility);
            self.give_fresh(front, mobility);
            self.let_go(front.opened[mobility.index()].take());
        }
        for place in 0..front.freed.len() {
            self.give_place(front, place);
        }
        for kept in front.kept {
            self.give_kept(front, kept.order);
        }
        self.tell(front);
        // Others go on while this CPU is idle.
        (front.home, front.seen_free) = (None, 0);
    }
}
