//! Any number of adjacent frames: for rings, buffers and tables that a device reads by one address.

use core::{error, fmt, ops::Range};

use crate::{
    Allocator, Frame, FrameRange, Front, Order, RangeError, Request,
    bitmap::{WORD_FRAMES, WORDS},
    frame::PAGEBLOCK_FRAMES,
    state::BLOCK_FRAMES,
    summary::TREE_BLOCKS,
    zone::Zone,
};

/// Why there are no adjacent frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ContiguousError {
    /// No frames were asked for.
    None,
    /// So many are free nowhere that was asked for, above the reserve that the request must keep. Frames may still be in the
    /// fronts of other CPUs: the allocator has asked for them.
    Exhausted(u64),
    /// The same, but blocks are isolated at this moment. See [`AllocError::Isolated`](crate::AllocError::Isolated).
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
    /// Takes so many adjacent frames, not only a power of two of them: exactly these, none more. The first is aligned to the
    /// request's order. They are as frames of order 0: given back together by [`free_range`](Self::free_range), in parts, or
    /// one by one.
    ///
    /// `within` names addresses that a device can reach, where that is less than a zone of a [kind](crate::ZoneKind).
    ///
    /// Without it and for at most 1024 frames this costs what a block of the next order does, and giving back what is too many
    /// of it. Else, or where there is no such block, it looks at the state of every pageblock of the zones, or of the
    /// part of them that is named, from the first on: two bytes for each, and the 64 of its bits where it is in partial use.
    ///
    /// # Errors
    /// If there are none. Those in this front have been given back then.
    pub fn allocate_contiguous(
        &self,
        front: &mut Front,
        frames: u64,
        within: Option<FrameRange>,
        request: Request,
    ) -> Result<FrameRange, ContiguousError> {
        if frames == 0 {
            return Err(ContiguousError::None);
        }
        if within.is_none()
            && let Some(block) = self.trim_block(front, frames, request)
        {
            return Ok(block);
        }
        let mut isolated = false;
        for zone in self.candidates(front.node, request) {
            let of = self.zone(zone).zone;
            self.drain(front);
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
            let mut take = |range| self.allocate_range(front, range, request.mobility);
            let found = search.zone(of, within, &mut isolated, &mut take);
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.request_drain();
        Err(if isolated {
            self.hub.missed();
            ContiguousError::Isolated(frames)
        } else {
            ContiguousError::Exhausted(frames)
        })
    }

    /// A block of the next order, without what is too many of it.
    fn trim_block(&self, front: &mut Front, frames: u64, request: Request) -> Option<FrameRange> {
        let order = Order::at_least(frames.max(request.order.frames()))?;
        let start = self.allocate(front, Request { order, ..request }).ok()?;
        if order >= Order::PAGEBLOCK {
            self.split(start, order, Order::BASE);
        }
        let rest = order.frames() - frames;
        if rest != 0 {
            self.free_range(front, FrameRange::new(start.offset(frames), rest));
        }
        Some(FrameRange::new(start, frames))
    }
}

/// A search for adjacent frames, upwards.
struct Search {
    frames: u64,
    align: u64,
    /// Free frames that follow each other, as far as it has come.
    run: Range<u64>,
}

impl Search {
    /// Tries each run of a zone that is long enough. Bounded: what `take` refuses is behind it then.
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
        for block in 0..zone.blocks() {
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

    /// Adds free frames, and tries to take what is long enough.
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
            // Each turn begins behind the last.
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

/// The free frames of a block as bits, word by word.
fn free_words(
    zone: &Zone<'_>,
    block: usize,
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
        || zone.giant(block / TREE_BLOCKS).load().is_huge();
    let mut words = [0; WORDS];
    if !none {
        for (index, word) in words.iter_mut().enumerate() {
            *word = !zone.arrays.bits[block].word(index);
        }
    }
    words.into_iter()
}
