//! Draining of per-CPU caches ([`Front`]).
//!
//! A cache gives back freed frames when it needs their entry for others, everything when it is
//! drained, and all frames of a pageblock if no other frame of that pageblock is in use.

use crate::{
    Allocator, Frame, Front, Mobility,
    bitmap::{Taken, WORD_FRAMES},
    frame::{PAGEBLOCK_FRAMES, index},
    front::HeldBlock,
    words::{PLACES, Piece},
};

impl Allocator<'_> {
    /// Adds a freed frame to the per-CPU cache, if the fast path could not: the frame's group of 64
    /// has no entry in the cache where the fast path looks, or may be complete now.
    #[inline(never)]
    pub(crate) fn free_word(&self, front: &mut Front, frame: Frame) {
        let freed = Piece::of(frame);
        if front.words.notes(freed.word) {
            self.completed(front, freed);
        } else {
            self.free_piece(front, freed);
        }
    }

    /// Adds freed frames of one group of 64 to the per-CPU cache.
    pub(crate) fn free_piece(&self, front: &mut Front, freed: Piece) {
        let displaced = front.note_piece(freed);
        self.give_word(front, displaced);
        self.completed(front, freed);
    }

    /// Checks, while the reporter waits for free blocks, whether the group of `freed` is complete,
    /// and then tries to free its whole pageblock. Otherwise a complete group stays in the cache,
    /// to be allocated again.
    fn completed(&self, front: &mut Front, freed: Piece) {
        if self.hub.listens() && front.words.is_whole(freed.word) {
            self.complete_block(front, Frame::new(freed.base()));
        }
    }

    /// Frees all that the per-CPU cache holds of the pageblock of `frame` to the zone, if no other
    /// frame of that pageblock is in use.
    pub(crate) fn complete_block(&self, front: &mut Front, frame: Frame) {
        let (zone, block) = self.locate_managed(frame);
        let state = self.zone(zone).zone.arrays.states[block].load();
        self.complete(front, frame, state.used());
    }

    /// Frees frames of one group of 64 to the zone. Also frees what else the per-CPU cache holds of
    /// their pageblock, if no other frame of it is in use.
    pub(crate) fn give_word(&self, front: &mut Front, freed: Piece) {
        if freed.mask != 0 {
            let left = self.give_piece(front, freed);
            if left != 0 {
                self.complete(front, Frame::new(freed.base()), left);
            }
        }
    }

    /// Frees all that the per-CPU cache holds of the pageblock of `frame` to the zone, if the cache
    /// holds all `left` frames that are in use of it.
    #[inline]
    pub(crate) fn complete(&self, front: &mut Front, frame: Frame, left: u32) {
        let first = frame.number() / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES;
        if front.holds_all(first, left) {
            self.give_all_of(front, first);
        }
    }

    /// Gives back all that the cache holds of the pageblock that starts with frame number `first`.
    #[cold]
    fn give_all_of(&self, front: &mut Front, first: u64) {
        let inside = |base: u64| base / PAGEBLOCK_FRAMES == first / PAGEBLOCK_FRAMES;
        let (zone, block) = self.locate_managed(Frame::new(first));
        for mobility in Mobility::ALL {
            // The cache allocates from another block next.
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

    /// Frees frames of one group of 64 to the zone. Returns the number of frames that are still in
    /// use of their pageblock.
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

    /// Frees the remaining frames of the group that was never allocated before, for this mobility.
    fn give_fresh(&self, front: &mut Front, mobility: Mobility) {
        let fresh = core::mem::replace(&mut front.fresh_words[mobility.index()], Piece::NONE);
        if fresh.mask != 0 {
            self.give_piece(front, fresh);
        }
    }

    /// Frees the frames of one entry of the cache.
    fn give_place(&self, front: &mut Front, place: usize) {
        let freed = front.words.empty(place);
        if freed.mask != 0 {
            self.give_piece(front, freed);
        }
    }

    /// Frees all frames that the per-CPU cache `front` holds to their zones.
    ///
    /// Call this when the CPU goes idle, when [`drain_requested`](Self::drain_requested) returns
    /// `true`, and before `front` is dropped.
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
        // Other CPUs continue while this one is idle, so what the cache knows of them becomes
        // outdated.
        (front.home, front.seen_free) = (Default::default(), 0);
    }
}
