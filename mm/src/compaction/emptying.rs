//! Pageblocks that are being emptied ([`EmptyingBlock`]). Free frames of such a block cannot be
//! allocated, and frames that are freed stay in it, until the block is given back or allocated
//! whole.
//!
//! In the zone's counters it is an isolated block: all 512 frames are subtracted from the free
//! ones. So space for the frames to migrate is reserved, too, and the count says at any time what
//! can be allocated once the block is empty.

use core::ops::Deref;

use crate::{
    Allocator, Frame, FrameRange, Mobility, Order, ZoneId,
    bitmap::WORDS,
    block::{Block, Watch},
    frame::PAGEBLOCK_FRAMES,
    ids::BlockId,
    state::{BLOCK_FRAMES, State},
};

/// The position of a pageblock: its zone, and its frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// Its zone.
    pub(crate) zone: ZoneId,
    /// The pageblock in that zone.
    pub(crate) block: BlockId,
    /// Its first frame.
    pub(crate) start: Frame,
}

impl BlockPlace {
    /// Returns the frames of the pageblock.
    pub const fn range(&self) -> FrameRange {
        FrameRange::new(self.start, PAGEBLOCK_FRAMES)
    }

    /// Returns the zone that contains the pageblock.
    pub const fn zone(&self) -> ZoneId {
        self.zone
    }
}

/// A pageblock that is being emptied: its frames in use are to be migrated. It dereferences to its
/// [`BlockPlace`].
///
/// If this value is dropped, the free frames of the pageblock are lost, and nothing else.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is free of the block is lost unless it is given back"]
pub struct EmptyingBlock {
    place: BlockPlace,
    used: u32,
}

impl EmptyingBlock {
    /// Returns how many frames of the pageblock were in use when emptying started.
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
    /// Starts to empty the pageblock that contains `frame`: from here on, its free frames cannot be
    /// allocated. The frames that are freed stay in it.
    ///
    /// Returns `None` if no frame of the pageblock is in use, if it is isolated, offline, without
    /// memory or being emptied already, if it is allocated with its GiB, or if the frame is not
    /// managed.
    ///
    /// The caller migrates the frames in use, and frees the old ones like any others. Frames in
    /// per-CPU caches count as in use until the caches are drained.
    pub fn begin_emptying(&self, frame: Frame) -> Option<EmptyingBlock> {
        let (zone, block) = self.locate(frame)?;
        self.begin_block(zone, block, |_| true)
    }

    /// Starts to empty a pageblock of the zone. Returns `None` if `wanted` refuses its state, or
    /// for the reasons of [`begin_emptying`](Self::begin_emptying).
    pub(crate) fn begin_block(
        &self,
        zone: ZoneId,
        block: BlockId,
        wanted: impl Fn(State) -> bool,
    ) -> Option<EmptyingBlock> {
        let begun = self.set_aside(zone, block, |at| at.begin_emptying(wanted))?;
        Some(EmptyingBlock {
            place: self.place(zone, block),
            used: begun.used(),
        })
    }

    /// Calls `begin` with the pageblock `block` of the zone, which tries to take it out, and
    /// returns its result. Counts the pageblock as isolated, and all of its frames as not free, if
    /// that is `Some`.
    pub(crate) fn set_aside<T>(
        &self,
        zone: ZoneId,
        block: BlockId,
        begin: impl FnOnce(Block<'_, crate::zone::BlockObserver<'_, '_>>) -> Option<T>,
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

    /// Returns the position of a pageblock of the zone. Panics if there is no such zone or
    /// pageblock.
    pub(crate) fn place(&self, zone: ZoneId, block: BlockId) -> BlockPlace {
        BlockPlace {
            zone,
            block,
            start: self.zone(zone).zone.first_frame(block),
        }
    }

    /// Iterates over the frames in use of the pageblock at `place`, which is being emptied, in
    /// ascending order. There are none if it is allocated as a whole (see
    /// [`is_whole`](Self::is_whole)). Frames may be freed during the iteration.
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

    /// Returns `true` if the pageblock at `place` is allocated as one block of order 9, also while
    /// it is being emptied.
    pub fn is_whole(&self, place: BlockPlace) -> bool {
        self.state_of(place).is_huge()
    }

    /// Returns how many frames of the pageblock at `place`, which is being emptied, are still in
    /// use: 0 to 512. 512 if it is allocated as one block.
    pub fn frames_left(&self, place: BlockPlace) -> u32 {
        self.state_of(place).used()
    }

    fn state_of(&self, place: BlockPlace) -> State {
        self.zone(place.zone).zone.arrays.states[place.block].load()
    }

    /// Ends the emptying of a pageblock and gives it back: its free frames can be allocated again.
    /// Returns the number of frames that are still in use. If it is 0, the pageblock is free.
    ///
    /// May call [`Events::report_requested`](crate::Events::report_requested), also for a pageblock
    /// that is free in part while blocks below order 9 are reported.
    pub fn end_emptying(&self, block: EmptyingBlock) -> u32 {
        self.end_block(block.place)
    }

    /// Does what [`end_emptying`](Self::end_emptying) does, by position.
    pub(crate) fn end_block(&self, place: BlockPlace) -> u32 {
        let at = self.zone(place.zone);
        let state = at.block(place.block).end_emptying();
        at.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
        at.zone.count_isolated(-(PAGEBLOCK_FRAMES.cast_signed()));
        if (1..BLOCK_FRAMES).contains(&state.used()) {
            // The reporter and the hinter have passed over the block while it was emptied.
            let largest = at.zone.arrays.bits[place.block].run_bound().largest();
            if let Some(order) = Order::new(largest) {
                at.shared.freed_run(place.start, order);
            }
        }
        state.used()
    }

    /// Allocates an emptied pageblock at order 9 for `mobility`, and returns its first frame. Ends
    /// the emptying.
    ///
    /// # Errors
    /// Fails if frames of the pageblock are still in use. Returns the pageblock then, which is
    /// still being emptied.
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
    /// Starts to empty the pageblock if it is in use and `wanted` accepts its state. Returns its
    /// new state. Returns `None` if it is free, isolated, offline, without memory or being emptied
    /// already, or if `wanted` refuses.
    pub(crate) fn begin_emptying(&self, wanted: impl Fn(State) -> bool) -> Option<State> {
        let in_use = |state: State| !state.is_free() && wanted(state);
        let change = self.state.begin_emptying(in_use)?;
        self.watch.changed(change);
        Some(change.new)
    }

    /// Ends the emptying of the pageblock. Returns its new state. Panics if it is not being
    /// emptied.
    pub(crate) fn end_emptying(&self) -> State {
        let change = self.state.end_emptying();
        self.watch.changed(change);
        change.new
    }

    /// Allocates an emptied pageblock as a whole for `mobility`. Returns `false` if a frame of it
    /// is still in use or it is not being emptied.
    pub(crate) fn take_emptied(&self, mobility: Mobility) -> bool {
        let Some(change) = self.state.take_emptied(mobility) else {
            return false;
        };
        self.watch.changed(change);
        self.drop_exact_marks();
        true
    }
}
