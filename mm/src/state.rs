//! The state word of a pageblock.

use core::fmt;

use crate::{
    Mobility,
    sync::{AtomicU16, Ordering},
};

/// Frames in a block, as the state word counts them.
pub(crate) const BLOCK_FRAMES: u32 = 512;

const COUNT: u16 = 0x3ff;
/// Values of the count above that of a full block.
const HUGE: u16 = 0x3ff;
const ISOLATED: u16 = 0x3fe;
const MISSING: u16 = 0x3fd;
const OFFLINE: u16 = 0x3fc;
const TAKEN: u16 = 0x3fb;
const TOUCHED: u16 = 1 << 10;
const FINE: u16 = 1 << 11;
const HELD: u16 = 1 << 12;
const MOBILITY_SHIFT: u32 = 13;
const MOBILITY: u16 = 3 << MOBILITY_SHIFT;
/// Above all other bits: with it a count is that of a block of which nothing can be taken.
const EMPTYING: u16 = 1 << 15;

/// A number of frames of a block, at most [`BLOCK_FRAMES`], as the word counts them.
#[expect(clippy::cast_possible_truncation, reason = "at most 512")]
const fn frames_of(frames: u32) -> u16 {
    frames as u16
}

/// A block that takes frames of another mobility changes over to it while at most so many of its
/// frames are in use (Linux: half of the block).
const RETYPE_AT_MOST: u32 = BLOCK_FRAMES / 2;

/// A value of the state word.
///
/// | bits | field | values |
/// |---|---|---|
/// | 0–9 | count | frames that cannot be taken: 0 = the block is free, 512 = none is left |
/// | | | 1023 = huge: allocated whole; its bits are all zero |
/// | | | 1022 = isolated: taken out whole by `isolate`; its bits are all zero |
/// | | | 1021 = missing: no memory is there: part of no range, for ever |
/// | | | 1020 = offline: its memory was taken from the allocator and may come back |
/// | | | 1019 = taken: taken out whole by an attached host; its bits are all zero |
/// | 10 | touched | 0 = the host holds nothing of it (never used, or reported since) |
/// | 11 | fine | 1 = the touched bits of its frames are exact; 0 = they are zero and say nothing |
/// | 12 | held | 1 = a front takes its frames here: others look elsewhere first |
/// | 13–14 | mobility | that of its frames in use; means nothing while the count is 0 |
/// | 15 | emptying | 1 = somebody moves what is in use elsewhere: nothing of it can be taken, and it is not free at a count of 0 |
///
/// The count is raised before bits are set and lowered after they are cleared, so it is never less
/// than the number of bits set, and a count of 0 means that no operation on its frames is under
/// way.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct State(u16);

/// What a block is good for to one who searches.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Free, and nothing of it is on the host.
    Untouched,
    /// Free, and the host holds memory for it.
    Touched,
    /// Some frames are in use, some free.
    Partial(Mobility),
    /// No frame is free.
    Full(Mobility),
    /// Taken out whole by `isolate`, or being emptied.
    Isolated,
}

impl State {
    #[cfg(not(ebb_model))]
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Frames that cannot be taken: all of a block that is being emptied.
    pub(crate) const fn count(self) -> u32 {
        let count = (self.0 & (COUNT | EMPTYING)) as u32;
        if count < BLOCK_FRAMES {
            count
        } else {
            BLOCK_FRAMES
        }
    }

    /// Frames that are in use, or out of reach as a whole, of a block that is being emptied too.
    pub(crate) const fn used(self) -> u32 {
        Self(self.0 & COUNT).count()
    }

    pub(crate) const fn is_free(self) -> bool {
        self.0 & (COUNT | EMPTYING) == 0
    }

    pub(crate) const fn is_emptying(self) -> bool {
        self.0 & EMPTYING != 0
    }

    pub(crate) const fn is_huge(self) -> bool {
        self.0 & COUNT == HUGE
    }

    /// Whether it is allocated whole, and nobody is about to empty it.
    pub(crate) const fn stays_huge(self) -> bool {
        self.0 & (COUNT | EMPTYING) == HUGE
    }

    /// Whether so many of its frames are allocated in parts, and nobody is about to move them.
    pub(crate) const fn stays_in_use(self, frames: u32) -> bool {
        let count = (self.0 & (COUNT | EMPTYING)) as u32;
        frames <= count && count <= BLOCK_FRAMES
    }

    /// Whether it is taken out whole, by whomever.
    pub(crate) const fn is_isolated(self) -> bool {
        self.0 & COUNT == ISOLATED || self.is_taken()
    }

    /// Whether an attached host has taken it out.
    pub(crate) const fn is_taken(self) -> bool {
        self.0 & COUNT == TAKEN
    }

    pub(crate) const fn is_missing(self) -> bool {
        self.0 & COUNT == MISSING
    }

    pub(crate) const fn is_offline(self) -> bool {
        self.0 & COUNT == OFFLINE
    }

    /// Whether it is out of reach as a whole: huge, isolated, taken, missing or offline.
    pub(crate) const fn is_whole(self) -> bool {
        (self.0 & COUNT) as u32 > BLOCK_FRAMES
    }

    /// Whether it is free and touched, and the touched bits of its frames say nothing.
    pub(crate) const fn is_touched_whole(self) -> bool {
        self.0 & (COUNT | TOUCHED | FINE | EMPTYING) == TOUCHED
    }

    pub(crate) const fn is_touched(self) -> bool {
        self.0 & TOUCHED != 0
    }

    pub(crate) const fn is_fine(self) -> bool {
        self.0 & FINE != 0
    }

    pub(crate) const fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    pub(crate) const fn mobility(self) -> Mobility {
        match (self.0 & MOBILITY) >> MOBILITY_SHIFT {
            0 => Mobility::Unmovable,
            1 => Mobility::Movable,
            _ => Mobility::Reclaimable,
        }
    }

    pub(crate) const fn class(self) -> Class {
        if self.is_free() {
            if self.is_touched() {
                Class::Touched
            } else {
                Class::Untouched
            }
        } else if self.count() < BLOCK_FRAMES {
            Class::Partial(self.mobility())
        } else if self.is_isolated() || self.is_emptying() {
            Class::Isolated
        } else {
            Class::Full(self.mobility())
        }
    }

    /// Whether its class is this one; for the classes that are searched for.
    #[inline]
    pub(crate) const fn is(self, class: Class) -> bool {
        match class {
            Class::Untouched => self.0 & (COUNT | TOUCHED | EMPTYING) == 0,
            Class::Touched => self.0 & (COUNT | TOUCHED | EMPTYING) == TOUCHED,
            Class::Partial(mobility) => {
                self.0 & MOBILITY == (mobility as u16) << MOBILITY_SHIFT
                    && self.count().wrapping_sub(1) < BLOCK_FRAMES - 1
            }
            Class::Full(_) | Class::Isolated => false,
        }
    }

    /// The same free block, taken out by an attached host.
    #[cfg(not(ebb_model))]
    pub(crate) const fn taken(self) -> Self {
        self.with_count(TAKEN)
    }

    /// The same isolated block, put back.
    pub(crate) const fn put_back(self, reported: bool) -> Self {
        let marks = if reported { TOUCHED | FINE } else { 0 };
        Self(self.0 & !(COUNT | marks))
    }

    /// The same block, for which the host holds memory.
    #[cfg(not(ebb_model))]
    pub(crate) const fn touched(self) -> Self {
        Self(self.0 | TOUCHED)
    }

    /// The same block with this in place of its count.
    const fn with_count(self, count: u16) -> Self {
        Self(self.0 & !COUNT | count)
    }

    const fn with_mobility(self, mobility: Mobility) -> Self {
        Self(self.0 & !MOBILITY | (mobility as u16) << MOBILITY_SHIFT)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("class", &self.class())
            .field("used", &self.used())
            .field("emptying", &self.is_emptying())
            .field("huge", &self.is_huge())
            .field("missing", &(self.is_missing() || self.is_offline()))
            .field("touched", &self.is_touched())
            .field("fine", &self.is_fine())
            .finish()
    }
}

/// What one atomic step made of a state word.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Change {
    pub(crate) old: State,
    pub(crate) new: State,
}

/// Why frames were not reserved.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The block is free, and the caller has not entered its giant.
    Free,
    /// It has too little room, or is not of the mobility.
    Unsuited,
}

/// In which blocks frames may be reserved.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Admission {
    /// What the frames are for.
    pub(crate) mobility: Mobility,
    /// Whether a block of another mobility will do.
    pub(crate) any: bool,
    /// Whether a block touched for the first time gets exact touched bits: while blocks below
    /// order 9 are reported.
    pub(crate) fine: bool,
    /// Whether the block becomes one that a front takes its frames from.
    pub(crate) hold: bool,
    /// Whether only a free block will do.
    pub(crate) open: bool,
}

/// The state word in memory. Every change is one atomic read-modify-write with `AcqRel` at least:
/// the `Release` of one who lowers the count to 0 is what the `Acquire` of one who then takes the
/// block whole pairs with, so he sees all bits cleared and nobody's stores to the frames after.
///
/// Changes that others may be waiting for are `SeqCst`, for the sake of
/// [`AtomicReach`](crate::reach::AtomicReach): who changes the state looks at the reach then, who
/// changes the reach looks at the state then, and of two at once one announces what both made.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicState(AtomicU16);

impl AtomicState {
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self(AtomicU16::new(0))
    }

    /// `Acquire`, as whoever sees a count that another lowered may rely on the cleared bits.
    #[inline]
    pub(crate) fn load(&self) -> State {
        State(self.0.load(Ordering::Acquire))
    }

    /// For one who has changed the block's reach before.
    #[inline]
    pub(crate) fn load_after_reach(&self) -> State {
        State(self.0.load(Ordering::SeqCst))
    }

    /// One exchange, for one who bounds how often he tries.
    #[cfg(not(ebb_model))]
    pub(crate) fn exchange(&self, old: State, new: State) -> bool {
        self.0
            .compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Retries until `step` refuses the value it is shown. Bounded by the progress of others: a
    /// failed exchange means that another's succeeded.
    #[inline]
    fn update(&self, mut step: impl FnMut(State) -> Option<State>) -> Option<Change> {
        let mut old = self.load();
        loop {
            let new = step(old)?;
            match self
                .0
                .compare_exchange_weak(old.0, new.0, Ordering::SeqCst, Ordering::Acquire)
            {
                Ok(_) => return Some(Change { old, new }),
                Err(now) => old = State(now),
            }
        }
    }

    /// Raises the count by `least` to `most` frames: they are the caller's to take from the bits.
    /// `entered`: he has entered the block's giant, so that a free block will do.
    pub(crate) fn reserve(
        &self,
        (least, most): (u32, u32),
        admit: Admission,
        entered: bool,
    ) -> Result<(u32, Change), Refused> {
        let mut refused = Refused::Unsuited;
        let change = self.update(|old| {
            refused = Refused::Unsuited;
            let room = BLOCK_FRAMES - old.count();
            if room < least || room == 0 {
                return None;
            }
            if old.is_free() && !entered {
                refused = Refused::Free;
                return None;
            }
            if admit.open && !old.is_free() {
                return None;
            }
            let mut new = State(old.0 + frames_of(room.min(most)));
            if old.is_free()
                || (old.mobility() != admit.mobility && admit.any && old.count() <= RETYPE_AT_MOST)
            {
                new = new.with_mobility(admit.mobility);
            } else if old.mobility() != admit.mobility && !admit.any {
                return None;
            }
            if !old.is_touched() {
                new.0 |= TOUCHED | if admit.fine { FINE } else { 0 };
            }
            if admit.hold {
                new.0 |= HELD;
            }
            Some(new)
        });
        let change = change.ok_or(refused)?;
        Ok((change.new.count() - change.old.count(), change))
    }

    /// Raises the count by exactly `frames` for one who takes free frames out to report them:
    /// nothing else changes, and only a block that is in use and touched will do.
    pub(crate) fn borrow(&self, frames: u32) -> Option<Change> {
        self.update(|old| {
            (!old.is_free() && old.is_touched() && old.count() + frames <= BLOCK_FRAMES)
                .then_some(State(old.0 + frames_of(frames)))
        })
    }

    /// Lowers the count by frames whose bits the caller has cleared, or never set.
    ///
    /// # Panics
    /// If fewer frames are in use: the caller freed what it did not own.
    #[inline]
    pub(crate) fn release(&self, frames: u32) -> Change {
        let old = State(self.0.fetch_sub(frames_of(frames), Ordering::SeqCst));
        assert!(
            old.used() >= frames && !old.is_whole(),
            "freed {frames} frames of a block that has fewer: {old:?}"
        );
        Change {
            old,
            new: State(old.0 - frames_of(frames)),
        }
    }

    /// Raises the count by up to `most` frames of a block that is in use for this mobility, and by at
    /// least one: never of one that is free.
    pub(crate) fn join(&self, most: u32, mobility: Mobility) -> Option<(u32, Change)> {
        let change = self.update(|old| {
            let room = BLOCK_FRAMES - old.count();
            old.is(Class::Partial(mobility))
                .then_some(State(old.0 + frames_of(room.min(most))))
        })?;
        Some((change.new.used() - change.old.used(), change))
    }

    /// Begins to empty a block, if `wanted` says so. Of a free one the caller has entered the giant.
    pub(crate) fn begin_emptying(&self, wanted: impl Fn(State) -> bool) -> Option<Change> {
        self.update(|old| {
            let there = !old.is_whole() || old.is_huge();
            (there && !old.is_emptying() && wanted(old)).then_some(State(old.0 | EMPTYING))
        })
    }

    /// Ends that: what is free of it can be taken from here on.
    ///
    /// # Panics
    /// If it is not being emptied.
    pub(crate) fn end_emptying(&self) -> Change {
        let old = State(self.0.fetch_and(!EMPTYING, Ordering::SeqCst));
        assert!(old.is_emptying(), "{old:?} is not being emptied");
        Change {
            old,
            new: State(old.0 & !EMPTYING),
        }
    }

    /// Takes a block whole that is being emptied and has nothing in use.
    pub(crate) fn take_emptied(&self, mobility: Mobility) -> Option<Change> {
        self.update(|old| {
            let empty = old.is_emptying() && old.used() == 0;
            let taken = State(old.0 & !EMPTYING | HUGE | TOUCHED);
            empty.then_some(taken.with_mobility(mobility))
        })
    }

    /// Takes a free block whole.
    pub(crate) fn take_whole(&self, mobility: Mobility) -> Option<Change> {
        self.update(|old| {
            old.is_free()
                .then_some(State(old.0 | HUGE | TOUCHED).with_mobility(mobility))
        })
    }

    /// Gives a block back that was taken whole.
    ///
    /// # Panics
    /// If it was not.
    pub(crate) fn free_whole(&self) -> Change {
        let change = self.update(|old| {
            assert!(
                old.is_huge(),
                "freed a block that is not allocated whole: {old:?}"
            );
            Some(old.with_count(0))
        });
        change.expect("the step never refuses")
    }

    /// Takes a free block out, if `wanted` says so.
    pub(crate) fn isolate(&self, wanted: impl Fn(State) -> bool) -> Option<Change> {
        self.update(|old| (old.is_free() && wanted(old)).then_some(old.with_count(ISOLATED)))
    }

    /// Puts an isolated block back. `reported`: the host has dropped it, and the touched bits of
    /// its frames, if they were in use, are zero again.
    ///
    /// # Panics
    /// If it is not isolated.
    pub(crate) fn put_back(&self, reported: bool) -> Change {
        let change = self.update(|old| {
            assert!(
                old.is_isolated(),
                "put back a block that is not isolated: {old:?}"
            );
            Some(old.put_back(reported))
        });
        change.expect("the step never refuses")
    }

    /// The touched bits of its frames are exact from here on, or (false) zero and mute.
    pub(crate) fn set_fine(&self, fine: bool) {
        if fine {
            self.0.fetch_or(FINE, Ordering::AcqRel);
        } else {
            self.0.fetch_and(!FINE, Ordering::AcqRel);
        }
    }

    /// A front takes its frames elsewhere from here on.
    pub(crate) fn let_go(&self) -> Change {
        let old = State(self.0.fetch_and(!HELD, Ordering::SeqCst));
        Change {
            old,
            new: State(old.0 & !HELD),
        }
    }

    /// Takes frames out for ever, before anybody else uses the block: there is no memory.
    pub(crate) fn set_missing(&self, frames: u32) -> Change {
        let change = self.update(|old| {
            let new = State(old.0 + frames_of(frames));
            Some(if new.count() == BLOCK_FRAMES {
                new.with_count(MISSING)
            } else {
                new
            })
        });
        change.expect("the step never refuses")
    }

    /// Takes the memory of a free block away.
    pub(crate) fn set_offline(&self) -> Option<Change> {
        self.update(|old| {
            old.is_free()
                .then_some(old.with_count(OFFLINE).with_mobility(Mobility::Unmovable))
        })
    }

    /// Gives a block its memory back; `dropped`: the host holds nothing of it. None if the block
    /// is not offline.
    pub(crate) fn set_online(&self, dropped: bool) -> Option<Change> {
        self.update(|old| {
            let marks = if dropped { TOUCHED | FINE } else { 0 };
            old.is_offline().then_some(State(old.0 & !(COUNT | marks)))
        })
    }

    /// Gives a block its memory back, all of it in use, whose bits the caller has set. None if the
    /// block is not offline.
    pub(crate) fn set_admitted(&self) -> Option<Change> {
        self.update(|old| {
            old.is_offline()
                .then_some(State(old.0 | TOUCHED).with_count(frames_of(BLOCK_FRAMES)))
        })
    }

    /// Frames of a block that is allocated whole, whose bits the caller has set, are allocated one
    /// by one from here on.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn split_whole(&self) {
        _ = self.update(|old| {
            assert!(
                old.is_huge(),
                "split a block that is not allocated whole: {old:?}"
            );
            Some(old.with_count(frames_of(BLOCK_FRAMES)))
        });
    }

    /// Marks a free block as touched.
    pub(crate) fn set_touched(&self) -> Option<Change> {
        self.update(|old| (old.is_free() && !old.is_touched()).then_some(State(old.0 | TOUCHED)))
    }
}
