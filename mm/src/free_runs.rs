//! Finds the free frames of partly used and of isolated pageblocks in the bitmap of a paused guest.
//!
//! The host takes whole pageblocks from a guest by compare-and-swap, but no such step takes a
//! single frame. So the frames that this module returns are safe to drop only while all CPUs of the
//! guest are stopped. The allocator sets a frame's bit before the frame is used, and clears it
//! after the last use: a frame whose bit is clear stays unused until a CPU runs again.

use crate::{
    FrameRange,
    attach::Attached,
    bitmap::{Line, WORD_FRAMES, WORDS},
    state::BLOCK_FRAMES,
    usage::{BlockView, Usage},
};

impl Attached<'_> {
    /// Returns the runs of adjacent free frames in the pageblock that `block` describes, in
    /// ascending order. Reads the bitmap during the call, so `block` must have been read while the
    /// guest is paused. All of an isolated pageblock is free. Returns no run if `block` says that
    /// the pageblock is neither partly used nor isolated, or if no zone contains it. Frames in a
    /// per-CPU cache count as used. The runs stay free until a CPU of the guest runs.
    pub fn free_runs(&self, block: &BlockView) -> impl Iterator<Item = FrameRange> {
        let start = block.start;
        let line = || {
            let (zone, index) = self.locate(start)?;
            self.zone(zone)?.arrays.bits.get(index)
        };
        let has_runs = matches!(block.usage, Usage::Partial(_) | Usage::Isolated);
        let used = has_runs.then(line).flatten().map(Used::of);
        let runs = used.into_iter().flat_map(Used::free_runs);
        runs.map(move |(first, frames)| FrameRange::new(start.offset(first.into()), frames.into()))
    }
}

/// A copy of a pageblock's bitmap, 1 = in use.
#[derive(Copy, Clone)]
struct Used([u64; WORDS]);

impl Used {
    fn of(line: &Line) -> Self {
        Self(core::array::from_fn(|word| line.word(word)))
    }

    /// Returns the index of the first frame from `from` on whose bit equals `set`, or
    /// [`BLOCK_FRAMES`] if there is none.
    fn find(&self, from: u32, set: bool) -> u32 {
        let mut words = (0..).zip(self.0);
        let found = words.find_map(|(word, used)| {
            let first = word * WORD_FRAMES;
            let wanted = if set { used } else { !used };
            // Bits below `from` do not count.
            let below = from.saturating_sub(first);
            let wanted = wanted & u64::MAX.checked_shl(below).unwrap_or(0);
            (wanted != 0).then(|| first + wanted.trailing_zeros())
        });
        found.unwrap_or(BLOCK_FRAMES)
    }

    /// Returns each run of frames whose bits are clear, as the index of its first frame and its
    /// length.
    fn free_runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut from = 0;
        core::iter::from_fn(move || {
            let first = self.find(from, false);
            from = self.find(first, true);
            (first < BLOCK_FRAMES).then_some((first, from - first))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn runs_are_the_clear_bits_and_no_two_touch(words: [u64; WORDS], masks: [u64; WORDS]) {
            let sparse = core::array::from_fn(|word| words[word] & masks[word]);
            for used in [words, sparse, [0; WORDS], [!0; WORDS]] {
                let is_clear = |frame: &u32| {
                    used[(frame / WORD_FRAMES) as usize] >> (frame % WORD_FRAMES) & 1 == 0
                };
                let mut clear = Vec::new();
                let mut last_end = None;
                for (first, frames) in Used(used).free_runs() {
                    prop_assert!(frames > 0 && last_end.is_none_or(|end| end < first));
                    clear.extend(first..first + frames);
                    last_end = Some(first + frames);
                }
                let expected: Vec<u32> = (0..BLOCK_FRAMES).filter(is_clear).collect();
                prop_assert_eq!(clear, expected);
            }
        }
    }
}
