//! Per-CPU lists of freed blocks ([`HintList`]), which the hinter reads, and the protocol that
//! wakes the hinter ([`Calls`]).
//!
//! A CPU that frees a block writes one entry into its own list. It wakes the hinter if the hinter
//! sleeps, or if the list is full and the hinter waits for a time. The CPU never blocks, takes a
//! lock or sends to the host.

use core::fmt;

use crate::{
    Frame, Order,
    frame::PAGEBLOCK_FRAMES,
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};

/// Capacity of a [`HintList`] in entries. It is the `MAX_FGPT_ENTRIES` of the Linux patches. The
/// list fills a page.
#[cfg(not(ebb_model))]
pub const HINT_ENTRIES: usize = 1000;
#[cfg(ebb_model)]
#[allow(missing_docs, reason = "for models")]
pub const HINT_ENTRIES: usize = 2;

/// The number of entries from which on a list counts as full, unless
/// [`Allocator::set_hint_limit`](crate::Allocator::set_hint_limit) changes it. It is large, so that
/// a program that frees and allocates the same memory again and again rarely wakes the hinter
/// before [`HINT_BOUND`](crate::HINT_BOUND). The rest of the capacity is for what is freed until
/// the hinter runs.
pub const HINT_LIMIT: usize = HINT_ENTRIES.div_ceil(2);

/// The bit of an entry that stands for an aligned GiB. Pageblock numbers are below it.
const GIB: u32 = 1 << 31;

/// An entry of a hint list: a pageblock in which frames were freed, or a freed GiB.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hint(u32);

impl Hint {
    /// Returns the list entry for the pageblock of `frame`.
    pub(crate) fn block(frame: Frame) -> Self {
        // A frame number has 40 bits, so a pageblock number has 31.
        Self(u32::try_from(frame.number() / PAGEBLOCK_FRAMES).unwrap_or(GIB - 1))
    }

    /// Returns the list entry for the GiB that starts with frame `first`, which must be aligned.
    pub(crate) fn gib(first: Frame) -> Self {
        Self(Self::block(first).0 | GIB)
    }

    /// Returns the number of the first pageblock of the entry, and how many pageblocks the entry
    /// has: 1 or 512.
    pub(crate) fn blocks(self) -> (u32, u32) {
        let gib = Order::GIB.frames() / PAGEBLOCK_FRAMES;
        if self.0 & GIB == 0 {
            (self.0, 1)
        } else {
            (self.0 & !GIB, u32::try_from(gib).unwrap_or(1))
        }
    }
}

/// The list of one CPU, in which it notes the blocks that it frees.
///
/// Only that CPU writes it, without being interrupted by code that writes it, too. Only the
/// [`Hinter`](crate::Hinter) reads it.
#[repr(C, align(64))]
pub struct HintList {
    /// Number of entries written so far. Only the CPU changes it.
    written: AtomicU64,
    /// Number of entries read so far. Only the hinter changes it.
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
    /// Returns an empty list.
    #[cfg(not(ebb_model))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            entries: [const { AtomicU32::new(0) }; HINT_ENTRIES],
        }
    }

    /// Returns an empty list.
    #[cfg(ebb_model)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            entries: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Returns the number of entries that the hinter has not read.
    pub(crate) fn len(&self) -> usize {
        // `Acquire` (both) pairs with the `Release` in `push` and in `take`.
        let written = self.written.load(Ordering::Acquire);
        let waiting = written.saturating_sub(self.read.load(Ordering::Acquire));
        usize::try_from(waiting).unwrap_or(usize::MAX)
    }

    /// Adds an entry. Returns the number of unread entries, or `None` if the list has no room.
    fn push(&self, hint: Hint) -> Option<usize> {
        // `Relaxed`: only this CPU writes it.
        let written = self.written.load(Ordering::Relaxed);
        // `Acquire` pairs with the `Release` in `take`, after which the entries may be overwritten.
        let waiting = written.saturating_sub(self.read.load(Ordering::Acquire));
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        if waiting >= HINT_ENTRIES {
            return None;
        }
        self.entries[place(written)].store(hint.0, Ordering::Relaxed);
        // `Release` pairs with the `Acquire` in `take`, which then sees the entry, and that the
        // block is free.
        self.written.store(written + 1, Ordering::Release);
        Some(waiting + 1)
    }

    /// Removes all entries from the list, and calls `visit` for each, the oldest first. Only the
    /// hinter may call this.
    pub(crate) fn take(&self, mut visit: impl FnMut(Hint)) {
        // `Acquire` pairs with the `Release` in `push`.
        let written = self.written.load(Ordering::Acquire);
        // `Relaxed`: only the hinter writes it.
        let read = self.read.load(Ordering::Relaxed);
        // Bounded by the capacity, even if the counters are wrong.
        for at in (read..written).take(HINT_ENTRIES) {
            visit(Hint(self.entries[place(at)].load(Ordering::Relaxed)));
        }
        // `Release` pairs with the `Acquire` in `push`.
        self.read.store(written, Ordering::Release);
    }
}

impl Default for HintList {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the index in the ring of the entry with this number.
fn place(number: u64) -> usize {
    crate::frame::index(number % HINT_ENTRIES as u64)
}

/// The hinter has no entry to wait for. A CPU that writes an entry wakes it.
const ASLEEP: u32 = 0;
/// The hinter wakes up by itself when its oldest entry is old enough. A CPU that fills a list wakes
/// it earlier.
const WAITING: u32 = 1;
/// The hinter was woken, is at work, or pauses until a time of its own. No CPU wakes it.
const CALLED: u32 = 2;

/// The protocol between the CPUs that write entries and the hinter.
///
/// A CPU writes its entry first and reads `worker` after that. The hinter, before it rests, writes
/// `worker` first and reads the lists after that. So if both happen at once, at least one of them
/// sees the other.
pub(crate) struct Calls {
    /// `ASLEEP`, `WAITING` or `CALLED`.
    worker: AtomicU32,
    /// Whether a block was freed that is in no list, so that a sweep over all memory is necessary.
    missed: AtomicU32,
    /// The number of entries from which on a list is full.
    limit: AtomicU32,
}

impl Calls {
    /// Returns the initial state: the hinter is at work, so no CPU wakes it, and a list is full
    /// with [`HINT_LIMIT`] entries.
    pub(crate) fn new() -> Self {
        Self {
            worker: AtomicU32::new(CALLED),
            missed: AtomicU32::new(0),
            limit: AtomicU32::new(u32::try_from(HINT_LIMIT).unwrap_or(1)),
        }
    }

    /// Sets how many entries make a hint list full: 1 to [`HINT_ENTRIES`].
    pub(crate) fn set_limit(&self, entries: usize) {
        debug_assert!((1..=HINT_ENTRIES).contains(&entries));
        // `Relaxed`: CPUs that free at the same time may use the old limit.
        self.limit
            .store(u32::try_from(entries).unwrap_or(1), Ordering::Relaxed);
    }

    /// Returns how many entries make a hint list full.
    pub(crate) fn limit(&self) -> usize {
        crate::frame::index(self.limit.load(Ordering::Relaxed).into())
    }

    /// Returns `true` if a hint list with `entries` entries counts as full.
    pub(crate) fn is_full(&self, entries: usize) -> bool {
        entries >= self.limit()
    }

    /// Notes that a block was freed that is in no hint list, so that a sweep over all memory is
    /// necessary. Does not wake the hinter.
    pub(crate) fn miss(&self) {
        // `Release` pairs with the `Acquire` in `take_missed`, after which the hinter finds the
        // block free.
        self.missed.store(1, Ordering::Release);
    }

    /// Returns `true` if, since the last call, a block was freed that is in no hint list. Clears
    /// that mark.
    pub(crate) fn take_missed(&self) -> bool {
        self.has_missed() && self.missed.swap(0, Ordering::AcqRel) != 0
    }

    /// Returns `true` if a block was freed that is in no list.
    fn has_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed) != 0
    }

    /// Notes a freed block in the hint list of the calling CPU. If `list` is `None` or full to its
    /// capacity, notes that a sweep over all memory is necessary. Returns `true` if the caller must
    /// wake the hinter: it sleeps, or this list is full and the hinter waits for a time.
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
        // If the exchange fails, another CPU wakes the hinter, or the hinter has changed `worker`
        // after this entry was written, and finds the entry.
        due && self
            .worker
            .compare_exchange(seen, CALLED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Notes that the hinter starts to work, so that no CPU wakes it.
    pub(crate) fn work(&self) {
        // `AcqRel` pairs with the exchange in `note`.
        self.worker.swap(CALLED, Ordering::AcqRel);
    }

    /// Lets the hinter rest, and returns `true`: until its oldest entry is old enough if `knows` is
    /// set, otherwise until a CPU wakes it. Returns `false` if it must not rest and stays at work.
    /// That is the case if a sweep is necessary, if one of `lists` is full, or, without `knows`, if
    /// one of `lists` has an entry.
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
