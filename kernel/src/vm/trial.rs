//! Huge pages that no program asked for.
//!
//! With the policy `always`, the first store to 2 MiB takes a huge block before it is known whether
//! the program will use more than a page of it. So the block is *on trial*: it is mapped by 512
//! entries, those of the table that a huge page has in reserve anyway, and the CPU marks in them
//! the pages of stores (`DIRTY`, which all other entries have from the start). A second or two
//! later, once the program has ceased to use more, `khugepaged` checks the entries:
//!
//! - if most pages are in use, one entry maps the block from then on;
//! - otherwise the pages in use are kept, and the others freed without reading them: a page without
//!   a store is zero.
//!
//! Faults, unmapping the whole block and `mremap` keep a trial. An operation that needs a single
//! frame of it, shares it, or changes rights decides it first, by the entries at that time. So does
//! a task that finds no memory.
//!
//! The entries of a trial's table are the only ones that CPUs write to. During the trial they are
//! changed by atomic exchanges: the value of a removed entry tells whether the page had a store,
//! and none comes later, since the CPU checks the entry again before it marks the first store to a
//! page.

use super::entry::{DIRTY, HUGE, NOTE, NOTE_SHIFT, PAGE, REGION, TRIAL, Table, frame_of};
use super::gather::{Gather, RESTS};
use super::leaf::TableFrame;
use super::pagetable::{PageTables, Run, Slot};
use super::space::{State, TABLES_AT_ONCE};
use super::{AddressSpace, VmaFlags, tlb};
use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::Ordering;
use ebb_mm::Frame;
use machine::arch::CpuSet;
use machine::memory::huge::{self, FRAMES, FrameSet};
use machine::memory::percpu::{self, Count};
use machine::sched;

/// The most unused pages with which a block stays a huge page: an eighth of its pages.
pub(super) const SPARE: u64 = FRAMES / 8;
/// The growth in pages since the last check from which on the program counts as still filling the
/// block.
const GROWTH: u64 = 32;
/// The note of a block that was not checked yet.
const FRESH: u64 = NOTE >> NOTE_SHIFT;
const _: () = assert!(FRAMES < FRESH);

/// The huge blocks on trial of one space.
#[derive(Debug, Default)]
pub(super) struct Trials {
    count: Cell<u64>,
    /// The first and the last address of a range that contains all huge blocks on trial.
    range: Cell<(u64, u64)>,
}

impl Trials {
    /// Returns the number of huge blocks on trial.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    fn range(&self) -> Range<u64> {
        let (start, end) = self.range.get();
        start..end
    }

    fn added(&self, start: u64) {
        if self.count() == 0 {
            self.range.set((start, start + REGION));
        } else {
            self.widen(start..start + REGION);
        }
        self.count.set(self.count() + 1);
    }

    fn widen(&self, by: Range<u64>) {
        let (start, end) = self.range.get();
        self.range.set((start.min(by.start), end.max(by.end)));
    }

    fn removed(&self) {
        self.count.set(self.count() - 1);
    }

    /// Records that blocks on trial in `from` may move to `to`.
    pub(super) fn may_move(&self, from: Range<u64>, to: Range<u64>) {
        let range = self.range();
        if self.count() != 0 && from.start < range.end && range.start < from.end {
            self.widen(to);
        }
    }
}

/// Whether the decision on a trial may be postponed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Haste {
    /// The decision may be postponed: a block that the program is still filling stays on trial.
    None,
    /// The decision may not be postponed: every trial is decided.
    Now,
}

/// The decision on a trial.
enum Verdict {
    Later,
    Whole,
    Keep,
}

/// Returns how many of the pages that `table` maps were stored to.
///
/// Relaxed (all accesses to the entries of a trial): the entries are changed under the space's
/// lock, and the CPUs' own changes of them are known once the TLBs were flushed.
fn stored_to(table: &Table) -> u64 {
    table
        .iter()
        .filter(|entry| entry.load(Ordering::Relaxed) & DIRTY != 0)
        .count() as u64
}

impl PageTables {
    /// Maps `block` on trial at `slot`, the unused entry of the region that begins at `start`.
    /// Takes over the caller's reference to the block. `rights` are those of the entries in
    /// `table`, and `stored` is the index of the page of the store.
    pub(super) fn set_trial(
        &self,
        slot: Slot<'_>,
        start: u64,
        block: Frame,
        rights: u64,
        stored: usize,
        table: TableFrame,
    ) {
        table.set_owner(self.owner_of(start).0);
        let first = block.address() | rights & !DIRTY;
        for (page, entry) in (0_u64..).zip(table.entries()) {
            entry.store(first + page * PAGE, Ordering::Relaxed);
        }
        table.entries()[stored].fetch_or(DIRTY, Ordering::Relaxed);
        self.trials.added(start);
        self.put_table(slot, table, TRIAL | FRESH << NOTE_SHIFT);
    }

    /// Takes out the block on trial around `address`, if there is one. The gather must have room
    /// for a huge page.
    pub(super) fn take_trial(&mut self, address: u64, gather: &mut Gather) {
        if self.trial_slot(address).is_some()
            && let Some((table, _)) = self.tree.take_table(address)
        {
            self.trials.removed();
            gather.huge(block_of(table.entries()), table);
        }
    }

    /// Ends the trial of the block at `slot`, and keeps all of its pages as single pages.
    pub(super) fn end_trial(&self, slot: Slot<'_>) {
        let table = table_of(slot);
        huge::part(block_of(table));
        for entry in table {
            entry.fetch_or(DIRTY, Ordering::Relaxed);
        }
        self.have_table(slot);
    }

    /// Turns the table of a trial into an ordinary table of pages.
    fn have_table(&self, slot: Slot<'_>) {
        slot.set_bits(slot.load() & !(TRIAL | NOTE));
        self.trials.removed();
        percpu::add(Count::HugeSplits, 1);
    }

    /// Ends a trial and keeps the pages with stores. The gather takes the other pages, so it must
    /// have room, and the caller flushes and frees it.
    fn keep(&self, slot: Slot<'_>, gather: &mut Gather) {
        let table = table_of(slot);
        let block = block_of(table);
        let mut kept: FrameSet = [0; _];
        for (word, entries) in kept.iter_mut().zip(table.chunks_exact(64)) {
            for (bit, entry) in entries.iter().enumerate() {
                let mut value = entry.load(Ordering::Relaxed);
                if value & DIRTY == 0 {
                    value = entry.swap(0, Ordering::Relaxed);
                }
                if value & DIRTY != 0 {
                    // Also where the store came between the two.
                    entry.store(value, Ordering::Relaxed);
                    *word |= 1 << bit;
                }
            }
        }
        huge::keep(block, &kept);
        gather.rest(block, kept);
        self.have_table(slot);
        percpu::add(Count::HugeUnderused, 1);
    }

    /// Ends the trials that the ends of `range` cut, and keeps their pages with stores. The gather
    /// takes the other pages. Returns the range to flush, or `None` if no trial has ended.
    pub(super) fn keep_edges(&self, range: &Range<u64>, gather: &mut Gather) -> Option<Range<u64>> {
        let mut edges: Option<Range<u64>> = None;
        for end in [range.start, range.end] {
            if !end.is_multiple_of(REGION)
                && let Some(slot) = self.trial_slot(end)
            {
                self.keep(slot, gather);
                let start = end / REGION * REGION;
                edges = Some(edges.map_or(start, |edges| edges.start)..start + REGION);
            }
        }
        edges
    }

    /// Ends the trial around `address`, if there is one, and maps the block by one entry.
    pub(super) fn make_trial_whole(&mut self, address: u64, cpus: &CpuSet) {
        if self.trial_slot(address).is_none() {
            return;
        }
        let Some((table, slot)) = self.tree.take_table(address) else {
            return;
        };
        let first = table.entries()[0].load(Ordering::Relaxed);
        // Not both at once, as in `split`.
        let start = address / REGION * REGION;
        tlb::flush(cpus, start..start + REGION);
        self.trials.removed();
        self.deposits.push(table);
        slot.set_page(first | DIRTY | HUGE);
    }
}

/// Returns the page table of a block on trial.
///
/// # Panics
/// Panics if `slot` leads to no table.
pub(super) fn table_of(slot: Slot<'_>) -> &Table {
    slot.table()
        .unwrap_or_else(|| panic!("a block on trial has no page table"))
}

/// Returns the block of a trial, by its table.
fn block_of(table: &Table) -> Frame {
    frame_of(table[0].load(Ordering::Relaxed))
}

impl State {
    fn judge(&self, slot: Slot<'_>, start: u64, haste: Haste) -> Verdict {
        let upper = slot.load();
        let used = stored_to(table_of(slot));
        let area = self.areas.find(start);
        let area = area.filter(|area| area.end - start >= REGION);
        let flags = area.map_or(VmaFlags::empty(), |area| area.flags);
        let declined = !flags.contains(VmaFlags::WRITE) || flags.contains(VmaFlags::NO_HUGE_PAGES);
        let asked = flags.intersects(VmaFlags::HUGE_PAGES | VmaFlags::LOCKED);
        if !declined && (asked || used + SPARE >= FRAMES) {
            return Verdict::Whole;
        }
        let before = (upper & NOTE) >> NOTE_SHIFT;
        if haste == Haste::None && (before == FRESH || used >= before + GROWTH) {
            slot.set_bits(upper & !NOTE | used << NOTE_SHIFT);
            return Verdict::Later;
        }
        Verdict::Keep
    }
}

impl AddressSpace {
    /// Decides all trials that touch `range` now. The caller holds no spin lock.
    pub(super) fn settle_trials(&self, range: Range<u64>) {
        if self.state.lock().tables.trials.count() != 0 {
            self.weigh_trials(range, Haste::Now);
        }
    }

    /// Decides now the trials that the ends of `range` cut. The caller holds no spin lock.
    pub(super) fn settle_trial_edges(&self, range: &Range<u64>) {
        for end in [range.start, range.end] {
            if !end.is_multiple_of(REGION) {
                self.settle_trials(end..end + 1);
            }
        }
    }

    /// Checks the trials that touch `range`, and decides those that `haste` does not put off.
    /// Returns the number of pages freed. The caller holds no spin lock.
    pub(super) fn weigh_trials(&self, range: Range<u64>, haste: Haste) -> u64 {
        // Whole regions: from here on `at` is where one begins, or the end of the range.
        let mut at = range.start / REGION * REGION;
        let mut freed = 0;
        loop {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let within = state.tables.trials.range();
            at = at.max(within.start);
            let end = range.end.min(within.end);
            if state.tables.trials.count() == 0 || at >= end {
                return freed;
            }
            let mut gather = Gather::new();
            let (start, mut looked) = (at, 0);
            let (mut found, mut count) = ([None; RESTS], 0);
            at = state.tables.runs(at..end, |start, run| {
                if looked == TABLES_AT_ONCE || count == RESTS {
                    return false;
                }
                looked += 1;
                if let Run::Trial(..) = run {
                    found[count] = Some(start);
                    count += 1;
                }
                true
            });
            for start in found.into_iter().flatten() {
                let Some(slot) = state.tables.trial_slot(start) else {
                    continue;
                };
                match state.judge(slot, start, haste) {
                    Verdict::Later => {}
                    Verdict::Whole => state.tables.make_trial_whole(start, &self.cpus),
                    Verdict::Keep => state.tables.keep(slot, &mut gather),
                }
            }
            state.peak_mapped = state.peak_mapped.max(state.mapped.iter().sum());
            state.mapped[0] -= gather.pages[0];
            freed += gather.pages[0];
            let pending = gather.needs_flush().then(|| self.begin_flush());
            drop(guard);
            gather.flush(&self.cpus, start..at.next_multiple_of(REGION));
            drop(pending);
            gather.free();
            sched::cond_resched();
        }
    }

    /// Ends the trial around `page`, if its region lies wholly in `range`, and maps the block by
    /// one entry, as if all its pages had stores. Returns the end of the region, or `None` if there
    /// is no such trial.
    pub(super) fn store_to_trial(&self, page: u64, range: &Range<u64>) -> Option<u64> {
        let start = page / REGION * REGION;
        let mut state = self.state.lock();
        if start < range.start || range.end - start < REGION {
            return None;
        }
        state.tables.trial_slot(page)?;
        state.tables.make_trial_whole(start, &self.cpus);
        Some(start + REGION)
    }
}
