//! Draining of per-CPU caches ([`CpuCache`]).
//!
//! A cache gives back freed frames when it needs their entry for others, everything when it is
//! drained, and all frames of a pageblock if no other frame of that pageblock is in use.

use crate::{
    Allocator, CpuCache, Frame, Mobility,
    bitmap::{Taken, WORD_FRAMES},
    cpu_cache::HeldBlock,
    frame::{PAGEBLOCK_FRAMES, index},
    group_cache::{ENTRIES, GroupMask},
};

impl Allocator<'_> {
    /// Adds a freed frame to the per-CPU cache, or checks whether its group of 64 is complete now.
    /// For frames that the fast path ([`note_freed`](crate::group_cache::GroupCache::note_freed))
    /// has not handled completely: it did not add the frame, or added it and the group may be
    /// complete.
    #[inline(never)]
    pub(crate) fn free_word(&self, cache: &mut CpuCache, frame: Frame) {
        let freed = GroupMask::of(frame);
        if cache.groups.notes(freed.word) {
            self.completed(cache, freed);
        } else {
            self.free_group(cache, freed);
        }
    }

    /// Adds freed frames of one group of 64 to the per-CPU cache. Frees the frames of another group
    /// to their zone if the cache needs that group's entry.
    pub(crate) fn free_group(&self, cache: &mut CpuCache, freed: GroupMask) {
        let evicted = cache.note_group(freed);
        self.give_word(cache, evicted);
        self.completed(cache, freed);
    }

    /// Checks, while the reporter waits for free blocks, whether the group of `freed` is complete,
    /// and then tries to free its whole pageblock. Otherwise a complete group stays in the cache,
    /// to be allocated again.
    fn completed(&self, cache: &mut CpuCache, freed: GroupMask) {
        if self.shared.listens() && cache.groups.is_whole(freed.word) {
            self.complete_block(cache, Frame::new(freed.base()));
        }
    }

    /// Frees all that the per-CPU cache holds of the pageblock of `frame` to the zone, if no other
    /// frame of that pageblock is in use. Otherwise does nothing. Panics if `frame` is not managed.
    pub(crate) fn complete_block(&self, cache: &mut CpuCache, frame: Frame) {
        let (zone, block) = self.locate_managed(frame);
        let state = self.zone(zone).zone.arrays.states[block].load();
        self.complete(cache, frame, state.used());
    }

    /// Frees frames of one group of 64 to the zone. Also frees what else the per-CPU cache holds of
    /// their pageblock, if no other frame of it is in use. Does nothing if `freed` is empty.
    ///
    /// # Panics
    /// If one of the frames is not in use.
    pub(crate) fn give_word(&self, cache: &mut CpuCache, freed: GroupMask) {
        if freed.mask != 0 {
            let left = self.give_group(cache, freed);
            if left != 0 {
                self.complete(cache, Frame::new(freed.base()), left);
            }
        }
    }

    /// Frees all that the per-CPU cache holds of the pageblock of `frame` to the zone, if that is
    /// exactly `left` frames: the number of frames in use of the pageblock. Otherwise does nothing.
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
            let unused = cache.unused_groups[mobility.index()];
            if unused.mask != 0 && inside(unused.base()) {
                self.free_unused(cache, mobility);
            }
        }
        for entry in 0..ENTRIES {
            if cache.groups.has(entry, inside) {
                self.give_entry(cache, entry);
            }
        }
        for cached in cache.blocks {
            if cached.is_held && inside(cached.base) {
                self.free_cached(cache, cached.order);
            }
        }
    }

    /// Frees frames of one group of 64 to the zone. Returns the number of frames that are still in
    /// use of their pageblock.
    fn give_group(&self, cache: &mut CpuCache, freed: GroupMask) -> u32 {
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
    fn free_unused(&self, cache: &mut CpuCache, mobility: Mobility) {
        let unused =
            core::mem::replace(&mut cache.unused_groups[mobility.index()], GroupMask::NONE);
        if unused.mask != 0 {
            self.give_group(cache, unused);
        }
    }

    /// Frees the frames of one entry of the cache.
    fn give_entry(&self, cache: &mut CpuCache, entry: usize) {
        let freed = cache.groups.empty(entry);
        if freed.mask != 0 {
            self.give_group(cache, freed);
        }
    }

    /// Frees all frames that the per-CPU `cache` holds to their zones, and adds its local count to
    /// the zone's count of free frames.
    ///
    /// Call this when the CPU goes idle, when [`drain_requested`](Self::drain_requested) returns
    /// `true`, and before `cache` is dropped.
    pub fn drain(&self, cache: &mut CpuCache) {
        cache.drains = self.shared.drains();
        for mobility in Mobility::ALL {
            self.release_block(cache.held[mobility.index()].take());
            self.release_block(cache.opened[mobility.index()].take());
            self.free_unused(cache, mobility);
        }
        for entry in 0..ENTRIES {
            self.give_entry(cache, entry);
        }
        for cached in cache.blocks {
            self.free_cached(cache, cached.order);
        }
        self.flush_count(cache);
        // Other CPUs continue while this one is idle, so what the cache knows of them becomes
        // outdated.
        (cache.home, cache.seen_free) = (Default::default(), 0);
    }
}
