//! Many blocks in one call: for those who fill page tables, rings and page caches.

use core::{error, fmt};

use crate::{
    AllocError, Allocator, Contents, Frame, Front, Order, Request,
    frame::{PAGEBLOCK_FRAMES, index},
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

    /// Fills a slice with pageblocks, and says what each holds. `request` names anything but the
    /// order, which is that of a pageblock.
    ///
    /// Those of one tree of 64 MiB are taken in one pass over it.
    ///
    /// # Errors
    /// If there are not as many. Those that there were are the caller's.
    pub fn allocate_pageblocks(
        &self,
        front: &mut Front,
        request: Request,
        blocks: &mut [(Frame, Contents)],
    ) -> Result<(), BulkError> {
        let request = Request {
            order: Order::PAGEBLOCK,
            ..request
        };
        let mut taken = 0;
        while taken < blocks.len() {
            taken += self.take_pageblocks(front, request, &mut blocks[taken..]);
            if taken == blocks.len() {
                break;
            }
            // All else that may give one, and the reason if nothing does.
            match self.allocate_known(front, request) {
                Ok(known) => blocks[taken] = known,
                Err(error) => return Err(BulkError { taken, error }),
            }
            taken += 1;
        }
        Ok(())
    }

    /// Takes as many as the zones have above their low mark.
    fn take_pageblocks(
        &self,
        front: &mut Front,
        request: Request,
        blocks: &mut [(Frame, Contents)],
    ) -> usize {
        let mut taken = 0_usize;
        for zone in self.candidates(front.node, request) {
            let at = self.zone(zone);
            let spare = self.spare(zone, at.zone.floor(request, true), front) / PAGEBLOCK_FRAMES;
            let most = blocks.len().min(taken.saturating_add(index(spare)));
            let first = taken;
            taken += at.take_wholes(request.mobility, &mut blocks[taken..most]);
            let frames = (taken - first) as u64 * PAGEBLOCK_FRAMES;
            self.count(zone, front, -frames.cast_signed());
        }
        taken
    }

    /// Gives many blocks back.
    ///
    /// At order 0, frames of one word of 64 that follow each other go back together; all 64 of one
    /// go by without being kept in the front, and so do pageblocks.
    ///
    /// # Panics
    /// As [`free`](Self::free) does.
    pub fn free_bulk(&self, front: &mut Front, blocks: &[Frame], order: Order) {
        if order == Order::PAGEBLOCK {
            self.give_pageblocks(front, blocks);
            return;
        }
        if order != Order::BASE {
            for &block in blocks {
                self.free(front, block, order);
            }
            return;
        }
        let mut batch = FreeBatch::new();
        for &frame in blocks {
            batch.free(self, front, frame);
        }
        batch.finish(self, front);
    }

    /// Gives pageblocks back; the front keeps none of them.
    fn give_pageblocks(&self, front: &mut Front, blocks: &[Frame]) {
        let kept = front.kept_pageblock();
        for &frame in blocks {
            assert!(
                frame.is_aligned(Order::PAGEBLOCK),
                "{frame:?} freed as a pageblock"
            );
            if kept == Some(frame) {
                freed_twice(frame);
            }
        }
        let mut rest = blocks;
        while let Some(&first) = rest.first() {
            let (zone, _) = self.locate_managed(first);
            let given = self.zone(zone).give_wholes(rest);
            let frames = given as u64 * PAGEBLOCK_FRAMES;
            self.count(zone, front, frames.cast_signed());
            rest = &rest[given..];
        }
    }

    #[inline(never)]
    fn free_run(&self, front: &mut Front, run: Piece) {
        match run.mask {
            0 => {}
            u64::MAX => self.give_word(front, run),
            _ => self.free_piece(front, run),
        }
    }
}

/// Single frames that are being freed. Those of one word of 64 that follow each other go back
/// together; all 64 of one go by without being kept in the front.
///
/// For who comes upon the frames one by one: [`Allocator::free_bulk`] takes a slice.
#[derive(Debug)]
#[must_use = "frames are in it until it is finished"]
pub struct FreeBatch {
    run: Piece,
}

impl FreeBatch {
    /// No frames.
    pub const fn new() -> Self {
        Self { run: Piece::NONE }
    }

    /// Frees a frame, now or when the batch is finished.
    ///
    /// # Panics
    /// As [`Allocator::free`] does, for this frame or one before.
    #[inline]
    pub fn free(&mut self, allocator: &Allocator<'_>, front: &mut Front, frame: Frame) {
        let freed = Piece::of(frame);
        if freed.word != self.run.word {
            let run = core::mem::replace(&mut self.run, freed);
            allocator.free_run(front, run);
        } else {
            self.run.check_without(freed.mask);
            self.run.mask |= freed.mask;
        }
    }

    /// Frees what is left.
    pub fn finish(self, allocator: &Allocator<'_>, front: &mut Front) {
        allocator.free_run(front, self.run);
    }
}

impl Default for FreeBatch {
    fn default() -> Self {
        Self::new()
    }
}
