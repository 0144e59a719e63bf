//! The steps by which an attached host takes free pageblocks out of the guest's allocator and puts
//! them back.
//!
//! The host enters one GiB at a time by one exchange of the GiB's word. Then it may take its free
//! pageblocks, one exchange each, and it leaves the GiB when all are back. The host may be killed
//! between any two of these steps. So each step leaves a mark: the GiB's word says that a host is
//! in it, the state word of a pageblock says that a host took it. The next host repairs both
//! ([`Attached::recover`]) once it knows that the host before is gone. Only the summary of a tree
//! has no such mark, so recovery counts it again.
//!
//! Only one such host may be attached at a time.

use core::{error, fmt};

use crate::{
    Frame, PutBack,
    attach::Attached,
    frame::PAGEBLOCK_FRAMES,
    gib::AtomicGib,
    header::{HOST_ASLEEP, HOST_AWAKE},
    ids::{BlockId, GibId, Id, TreeId, each},
    run_bound::RunBound,
    state::{Change, Class, State},
    summary::{AtomicSummary, TREE_BLOCKS},
    sync::Ordering,
    zone::{FREE_GIBS, Wanted, Zone},
};

/// The most pageblocks that are taken out at one time: 64 MiB, which the guest cannot allocate
/// then.
pub const TAKE_BLOCKS: usize = 32;
/// The most attempts to exchange a word before the guest counts as hostile. An honest guest makes a
/// few attempts fail: one for each of its CPUs that uses the same word.
const ATTEMPTS: usize = 1 << 10;
/// The most times that the 512 state words of a GiB are updated from its word before the guest
/// counts as hostile. An honest guest makes a repetition necessary only if it uses and frees the
/// GiB in between.
const HAND_DOWNS: usize = 4;
/// A summary that is wrong by the same amount in this many looks, with pauses between them, is
/// wrong for good. A change that a CPU of the guest is about to count differs from one look to the
/// next.
const LOOKS_ALIKE: u32 = 4;
/// The most looks at a tree that the guest changes all the time.
const LOOKS: u32 = 64;

/// Why a pageblock could not be taken out or put back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TakeError {
    /// The metadata has no such frame.
    NotManaged,
    /// The pageblock is not free. For a pageblock to be put back: it is not marked as taken, so the
    /// guest broke the rules.
    State,
    /// The guest kept changing the words of the pageblock or its GiB.
    Contended,
    /// No more pageblocks may be out at one time ([`TAKE_BLOCKS`]).
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

/// One GiB whose free pageblocks an attached host may take out, and the pageblocks that it has
/// taken. The guest cannot allocate those until [`close`](Self::close) puts them back. A value that
/// is dropped leaves that to [`Attached::recover`].
#[derive(Debug)]
#[must_use = "the guest lacks what was taken unless it is closed"]
pub struct OpenGib<'a, 'm> {
    zone: &'a Zone<'m>,
    gib: GibId,
    /// The pageblocks that are out; the first `len` entries are valid.
    taken: [BlockId; TAKE_BLOCKS],
    len: usize,
}

impl Attached<'_> {
    /// Asks the guest to call its `Events::report_requested` once, when a pageblock becomes free,
    /// for a host that has found no free memory and waits. Does not wait itself. The host must look
    /// once more after this, and call [`Self::wake`] if it finds some.
    pub fn sleep(&self) {
        // `SeqCst`, as in the guest's `freed_for_host`.
        self.header.host.swap(HOST_ASLEEP, Ordering::SeqCst);
    }

    /// Cancels [`Self::sleep`]: the host looks for free memory itself and needs no call.
    pub fn wake(&self) {
        self.header.host.swap(HOST_AWAKE, Ordering::SeqCst);
    }

    /// Returns how often an allocation of the guest failed while pageblocks were out. Compare it
    /// with an earlier result; it wraps around.
    pub fn isolation_failures(&self) -> u32 {
        self.header.isolation_failures.load(Ordering::Relaxed)
    }

    /// Returns whether the word of any GiB says that a host is in it: this one, or one that was
    /// killed before it closed the GiB.
    pub fn is_left_open(&self) -> bool {
        let zones = self.each_zone();
        let mut gibs = zones.flat_map(|zone| zone.arrays.gibs.iter());
        gibs.any(|gib| gib.load().has_host())
    }

    /// Puts back all pageblocks that a killed host has left out, leaves the GiBs that it was in,
    /// and returns the number of pageblocks. They count as touched. Calls `pause` between two looks
    /// at a summary that the killed host may not have updated. The caller must know that no other
    /// host is attached.
    pub fn recover(&self, mut pause: impl FnMut()) -> u64 {
        let zones = self.each_zone();
        zones.map(|zone| recover_zone(zone, &mut pause)).sum()
    }

    /// Enters the GiB of `frame`: raises its count of used pageblocks and marks that a host is in
    /// it. Then its free pageblocks can be taken out. [`OpenGib::close`] leaves the GiB.
    ///
    /// # Errors
    /// Fails with `NotManaged` if no zone has the frame, with `State` if the GiB is allocated as a
    /// whole or a host is in it, and with `Contended` if the guest keeps changing its word.
    pub fn open(&self, frame: Frame) -> Result<OpenGib<'_, '_>, TakeError> {
        let (zone, block) = self.locate(frame).ok_or(TakeError::NotManaged)?;
        let zone = self.zone(zone).ok_or(TakeError::NotManaged)?;
        OpenGib::enter(zone, block.tree())
    }
}

impl<'a, 'm> OpenGib<'a, 'm> {
    /// Enters the GiB that contains `tree`. Fails as [`Attached::open`] does, except with
    /// `NotManaged`.
    pub(crate) fn enter(zone: &'a Zone<'m>, tree: TreeId) -> Result<Self, TakeError> {
        let gib = zone.gib_of(tree);
        // Counted before any block is out: an allocation of the guest that fails for lack of it
        // must find the count.
        let most = TAKE_BLOCKS as u64 * PAGEBLOCK_FRAMES;
        let before = zone.record.taken.swap(most, Ordering::Relaxed);
        zone.count_isolation();
        if let Err(error) = enter(zone, gib) {
            zone.record.taken.store(before, Ordering::Relaxed);
            return Err(error);
        }
        Ok(Self {
            zone,
            gib,
            taken: [BlockId::FIRST; TAKE_BLOCKS],
            len: 0,
        })
    }

    /// Returns whether [`TAKE_BLOCKS`] pageblocks are out, so that no more may be taken.
    pub fn is_full(&self) -> bool {
        self.len == TAKE_BLOCKS
    }

    /// Returns the first frames of the pageblocks that are out. They come from the guest's
    /// metadata, which may describe memory that the guest was not given: the caller must check.
    pub fn blocks(&self) -> impl Iterator<Item = Frame> {
        let zone = self.zone;
        let taken = self.taken[..self.len].iter();
        taken.map(move |&block| zone.first_frame(block))
    }

    /// Takes the pageblock of `frame` out, if all of it is free.
    ///
    /// # Errors
    /// Fails with `NotManaged` if the frame is not in this GiB, with `State` if the pageblock is
    /// not free, with `Contended` if the guest keeps changing its state word, and with `Full` if
    /// [`TAKE_BLOCKS`] pageblocks are out. No pageblock is taken then.
    pub fn take(&mut self, frame: Frame) -> Result<(), TakeError> {
        let block = self.zone.block_of(frame).ok_or(TakeError::NotManaged)?;
        if self.zone.gib_of(block.tree()) != self.gib {
            return Err(TakeError::NotManaged);
        }
        self.take_block(block, State::is_free)
    }

    /// Takes `block`, a pageblock of the GiB, out, if it is free and `wanted` accepts its state.
    /// Fails with `State` if it is not free or not wanted, with `Contended` if the guest keeps
    /// changing its state word, and with `Full` if [`TAKE_BLOCKS`] pageblocks are out.
    pub(crate) fn take_block(
        &mut self,
        block: BlockId,
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

    /// Puts all pageblocks back and leaves the GiB. Returns the number of pageblocks put back. It
    /// is smaller than the number taken only if the guest has tampered with the state words or
    /// keeps changing them.
    ///
    /// [`PutBack::Reported`] says that the memory was dropped and reads as zero: the pageblocks
    /// become untouched, and their frames count as never used.
    pub fn close(self, how: PutBack) -> usize {
        let put_back = |&block: &BlockId| self.put_back(block, how).is_ok();
        let done = self.taken[..self.len]
            .iter()
            .filter(|block| put_back(block));
        let done = done.count();
        // If this fails, only the guest's own GiB can never be allocated whole.
        let _ = leave(self.zone, self.gib);
        self.zone.record.taken.store(0, Ordering::Relaxed);
        done
    }

    /// Puts one pageblock back. Fails if its state word does not say that a host took it.
    fn put_back(&self, block: BlockId, how: PutBack) -> Result<(), TakeError> {
        let arrays = &self.zone.arrays;
        let state = arrays.states[block].load();
        let reported = how == PutBack::Reported;
        if reported && state.is_taken() {
            if state.has_exact_marks() {
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

/// Changes the state of a pageblock by `step`, in a bounded number of attempts. Fails with `State`
/// if `step` refuses, and with `Contended` if the guest keeps changing the word.
fn exchange(
    zone: &Zone<'_>,
    block: BlockId,
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

/// Raises the count of a GiB and marks that a host is in it.
fn enter(zone: &Zone<'_>, gib: GibId) -> Result<(), TakeError> {
    let word: &AtomicGib = &zone.arrays.gibs[gib];
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
            hand_down(zone, gib)?;
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

/// Lowers the count of a GiB and clears the mark of the host.
fn leave(zone: &Zone<'_>, gib: GibId) -> Result<(), TakeError> {
    let word = &zone.arrays.gibs[gib];
    for _ in 0..ATTEMPTS {
        let old = word.load();
        let new = old.left_by_host().ok_or(TakeError::State)?;
        if word.exchange(old, new) {
            if new.count() == 0 {
                zone.arrays.gib_map.announce(FREE_GIBS, gib);
            }
            return Ok(());
        }
    }
    Err(TakeError::Contended)
}

/// Marks the free pageblocks of a GiB that was allocated whole as touched.
fn hand_down(zone: &Zone<'_>, gib: GibId) -> Result<(), TakeError> {
    // A GiB without all its trees is never allocated whole.
    let first = zone.first_tree(gib).ok_or(TakeError::State)?;
    for block in each(first.blocks_of_gib()) {
        let touch = |old: State| (old.is_free() && !old.is_touched()).then_some(old.touched());
        match exchange(zone, block, touch) {
            Ok(change) => count(zone, block, change),
            Err(TakeError::State) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Counts a change of a pageblock, which is free or taken before and after, in the summary and the
/// map.
fn count(zone: &Zone<'_>, block: BlockId, change: Change) {
    let tree = block.tree();
    let (old, new) = (change.old.class(), change.new.class());
    zone.arrays.summaries[tree].count(old, new);
    if let Some(wanted) = Wanted::of(change.new, RunBound::ALL) {
        zone.announce(wanted, tree);
    }
}

/// Puts back the pageblocks of a zone that a killed host has taken. Returns their number.
fn recover_zone(zone: &Zone<'_>, pause: &mut impl FnMut()) -> u64 {
    let mut blocks = 0;
    let gibs = zone.arrays.gibs;
    for tree in zone.tree_ids() {
        if gibs[zone.gib_of(tree)].load().has_host() {
            blocks += recover_tree(zone, tree, pause);
        }
    }
    for (gib, word) in gibs.entries() {
        if word.load().has_host() {
            let _ = leave(zone, gib);
        } else if word.load().count() == 0 {
            // The killed host may have left the GiB without announcing it.
            zone.arrays.gib_map.announce(FREE_GIBS, gib);
        }
    }
    zone.record.taken.store(0, Ordering::Relaxed);
    blocks
}

/// Puts back the pageblocks of a tree that a killed host has taken, and repairs the summary.
fn recover_tree(zone: &Zone<'_>, tree: TreeId, pause: &mut impl FnMut()) -> u64 {
    let mut blocks = 0;
    for block in tree.blocks() {
        // Its contents are unchanged or zero. Marking it as touched is right or costs one more
        // report.
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

/// Corrects the summary of a tree, if a change was made and not counted.
fn count_again(zone: &Zone<'_>, tree: TreeId, pause: &mut impl FnMut()) {
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

/// Returns the number that has to be added to the summary of a tree, or `None` if the guest changed
/// the tree during the count.
fn off_by(zone: &Zone<'_>, tree: TreeId) -> Option<u64> {
    let states = zone.arrays.states.of_tree(tree);
    let before = zone.arrays.summaries[tree].load();
    let seen: [State; TREE_BLOCKS] = core::array::from_fn(|bit| states[bit].load());
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
