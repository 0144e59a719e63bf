//! Many blocks in one call: for those who fill page tables, rings and page caches.

use core::{error, fmt};

use crate::{
    AllocError, Allocator, Frame, Front, Order, Request,
    bitmap::WORD_FRAMES,
    words::{Piece, freed_twice},
};

/// Why not all blocks of a bulk could be had.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BulkError {
    /// How many could: the first of the slice. They are the caller's, to use or to give back.
    pub taken: usize,
    /// Why the next could not.
    pub error: AllocError,
}

impl fmt::Display for BulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (after {} blocks)", self.error, self.taken)
    }
}

impl error::Error for BulkError {}

impl Allocator<'_> {
    /// Fills a slice with blocks, each as `request` says. What the slice held is overwritten.
    ///
    /// At order 0 frames come out of the front word by word, with nothing to check in between.
    ///
    /// # Errors
    /// If there are not as many. Those that there were are the caller's.
    pub fn allocate_bulk(
        &self,
        front: &mut Front,
        request: Request,
        blocks: &mut [Frame],
    ) -> Result<(), BulkError> {
        let from_word = request.order == Order::BASE && request.takes_any();
        let mut taken = 0;
        while taken < blocks.len() {
            if from_word {
                for block in &mut blocks[taken..] {
                    let Some(frame) = front.words.pop(request.mobility) else {
                        break;
                    };
                    *block = frame;
                    taken += 1;
                }
                if taken == blocks.len() {
                    break;
                }
            }
            // Takes another word as well.
            match self.allocate(front, request) {
                Ok(frame) => blocks[taken] = frame,
                Err(error) => return Err(BulkError { taken, error }),
            }
            taken += 1;
        }
        Ok(())
    }

    /// Gives many blocks back.
    ///
    /// At order 0, frames of one word of 64 that follow each other go back together; all 64 of one
    /// go by without being kept in the front.
    ///
    /// # Panics
    /// As [`free`](Self::free) does.
    pub fn free_bulk(&self, front: &mut Front, blocks: &[Frame], order: Order) {
        if order != Order::BASE {
            for &block in blocks {
                self.free(front, block, order);
            }
            return;
        }
        let word_of = |frame: Frame| frame.number() / u64::from(WORD_FRAMES);
        for frames in blocks.chunk_by(|&a, &b| word_of(a) == word_of(b)) {
            let mut mask = 0;
            for &frame in frames {
                let bit = 1 << (frame.number() % u64::from(WORD_FRAMES));
                if mask & bit != 0 {
                    freed_twice(frame);
                }
                mask |= bit;
            }
            let Some(&first) = frames.first() else {
                continue;
            };
            let freed = Piece {
                word: word_of(first),
                mask,
            };
            if mask == !0 {
                self.give_word(front, freed);
            } else {
                self.free_piece(front, freed);
            }
        }
    }
}
