//! The frames that a CPU holds: plain memory, so that the common allocation and the common free
//! touch nothing shared.
//!
//! A front holds frames of up to eight words of the bitmap ([`Words`]): for each mobility what is
//! left of the one that it takes frames from (up to 64, taken with one exchange), and words of freed
//! frames that are being assembled. The frames of a word come back with one exchange when another
//! word needs its place, or when the front is drained.

use crate::{
    AllocError, Frame, Mobility, Order, Request,
    bitmap::WORD_FRAMES,
    frame::PAGEBLOCK_FRAMES,
    kept::{KEPT, Kept},
    search::Near,
    words::{Piece, Words},
    zone::Zone,
};

/// The shared count of free frames is told when the front's own is off by so many,
const TELL_LEAST: u64 = 256;
/// or fewer in a zone so small that this is more than a part of 2 to this power of it,
const TELL_LEAST_SHIFT: u32 = 8;
/// or more where more are free: a part of 2 to this power of them,
const TELL_SHIFT: u32 = 10;
/// but never more than so many (16 MiB).
const TELL_MOST: i64 = 4096;
/// No zone.
const NO_ZONE: usize = usize::MAX;
/// While so many times that are above the floor of a request, what a front last saw of a zone's
/// count will do.
const PLENTY: u64 = 16;

/// A block that a front holds: it takes frames from there, and others look elsewhere first.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldBlock {
    pub(crate) zone: usize,
    pub(crate) block: usize,
}

impl HeldBlock {
    /// The block, if it is one of this zone.
    pub(crate) fn in_zone(held: Option<Self>, zone: usize) -> Option<usize> {
        held.filter(|held| held.zone == zone).map(|held| held.block)
    }
}

/// The frames that one CPU (or thread) holds. Hand it to every call by `&mut`; it needs no lock
/// as long as only one CPU uses it at a time. At most 704 single frames are in it, of
/// eight words of 64 and of one more for each mobility that is known to be fresh, and one freed block
/// of each order from 1 to 9.
///
/// Give everything back by `Allocator::drain` before dropping it: the frames in it are lost
/// otherwise.
#[derive(Debug)]
pub struct Front {
    pub(crate) words: Words,
    /// For each mobility the block that frames were last taken from; the next are sought there.
    pub(crate) held: [Option<HeldBlock>; Mobility::COUNT],
    /// What is left of words that nobody was handed a frame of before. Apart from the others, so
    /// that what comes out of those need not be asked for what it holds.
    pub(crate) fresh_words: [Piece; Mobility::COUNT],
    pub(crate) kept: [Kept; KEPT],
    /// For each mobility the block that it last broke up for a run.
    pub(crate) opened: [Option<HeldBlock>; Mobility::COUNT],
    /// The zone and tree in which it last broke up a block.
    pub(crate) home: [Option<(usize, usize)>; Mobility::COUNT],
    /// Whether nobody was handed the block before that was last taken past the slots.
    pub(crate) fresh: bool,
    /// Whether blocks were isolated when a request last failed.
    pub(crate) isolated: bool,
    /// Frames freed (positive) or taken (negative) in this zone that its count does not know of.
    pub(crate) untold: i64,
    pub(crate) untold_zone: usize,
    /// The fewest of which that zone is told.
    pub(crate) tell_least: i64,
    /// The count of that zone when it was last told or asked; 0 if it was not.
    pub(crate) seen_free: i64,
    /// The number of drain requests that it has followed.
    pub(crate) drains: u32,
    /// The NUMA node of the CPU whose front it is.
    pub(crate) node: u16,
}

impl Front {
    /// A front of NUMA node 0 that holds nothing.
    pub const fn new() -> Self {
        Self::on_node(0)
    }

    /// A front of this NUMA node that holds nothing. What it takes without being told from where
    /// comes from this node while there is enough there.
    pub const fn on_node(node: u16) -> Self {
        Self {
            words: Words::new(),
            held: [None; Mobility::COUNT],
            fresh_words: [Piece::NONE; Mobility::COUNT],
            kept: [Kept::NONE; KEPT],
            opened: [None; Mobility::COUNT],
            home: [None; Mobility::COUNT],
            fresh: false,
            isolated: false,
            untold: 0,
            untold_zone: NO_ZONE,
            tell_least: 0,
            seen_free: 0,
            drains: 0,
            node,
        }
    }

    /// The NUMA node that it is of.
    pub const fn node(&self) -> u16 {
        self.node
    }

    /// How many frames it holds.
    pub fn held(&self) -> u64 {
        let singles = self
            .pieces()
            .map(|piece| u64::from(piece.mask.count_ones()));
        singles.sum::<u64>() + self.kept.iter().map(Kept::frames).sum::<u64>()
    }

    /// The single frames that it holds.
    fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.words.pieces().chain(self.fresh_words)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces().all(|piece| piece.mask == 0)
            && self.kept.iter().all(|kept| !kept.here)
            && self.untold == 0
    }

    /// When the front's own count is off by so many frames it is told to the zone's.
    #[inline]
    pub(crate) fn tell_at(&self) -> i64 {
        (self.seen_free >> TELL_SHIFT)
            .min(TELL_MOST)
            .max(self.tell_least)
    }

    /// While so many frames are above the floor of a request, what the front last saw will do.
    #[inline]
    pub(crate) fn plenty(&self) -> u64 {
        // Not fewer in a small zone: what others take meanwhile does not become less.
        let told = self.seen_free.unsigned_abs() >> TELL_SHIFT;
        PLENTY * told.clamp(TELL_LEAST, TELL_MOST.unsigned_abs())
    }

    /// Where it breaks up blocks of this zone.
    pub(crate) fn near(&self, zone: usize, mobility: Mobility) -> Near {
        let home = self.home[mobility.index()].filter(|home| home.0 == zone);
        Near {
            home: home.map(|home| home.1),
            opened: None,
        }
    }

    /// Notes where it does from now on, if it broke one up.
    pub(crate) fn settle_near(&mut self, zone: usize, mobility: Mobility, near: Near) {
        if near.opened.is_some() {
            self.home[mobility.index()] = near.home.map(|home| (zone, home));
        }
    }

    /// The common case of [`Allocator::allocate`](crate::Allocator::allocate), for which the
    /// allocator need not be at hand: takes what the front holds, if that is what is asked for. What
    /// the block holds is unknown.
    ///
    /// None does not say that there is none: the allocator decides.
    #[inline]
    pub fn take_held(&mut self, request: Request) -> Option<Frame> {
        if !request.takes_any() {
            None
        } else if request.order == Order::BASE {
            self.words.pop_left(request.mobility)
        } else {
            self.pop_kept(request.order, request.mobility)
        }
    }

    /// Takes a frame that was freed to the word that frames are handed out from.
    #[inline]
    pub(crate) fn take_freed(&mut self, request: Request) -> Option<Frame> {
        if request.order == Order::BASE && request.takes_any() {
            self.words.pop_freed(request.mobility)
        } else {
            None
        }
    }

    /// Why this request just failed.
    #[cold]
    pub(crate) fn failure(&self, request: Request) -> AllocError {
        let Request { order, zone, .. } = request;
        if self.isolated {
            AllocError::Isolated { order, zone }
        } else {
            AllocError::Exhausted { order, zone }
        }
    }

    /// Whether it holds so many frames of the pageblock that starts with this one.
    #[inline]
    pub(crate) fn holds_all(&self, first: u64, frames: u32) -> bool {
        let inside = |base: u64| base.wrapping_sub(first) < PAGEBLOCK_FRAMES;
        let kept = self.kept.iter().filter(|kept| inside(kept.base));
        let kept = kept.map(Kept::frames).sum::<u64>();
        // Mostly it cannot, and counting costs a dozen steps a word.
        let fresh = Mobility::COUNT as u64 * u64::from(WORD_FRAMES);
        let most = self.words.most_of_block(first / PAGEBLOCK_FRAMES) + fresh + kept;
        if most < u64::from(frames) {
            return false;
        }
        let pieces = self.pieces();
        let pieces = pieces.filter(|piece| piece.mask != 0 && inside(piece.base()));
        let held = pieces.map(|piece| u64::from(piece.mask.count_ones()));
        kept + held.sum::<u64>() == u64::from(frames)
    }

    /// Takes a frame of a fresh word.
    #[inline]
    pub(crate) fn take_fresh(&mut self, request: Request) -> Option<Frame> {
        if request.order == Order::BASE && request.takes_any() {
            self.fresh_words[request.mobility.index()].pop()
        } else {
            None
        }
    }

    /// Puts frames that were just taken from the bitmap, or out of a fresh word, where frames are
    /// handed out from. What had their place is the caller's to give back, once he has taken a frame:
    /// the front would else be found to hold all of their pageblock.
    pub(crate) fn begin(&mut self, piece: Piece, mobility: Mobility) -> Piece {
        let (place, displaced) = self.words.place(piece.word);
        self.words.hand_out_from(place, piece.mask, mobility);
        displaced
    }

    /// Notes freed frames of one word, which is not at home. What had their place is the caller's to
    /// give back.
    pub(crate) fn note_piece(&mut self, freed: Piece) -> Piece {
        let (place, displaced) = self.words.place(freed.word);
        for mobility in Mobility::ALL {
            let fresh = self.fresh_words[mobility.index()];
            if fresh.word == freed.word {
                // Frames that are about to be handed out have not been, so nobody can free them.
                fresh.check_without(freed.mask);
                self.words.note_own(place, mobility);
                if self.words.is_used_up(mobility) {
                    self.words.hand_out_from(place, 0, mobility);
                }
            }
        }
        self.words.note_freed_at(place, freed.mask);
        displaced
    }
}

impl Zone<'_> {
    /// The fewest frames of which fronts tell it: as many fronts as a machine has CPUs must not take its reserve unseen.
    pub(crate) fn tell_least(&self) -> i64 {
        let part = self.managed() >> TELL_LEAST_SHIFT;
        part.clamp(1, TELL_LEAST).cast_signed()
    }
}

impl Default for Front {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        debug_assert!(
            self.is_empty(),
            "a front was dropped with {} frames in it",
            self.held()
        );
    }
}
