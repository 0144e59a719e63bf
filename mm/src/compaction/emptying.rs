//! A pageblock that is being emptied: what is free of it is handed out to nobody, and what is freed
//! of it stays in it, until it is given back or taken whole.
//!
//! To the zone's count it is a block taken out. Room for what is still in use of it is set aside
//! with it, so the count says at any time what others can have once it is empty.

use core::ops::Deref;

use crate::{
    Allocator, Frame, FrameRange, Mobility,
    bitmap::WORDS,
    block::{Block, Watch},
    frame::PAGEBLOCK_FRAMES,
    state::State,
};

/// Where a pageblock is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    pub(crate) zone: usize,
    pub(crate) block: usize,
    pub(crate) start: Frame,
}

impl BlockPlace {
    /// Its frames.
    pub const fn range(&self) -> FrameRange {
        FrameRange::new(self.start, PAGEBLOCK_FRAMES)
    }

    /// The zone that it is of.
    pub const fn zone(&self) -> usize {
        self.zone
    }
}

/// A pageblock that is being emptied. Dropping this loses what is free of the block, and nothing
/// else.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is free of the block is lost unless it is given back"]
pub struct EmptyingBlock {
    place: BlockPlace,
    used: u32,
}

impl EmptyingBlock {
    /// How many of its frames were in use when it was begun with.
    pub const fn used(&self) -> u32 {
        self.used
    }
}

impl Deref for EmptyingBlock {
    type Target = BlockPlace;

    fn deref(&self) -> &BlockPlace {
        &self.place
    }
}

impl Allocator<'_> {
    /// Begins to empty the pageblock of this frame, some or all of which is in use. None if nothing
    /// of it is, or somebody has taken it out.
    ///
    /// Who moves the frames elsewhere frees them as any others. What fronts hold of it comes back
    /// when they are drained, and counts as in use until then.
    pub fn begin_emptying(&self, frame: Frame) -> Option<EmptyingBlock> {
        let (zone, block) = self.locate(frame)?;
        self.begin_block(zone, block, |_| true)
    }

    /// The same for a block in use that is `wanted`.
    pub(crate) fn begin_block(
        &self,
        zone: usize,
        block: usize,
        wanted: impl Fn(State) -> bool,
    ) -> Option<EmptyingBlock> {
        let begun = self.set_aside(zone, block, |at| at.begin_emptying(wanted))?;
        Some(EmptyingBlock {
            place: self.place(zone, block),
            used: begun.used(),
        })
    }

    /// Counts a block as taken out that `begin` takes out.
    pub(crate) fn set_aside<T>(
        &self,
        zone: usize,
        block: usize,
        begin: impl FnOnce(Block<'_, crate::zone::Seat<'_, '_>>) -> Option<T>,
    ) -> Option<T> {
        let at = self.zone(zone);
        at.zone.count_isolation();
        at.zone.count_isolated(PAGEBLOCK_FRAMES.cast_signed());
        let begun = begin(at.block(block));
        if begun.is_some() {
            at.zone.count_free(-(PAGEBLOCK_FRAMES.cast_signed()));
        } else {
            at.zone.count_isolated(-(PAGEBLOCK_FRAMES.cast_signed()));
        }
        begun
    }

    pub(crate) fn place(&self, zone: usize, block: usize) -> BlockPlace {
        BlockPlace {
            zone,
            block,
            start: self.zone(zone).zone.first_frame(block),
        }
    }

    /// The frames in use of a block that is being emptied, upwards; of one that is allocated whole
    /// none, see [`is_whole`](Self::is_whole). Others may free some meanwhile.
    pub fn frames_in_use(&self, place: BlockPlace) -> impl Iterator<Item = Frame> {
        let bits = &self.zone(place.zone).zone.arrays.bits[place.block];
        (0..WORDS).flat_map(move |word| {
            let mut used = bits.word(word);
            core::iter::from_fn(move || {
                let bit = used.checked_ilog2().map(|_| used.trailing_zeros())?;
                used &= used - 1;
                Some(place.start.offset(word as u64 * 64 + u64::from(bit)))
            })
        })
    }

    /// Whether a block is allocated whole.
    pub fn is_whole(&self, place: BlockPlace) -> bool {
        self.state_of(place).is_huge()
    }

    /// How many frames are in use of a block that is being emptied.
    pub fn frames_left(&self, place: BlockPlace) -> u32 {
        self.state_of(place).used()
    }

    fn state_of(&self, place: BlockPlace) -> State {
        self.zone(place.zone).zone.arrays.states[place.block].load()
    }

    /// Gives a block back that was to be emptied: as a free one, or as one of which so many frames
    /// are still in use.
    pub fn end_emptying(&self, block: EmptyingBlock) -> u32 {
        self.end_block(block.place)
    }

    pub(crate) fn end_block(&self, place: BlockPlace) -> u32 {
        let at = self.zone(place.zone);
        let state = at.block(place.block).end_emptying();
        at.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
        at.zone.count_isolated(-(PAGEBLOCK_FRAMES.cast_signed()));
        state.used()
    }

    /// Takes a block that was emptied as one of the order of a pageblock. It comes back if something
    /// of it is in use still.
    ///
    /// # Errors
    /// With the block, if so.
    pub fn take_emptied(
        &self,
        block: EmptyingBlock,
        mobility: Mobility,
    ) -> Result<Frame, EmptyingBlock> {
        let at = self.zone(block.zone);
        if !at.block(block.block).take_emptied(mobility) {
            return Err(block);
        }
        at.zone.hand_out_words(block.block, !0);
        at.zone.count_isolated(-(PAGEBLOCK_FRAMES.cast_signed()));
        Ok(block.start)
    }
}

impl<W: Watch> Block<'_, W> {
    /// Takes a block out that is in use and wanted: its state then.
    pub(crate) fn begin_emptying(&self, wanted: impl Fn(State) -> bool) -> Option<State> {
        let in_use = |state: State| !state.is_free() && wanted(state);
        let change = self.state.begin_emptying(in_use)?;
        self.watch.changed(change);
        Some(change.new)
    }

    /// Gives it back: its state then.
    pub(crate) fn end_emptying(&self) -> State {
        let change = self.state.end_emptying();
        self.watch.changed(change);
        change.new
    }

    /// Takes it whole, if nothing of it is in use any more.
    pub(crate) fn take_emptied(&self, mobility: Mobility) -> bool {
        let Some(change) = self.state.take_emptied(mobility) else {
            return false;
        };
        self.watch.changed(change);
        self.coarsen();
        true
    }
}
