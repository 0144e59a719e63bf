//! Where compaction migrates frames to ([`Targets`]): into the fullest pageblocks with free frames,
//! never into a free pageblock or one that is being emptied.

use crate::{
    Frame, Mobility,
    bitmap::{Taken, WORD_FRAMES, WORDS, lowest},
    block::{Block, Watch},
    ids::{BlockId, Id},
    state::Class,
    zone::ZoneRef,
};

use super::scan::{Scan, Source, is_movable};

/// A search for frames to migrate others to, in ascending order of pageblocks.
#[derive(Debug)]
pub(crate) struct Targets {
    /// Pageblocks with fewer frames in use are skipped.
    least_used: u32,
    /// The current pageblock.
    at: BlockId,
}

/// The result of a search for frames to migrate others to.
pub(crate) struct Filled {
    /// Number of frames that were found.
    pub(crate) frames: usize,
    /// Number of cache lines of state words and bitmaps that were read.
    pub(crate) lines_read: u64,
}

impl Targets {
    /// Returns a search from the start of the zone, for pageblocks with any number of frames in
    /// use.
    pub(crate) const fn new() -> Self {
        Self {
            least_used: 1,
            at: BlockId::FIRST,
        }
    }

    /// Restricts the search to pageblocks with at least `least_used` frames in use. Starts again at
    /// the beginning of the zone if that is fewer than before.
    pub(crate) fn aim(&mut self, least_used: u32) {
        // With the same or a higher minimum, the pageblocks before the current one are full by now.
        if least_used < self.least_used {
            self.at = BlockId::FIRST;
        }
        self.least_used = least_used;
    }

    /// Starts again at the beginning of the zone, with pageblocks of any number of frames in use.
    /// Returns `true` if the search had a restriction, and `false` if it had none, so that a
    /// repetition finds nothing new.
    pub(crate) fn widen(&mut self) -> bool {
        let wider = self.least_used > 1;
        *self = Self::new();
        wider
    }

    /// Allocates target frames until the slice `frames` is full or the end of the zone is reached.
    /// Returns how many it stored in `frames`, and what it read. The first `kept` sources of the
    /// scan are to be emptied, so they are not used. Updates `scan` for the pageblocks that got
    /// fuller.
    pub(crate) fn fill(
        &mut self,
        zone: ZoneRef<'_, '_>,
        scan: &mut Scan,
        kept: usize,
        frames: &mut [Frame],
    ) -> Filled {
        let mut filled = Filled {
            frames: 0,
            lines_read: 0,
        };
        let end = zone.zone.arrays.states.end();
        while self.at < end {
            let movable = Class::Partial(Mobility::Movable);
            let tree = self.at.tree();
            let starts_tree = self.at.bit() == 0;
            if starts_tree && zone.zone.summary(tree).count(movable) == 0 {
                self.at = tree.next().first_block();
                continue;
            }
            filled.lines_read += u64::from(starts_tree);
            let state = zone.zone.arrays.states[self.at].load();
            let used = state.used();
            let sources = &scan.sources()[..kept.min(scan.sources().len())];
            if is_movable(state) && used >= self.least_used && !holds(sources, self.at, used) {
                let before = filled.frames;
                let complete = take_from(zone, self.at, frames, &mut filled.frames);
                let taken = u32::try_from(filled.frames - before).unwrap_or(0);
                scan.changed(used, used + taken);
                filled.lines_read += 1;
                if complete {
                    return filled;
                }
            }
            self.at = self.at.next();
        }
        filled
    }
}

/// Returns `true` if a pageblock with `used` frames in use is one of `sources`.
fn holds(sources: &[Source], block: BlockId, used: u32) -> bool {
    // The sources are sorted by frames in use, so mostly a look at the last one is enough.
    let dearest = sources.last().map_or(0, |source| source.used());
    used <= dearest && sources.iter().any(|source| source.block() == block)
}

/// Allocates frames of a pageblock into the slice, from index `found` on. Returns `true` if the
/// slice is full, `false` if the pageblock has no more.
fn take_from(
    zone: ZoneRef<'_, '_>,
    block: BlockId,
    frames: &mut [Frame],
    found: &mut usize,
) -> bool {
    let first = zone.zone.first_frame(block);
    while let rest @ 1.. = frames.len() - *found {
        let most = u32::try_from(rest).unwrap_or(WORD_FRAMES);
        let Some(taken) = zone.block(block).join(most, Mobility::Movable) else {
            return false;
        };
        zone.zone.hand_out_words(block, 1 << taken.word);
        zone.zone.count_free(-i64::from(taken.mask.count_ones()));
        let base = first.offset(taken.word as u64 * u64::from(WORD_FRAMES));
        let mut mask = taken.mask;
        while mask != 0 {
            frames[*found] = base.offset(u64::from(mask.trailing_zeros()));
            *found += 1;
            mask &= mask - 1;
        }
    }
    true
}

impl<W: Watch> Block<'_, W> {
    /// Takes at least one and up to `most` frames of one `u64` of the bitmap, from a pageblock that
    /// is in partial use for `mobility`. Returns the frames taken. Returns `None` if the pageblock
    /// is not in partial use for it, or another CPU took frames of the same `u64` at the same time.
    pub(crate) fn join(&self, most: u32, mobility: Mobility) -> Option<Taken> {
        if !self.state.load().is(Class::Partial(mobility)) {
            return None;
        }
        let free = |word: usize| (!self.bits.word(word)).count_ones();
        let word = (0..WORDS).max_by_key(|&word| free(word))?;
        let wanted = free(word).min(most);
        if wanted == 0 {
            return None;
        }
        let (reserved, change) = self.state.join(wanted, mobility)?;
        self.watch.changed(change);
        let mask = lowest(!self.bits.word(word), reserved);
        if mask == 0 || !self.bits.take_exactly(word, mask) {
            // Another CPU took frames of the same `u64`. Other parts of the pageblock, or other
            // pageblocks, may still have free frames.
            self.release(reserved);
            return None;
        }
        let rest = reserved - mask.count_ones();
        if rest != 0 {
            self.release(rest);
        }
        let taken = Taken { word, mask };
        self.touch(taken);
        self.lower(self.bits.run_bound());
        Some(taken)
    }
}
