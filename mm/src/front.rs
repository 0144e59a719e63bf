//! The frames that a CPU holds: plain memory, so that the common allocation and the common free
//! touch nothing shared.
//!
//! A front holds, for each mobility, what is left of one word of the bitmap (up to 64 frames,
//! taken with one exchange), and up to four words of freed frames that are being assembled. The
//! frames of a word come back with one exchange when another word needs its place, when they are
//! allocated again, or when the front is drained.

use crate::{
    Frame, Mobility, Order, Request,
    frame::PAGEBLOCK_FRAMES,
    kept::{KEPT, Kept},
    search::Near,
};

/// Words of freed frames that are assembled at a time. A word's place is its number modulo this,
/// so that looking costs one comparison.
pub(crate) const FREED_WORDS: usize = 4;
/// The shared count of free frames is told when the front's own is off by so many,
const TELL_LEAST: i64 = 256;
/// or more where more are free: a part of 2 to this power of them,
const TELL_SHIFT: u32 = 10;
/// but never more than so many (16 MiB).
const TELL_MOST: i64 = 4096;
/// While so many times that are above the floor of a request, what a front last saw of a zone's
/// count will do.
const PLENTY: u64 = 16;
const WORD_SHIFT: u32 = u64::BITS.trailing_zeros();

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

/// What is left of a word that was taken.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Frames that can be handed out.
    pub(crate) mask: u64,
    /// Number of the frame of bit 0.
    pub(crate) base: u64,
    /// The block that frames were last taken from; the next are sought there.
    pub(crate) held: Option<HeldBlock>,
}

/// Takes the lowest frame of those in a mask, bit 0 of which is this frame.
#[inline]
fn take_lowest(mask: &mut u64, base: u64) -> Option<Frame> {
    if *mask == 0 {
        return None;
    }
    let bit = mask.trailing_zeros();
    *mask &= *mask - 1;
    Some(Frame::new(base + u64::from(bit)))
}

impl Slot {
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        take_lowest(&mut self.mask, self.base)
    }
}

/// Frames of one word: freed ones, or fresh ones.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Freed {
    /// The word: the frames' numbers divided by 64.
    pub(crate) word: u64,
    /// Which of its frames.
    pub(crate) mask: u64,
}

impl Freed {
    /// Of no word.
    pub(crate) const NONE: Self = Self { word: 0, mask: 0 };

    /// Takes the lowest of them out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let base = self.base();
        take_lowest(&mut self.mask, base)
    }

    pub(crate) const fn base(self) -> u64 {
        self.word << WORD_SHIFT
    }
}

/// The frames that one CPU (or thread) holds. Hand it to every call by `&mut`; it needs no lock
/// as long as only one CPU uses it at a time. At most 448 single frames are in it, 64 for each
/// mobility and 256 freed ones, one freed block of an order from 1 to 8, and one pageblock.
///
/// Give everything back by `Allocator::drain` before dropping it: the frames in it are lost
/// otherwise.
#[derive(Debug)]
pub struct Front {
    pub(crate) slots: [Slot; Mobility::COUNT],
    /// What is left of words that nobody was handed a frame of before. Apart from the slots, so that
    /// what comes out of those need not be asked for what it holds.
    pub(crate) fresh_words: [Freed; Mobility::COUNT],
    pub(crate) freed: [Freed; FREED_WORDS],
    pub(crate) kept: [Kept; KEPT],
    /// For each mobility the block that it last broke up for a run.
    pub(crate) opened: [Option<HeldBlock>; Mobility::COUNT],
    /// The zone and tree in which it last broke up a block.
    pub(crate) home: Option<(usize, usize)>,
    /// Whether nobody was handed the block before that was last taken past the slots.
    pub(crate) fresh: bool,
    /// Frames freed (positive) or taken (negative) in this zone that its count does not know of.
    pub(crate) untold: i64,
    pub(crate) untold_zone: usize,
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
        const SLOT: Slot = Slot {
            mask: 0,
            base: 0,
            held: None,
        };
        Self {
            slots: [SLOT; Mobility::COUNT],
            fresh_words: [Freed::NONE; Mobility::COUNT],
            freed: [Freed::NONE; FREED_WORDS],
            kept: [Kept::NONE; KEPT],
            opened: [None; Mobility::COUNT],
            home: None,
            fresh: false,
            untold: 0,
            untold_zone: 0,
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
        let slots = self.slots.iter().map(|slot| slot.mask.count_ones());
        let words = self.freed.iter().chain(&self.fresh_words);
        let freed = words.map(|word| word.mask.count_ones());
        let kept = self.kept.iter().map(Kept::frames).sum::<u64>();
        slots.chain(freed).map(u64::from).sum::<u64>() + kept
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.mask == 0)
            && self.freed.iter().all(|freed| freed.mask == 0)
            && self.fresh_words.iter().all(|fresh| fresh.mask == 0)
            && self.kept.iter().all(|kept| !kept.here)
            && self.untold == 0
    }

    /// When the front's own count is off by so many frames it is told to the zone's.
    #[inline]
    pub(crate) fn tell_at(&self) -> i64 {
        (self.seen_free >> TELL_SHIFT).clamp(TELL_LEAST, TELL_MOST)
    }

    /// While so many frames are above the floor of a request, what the front last saw will do.
    #[inline]
    pub(crate) fn plenty(&self) -> u64 {
        PLENTY * self.tell_at().unsigned_abs()
    }

    /// Where it breaks up blocks of this zone.
    pub(crate) fn near(&self, zone: usize) -> Near {
        let home = self.home.filter(|home| home.0 == zone);
        Near {
            home: home.map(|home| home.1),
            opened: None,
        }
    }

    /// Notes where it does from now on, if it broke one up.
    pub(crate) fn settle_near(&mut self, zone: usize, near: Near) {
        if near.opened.is_some() {
            self.home = near.home.map(|home| (zone, home));
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
            self.slots[request.mobility.index()].pop()
        } else {
            self.pop_kept(request.order, request.mobility)
        }
    }

    /// Whether it holds so many frames of the pageblock that starts with this one.
    #[inline]
    pub(crate) fn holds_all(&self, first: u64, frames: u32) -> bool {
        let inside = |base: u64| base.wrapping_sub(first) < PAGEBLOCK_FRAMES;
        let slots = self.slots.iter().map(|slot| (slot.base, slot.mask));
        let words = self.freed.iter().chain(&self.fresh_words);
        let freed = words.map(|word| (word.base(), word.mask));
        let mut held = 0;
        for (base, mask) in slots.chain(freed) {
            // Most are full, empty or of other blocks: what is not costs a dozen steps to count.
            if mask != 0 && inside(base) {
                held += if mask == !0 { 64 } else { mask.count_ones() };
            }
        }
        let kept = self.kept.iter().filter(|kept| inside(kept.base));
        u64::from(held) + kept.map(Kept::frames).sum::<u64>() == u64::from(frames)
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

    /// Hands a frame out of what is left of a fresh word, the rest of which need not be known to be
    /// fresh any longer: for a request that does not ask.
    pub(crate) fn use_fresh_word(&mut self, mobility: Mobility) -> Option<Frame> {
        let fresh = core::mem::replace(&mut self.fresh_words[mobility.index()], Freed::NONE);
        if fresh.mask == 0 {
            return None;
        }
        let slot = &mut self.slots[mobility.index()];
        debug_assert!(slot.mask == 0, "refilled while it holds frames");
        slot.mask = fresh.mask;
        slot.base = fresh.base();
        slot.pop()
    }

    /// The place for freed frames of this word.
    #[inline]
    pub(crate) fn freed_at(&mut self, word: u64) -> &mut Freed {
        &mut self.freed[crate::frame::index(word) % FREED_WORDS]
    }

    /// Notes a freed frame whose word is being assembled; false if another has its place, or if
    /// the word is complete with it.
    #[inline]
    pub(crate) fn note_freed(&mut self, frame: Frame) -> bool {
        let word = frame.number() >> WORD_SHIFT;
        let bit = 1 << (frame.number() % u64::from(u64::BITS));
        let freed = self.freed_at(word);
        if freed.word != word {
            return false;
        }
        if freed.mask & bit != 0 {
            freed_twice(frame);
        }
        freed.mask |= bit;
        // With a full word it may be that the front has all of the pageblock that is in use.
        freed.mask != !0
    }

    /// Notes freed frames of one word; what had its place is the caller's to give back.
    pub(crate) fn note_freed_word(&mut self, freed: Freed) -> Freed {
        let at = self.freed_at(freed.word);
        if at.word == freed.word {
            let twice = at.mask & freed.mask;
            if twice != 0 {
                freed_twice(Frame::new(freed.base() + u64::from(twice.trailing_zeros())));
            }
            at.mask |= freed.mask;
            return Freed::NONE;
        }
        self.check_not_held(freed);
        core::mem::replace(self.freed_at(freed.word), freed)
    }

    /// Starts a word with a freed frame; what had its place is the caller's to give back.
    pub(crate) fn start_word(&mut self, frame: Frame) -> Freed {
        let word = frame.number() >> WORD_SHIFT;
        let mask = 1 << (frame.number() % u64::from(u64::BITS));
        let freed = Freed { word, mask };
        self.check_not_held(freed);
        core::mem::replace(self.freed_at(word), freed)
    }

    /// Frames that are about to be handed out have not been handed out, so nobody can free them.
    fn check_not_held(&self, freed: Freed) {
        let slots = self.slots.iter();
        let slots = slots.map(|slot| (slot.base >> WORD_SHIFT, slot.mask));
        let fresh = self
            .fresh_words
            .iter()
            .map(|fresh| (fresh.word, fresh.mask));
        for (word, mask) in slots.chain(fresh) {
            let twice = mask & freed.mask;
            if word == freed.word && twice != 0 {
                freed_twice(Frame::new(freed.base() + u64::from(twice.trailing_zeros())));
            }
        }
    }
}

/// Out of line, so that the common free has nothing to prepare for it.
#[cold]
#[inline(never)]
pub(crate) fn freed_twice(frame: Frame) -> ! {
    panic!("{frame:?} was freed twice")
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
