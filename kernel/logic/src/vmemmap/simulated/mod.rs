//! A machine made of words: frames, tables, an allocator that can be set to refuse, and CPUs that
//! cache translations as long as they may.
//!
//! Frames that are freed have a new owner at once: they are filled with a value that no reader may
//! see.

mod allocator;
mod machine;

use super::machine::AtomicU64;
use crate::lock::Lock;
use crate::model_locks::Mutex;
use allocator::Allocator;
pub(super) use allocator::{Owner, Refuse};
#[cfg(not(ebb_model))]
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering;
use ebb_mm::{Frame, FrameRange};
use std::vec;
use std::vec::Vec;

/// The head of a free frame.
pub(super) const FREE: u64 = 0;
/// The head of a frame that the memmap has from the allocator.
pub(super) const MEMMAP: u64 = 8;
/// The head of all frames of a huge page.
pub(super) const HUGE: u64 = 9;
/// The value that new owners write to frames.
const FOREIGN: u64 = u64::MAX;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const LARGE: u64 = 1 << 7;
const OWNED: u64 = 1 << 9;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The number of the CPU that exchanges.
pub(super) const WRITER: usize = 0;
/// The number of a CPU that only reads.
pub(super) const READER: usize = 1;
const CPUS: usize = 2;

/// The fault that the machine has, so that a test shows that it would be noticed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    Nothing,
    /// No CPU flushes.
    #[cfg(ebb_model)]
    NoFlush,
    /// The CPUs flush when the frames already have another owner.
    #[cfg(ebb_model)]
    LateFlush,
}

/// The translations that a CPU caches: entries by their index.
#[derive(Debug)]
struct Tlb {
    slots: Vec<Option<u64>>,
    pages: Vec<Option<u64>>,
}

/// The machine: `E` entries in a table, `P` pages for the descriptors of a block.
#[derive(Debug)]
pub(super) struct Simulated<const E: usize, const P: usize> {
    words: Vec<AtomicU64>,
    slots: Vec<AtomicU64>,
    tlbs: [Mutex<Tlb>; CPUS],
    // A mutex of the standard library: only the writer uses it, so a model need not track it.
    allocator: std::sync::Mutex<Allocator>,
    /// For each frame, the heads that a reader may see now, one bit each. Empty means any.
    allowed: std::sync::Mutex<Vec<u16>>,
    wrong: std::sync::Mutex<Wrong>,
    /// Whether the lock of exchanges is held.
    #[cfg(not(ebb_model))]
    locked: AtomicBool,
}

impl<const E: usize, const P: usize> Simulated<E, P> {
    /// Number of frames that a page of the memmap describes, with two words each.
    const IN_PAGE: usize = E / P;
    /// Number of frames that a table's pages describe.
    pub(super) const IN_TABLE: usize = E * Self::IN_PAGE;
    /// Number of frames of a page of 1 GiB.
    pub(super) const IN_GIANT: usize = E * E;

    /// Returns a machine with `frames` frames. The memmap is in the last ones, mapped by large
    /// pages. `seed` is that of the allocator.
    pub(super) fn new(frames: usize, seed: u64) -> Self {
        const { assert!(P >= 2) };
        let tables = frames / Self::IN_TABLE;
        assert_eq!(tables * Self::IN_TABLE, frames);
        let boot = frames - tables * E;
        let mut owners = vec![Owner::None; boot];
        owners.resize(frames, Owner::Boot);
        let slot = |table| ((boot + table * E) as u64 * 4096) | LARGE | WRITABLE | PRESENT;
        let tlb = || Tlb {
            slots: vec![None; tables],
            pages: vec![None; tables * E],
        };
        Self {
            words: (0..frames * E).map(|_| AtomicU64::new(0)).collect(),
            slots: (0..tables)
                .map(|table| AtomicU64::new(slot(table)))
                .collect(),
            tlbs: [Mutex::new(tlb()), Mutex::new(tlb())],
            allocator: std::sync::Mutex::new(Allocator::new(owners, seed)),
            allowed: std::sync::Mutex::new(Vec::new()),
            wrong: std::sync::Mutex::new(Wrong::Nothing),
            #[cfg(not(ebb_model))]
            locked: AtomicBool::new(false),
        }
    }

    /// Sets the fault of the machine from now on to `wrong`.
    #[cfg(ebb_model)]
    pub(super) fn set_wrong(&self, wrong: Wrong) {
        *self.wrong.lock().unwrap() = wrong;
    }

    fn allocator(&self) -> std::sync::MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap()
    }

    /// Returns the number of frames of the machine.
    pub(super) fn frames(&self) -> usize {
        self.words.len() / E
    }

    fn word(&self, frame: Frame, index: usize) -> &AtomicU64 {
        &self.words[frame.number() as usize * E + index]
    }

    fn fill(&self, frame: Frame, value: u64) {
        for index in 0..E {
            self.word(frame, index).store(value, Ordering::Relaxed);
        }
    }

    /// Returns the entry of the page with the descriptor of `frame`, from `tlb`, a CPU's cache, or
    /// else from memory. The CPU then caches it.
    fn translate(&self, tlb: &mut Tlb, frame: Frame) -> u64 {
        let page = frame.number() as usize / Self::IN_PAGE;
        if let Some(entry) = tlb.pages[page] {
            return entry;
        }
        let slot = *tlb.slots[page / E].get_or_insert_with(|| self.slot_value(page / E));
        let entry = self.entry_value(slot, page % E);
        tlb.pages[page] = Some(entry);
        entry
    }

    // Acquire (both): a CPU's loads are in order.
    fn slot_value(&self, table: usize) -> u64 {
        self.slots[table].load(Ordering::Acquire)
    }

    fn entry_value(&self, slot: u64, index: usize) -> u64 {
        let entry = if slot & LARGE != 0 {
            (slot & !LARGE) + index as u64 * 4096
        } else {
            self.word(Frame::containing(slot & ADDRESS), index)
                .load(Ordering::Acquire)
        };
        assert_ne!(entry, FOREIGN, "a CPU walks a table that is another's");
        entry
    }

    /// Returns the frame of the page with the descriptor of `frame`, as a host finds it. The guest
    /// does not know that the host reads, and flushes no cache of the host. With `twice` the host
    /// reads the slot again after the entry. Returns `None` if the table was moved in between.
    #[cfg(ebb_model)]
    pub(super) fn find_from_host(&self, frame: Frame, twice: bool) -> Option<Frame> {
        let page = frame.number() as usize / Self::IN_PAGE;
        let (slot, index) = (self.slot_value(page / E), page % E);
        if slot & LARGE != 0 {
            let first = Frame::containing(slot & ADDRESS);
            return Some(first.offset(index as u64));
        }
        let entry = self.word(Frame::containing(slot & ADDRESS), index);
        let entry = entry.load(Ordering::Acquire);
        loom::sync::atomic::fence(Ordering::Acquire);
        let moved = twice && self.slot_value(page / E) != slot;
        (!moved).then_some(Frame::containing(entry & ADDRESS))
    }

    /// Returns word number `word` of the descriptor of `frame` in the page that `entry` maps.
    fn descriptor(&self, entry: u64, frame: Frame, word: usize) -> &AtomicU64 {
        let place = frame.number() as usize % Self::IN_PAGE;
        self.word(Frame::containing(entry & ADDRESS), place * 2 + word)
    }

    /// Returns the head of `frame` as CPU `cpu` reads it.
    pub(super) fn read(&self, cpu: usize, frame: Frame) -> u64 {
        // The lock is held for the whole read: a flush comes between a CPU's instructions.
        let mut tlb = self.tlbs[cpu].lock();
        let entry = self.translate(&mut tlb, frame);
        let head = self.descriptor(entry, frame, 0).load(Ordering::Relaxed);
        assert_ne!(head, FOREIGN, "a CPU reads a frame that is another's");
        head
    }

    /// Makes the CPU [`WRITER`] write `head` as the head of `frame`.
    pub(super) fn write(&self, frame: Frame, head: u64) {
        self.own_word(frame, 0).store(head, Ordering::Relaxed);
    }

    fn own_word(&self, frame: Frame, word: usize) -> &AtomicU64 {
        let entry = self.translate(&mut self.tlbs[WRITER].lock(), frame);
        assert_ne!(entry & WRITABLE, 0, "{frame:?}: its descriptor is shared");
        self.descriptor(entry, frame, word)
    }

    /// Makes CPU `cpu` cache all translations that it has not cached.
    pub(super) fn remember_all(&self, cpu: usize) {
        let mut tlb = self.tlbs[cpu].lock();
        for page in 0..self.frames() / Self::IN_PAGE {
            self.translate(&mut tlb, Frame::new((page * Self::IN_PAGE) as u64));
        }
    }

    /// Makes CPU `cpu` drop all cached translations.
    pub(super) fn forget_all(&self, cpu: usize) {
        let mut tlb = self.tlbs[cpu].lock();
        tlb.slots.fill(None);
        tlb.pages.fill(None);
    }

    fn flush_all(&self) {
        for cpu in 0..CPUS {
            self.forget_all(cpu);
            // The CPUs cache all translations at once, so that the next change happens under their
            // eyes. Models have separate readers.
            if cfg!(not(ebb_model)) {
                self.remember_all(cpu);
            }
        }
    }

    /// Checks that the CPU [`READER`] reads only the heads that [`Self::allow`] has set, with its
    /// cached translations and without them.
    ///
    /// # Panics
    /// If it reads another head.
    pub(super) fn is_allowed(&self) {
        let allowed = self.allowed.lock().unwrap();
        for (number, allowed) in (0..).zip(&*allowed) {
            let frame = Frame::new(number);
            let heads = [self.read(READER, frame), self.walk(frame)];
            for head in heads {
                assert_ne!(1 << head & allowed, 0, "{frame:?} is {head}");
            }
        }
    }

    /// Returns the head of `frame` as a CPU without cached translations reads it.
    pub(super) fn walk(&self, frame: Frame) -> u64 {
        let page = frame.number() as usize / Self::IN_PAGE;
        let entry = self.entry_value(self.slot_value(page / E), page % E);
        let head = self.descriptor(entry, frame, 0).load(Ordering::Relaxed);
        assert_ne!(head, FOREIGN, "{frame:?}: a page is another's");
        head
    }

    /// Checks that no CPU caches a translation to the frames in `range`, which are being freed.
    ///
    /// # Panics
    /// If one does.
    fn is_forgotten(&self, range: FrameRange) {
        for cpu in 0..CPUS {
            let tlb = self.tlbs[cpu].lock();
            for &entry in tlb.slots.iter().chain(&tlb.pages).flatten() {
                let to = Frame::containing(entry & ADDRESS);
                let frames = if entry & LARGE != 0 { E as u64 } else { 1 };
                let apart = to.offset(frames) <= range.start || range.end() <= to;
                assert!(apart, "CPU {cpu} knows {to:?} of {range:?}, which is freed");
            }
        }
    }

    /// Sets the calls of the allocator that fail to `refuse`. Calls are counted from now on.
    pub(super) fn refuse(&self, refuse: Refuse) {
        let mut allocator = self.allocator();
        (allocator.calls, allocator.refuse) = (0, refuse);
    }

    /// Allocates `frames` adjacent free frames, aligned to their number, for another owner. Returns
    /// the first one, or `None` if there are none.
    pub(super) fn take_aligned(&self, frames: usize) -> Option<Frame> {
        self.allocator().take_aligned(frames)
    }
}

/// Methods that the pool of huge pages uses for comparison.
#[cfg(not(ebb_model))]
impl<const E: usize, const P: usize> Simulated<E, P> {
    /// Sets the heads that readers may see from now on: for each frame, one bit for each allowed
    /// head. Empty allows any.
    pub(super) fn allow(&self, allowed: Vec<u16>) {
        *self.allowed.lock().unwrap() = allowed;
    }

    /// Notes that the lock of exchanges is held from now on if `locked`, or free if not.
    ///
    /// # Panics
    /// If that is so already.
    pub(super) fn set_locked(&self, locked: bool) {
        let before = self.locked.swap(locked, Ordering::Relaxed);
        assert_ne!(before, locked, "the lock is taken or released twice");
    }

    /// Returns for each upper entry its table, if it has one, and the frames that it maps.
    pub(super) fn reached(&self) -> Vec<(Option<Frame>, Vec<Frame>)> {
        let reach = |slot: &AtomicU64| {
            let slot = slot.load(Ordering::Relaxed);
            let to = Frame::containing(slot & ADDRESS);
            if slot & LARGE != 0 {
                return (None, (0..E as u64).map(|page| to.offset(page)).collect());
            }
            let entry = |index| self.word(to, index).load(Ordering::Relaxed);
            let page = |index| Frame::containing(entry(index) & ADDRESS);
            (Some(to), (0..E).map(page).collect())
        };
        self.slots.iter().map(reach).collect()
    }

    /// Returns the owner of `frame`, as the allocator sees it.
    pub(super) fn owner(&self, frame: Frame) -> Owner {
        self.allocator().owners[frame.number() as usize]
    }

    /// Returns the number of frames that the memmap has from the allocator, by the count of
    /// [`Machine::count`](crate::vmemmap::Machine::count).
    pub(super) fn counted(&self) -> u64 {
        self.allocator().counted
    }

    /// Returns the number of calls since [`Self::refuse`].
    pub(super) fn calls(&self) -> u64 {
        self.allocator().calls
    }

    /// Allocates a free frame for another owner. Returns `None` if no frame is free.
    pub(super) fn take_one(&self) -> Option<Frame> {
        self.allocator().take_one()
    }
}
