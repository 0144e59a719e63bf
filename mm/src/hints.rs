//! What CPUs note of the blocks that they free, for the hinter (the seed's lists local to CPUs).
//!
//! Who frees a block writes one entry into the list of its CPU. It calls the worker if the worker knows of no entry
//! at all, or if the list is full and the worker would come later. It never waits, locks or sends.

use core::fmt;

use crate::{
    Frame, Order,
    frame::PAGEBLOCK_FRAMES,
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};

/// Room for entries in a list (the seed's `MAX_FGPT_ENTRIES`): with what else is in it, a page.
#[cfg(not(ebb_model))]
pub const HINT_ENTRIES: usize = 1000;
#[cfg(ebb_model)]
#[allow(missing_docs, reason = "for models")]
pub const HINT_ENTRIES: usize = 2;

/// So many entries make a list full, unless that is changed: a request's worth of blocks.
pub const HINT_LIMIT: usize = if HINT_ENTRIES < 32 { HINT_ENTRIES } else { 32 };

/// The bit of an entry that stands for an aligned GiB. Numbers of pageblocks are below.
const GIANT: u32 = 1 << 31;

/// Blocks that were freed: a pageblock of which something became free, or a GiB.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hint(u32);

impl Hint {
    /// The pageblock of a frame.
    pub(crate) fn block(frame: Frame) -> Self {
        // A frame's number has 40 bits, a pageblock's 31.
        Self(u32::try_from(frame.number() / PAGEBLOCK_FRAMES).unwrap_or(GIANT - 1))
    }

    /// The GiB that begins with a frame.
    pub(crate) fn giant(first: Frame) -> Self {
        Self(Self::block(first).0 | GIANT)
    }

    /// The number of the first pageblock, and how many they are.
    pub(crate) fn blocks(self) -> (u32, u32) {
        let giant = Order::GIANT.frames() / PAGEBLOCK_FRAMES;
        if self.0 & GIANT == 0 {
            (self.0, 1)
        } else {
            (self.0 & !GIANT, u32::try_from(giant).unwrap_or(1))
        }
    }
}

/// The list of one CPU. Only its own CPU writes into it, while nothing else runs there; only the hinter reads.
#[repr(C, align(64))]
pub struct HintList {
    /// Entries written so far. The CPU's own.
    written: AtomicU64,
    /// Entries read so far. The hinter's.
    read: AtomicU64,
    entries: [AtomicU32; HINT_ENTRIES],
}

impl fmt::Debug for HintList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HintList")
            .field("waiting", &self.len())
            .finish_non_exhaustive()
    }
}

impl HintList {
    /// A list without entries.
    #[cfg(not(ebb_model))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            entries: [const { AtomicU32::new(0) }; HINT_ENTRIES],
        }
    }

    /// A list without entries.
    #[cfg(ebb_model)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            entries: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Entries that nobody has read.
    pub(crate) fn len(&self) -> usize {
        // Acquire (both): see `push` and `take`.
        let written = self.written.load(Ordering::Acquire);
        let waiting = written.saturating_sub(self.read.load(Ordering::Acquire));
        usize::try_from(waiting).unwrap_or(usize::MAX)
    }

    /// Writes an entry; how many there are then, or none if there is no room.
    fn push(&self, hint: Hint) -> Option<usize> {
        // Relaxed: this CPU alone writes it.
        let written = self.written.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `take`, after which the places are free.
        let waiting = written.saturating_sub(self.read.load(Ordering::Acquire));
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        if waiting >= HINT_ENTRIES {
            return None;
        }
        self.entries[place(written)].store(hint.0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take`, which then finds the entry, and the block free.
        self.written.store(written + 1, Ordering::Release);
        Some(waiting + 1)
    }

    /// Reads what there is.
    pub(crate) fn take(&self, mut visit: impl FnMut(Hint)) {
        // Acquire: see `push`.
        let written = self.written.load(Ordering::Acquire);
        // Relaxed: the hinter alone writes it.
        let read = self.read.load(Ordering::Relaxed);
        // Bounded by the room, whatever the counts say.
        for at in (read..written).take(HINT_ENTRIES) {
            visit(Hint(self.entries[place(at)].load(Ordering::Relaxed)));
        }
        // Release: see `push`.
        self.read.store(written, Ordering::Release);
    }
}

impl Default for HintList {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the entry of this number is.
fn place(number: u64) -> usize {
    crate::frame::index(number % HINT_ENTRIES as u64)
}

/// The worker knows of no entry: whoever writes one calls.
const ASLEEP: u32 = 0;
/// The worker comes when what it knows of is old enough: who makes a list full calls.
const WAITING: u32 = 1;
/// The worker was called, works, or leaves memory alone until a time of its own: nobody calls.
const CALLED: u32 = 2;

/// Between those who write entries and the worker. Who writes an entry looks at `worker` afterwards; the worker, before
/// it rests, says so in `worker` and looks at the lists afterwards. Of two at once one sees the other.
pub(crate) struct Calls {
    worker: AtomicU32,
    /// Something was freed that is in no list: all memory has to be looked through.
    missed: AtomicU32,
    /// How many entries make a list full.
    limit: AtomicU32,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            worker: AtomicU32::new(CALLED),
            missed: AtomicU32::new(0),
            limit: AtomicU32::new(u32::try_from(HINT_LIMIT).unwrap_or(1)),
        }
    }

    /// How many entries make a list full: 1 to [`HINT_ENTRIES`].
    pub(crate) fn set_limit(&self, entries: usize) {
        debug_assert!((1..=HINT_ENTRIES).contains(&entries));
        // Relaxed: who frees meanwhile goes by the old one.
        self.limit
            .store(u32::try_from(entries).unwrap_or(1), Ordering::Relaxed);
    }

    /// Whether a list with so many entries is full.
    pub(crate) fn is_full(&self, entries: usize) -> bool {
        entries >= crate::frame::index(self.limit.load(Ordering::Relaxed).into())
    }

    /// Something was freed that is in no list.
    pub(crate) fn miss(&self) {
        // Release: pairs with the Acquire in `take_missed`: who takes it finds what was freed.
        self.missed.store(1, Ordering::Release);
    }

    /// Whether something was, since this was last asked.
    pub(crate) fn take_missed(&self) -> bool {
        self.has_missed() && self.missed.swap(0, Ordering::AcqRel) != 0
    }

    fn has_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed) != 0
    }

    /// Notes what was freed; whether the worker has to be called.
    pub(crate) fn note(&self, list: Option<&HintList>, hint: Hint) -> bool {
        let full = match list.and_then(|list| list.push(hint)) {
            Some(entries) => self.is_full(entries),
            None => {
                self.miss();
                true
            }
        };
        // Pairs with the fence in `rest`.
        fence(Ordering::SeqCst);
        let seen = self.worker.load(Ordering::Relaxed);
        let due = seen == ASLEEP || full && seen == WAITING;
        // A failed exchange: another called, or the worker has looked since, which found this entry.
        due && self
            .worker
            .compare_exchange(seen, CALLED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// The worker begins to work.
    pub(crate) fn work(&self) {
        // AcqRel: pairs with that of `note`.
        self.worker.swap(CALLED, Ordering::AcqRel);
    }

    /// The worker rests: until it is called, or (`knows`) until what it knows of is old enough. False: it must not, there is
    /// something to do.
    pub(crate) fn rest(&self, knows: bool, lists: &[HintList]) -> bool {
        let rest = if knows { WAITING } else { ASLEEP };
        self.worker.swap(rest, Ordering::AcqRel);
        // Pairs with the fence in `note`.
        fence(Ordering::SeqCst);
        let wakes = |list: &HintList| {
            let entries = list.len();
            entries != 0 && (!knows || self.is_full(entries))
        };
        let works = self.has_missed() || lists.iter().any(wakes);
        if works {
            self.work();
        }
        !works
    }
}

#[cfg(all(test, ebb_model))]
#[path = "hints_model.rs"]
mod model;
