//! Draining of per-CPU caches ([`CpuCache`]).
//!
//! A cache gives back freed frames when it needs their entry for others, everything when it is
//! drained, and all frames of a pageblock if no other frame of that pageblock is in use.

use crate::{
    Allocator, CpuCache, Frame, Mobility,
    bitmap::{Taken, WORD_FRAMES},
    cpu_cache::HeldBlock,
    frame::{PAGEBLOCK_FRAMES, index},
    words::{PLACES, Piece},
};

impl Allocator<'_> {
    /// Adds a freed frame to the per-CPU cache, if the fast path could not: the frame's group of 64
    /// has no entry in the cache where the fast path looks, or may be complete now.
    #[inline(never)]
    pub(crate) fn free_word(&self, cache: &mut CpuCache, frame: Frame) {
        let freed = Piece::of(frame);
        if cache.words.notes(freed.word) {
            self.completed(cache, freed);
        } else {
            self.free_piece(cache, freed);
        }
    }

    /// Adds freed frames of one group of 64 to the per-CPU cache.
    pub(crate) fn free_piece(&self, cache: &mut CpuCache, freed: Piece) {
        let displaced = cache.note_piece(freed);
        self.give_word(cache, displaced);
        self.completed(cache, freed);
    }

    /// Checks, while the reporter waits for free blocks, whether the group of `freed` is complete,
    /// and then tries to free its whole pageblock. Otherwise a complete group stays in the cache,
    /// to be allocated again.
    fn completed(&self, cache: &mut CpuCache, freed: Piece) {
        if self.shared.listens() && cache.words.is_whole(freed.word) {
            self.complete_block(cache, Frame::new(freed.base()));
        }
    }

    /// Frees all that the per-CPU cache holds of the pageblock of `frame` to the zone, if no other
    /// frame of that pageblock is in use.
    pub(crate) fn complete_block(&self, cache: &mut CpuCache, frame: Frame) {
        let (zone, block) = self.locate_managed(frame);
        let state = self.zone(zone).zone.arrays.states[block].load();
        self.complete(cache, frame, state.used());
    }

    /// Frees frames of one group of 64 to the zone. Also frees what else the per-CPU cache holds of
    /// their pageblock, if no other frame of it is in use.
    pub(crate) fn give_word(&self, cache: &mut CpuCache, freed: Piece) {
        if freed.mask != 0 {
            let left = self.give_piece(cache, freed);
            if left != 0 {
                self.complete(cache, Frame::new(freed.base()), left);
            }
        }
    }

    /// Frees all that the per-CPU cache holds of the pageblock of `frame` to the zone, if the cache
    /// holds all `left` frames that are in use of it.
    #[inline]
    pub(crate) fn complete(&self, cache: &mut CpuCache, frame: Frame, left: u32) {
        let first = frame.number() / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES;
        if cache.holds_all(first, left) {
            self.give_all_of(cache, first);
        }
    }

    /// Gives back all that the cache holds of the pageblock that starts with frame number `first`.
    #[cold]
    fn give_all_of(&self, cache: &mut CpuCache, first: u64) {
        let inside = |base: u64| base / PAGEBLOCK_FRAMES == first / PAGEBLOCK_FRAMES;
        let (zone, block) = self.locate_managed(Frame::new(first));
        for mobility in Mobility::ALL {
            // The cache allocates from another block next.
            let held = &mut cache.held[mobility.index()];
            self.release_block(held.take_if(|held| *held == HeldBlock { zone, block }));
            let fresh = cache.fresh_words[mobility.index()];
            if fresh.mask != 0 && inside(fresh.base()) {
                self.give_fresh(cache, mobility);
            }
        }
        for place in 0..PLACES {
            if cache.words.has(place, inside) {
                self.give_place(cache, place);
            }
        }
        for kept in cache.kept {
            if kept.here && inside(kept.base) {
                self.give_kept(cache, kept.order);
            }
        }
    }

    /// Frees frames of one group of 64 to the zone. Returns the number of frames that are still in
    /// use of their pageblock.
    fn give_piece(&self, cache: &mut CpuCache, freed: Piece) -> u32 {
        let (zone, block) = self.locate_managed(Frame::new(freed.base()));
        let word = index(freed.word % (PAGEBLOCK_FRAMES / u64::from(WORD_FRAMES)));
        let left = self.zone(zone).block(block).give_word(Taken {
            word,
            mask: freed.mask,
        });
        self.shared
            .freed_in_word(Frame::new(freed.base()), left.word);
        self.count(zone, cache, i64::from(freed.mask.count_ones()));
        left.frames
    }

    /// Frees the remaining frames of the group that was never allocated before, for this mobility.
    fn give_fresh(&self, cache: &mut CpuCache, mobility: Mobility) {
        let fresh = core::mem::replace(&mut cache.fresh_words[mobility.index()], Piece::NONE);
        if fresh.mask != 0 {
            self.give_piece(cache, fresh);
        }
    }

    /// Frees the frames of one entry of the cache.
    fn give_place(&self, cache: &mut CpuCache, place: usize) {
        let freed = cache.words.empty(place);
        if freed.mask != 0 {
            self.give_piece(cache, freed);
        }
    }

    /// Frees all frames that the per-CPU `cache` holds to their zones.
    ///
    /// Call this when the CPU goes idle, when [`drain_requested`](Self::drain_requested) returns
    /// `true`, and before `cache` is dropped.
    pub fn drain(&self, cache: &mut CpuCache) {
        cache.drains = self.shared.drains();
        for mobility in Mobility::ALL {
            self.release_block(cache.held[mobility.index()].take());
            self.release_block(cache.opened[mobility.index()].take());
            self.give_fresh(cache, mobility);
        }
        for place in 0..PLACES {
            self.give_place(cache, place);
        }
        for kept in cache.kept {
            self.give_kept(cache, kept.order);
        }
        self.tell(cache);
        // Other CPUs continue while this one is idle, so what the cache knows of them becomes
        // outdated.
        (cache.home, cache.seen_free) = (Default::default(), 0);
    }
}
