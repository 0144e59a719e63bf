//! A machine of words: frames, tables, an allocator that can be told to refuse, and CPUs that remember translations for as
//! long as they may.
//!
//! What goes back to the allocator is somebody else's at once: it is filled with what no reader may see.

mod allocator;
mod machine;

use super::machine::AtomicU64;
use crate::lock::Lock;
use crate::model_locks::Mutex;
use allocator::Allocator;
pub(super) use allocator::{Owner, Refuse};
use core::sync::atomic::Ordering;
use ebb_mm::{Frame, FrameRange};
use std::vec;
use std::vec::Vec;

/// The head of a free frame.
pub(super) const FREE: u64 = 0;
/// The head of a frame that the memmap got from the allocator.
pub(super) const MEMMAP: u64 = 8;
/// The head of all frames of a huge page.
pub(super) const HUGE: u64 = 9;
/// What others write to a frame that they got.
const FOREIGN: u64 = u64::MAX;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const LARGE: u64 = 1 << 7;
const OWNED: u64 = 1 << 9;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The CPU that exchanges.
pub(super) const WRITER: usize = 0;
/// A CPU that only reads.
pub(super) const READER: usize = 1;
const CPUS: usize = 2;

/// What the machine does wrong.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    Nothing,
    /// No CPU hears that it is to flush.
    #[cfg(ebb_model)]
    NoFlush,
    /// They hear it when the frames are somebody else's already.
    #[cfg(ebb_model)]
    LateFlush,
}

/// What a CPU remembers: entries by their places.
#[derive(Debug)]
struct Tlb {
    slots: Vec<Option<u64>>,
    pages: Vec<Option<u64>>,
}

/// The machine: `E` entries to a table, `P` pages to the descriptors of a block.
#[derive(Debug)]
pub(super) struct Simulated<const E: usize, const P: usize> {
    words: Vec<AtomicU64>,
    slots: Vec<AtomicU64>,
    tlbs: [Mutex<Tlb>; CPUS],
    // The standard library's: the writer alone uses it, so a model need not know.
    allocator: std::sync::Mutex<Allocator>,
    /// For each frame the heads that a reader may see now, by their bits; empty: any.
    allowed: std::sync::Mutex<Vec<u16>>,
    wrong: std::sync::Mutex<Wrong>,
}

impl<const E: usize, const P: usize> Simulated<E, P> {
    /// Frames that a page of the memmap describes, by two words each.
    const IN_PAGE: usize = E / P;
    /// Frames that a table's pages describe.
    pub(super) const IN_TABLE: usize = E * Self::IN_PAGE;
    /// Frames of a page of 1 GiB.
    pub(super) const IN_GIANT: usize = E * E;

    /// A machine with so many frames, whose memmap are the last ones, by large pages.
    pub(super) fn new(frames: usize, seed: u64) -> Self {
        const { assert!(P >= 2) };
        let tables = frames / Self::IN_TABLE;
        assert_eq!(tables * Self::IN_TABLE, frames);
        let boot = frames - tables * E;
        let mut owners = vec![Owner::Nobody; boot];
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
        }
    }

    /// What it does wrong from here on.
    #[cfg(ebb_model)]
    pub(super) fn set_wrong(&self, wrong: Wrong) {
        *self.wrong.lock().unwrap() = wrong;
    }

    fn allocator(&self) -> std::sync::MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap()
    }

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

    /// The entry of the page with a frame's descriptor, from what the CPU remembers or else from memory. Then it
    /// remembers that.
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

    /// A word of a frame's descriptor, behind an entry.
    fn descriptor(&self, entry: u64, frame: Frame, word: usize) -> &AtomicU64 {
        let place = frame.number() as usize % Self::IN_PAGE;
        self.word(Frame::containing(entry & ADDRESS), place * 2 + word)
    }

    /// What a CPU reads of a frame.
    pub(super) fn read(&self, cpu: usize, frame: Frame) -> u64 {
        // Held: a flush is between a CPU's instructions.
        let mut tlb = self.tlbs[cpu].lock();
        let entry = self.translate(&mut tlb, frame);
        let head = self.descriptor(entry, frame, 0).load(Ordering::Relaxed);
        assert_ne!(head, FOREIGN, "a CPU reads a frame that is another's");
        head
    }

    /// Has the CPU that exchanges write what a frame is.
    pub(super) fn write(&self, frame: Frame, head: u64) {
        self.own_word(frame, 0).store(head, Ordering::Relaxed);
    }

    fn own_word(&self, frame: Frame, word: usize) -> &AtomicU64 {
        let entry = self.translate(&mut self.tlbs[WRITER].lock(), frame);
        assert_ne!(entry & WRITABLE, 0, "{frame:?}: its descriptor is shared");
        self.descriptor(entry, frame, word)
    }

    /// The CPU remembers whatever it did not.
    pub(super) fn remember_all(&self, cpu: usize) {
        let mut tlb = self.tlbs[cpu].lock();
        for page in 0..self.frames() / Self::IN_PAGE {
            self.translate(&mut tlb, Frame::new((page * Self::IN_PAGE) as u64));
        }
    }

    /// The CPU remembers nothing.
    pub(super) fn forget_all(&self, cpu: usize) {
        let mut tlb = self.tlbs[cpu].lock();
        tlb.slots.fill(None);
        tlb.pages.fill(None);
    }

    fn flush_all(&self) {
        for cpu in 0..CPUS {
            self.forget_all(cpu);
            // At once: the next change is made before their eyes. Models have readers of their own.
            if cfg!(not(ebb_model)) {
                self.remember_all(cpu);
            }
        }
    }

    /// What the reader sees is what it may see, with what it remembers and without.
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

    /// What a CPU reads of a frame that remembers nothing.
    pub(super) fn walk(&self, frame: Frame) -> u64 {
        let page = frame.number() as usize / Self::IN_PAGE;
        let entry = self.entry_value(self.slot_value(page / E), page % E);
        let head = self.descriptor(entry, frame, 0).load(Ordering::Relaxed);
        assert_ne!(head, FOREIGN, "{frame:?}: a page is another's");
        head
    }

    /// No CPU remembers a way to frames that somebody else gets.
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

    /// Which calls of the allocator from here on find nothing.
    pub(super) fn refuse(&self, refuse: Refuse) {
        let mut allocator = self.allocator();
        (allocator.calls, allocator.refuse) = (0, refuse);
    }

    /// Takes free frames for others: so many, that start at a multiple of it.
    pub(super) fn take_aligned(&self, frames: usize) -> Option<Frame> {
        self.allocator().take_aligned(frames)
    }
}

/// What a pool of huge pages asks to compare.
#[cfg(not(ebb_model))]
impl<const E: usize, const P: usize> Simulated<E, P> {
    /// Says what readers may see from here on.
    pub(super) fn allow(&self, allowed: Vec<u16>) {
        *self.allowed.lock().unwrap() = allowed;
    }

    /// The frames that each entry above leads to, tables first.
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

    pub(super) fn owner(&self, frame: Frame) -> Owner {
        self.allocator().owners[frame.number() as usize]
    }

    /// Frames that are counted as the memmap's from the allocator.
    pub(super) fn counted(&self) -> u64 {
        self.allocator().counted
    }

    /// Calls since.
    pub(super) fn calls(&self) -> u64 {
        self.allocator().calls
    }

    /// Takes a free frame for others.
    pub(super) fn take_one(&self) -> Option<Frame> {
        self.allocator().take_one()
    }
}
