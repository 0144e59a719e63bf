//! Allocates and frees given ranges of frames: for pages of 1 GiB, for DMA, and for memory that is
//! about to be removed.

use core::{error, fmt};

use crate::{
    Allocator, CpuCache, Frame, FrameRange, Mobility,
    bitmap::{Taken, WORD_FRAMES},
    frame::PAGEBLOCK_FRAMES,
    ids::BlockId,
    state::{Admission, BLOCK_FRAMES},
    zone::ZoneRef,
};

/// Why a range could not be allocated. No frame of it is allocated in that case.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RangeError {
    /// The first frame of the range that no zone manages.
    NotManaged(Frame),
    /// The first frame of the range that was found in use. It may be free in the cache of another
    /// CPU; all caches have been requested to drain.
    InUse(Frame),
    /// This frame's pageblock is isolated or being emptied. It is put back soon: let the thread
    /// that isolated it run, and try again.
    Isolated(Frame),
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frame, why) = match self {
            Self::NotManaged(frame) => (frame, "not managed"),
            Self::InUse(frame) => (frame, "in use"),
            Self::Isolated(frame) => (frame, "isolated"),
        };
        write!(f, "frame {:#x} is {why}", frame.number())
    }
}

impl error::Error for RangeError {}

impl Allocator<'_> {
    /// Allocates exactly the frames of `range`, all or none, for `mobility`. Drains `cache` first.
    /// Watermarks and reserves are ignored. The frames are single frames of order 0: free them one
    /// by one or with [`free_range`](Self::free_range).
    ///
    /// Costs two atomic exchanges for each 64 frames. A range that is in use is refused without
    /// any.
    ///
    /// # Errors
    /// Fails with the first frame that is not free: with `NotManaged` if it is in no zone, offline
    /// or without memory, with `Isolated` if its pageblock is isolated or being emptied, and
    /// otherwise with `InUse`. After `InUse` all per-CPU caches have been requested to drain.
    pub fn allocate_range(
        &self,
        cache: &mut CpuCache,
        range: FrameRange,
        mobility: Mobility,
    ) -> Result<(), RangeError> {
        self.drain(cache);
        let taken = self
            .check_range(range)
            .and_then(|()| self.take_range(range, mobility));
        if let Err(RangeError::InUse(_)) = taken {
            self.request_drain();
        }
        taken
    }

    /// Frees the frames of `range` to their zones: a range from
    /// [`allocate_range`](Self::allocate_range) or [`claim`](Self::claim), or any adjacent frames
    /// of order 0. `cache` does not keep them.
    ///
    /// # Panics
    /// If one of the frames is not managed or not in use. Frames before it are free then. A frame
    /// that `cache` also holds, because it was freed twice, may be noticed later, when `cache`
    /// returns it to the bitmap.
    pub fn free_range(&self, cache: &mut CpuCache, range: FrameRange) {
        self.for_each_word(range, |found| {
            let Some((at, block, word)) = found else {
                panic!("a frame of {range:?} is not managed")
            };
            let first = at.zone.first_frame(block).number() / u64::from(WORD_FRAMES);
            self.give_word(
                cache,
                crate::group_cache::GroupMask {
                    word: first + word.word as u64,
                    mask: word.mask,
                },
            );
            true
        });
    }

    /// Checks that all frames of `range` are free, and changes nothing. Fails with the first frame
    /// that is not.
    fn check_range(&self, range: FrameRange) -> Result<(), RangeError> {
        let mut seen = range.start;
        let mut found = Ok(());
        self.for_each_word(range, |word| {
            found = match word {
                Some((at, block, word)) => at.check_word(block, word),
                None => Err(RangeError::NotManaged(seen)),
            };
            if let Some((_, _, word)) = word {
                seen = seen.offset(u64::from(word.mask.count_ones()));
            }
            found.is_ok()
        });
        found
    }

    /// Allocates the frames of `range`. If one of them is taken in the meantime, frees the others
    /// and fails.
    fn take_range(&self, range: FrameRange, mobility: Mobility) -> Result<(), RangeError> {
        let admit = Admission {
            mobility,
            any: true,
            exact_marks: self.shared.exact_marks(),
            hold: false,
            open: false,
        };
        let mut frames = 0;
        let mut done = Ok(());
        self.for_each_word(range, |found| {
            let Some((at, block, word)) = found else {
                done = Err(RangeError::NotManaged(range.start.offset(frames)));
                return false;
            };
            let count = u64::from(word.mask.count_ones());
            if at.block(block).take_exactly(word, admit) {
                at.zone.hand_out_words(block, 1 << word.word);
                at.zone.count_free(-count.cast_signed());
                frames += count;
                return true;
            }
            // Its owner may have freed it since.
            let lost = RangeError::InUse(at.frame_of(block, word));
            done = Err(at.check_word(block, word).err().unwrap_or(lost));
            false
        });
        if done.is_err() {
            self.give_range(FrameRange::new(range.start, frames));
        }
        done
    }

    /// Undoes the allocation of the frames in `range`, which the caller has just made. May call
    /// [`Events::report_requested`](crate::Events::report_requested).
    pub(crate) fn give_range(&self, range: FrameRange) {
        self.for_each_word(range, |found| {
            if let Some((at, block, word)) = found {
                let left = at.block(block).give_word(word);
                // The reporter or the hinter may have passed over the frames in the meantime.
                self.shared
                    .freed_in_word(at.frame_of(block, word), left.word);
                at.zone.count_free(i64::from(word.mask.count_ones()));
            }
            true
        });
    }
}

impl ZoneRef<'_, '_> {
    /// Returns the frame of the lowest bit of `word` in `block`.
    fn frame_of(self, block: BlockId, word: Taken) -> Frame {
        let inside = word.word as u64 * u64::from(WORD_FRAMES);
        self.zone
            .first_frame(block)
            .offset(inside + u64::from(word.mask.trailing_zeros()))
    }

    /// Checks that the frames of `word` in `block` are free. Fails with the first frame that is
    /// not, and the reason.
    fn check_word(self, block: BlockId, word: Taken) -> Result<(), RangeError> {
        let state = self.zone.arrays.states[block].load();
        let used = self.zone.arrays.bits[block].word(word.word) & word.mask;
        let first = self.frame_of(block, word);
        if state.is_isolated() || state.is_emptying() {
            Err(RangeError::Isolated(first))
        } else if state.is_missing() || state.is_offline() {
            Err(RangeError::NotManaged(first))
        } else if used != 0 {
            Err(RangeError::InUse(
                self.frame_of(block, Taken { mask: used, ..word }),
            ))
        } else if state.is_huge() || state.count() == BLOCK_FRAMES {
            Err(RangeError::InUse(first))
        } else {
            Ok(())
        }
    }
}

const _: () = assert!(PAGEBLOCK_FRAMES == BLOCK_FRAMES as u64);
