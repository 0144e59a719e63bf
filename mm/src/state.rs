//! The state word of a pageblock: 16 bits with its count of used frames, its mobility and its
//! marks.

use core::fmt;

use crate::{
    Mobility,
    sync::{AtomicU16, Ordering},
};

/// The number of frames in a pageblock, as the state word counts them.
pub(crate) const BLOCK_FRAMES: u32 = 512;

const COUNT: u16 = 0x3ff;
/// Values of the count above that of a full pageblock.
const HUGE: u16 = 0x3ff;
const ISOLATED: u16 = 0x3fe;
const MISSING: u16 = 0x3fd;
const OFFLINE: u16 = 0x3fc;
const TAKEN: u16 = 0x3fb;
const TOUCHED: u16 = 1 << 10;
const EXACT_MARKS: u16 = 1 << 11;
const HELD: u16 = 1 << 12;
const MOBILITY_SHIFT: u32 = 13;
const MOBILITY: u16 = 3 << MOBILITY_SHIFT;
/// Above all other bits: with this bit set, a comparison of the count finds a pageblock without
/// free frames.
const EMPTYING: u16 = 1 << 15;

/// Converts a number of frames of a pageblock, at most [`BLOCK_FRAMES`], to the word's type.
#[expect(clippy::cast_possible_truncation, reason = "at most 512")]
const fn frames_of(frames: u32) -> u16 {
    frames as u16
}

/// A pageblock that gets frames of another mobility changes to that mobility if at most this many
/// of its frames are in use. Half of the pageblock, as in Linux.
const RETYPE_AT_MOST: u32 = BLOCK_FRAMES / 2;

/// A value of the state word.
///
/// | bits | field | values |
/// |---|---|---|
/// | 0–9 | count | frames that cannot be allocated: 0 = free, 512 = no frame is left |
/// | | | 1023 = huge: allocated as one block; its bitmap is all zero |
/// | | | 1022 = isolated: taken out whole by `isolate`; its bitmap is all zero |
/// | | | 1021 = missing: it has no memory, as it is in no range of the zone |
/// | | | 1020 = offline: its memory was taken from the allocator and may come back |
/// | | | 1019 = taken: taken out whole by an attached host; its bitmap is all zero |
/// | 10 | touched | 0 = the host holds no memory for it (never used, or reported since) |
/// | 11 | exact | 1 = the touched bits of its frames are exact; 0 = they are zero and say nothing |
/// | 12 | held | 1 = a per-CPU cache takes frames from it, and others look elsewhere first |
/// | 13–14 | mobility | mobility of its frames in use; without meaning while the count is 0 |
/// | 15 | emptying | 1 = being emptied: no frame can be allocated; not free at a count of 0 |
///
/// The count is raised before bits of the bitmap are set, and lowered after they are cleared. So it
/// is never less than the number of bits set, and at a count of 0 no operation on the frames is in
/// progress.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct State(u16);

/// The class of a pageblock, as searches and summaries distinguish them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Free, and the host holds no memory for it.
    Untouched,
    /// Free, and the host may hold memory for it.
    Touched,
    /// Some frames are in use and some are free. The mobility is that of the frames in use.
    Partial(Mobility),
    /// No frame is free.
    Full(Mobility),
    /// Isolated, taken out by an attached host, or being emptied.
    Isolated,
}

impl State {
    /// Returns the state with these bits. Any bits are valid.
    #[cfg(not(ebb_model))]
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the number of frames that cannot be allocated, 0 to 512. That is 512 while the
    /// pageblock is being emptied or is out of use as a whole.
    pub(crate) const fn count(self) -> u32 {
        let count = (self.0 & (COUNT | EMPTYING)) as u32;
        if count < BLOCK_FRAMES {
            count
        } else {
            BLOCK_FRAMES
        }
    }

    /// Returns the number of frames in use, 0 to 512, also of a pageblock that is being emptied.
    /// That is 512 if the pageblock is out of use as a whole.
    pub(crate) const fn used(self) -> u32 {
        Self(self.0 & COUNT).count()
    }

    /// Returns whether all frames are free and the pageblock is not being emptied.
    pub(crate) const fn is_free(self) -> bool {
        self.0 & (COUNT | EMPTYING) == 0
    }

    /// Returns whether the pageblock is being emptied: its frames in use are being migrated, and
    /// none of its frames can be allocated.
    pub(crate) const fn is_emptying(self) -> bool {
        self.0 & EMPTYING != 0
    }

    /// Returns whether the pageblock is allocated as one block.
    pub(crate) const fn is_huge(self) -> bool {
        self.0 & COUNT == HUGE
    }

    /// Returns whether the pageblock is allocated as one block and is not being emptied.
    pub(crate) const fn stays_huge(self) -> bool {
        self.0 & (COUNT | EMPTYING) == HUGE
    }

    /// Returns whether at least `frames` single frames are allocated and the pageblock is not being
    /// emptied.
    pub(crate) const fn stays_in_use(self, frames: u32) -> bool {
        let count = (self.0 & (COUNT | EMPTYING)) as u32;
        frames <= count && count <= BLOCK_FRAMES
    }

    /// Returns whether the pageblock is isolated by the guest or taken out by an attached host.
    pub(crate) const fn is_isolated(self) -> bool {
        self.0 & COUNT == ISOLATED || self.is_taken()
    }

    /// Returns whether an attached host has taken the pageblock out.
    pub(crate) const fn is_taken(self) -> bool {
        self.0 & COUNT == TAKEN
    }

    /// Returns whether the pageblock has no memory at all, as it is in no range of the zone.
    pub(crate) const fn is_missing(self) -> bool {
        self.0 & COUNT == MISSING
    }

    /// Returns whether the memory of the pageblock is offline.
    pub(crate) const fn is_offline(self) -> bool {
        self.0 & COUNT == OFFLINE
    }

    /// Returns whether the pageblock is out of use as a whole: huge, isolated, taken, missing or
    /// offline.
    pub(crate) const fn is_whole(self) -> bool {
        (self.0 & COUNT) as u32 > BLOCK_FRAMES
    }

    /// Returns whether the pageblock is free, the host may hold memory for it, and its single
    /// frames have no exact touched bits of their own.
    pub(crate) const fn is_touched_whole(self) -> bool {
        self.0 & (COUNT | TOUCHED | EXACT_MARKS | EMPTYING) == TOUCHED
    }

    /// Returns whether the host may hold memory for the pageblock.
    pub(crate) const fn is_touched(self) -> bool {
        self.0 & TOUCHED != 0
    }

    /// Returns whether the touched bits of the single frames are exact. If not, they are zero and
    /// say nothing.
    pub(crate) const fn has_exact_marks(self) -> bool {
        self.0 & EXACT_MARKS != 0
    }

    /// Returns whether a per-CPU cache takes frames from the pageblock.
    pub(crate) const fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// Returns the mobility of the frames in use. Without meaning if the pageblock is free.
    pub(crate) const fn mobility(self) -> Mobility {
        match (self.0 & MOBILITY) >> MOBILITY_SHIFT {
            0 => Mobility::Unmovable,
            1 => Mobility::Movable,
            _ => Mobility::Reclaimable,
        }
    }

    /// Returns the class of the pageblock.
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

    /// Returns whether the pageblock has the class `class`. Only for the classes that searches look
    /// for: `Full` and `Isolated` always give `false`.
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

    /// Returns the state that this free pageblock has after an attached host has taken it out.
    #[cfg(not(ebb_model))]
    pub(crate) const fn taken(self) -> Self {
        self.with_count(TAKEN)
    }

    /// Returns the state that this isolated or taken pageblock has after it was put back: free.
    /// With `reported` it is untouched.
    pub(crate) const fn put_back(self, reported: bool) -> Self {
        let marks = if reported { TOUCHED | EXACT_MARKS } else { 0 };
        Self(self.0 & !(COUNT | marks))
    }

    /// Returns the state with the touched bit set.
    #[cfg(not(ebb_model))]
    pub(crate) const fn touched(self) -> Self {
        Self(self.0 | TOUCHED)
    }

    /// Returns the state with another count.
    const fn with_count(self, count: u16) -> Self {
        Self(self.0 & !COUNT | count)
    }

    /// Returns the state with another mobility.
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
            .field("exact_marks", &self.has_exact_marks())
            .finish()
    }
}

/// The states of a pageblock before (`old`) and after (`new`) one atomic step.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Change {
    pub(crate) old: State,
    pub(crate) new: State,
}

/// Why [`AtomicState::reserve`] did not reserve frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The pageblock is free, and the caller has not raised the count of its GiB before.
    Free,
    /// The pageblock has too few free frames, or another mobility.
    Unsuited,
}

/// The conditions under which frames of a pageblock may be reserved, and what the step changes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Admission {
    /// The mobility of the frames.
    pub(crate) mobility: Mobility,
    /// Whether a pageblock of another mobility will do.
    pub(crate) any: bool,
    /// Whether a pageblock that is touched for the first time gets exact touched bits for its
    /// frames. Set while blocks below order 9 are reported.
    pub(crate) exact_marks: bool,
    /// Whether a per-CPU cache holds the pageblock from then on.
    pub(crate) hold: bool,
    /// Whether the pageblock must be free.
    pub(crate) open: bool,
}

/// The state word of a pageblock in memory. Every change is one atomic read-modify-write with at
/// least `AcqRel`. The `Release` of the CPU that lowers the count to 0 pairs with the `Acquire` of
/// the CPU that then takes the pageblock whole. So the second CPU sees all bits cleared, and all
/// stores of the frames' last owners come before its own.
///
/// Changes that another CPU may wait for are `SeqCst`, for
/// [`AtomicRunBound`](crate::run_bound::AtomicRunBound): a CPU that changes the state reads the run
/// bound afterwards, and a CPU that changes the run bound reads the state afterwards. Of two CPUs
/// at the same time, one announces the result of both.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicState(AtomicU16);

impl AtomicState {
    /// Returns the state word of a free, untouched pageblock.
    #[cfg(all(test, ebb_model))]
    pub(crate) fn zero() -> Self {
        Self(AtomicU16::new(0))
    }

    /// Returns the state. `Acquire`: a caller that sees a lowered count may rely on the cleared
    /// bits.
    #[inline]
    pub(crate) fn load(&self) -> State {
        State(self.0.load(Ordering::Acquire))
    }

    /// Returns the state, for a caller that has just changed the pageblock's run bound. `SeqCst`,
    /// see the type.
    #[inline]
    pub(crate) fn load_after_run_bound(&self) -> State {
        State(self.0.load(Ordering::SeqCst))
    }

    /// Tries one compare-and-swap from `old` to `new`. Returns `true` if it succeeded, and `false`
    /// if the word was not `old`. For callers that limit their attempts.
    #[cfg(not(ebb_model))]
    pub(crate) fn exchange(&self, old: State, new: State) -> bool {
        self.0
            .compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Applies `step` in a compare-and-swap loop. Returns `None` if `step` refuses the current
    /// state. Bounded by the progress of others: a failed exchange means that another CPU's
    /// succeeded.
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

    /// Raises the count of used frames by as many frames as are free, at least `least` and at most
    /// `most`. The caller may then take these frames from the bitmap. Returns the number of frames,
    /// and the states before and after. Also marks the pageblock as touched, and changes its
    /// mobility and its held mark as `admit` says. Set `entered` if the caller has raised the count
    /// of the pageblock's GiB, which a free pageblock needs.
    ///
    /// Fails with `Free` if the pageblock is free and `entered` is false. Fails with `Unsuited` if
    /// it has fewer than `least` free frames or none, or does not meet `admit`. Nothing is changed
    /// then.
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
                new.0 |= TOUCHED | if admit.exact_marks { EXACT_MARKS } else { 0 };
            }
            if admit.hold {
                new.0 |= HELD;
            }
            Some(new)
        });
        let change = change.ok_or(refused)?;
        Ok((change.new.count() - change.old.count(), change))
    }

    /// Raises the count of used frames by exactly `frames`, for a caller that takes free frames out
    /// to report them. Changes nothing else. Returns the states before and after, or `None` if the
    /// pageblock is free, untouched, or has fewer free frames.
    pub(crate) fn borrow(&self, frames: u32) -> Option<Change> {
        self.update(|old| {
            (!old.is_free() && old.is_touched() && old.count() + frames <= BLOCK_FRAMES)
                .then_some(State(old.0 + frames_of(frames)))
        })
    }

    /// Lowers the count of used frames by `frames`, whose bits the caller has cleared or never set.
    /// Returns the states before and after.
    ///
    /// # Panics
    /// If fewer frames are in use: the caller freed frames that it did not own.
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

    /// Raises the count of used frames by the number of free frames, at most `most`. Returns the
    /// number of frames, and the states before and after. Returns `None` unless the pageblock is
    /// partly used, is not being emptied and has the mobility `mobility`.
    pub(crate) fn join(&self, most: u32, mobility: Mobility) -> Option<(u32, Change)> {
        let change = self.update(|old| {
            let room = BLOCK_FRAMES - old.count();
            old.is(Class::Partial(mobility))
                .then_some(State(old.0 + frames_of(room.min(most))))
        })?;
        Some((change.new.used() - change.old.used(), change))
    }

    /// Marks the pageblock as being emptied, if `wanted` accepts its state. Returns the states
    /// before and after. Returns `None` if `wanted` refuses, or if the pageblock is isolated,
    /// taken, missing, offline or being emptied already. If the pageblock is free, the caller must
    /// have raised the count of its GiB.
    pub(crate) fn begin_emptying(&self, wanted: impl Fn(State) -> bool) -> Option<Change> {
        self.update(|old| {
            let there = !old.is_whole() || old.is_huge();
            (there && !old.is_emptying() && wanted(old)).then_some(State(old.0 | EMPTYING))
        })
    }

    /// Clears the emptying mark, so that free frames of the pageblock can be allocated again.
    /// Returns the states before and after.
    ///
    /// # Panics
    /// If the pageblock is not being emptied.
    pub(crate) fn end_emptying(&self) -> Change {
        let old = State(self.0.fetch_and(!EMPTYING, Ordering::SeqCst));
        assert!(old.is_emptying(), "{old:?} is not being emptied");
        Change {
            old,
            new: State(old.0 & !EMPTYING),
        }
    }

    /// Ends the emptying of a pageblock without frames in use by allocating it as one block for
    /// `mobility`. Returns the states before and after, or `None` if the pageblock is not being
    /// emptied or has frames in use.
    pub(crate) fn take_emptied(&self, mobility: Mobility) -> Option<Change> {
        self.update(|old| {
            let empty = old.is_emptying() && old.used() == 0;
            let taken = State(old.0 & !EMPTYING | HUGE | TOUCHED);
            empty.then_some(taken.with_mobility(mobility))
        })
    }

    /// Allocates a free pageblock as one block for `mobility` and marks it as touched. Returns the
    /// states before and after, or `None` if it is not free.
    pub(crate) fn take_whole(&self, mobility: Mobility) -> Option<Change> {
        self.update(|old| {
            old.is_free()
                .then_some(State(old.0 | HUGE | TOUCHED).with_mobility(mobility))
        })
    }

    /// Frees a pageblock that is allocated as one block. Returns the states before and after. A
    /// pageblock that is being emptied stays so.
    ///
    /// # Panics
    /// If it is not allocated as one block.
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

    /// Isolates a free pageblock, if `wanted` accepts its state. Returns the states before and
    /// after, or `None` if it is not free or not wanted.
    pub(crate) fn isolate(&self, wanted: impl Fn(State) -> bool) -> Option<Change> {
        self.update(|old| (old.is_free() && wanted(old)).then_some(old.with_count(ISOLATED)))
    }

    /// Puts an isolated pageblock, or one that an attached host took, back as free. Returns the
    /// states before and after. Set `reported` if the host has dropped its memory, which makes it
    /// untouched. The caller must have cleared the touched bits of its frames in that case.
    ///
    /// # Panics
    /// If it is neither isolated nor taken.
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

    /// Notes whether the touched bits of the pageblock's frames are exact from now on. If
    /// `exact_marks` is false they must be zero, and say nothing.
    pub(crate) fn set_exact_marks(&self, exact_marks: bool) {
        if exact_marks {
            self.0.fetch_or(EXACT_MARKS, Ordering::AcqRel);
        } else {
            self.0.fetch_and(!EXACT_MARKS, Ordering::AcqRel);
        }
    }

    /// Clears the held mark, for a per-CPU cache that takes its frames from another pageblock from
    /// now on. Returns the states before and after.
    pub(crate) fn release_block(&self) -> Change {
        let old = State(self.0.fetch_and(!HELD, Ordering::SeqCst));
        Change {
            old,
            new: State(old.0 & !HELD),
        }
    }

    /// Counts `frames` more frames as in use for ever, because there is no memory for them. If all
    /// frames are counted then, the pageblock becomes missing. Returns the states before and after.
    /// Call this only before the first use of the pageblock.
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

    /// Takes a free pageblock offline. Returns the states before and after, or `None` if it is not
    /// free.
    pub(crate) fn set_offline(&self) -> Option<Change> {
        self.update(|old| {
            old.is_free()
                .then_some(old.with_count(OFFLINE).with_mobility(Mobility::Unmovable))
        })
    }

    /// Brings an offline pageblock back as free. Set `dropped` if the host holds no memory for it.
    /// Returns the states before and after, or `None` if the pageblock is not offline.
    pub(crate) fn set_online(&self, dropped: bool) -> Option<Change> {
        self.update(|old| {
            let marks = if dropped { TOUCHED | EXACT_MARKS } else { 0 };
            old.is_offline().then_some(State(old.0 & !(COUNT | marks)))
        })
    }

    /// Brings an offline pageblock back with all frames in use and touched. The caller has set the
    /// frames' bits. Returns the states before and after, or `None` if the pageblock is not
    /// offline.
    pub(crate) fn set_admitted(&self) -> Option<Change> {
        self.update(|old| {
            old.is_offline()
                .then_some(State(old.0 | TOUCHED).with_count(frames_of(BLOCK_FRAMES)))
        })
    }

    /// Turns a pageblock that is allocated as one block into 512 frames allocated one by one. The
    /// caller has set their bits.
    ///
    /// # Panics
    /// If the pageblock is not allocated as one block.
    pub(crate) fn split_whole(&self) {
        _ = self.update(|old| {
            assert!(
                old.is_huge(),
                "split a block that is not allocated whole: {old:?}"
            );
            Some(old.with_count(frames_of(BLOCK_FRAMES)))
        });
    }

    /// Marks a free pageblock as touched: the host may hold memory for it. Returns the states
    /// before and after, or `None` if it is not free or is touched already.
    pub(crate) fn set_touched(&self) -> Option<Change> {
        self.update(|old| (old.is_free() && !old.is_touched()).then_some(State(old.0 | TOUCHED)))
    }
}
