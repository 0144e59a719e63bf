//! Where frames that are moved go: into the fullest blocks that have room, never into a free one or
//! one that is being emptied.

use crate::{
    Frame, Mobility,
    bitmap::{Taken, WORD_FRAMES, WORDS, lowest},
    block::{Block, Watch},
    state::Class,
    summary::TREE_BLOCKS,
    zone::ZoneRef,
};

use super::survey::{Source, Survey, is_movable};

/// A walk upwards over the blocks that are full enough.
#[derive(Debug)]
pub(crate) struct Targets {
    /// Blocks with fewer frames in use are passed by.
    least_used: u32,
    /// The block that it is at.
    at: usize,
}

/// What a call for targets did.
pub(crate) struct Filled {
    /// Frames that were found.
    pub(crate) frames: usize,
    /// Cache lines of state words and bits that were looked at.
    pub(crate) looked: u64,
}

impl Targets {
    pub(crate) const fn new() -> Self {
        Self {
            least_used: 1,
            at: 0,
        }
    }

    /// Blocks with so many frames in use or more are to be filled from here on.
    pub(crate) fn aim(&mut self, least_used: u32) {
        // Those that are full enough and below are full by now.
        if least_used < self.least_used {
            self.at = 0;
        }
        self.least_used = least_used;
    }

    /// Begins again with blocks of any fullness; false if it has been that far.
    pub(crate) fn widen(&mut self) -> bool {
        let wider = self.least_used > 1;
        *self = Self::new();
        wider
    }

    /// Takes frames until there are no more, none of those blocks that are `kept` to be emptied.
    pub(crate) fn fill(
        &mut self,
        zone: ZoneRef<'_, '_>,
        survey: &mut Survey,
        kept: usize,
        frames: &mut [Frame],
    ) -> Filled {
        let mut filled = Filled {
            frames: 0,
            looked: 0,
        };
        let blocks = zone.zone.blocks();
        while self.at < blocks {
            let movable = Class::Partial(Mobility::Movable);
            let tree = self.at / TREE_BLOCKS;
            if self.at.is_multiple_of(TREE_BLOCKS) && zone.zone.summary(tree).count(movable) == 0 {
                self.at += TREE_BLOCKS;
                continue;
            }
            filled.looked += u64::from(self.at.is_multiple_of(TREE_BLOCKS));
            let state = zone.zone.arrays.states[self.at].load();
            let used = state.used();
            let sources = &survey.sources()[..kept.min(survey.sources().len())];
            if is_movable(state) && used >= self.least_used && !holds(sources, self.at, used) {
                let before = filled.frames;
                let complete = take_from(zone, self.at, frames, &mut filled.frames);
                let taken = u32::try_from(filled.frames - before).unwrap_or(0);
                survey.changed(used, used + taken);
                filled.looked += 1;
                if complete {
                    return filled;
                }
            }
            self.at += 1;
        }
        filled
    }
}

/// Whether a block of which so many frames are in use is one of these.
fn holds(sources: &[Source], block: usize, used: u32) -> bool {
    // They are in the order of what is in use of them, so mostly a look at the last will do.
    let dearest = sources.last().map_or(0, |source| source.used());
    used <= dearest && sources.iter().any(|source| source.block() == block)
}

/// Takes frames of a block until it has no more, or (true) all are found.
fn take_from(zone: ZoneRef<'_, '_>, block: usize, frames: &mut [Frame], found: &mut usize) -> bool {
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
    /// Takes up to `most` frames of one word, of a block that is in use for this mobility.
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
            // Somebody was at the word. Others of the block may do, and other blocks.
            self.release(reserved);
            return None;
        }
        let rest = reserved - mask.count_ones();
        if rest != 0 {
            self.release(rest);
        }
        let taken = Taken { word, mask };
        self.touch(taken);
        self.lower(self.bits.reach());
        Some(taken)
    }
}
