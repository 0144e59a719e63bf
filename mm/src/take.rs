//! How an attached host takes free pageblocks out of the guest's allocator, and puts them back.
//!
//! The host enters one GiB at a time, by one exchange of its word; then it may take blocks of it, one exchange each, and
//! leaves it when they are back. It may be killed between any two of these steps. So each of them says by itself that
//! it was done: the GiB's word that the host is in it, the block's word that it was the host who took it. Whoever
//! attaches next, and knows that the host before is gone, puts all of it right ([`Attached::recover`]). Only the summary
//! of a tree cannot tell whether a change was counted; it is counted again.
//!
//! There must be one such host at a time.

use core::{error, fmt};

use crate::{
    Frame, PutBack,
    attach::Attached,
    frame::PAGEBLOCK_FRAMES,
    giant::AtomicGiant,
    header::{HOST_ASLEEP, HOST_AWAKE},
    reach::Reach,
    state::{Change, Class, State},
    summary::{AtomicSummary, TREE_BLOCKS},
    sync::Ordering,
    whole::blocks_from,
    zone::{FREE_GIANTS, Wanted, Zone},
};

/// The most blocks that are taken out at one time: 64 MiB, so much memory is out of the guest's reach.
pub const TAKE_BLOCKS: usize = 32;
/// How often a word is exchanged before its other users are taken to be hostile. An honest guest
/// makes an exchange fail a few times at most: once for each of its CPUs that is at the same word.
const ATTEMPTS: usize = 1 << 10;
/// How often the blocks of a GiB are told what its word says, before the same is thought: each time
/// all 512 are. An honest guest makes it necessary again only by using and freeing the GiB
/// meanwhile.
const HAND_DOWNS: usize = 4;
/// A summary that is off by the same so often in a row, with a pause between, is wrong for good: what a CPU of the guest
/// is about to count differs from one look to the next.
const LOOKS_ALIKE: u32 = 4;
/// Looks at a tree of a guest that changes it all the time.
const LOOKS: u32 = 64;

/// Why a block could not be taken out, or put back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TakeError {
    /// No such frame is in the metadata.
    NotManaged,
    /// The block is not free, or (when it is put back) not taken: its owner broke the rules.
    State,
    /// Others changed its words again and again.
    Contended,
    /// So many blocks are out as may be at one time.
    Full,
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotManaged => "the frame is not managed",
            Self::State => "the block is not in the state for it",
            Self::Contended => "others kept changing the block",
            Self::Full => "no more blocks may be out at one time",
        })
    }
}

impl error::Error for TakeError {}

/// A GiB that the host is in, and what it has taken out of it. Nobody can allocate that until it is put back; dropping
/// this leaves it to [`Attached::recover`].
#[derive(Debug)]
#[must_use = "the guest lacks what was taken unless it is closed"]
pub struct OpenGiant<'a, 'm> {
    zone: &'a Zone<'m>,
    giant: usize,
    /// Indices of blocks.
    taken: [usize; TAKE_BLOCKS],
    len: usize,
}

impl Attached<'_> {
    /// The host waits to be called when a block becomes free. It looks once more after this, and calls [`Self::wake`] if
    /// it finds something.
    pub fn sleep(&self) {
        // SeqCst, as in the guest's `freed_for_host`.
        self.header.host.swap(HOST_ASLEEP, Ordering::SeqCst);
    }

    /// The host looks by itself.
    pub fn wake(&self) {
        self.header.host.swap(HOST_AWAKE, Ordering::SeqCst);
    }

    /// How often the guest has failed to get memory for which blocks were out: a number to compare with what it was.
    pub fn misses(&self) -> u32 {
        self.header.misses.load(Ordering::Relaxed)
    }

    /// Whether a GiB says that a host is in it: this one, or one that is no more and left it so.
    pub fn is_left_open(&self) -> bool {
        let zones = (0..).map_while(|zone| self.zone(zone));
        let mut giants = zones.flat_map(|zone| zone.arrays.giants);
        giants.any(|giant| giant.load().has_host())
    }

    /// Puts back what a host has left out that is no more, and calls `pause` between two looks at what it may have
    /// counted; how many blocks. The caller knows that no other host is at it.
    pub fn recover(&self, mut pause: impl FnMut()) -> u64 {
        let zones = (0..).map_while(|zone| self.zone(zone));
        zones.map(|zone| recover_zone(zone, &mut pause)).sum()
    }

    /// Enters the GiB of this frame, of whose zone so many blocks at most will be out.
    ///
    /// # Errors
    /// If it is in use as a whole, a host is in it, or others do not leave its word alone.
    pub fn open(&self, frame: Frame) -> Result<OpenGiant<'_, '_>, TakeError> {
        let (zone, block) = self.locate(frame).ok_or(TakeError::NotManaged)?;
        let zone = self.zone(zone).ok_or(TakeError::NotManaged)?;
        OpenGiant::enter(zone, block / TREE_BLOCKS)
    }
}

impl<'a, 'm> OpenGiant<'a, 'm> {
    /// Enters the GiB of a tree.
    pub(crate) fn enter(zone: &'a Zone<'m>, tree: usize) -> Result<Self, TakeError> {
        let giant = zone.giant_of(tree);
        // Before anything is out: whoever fails for want of it finds this.
        let most = TAKE_BLOCKS as u64 * PAGEBLOCK_FRAMES;
        let before = zone.record.taken.swap(most, Ordering::Relaxed);
        zone.count_isolation();
        if let Err(error) = enter(zone, giant) {
            zone.record.taken.store(before, Ordering::Relaxed);
            return Err(error);
        }
        Ok(Self {
            zone,
            giant,
            taken: [0; TAKE_BLOCKS],
            len: 0,
        })
    }

    /// Whether no more blocks may be taken.
    pub fn is_full(&self) -> bool {
        self.len == TAKE_BLOCKS
    }

    /// The first frames of the blocks that are out, as the metadata says: whoever wrote it may have described memory that
    /// it was not given, so the caller checks.
    pub fn blocks(&self) -> impl Iterator<Item = Frame> {
        let zone = self.zone;
        let taken = self.taken[..self.len].iter();
        taken.map(move |&block| zone.first_frame(block))
    }

    /// Takes the pageblock of this frame, if all of it is free.
    ///
    /// # Errors
    /// If it is of another GiB or not free, if others do not leave its word alone, or if no more may be out.
    pub fn take(&mut self, frame: Frame) -> Result<(), TakeError> {
        let block = self.zone.block_of(frame).ok_or(TakeError::NotManaged)?;
        if self.zone.giant_of(block / TREE_BLOCKS) != self.giant {
            return Err(TakeError::NotManaged);
        }
        self.take_block(block, State::is_free)
    }

    /// Takes a block of the GiB that is free and wanted.
    pub(crate) fn take_block(
        &mut self,
        block: usize,
        wanted: impl Fn(State) -> bool,
    ) -> Result<(), TakeError> {
        let room = self.taken.get_mut(self.len).ok_or(TakeError::Full)?;
        let step = |old: State| (old.is_free() && wanted(old)).then_some(old.taken());
        let change = exchange(self.zone, block, step)?;
        *room = block;
        self.len += 1;
        count(self.zone, block, change);
        Ok(())
    }

    /// Puts all blocks back and leaves the GiB; how many the guest has not meddled with. Reported: they are zero.
    pub fn close(self, how: PutBack) -> usize {
        let put_back = |&block: &usize| self.put_back(block, how).is_ok();
        let done = self.taken[..self.len]
            .iter()
            .filter(|block| put_back(block));
        let done = done.count();
        // If the guest does not let it, it is the guest's GiB that can never be had whole.
        let _ = leave(self.zone, self.giant);
        self.zone.record.taken.store(0, Ordering::Relaxed);
        done
    }

    fn put_back(&self, block: usize, how: PutBack) -> Result<(), TakeError> {
        let arrays = &self.zone.arrays;
        let state = arrays.states[block].load();
        let reported = how == PutBack::Reported;
        if reported && state.is_taken() {
            if state.is_fine() {
                self.zone.forget_touched(block);
            }
            if let Some(used) = arrays.used.get(block) {
                used.forget();
            }
        }
        let back = |old: State| old.is_taken().then_some(old.put_back(reported));
        let change = exchange(self.zone, block, back)?;
        count(self.zone, block, change);
        Ok(())
    }
}

/// Changes a block's state, as long as others let it.
fn exchange(
    zone: &Zone<'_>,
    block: usize,
    step: impl Fn(State) -> Option<State>,
) -> Result<Change, TakeError> {
    let state = &zone.arrays.states[block];
    for _ in 0..ATTEMPTS {
        let old = state.load();
        let new = step(old).ok_or(TakeError::State)?;
        if state.exchange(old, new) {
            return Ok(Change { old, new });
        }
    }
    Err(TakeError::Contended)
}

/// Enters a GiB.
fn enter(zone: &Zone<'_>, giant: usize) -> Result<(), TakeError> {
    let word: &AtomicGiant = &zone.arrays.giants[giant];
    let mut hand_downs = 0;
    for _ in 0..ATTEMPTS {
        let old = word.load();
        if old.is_huge() {
            return Err(TakeError::State);
        }
        if old.is_touched() {
            if hand_downs == HAND_DOWNS {
                break;
            }
            hand_downs += 1;
            hand_down(zone, giant)?;
            word.settled(old);
            continue;
        }
        let new = old.entered_by_host().ok_or(TakeError::State)?;
        if word.exchange(old, new) {
            return Ok(());
        }
    }
    Err(TakeError::Contended)
}

/// Leaves it.
fn leave(zone: &Zone<'_>, giant: usize) -> Result<(), TakeError> {
    let word = &zone.arrays.giants[giant];
    for _ in 0..ATTEMPTS {
        let old = word.load();
        let new = old.left_by_host().ok_or(TakeError::State)?;
        if word.exchange(old, new) {
            if new.count() == 0 {
                zone.arrays.giant_map.announce(FREE_GIANTS, giant);
            }
            return Ok(());
        }
    }
    Err(TakeError::Contended)
}

/// Tells the blocks of a GiB that was used whole that they are touched.
fn hand_down(zone: &Zone<'_>, giant: usize) -> Result<(), TakeError> {
    // One that lacks trees is never used whole.
    let first = zone.first_tree(giant).ok_or(TakeError::State)?;
    for block in blocks_from(first) {
        let touch = |old: State| (old.is_free() && !old.is_touched()).then_some(old.touched());
        match exchange(zone, block, touch) {
            Ok(change) => count(zone, block, change),
            Err(TakeError::State) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Counts a change of a block that is free or taken before and after.
fn count(zone: &Zone<'_>, block: usize, change: Change) {
    let tree = block / TREE_BLOCKS;
    let (old, new) = (change.old.class(), change.new.class());
    zone.arrays.summaries[tree].count(old, new);
    if let Some(wanted) = Wanted::of(change.new, Reach::ALL) {
        zone.announce(wanted, tree);
    }
}

/// Puts back what a host that is no more has taken of a zone.
fn recover_zone(zone: &Zone<'_>, pause: &mut impl FnMut()) -> u64 {
    let mut blocks = 0;
    let giants = zone.arrays.giants;
    for tree in 0..zone.trees() {
        if giants[zone.giant_of(tree)].load().has_host() {
            blocks += recover_tree(zone, tree, pause);
        }
    }
    for (giant, word) in giants.iter().enumerate() {
        if word.load().has_host() {
            let _ = leave(zone, giant);
        } else if word.load().count() == 0 {
            // It may have left it and not said so.
            zone.arrays.giant_map.announce(FREE_GIANTS, giant);
        }
    }
    zone.record.taken.store(0, Ordering::Relaxed);
    blocks
}

fn recover_tree(zone: &Zone<'_>, tree: usize, pause: &mut impl FnMut()) -> u64 {
    let mut blocks = 0;
    for block in tree * TREE_BLOCKS..(tree + 1) * TREE_BLOCKS {
        // What it holds is as it was, or zero: that it is touched is right, or costs a look.
        let back = |old: State| old.is_taken().then_some(old.put_back(false));
        if let Ok(change) = exchange(zone, block, back) {
            count(zone, block, change);
            blocks += 1;
        }
    }
    count_again(zone, tree, pause);
    for wanted in [Wanted::Touched, Wanted::Untouched] {
        zone.announce(wanted, tree);
    }
    blocks
}

/// Sets the summary of a tree right, if a change was made and not counted.
fn count_again(zone: &Zone<'_>, tree: usize, pause: &mut impl FnMut()) {
    let (mut alike, mut last) = (0, 0);
    for _ in 0..LOOKS {
        match off_by(zone, tree) {
            Some(0) => return,
            Some(off) if off == last => {
                alike += 1;
                if alike == LOOKS_ALIKE {
                    return zone.arrays.summaries[tree].correct(off);
                }
            }
            Some(off) => (alike, last) = (1, off),
            None => {}
        }
        pause();
    }
}

/// What has to be added to the summary of a tree, if nobody changed the tree meanwhile.
fn off_by(zone: &Zone<'_>, tree: usize) -> Option<u64> {
    let states = &zone.arrays.states[tree * TREE_BLOCKS..(tree + 1) * TREE_BLOCKS];
    let before = zone.arrays.summaries[tree].load();
    let seen: [State; TREE_BLOCKS] = core::array::from_fn(|block| states[block].load());
    let counted = AtomicSummary::new();
    for state in seen {
        counted.count(Class::Untouched, state.class());
    }
    let quiet = states
        .iter()
        .zip(seen)
        .all(|(state, seen)| state.load() == seen);
    let quiet = quiet && zone.arrays.summaries[tree].load() == before;
    quiet.then(|| counted.load().minus(before))
}
