//! Fills a per-CPU cache ([`CpuCache`]) from a zone: with words of 64 frames, from which it hands
//! out single frames, and with runs of frames.

use crate::{
    Allocator, CpuCache, Frame, Mobility, Order, Request, ZoneId,
    bitmap::WORD_FRAMES,
    cpu_cache::HeldBlock,
    frame::PAGEBLOCK_FRAMES,
    group_cache::{ENTRIES, GroupMask},
};

/// The fewest frames of a bitmap word for which freed frames are handed out again, if the cache did
/// not take frames from this word lately. Fewer are better returned to the bitmap, so that the next
/// frame comes from the fullest pageblock. Otherwise random churn would keep every pageblock in
/// use.
const REUSE_AT_LEAST: u32 = 8;

impl Allocator<'_> {
    /// Allocates one frame of `zone` for `request`. If the request accepts any zone, `cache` also
    /// takes more free frames of the same bitmap word, up to `spare` frames in all, and holds their
    /// pageblock from then on. Returns `None` if the zone has no suitable frame.
    pub(crate) fn refill(
        &self,
        zone: ZoneId,
        cache: &mut CpuCache,
        request: Request,
        spare: u64,
    ) -> Option<Frame> {
        let at = self.zone(zone);
        let mobility = request.mobility;
        let mut hint = cache.open_hint(zone, mobility);
        if !request.takes_any() {
            // The word that `cache` hands frames out from serves only requests that accept any
            // zone.
            let frame = at.take_frame(&mut hint, mobility)?;
            self.count(zone, cache, -1);
            cache.never_used = at.zone.hand_out(frame, Order::BASE);
            // A frame that is freed to this word serves the next such request.
            let (entry, evicted) = cache.groups.entry(GroupMask::of(frame).word);
            cache.groups.note_own(entry, mobility);
            self.give_word(cache, evicted);
            return Some(frame);
        }
        let last = HeldBlock::in_zone(cache.held[mobility.index()], zone);
        let most = u32::try_from(spare).unwrap_or(WORD_FRAMES).min(WORD_FRAMES);
        let word = at.take_word(last, &mut hint, mobility, most)?;
        self.count(zone, cache, -i64::from(word.mask.count_ones()));
        cache.store_open_hint(zone, mobility, hint);
        let inside = word.base % PAGEBLOCK_FRAMES / u64::from(WORD_FRAMES);
        cache.never_used = at.zone.hand_out_words(word.block, 1 << inside);
        if last != Some(word.block) {
            let held = HeldBlock {
                zone,
                block: word.block,
            };
            self.release_block(cache.held[mobility.index()].replace(held));
        }
        let group = GroupMask {
            word: word.base / u64::from(WORD_FRAMES),
            mask: word.mask,
        };
        self.begin(cache, group, mobility)
    }

    /// Makes the frames of `group` the ones that `cache` hands out next, and returns the first of
    /// them.
    fn begin(&self, cache: &mut CpuCache, group: GroupMask, mobility: Mobility) -> Option<Frame> {
        let evicted = cache.begin(group, mobility);
        let frame = cache.groups.pop(mobility);
        self.give_word(cache, evicted);
        frame
    }

    /// Ends the use of the pageblock `held` by a per-CPU cache, so that other caches may allocate
    /// from it. Does nothing for `None`.
    pub(crate) fn release_block(&self, held: Option<HeldBlock>) {
        if let Some(HeldBlock { zone, block }) = held {
            self.zone(zone).block(block).release_block();
        }
    }

    /// Allocates a run of an order from 1 to 8 in `zone`. If that splits a free pageblock, `cache`
    /// holds the pageblock from then on, and releases the one it split before. The caller counts
    /// the frames as allocated. Returns `None` if the zone has no such run.
    pub(crate) fn take_run(
        &self,
        zone: ZoneId,
        cache: &mut CpuCache,
        request: Request,
    ) -> Option<Frame> {
        let mobility = request.mobility;
        let held = [cache.held[mobility.index()], cache.opened[mobility.index()]];
        let blocks = held.map(|held| HeldBlock::in_zone(held, zone));
        let mut hint = cache.open_hint(zone, mobility);
        let frame = self
            .zone(zone)
            .take_run(blocks, &mut hint, request.order, mobility)?;
        cache.store_open_hint(zone, mobility, hint);
        if let Some(block) = hint.opened {
            let opened = HeldBlock { zone, block };
            let last = cache.opened[mobility.index()].replace(opened);
            self.release_block(last.filter(|&last| last != opened));
        }
        Some(frame)
    }

    /// Allocates a frame of order 0 that `cache` holds outside the word that frames are handed out
    /// from: freed frames of a word that it used before, freed frames of another word if there are
    /// at least [`REUSE_AT_LEAST`], or frames of a word that was never handed out. The frames of
    /// that word are handed out next, if the request accepts any zone. Returns `None` if the cache
    /// holds no frame that suits `request`.
    pub(crate) fn reuse(&self, cache: &mut CpuCache, request: Request) -> Option<Frame> {
        let mobility = request.mobility;
        for entry in 0..ENTRIES {
            let group = cache.groups.freed(entry);
            let own = cache.groups.is_own(entry, mobility);
            // Checked first, as mostly there is none and counting costs a dozen instructions.
            if group.mask == 0 || !own && group.mask.count_ones() < REUSE_AT_LEAST {
                continue;
            }
            let (zone, block) = self.locate_managed(Frame::new(group.base()));
            let at = self.zone(zone);
            let state = || at.zone.arrays.states[block].load();
            let other = || state().mobility() != mobility || state().is_emptying();
            if !self.suits(zone, cache, request) || !own && other() {
                continue;
            }
            if !request.takes_any() {
                return cache.groups.pop_at(entry);
            }
            cache.groups.hand_out_from(entry, 0, mobility);
            return cache.groups.pop(mobility);
        }
        if !request.takes_any() {
            return None;
        }
        // These frames need not stay known as never handed out, as this request does not ask for
        // that.
        let unused = &mut cache.unused_groups[mobility.index()];
        let unused = core::mem::replace(unused, GroupMask::NONE);
        if unused.mask == 0 {
            return None;
        }
        self.begin(cache, unused, mobility)
    }
}
