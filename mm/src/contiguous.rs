//! Allocation of any number of adjacent frames, for rings, buffers and tables that a device reads
//! by one address.

use core::{error, fmt, ops::Range};

use crate::{
    Allocator, CpuCache, Frame, FrameRange, Order, RangeError, Request,
    bitmap::{WORD_FRAMES, WORDS},
    frame::PAGEBLOCK_FRAMES,
    ids::BlockId,
    state::BLOCK_FRAMES,
    zone::Zone,
};

/// Why [`Allocator::allocate_contiguous`] found no adjacent frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ContiguousError {
    /// The caller requested 0 frames.
    None,
    /// This number of adjacent frames is not free in the requested memory, above the reserve that
    /// the request must leave. Free frames may still be in the caches of other CPUs. The allocator
    /// has requested that these be drained.
    Exhausted(u64),
    /// Like `Exhausted`, but blocks are isolated at the moment, so the request can succeed later.
    /// See [`AllocError::Isolated`](crate::AllocError::Isolated).
    Isolated(u64),
}

impl fmt::Display for ContiguousError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "no frames were asked for"),
            Self::Exhausted(frames) => write!(f, "no {frames} adjacent frames are free"),
            Self::Isolated(frames) => {
                write!(
                    f,
                    "no {frames} adjacent frames are free: blocks are isolated"
                )
            }
        }
    }
}

impl error::Error for ContiguousError {}

impl Allocator<'_> {
    /// Allocates exactly `frames` adjacent frames, which need not be a power of two. The first
    /// frame is aligned to the request's order. `within` restricts the frames to addresses that a
    /// device can reach, if that is less than a zone of a [kind](crate::ZoneKind). Returns their
    /// range.
    ///
    /// The frames count as single frames of order 0. They may be freed together by
    /// [`free_range`](Self::free_range), in parts, or one by one.
    ///
    /// For at most 1024 frames without `within`, this costs one allocation of the next order and
    /// freeing the rest of that block. Otherwise, or if there is no such block, it drains `cache`
    /// and reads the state of all pageblocks of the zones or of `within`, in ascending order: two
    /// bytes for each, and 64 bytes more for each block in partial use.
    ///
    /// # Errors
    /// Fails with [`ContiguousError::None`] if `frames` is 0. Fails with `Exhausted`, or `Isolated`
    /// if blocks are isolated, if there are no such frames above the reserve. All per-CPU caches
    /// have been requested to drain then.
    pub fn allocate_contiguous(
        &self,
        cache: &mut CpuCache,
        frames: u64,
        within: Option<FrameRange>,
        request: Request,
    ) -> Result<FrameRange, ContiguousError> {
        if frames == 0 {
            return Err(ContiguousError::None);
        }
        if within.is_none()
            && let Some(block) = self.trim_block(cache, frames, request)
        {
            return Ok(block);
        }
        let mut isolated = false;
        for zone in self.candidates(cache.node, request) {
            let of = self.zone(zone).zone;
            self.drain(cache);
            let floor = of.floor(request, false);
            if of.free_frames().saturating_sub(floor) < frames {
                isolated |= of.isolated_frames() != 0;
                continue;
            }
            let mut search = Search {
                frames,
                align: request.order.frames(),
                run: 0..0,
            };
            let mut take = |range| self.allocate_range(cache, range, request.mobility);
            let found = search.zone(of, within, &mut isolated, &mut take);
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.request_drain();
        Err(if isolated {
            self.shared.count_isolation_failure();
            ContiguousError::Isolated(frames)
        } else {
            ContiguousError::Exhausted(frames)
        })
    }

    /// Allocates a block of the next order and frees what exceeds `frames`. Returns `None` if there
    /// is no such block.
    fn trim_block(
        &self,
        cache: &mut CpuCache,
        frames: u64,
        request: Request,
    ) -> Option<FrameRange> {
        let order = Order::at_least(frames.max(request.order.frames()))?;
        let start = self.allocate(cache, Request { order, ..request }).ok()?;
        if order >= Order::PAGEBLOCK {
            self.split(start, order, Order::BASE);
        }
        let rest = order.frames() - frames;
        if rest != 0 {
            self.free_range(cache, FrameRange::new(start.offset(frames), rest));
        }
        Some(FrameRange::new(start, frames))
    }
}

/// A search for adjacent free frames, in ascending order.
struct Search {
    frames: u64,
    align: u64,
    /// The run of adjacent free frames at the current position.
    run: Range<u64>,
}

impl Search {
    /// Tries to take each run of free frames in a zone that is long enough. Returns the frames that
    /// `take` took, or `None` if there are none.
    ///
    /// Bounded: after `take` refuses a range, the search continues behind it.
    fn zone(
        &mut self,
        zone: &Zone<'_>,
        within: Option<FrameRange>,
        isolated: &mut bool,
        take: &mut impl FnMut(FrameRange) -> Result<(), RangeError>,
    ) -> Option<FrameRange> {
        let within = within.map_or(0..u64::MAX, |range| {
            range.start.number()..range.start.number().saturating_add(range.frames)
        });
        for block in zone.block_ids() {
            let first = zone.first_frame(block).number();
            if first >= within.end || first + PAGEBLOCK_FRAMES <= within.start {
                continue;
            }
            for (start, mut free) in (first..)
                .step_by(WORD_FRAMES as usize)
                .zip(free_words(zone, block, isolated))
            {
                let mut at = start;
                while free != 0 {
                    at += u64::from(free.trailing_zeros());
                    free >>= free.trailing_zeros();
                    let len = free.trailing_ones();
                    let piece = at.max(within.start)..(at + u64::from(len)).min(within.end);
                    at += u64::from(len);
                    free = free.checked_shr(len).unwrap_or(0);
                    if let Some(found) = self.follow(piece, isolated, take) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Adds the free frames `piece`, and tries to take the run if it is long enough. Returns the
    /// frames that `take` took.
    fn follow(
        &mut self,
        piece: Range<u64>,
        isolated: &mut bool,
        take: &mut impl FnMut(FrameRange) -> Result<(), RangeError>,
    ) -> Option<FrameRange> {
        if piece.is_empty() {
            return None;
        }
        if piece.start == self.run.end {
            self.run.end = piece.end;
        } else {
            self.run = piece;
        }
        loop {
            let start = self.run.start.next_multiple_of(self.align);
            if self.run.end.saturating_sub(start) < self.frames {
                return None;
            }
            let range = FrameRange::new(Frame::new(start), self.frames);
            // Bounded: each iteration starts behind the frame that `take` refused.
            let taken = match take(range) {
                Ok(()) => return Some(range),
                Err(RangeError::Isolated(frame)) => {
                    *isolated = true;
                    frame
                }
                Err(RangeError::InUse(frame) | RangeError::NotManaged(frame)) => frame,
            };
            self.run.start = taken.number().max(start) + 1;
        }
    }
}

/// Iterates over the free frames of a block as bits, one `u64` after the other. No frame counts as
/// free if the block cannot be used. Sets `isolated` if that is because the block is isolated or
/// being emptied.
fn free_words(
    zone: &Zone<'_>,
    block: BlockId,
    isolated: &mut bool,
) -> impl Iterator<Item = u64> + use<> {
    let state = zone.arrays.states[block].load();
    let taken = state.is_isolated() || state.is_emptying();
    *isolated |= taken;
    let none = taken
        || state.is_missing()
        || state.is_offline()
        || state.is_huge()
        || state.count() == BLOCK_FRAMES
        || zone.gib(block.tree()).load().is_huge();
    let mut words = [0; WORDS];
    if !none {
        for (index, word) in words.iter_mut().enumerate() {
            *word = !zone.arrays.bits[block].word(index);
        }
    }
    words.into_iter()
}
