//! Exactly these frames: for pages of 1 GiB, for DMA, for memory that is about to go away.

use core::{error, fmt};

use crate::{
    Allocator, Frame, FrameRange, Front, Mobility,
    bitmap::{Taken, WORD_FRAMES},
    frame::PAGEBLOCK_FRAMES,
    state::{Admission, BLOCK_FRAMES},
    zone::ZoneRef,
};

/// Why a range could not be had. Nothing of it is taken then.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RangeError {
    /// This frame of it, the first such, is not managed.
    NotManaged(Frame),
    /// This frame of it is in use, the first that was found to be. It may be free in the front of
    /// another CPU: the allocator has asked for it.
    InUse(Frame),
    /// The block that this frame is in was taken out to be reported. It is put back soon: the
    /// caller should let the thread that holds it run, and try again.
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
    /// Takes exactly these frames, all or none. They are as frames of order 0: given back one by
    /// one, or by [`free_range`](Self::free_range).
    ///
    /// Costs two exchanges for each 64 frames; a range in use is refused after looking only.
    ///
    /// # Errors
    /// If one of the frames is not managed or not free. Those in this front are given back first.
    pub fn allocate_range(
        &self,
        front: &mut Front,
        range: FrameRange,
        mobility: Mobility,
    ) -> Result<(), RangeError> {
        self.drain(front);
        let taken = self
            .look_at_range(range)
            .and_then(|()| self.take_range(range, mobility));
        if let Err(RangeError::InUse(_)) = taken {
            self.request_drain();
        }
        taken
    }

    /// Gives a range back that was taken by [`allocate_range`](Self::allocate_range), or by
    /// [`claim`](Self::claim), or any frames of order 0 that follow each other.
    ///
    /// # Panics
    /// If one of the frames is not in use.
    pub fn free_range(&self, front: &mut Front, range: FrameRange) {
        self.for_each_word(range, |found| {
            let Some((at, block, word)) = found else {
                panic!("a frame of {range:?} is not managed")
            };
            let first = at.zone.first_frame(block).number() / u64::from(WORD_FRAMES);
            self.give_word(
                front,
                crate::words::Piece {
                    word: first + word.word as u64,
                    mask: word.mask,
                },
            );
            true
        });
    }

    /// Whether all of it is free now, without taking anything.
    fn look_at_range(&self, range: FrameRange) -> Result<(), RangeError> {
        let mut seen = range.start;
        let mut found = Ok(());
        self.for_each_word(range, |word| {
            found = match word {
                Some((at, block, word)) => at.look_at(block, word),
                None => Err(RangeError::NotManaged(seen)),
            };
            if let Some((_, _, word)) = word {
                seen = seen.offset(u64::from(word.mask.count_ones()));
            }
            found.is_ok()
        });
        found
    }

    fn take_range(&self, range: FrameRange, mobility: Mobility) -> Result<(), RangeError> {
        let admit = Admission {
            mobility,
            any: true,
            fine: self.hub.fine(),
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
            // Whoever had it may have given it back since.
            let lost = RangeError::InUse(at.frame_of(block, word));
            done = Err(at.look_at(block, word).err().unwrap_or(lost));
            false
        });
        if done.is_err() {
            self.give_range(FrameRange::new(range.start, frames));
        }
        done
    }

    /// Gives frames back that were just taken.
    fn give_range(&self, range: FrameRange) {
        self.for_each_word(range, |found| {
            if let Some((at, block, word)) = found {
                at.block(block).give_word(word);
                at.zone.count_free(i64::from(word.mask.count_ones()));
            }
            true
        });
    }
}

impl ZoneRef<'_, '_> {
    /// The first of these frames.
    fn frame_of(self, block: usize, word: Taken) -> Frame {
        let inside = word.word as u64 * u64::from(WORD_FRAMES);
        self.zone
            .first_frame(block)
            .offset(inside + u64::from(word.mask.trailing_zeros()))
    }

    /// Whether these frames are free now.
    fn look_at(self, block: usize, word: Taken) -> Result<(), RangeError> {
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
