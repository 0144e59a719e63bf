//! Entries of 2 MiB, and of 1 GiB from the pool. Such an entry maps a huge block, where other
//! entries lead to a last-level table.
//!
//! Splitting such an entry into a table of pages must not fail for lack of memory, since unmapping,
//! for one, cannot return that error. So each has a table in reserve, which is allocated with the
//! entry and not touched before it is needed. The exception is an entry of a page of the pool,
//! which is never split.

use super::entry::{
    ACCESSED, ADDRESS, FILE, HUGE, POOL, PRESENT, REGION, SHMEM, USER, WRITABLE, ZERO, frame_of,
    table_at,
};
use super::gather::Gather;
use super::pagetable::{PageTables, Region};
use super::tlb;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame, Mobility, Order, Request, Reserve};
use machine::arch::CpuSet;
use machine::memory::huge::{self, HugeFrame};
use machine::memory::memmap::{self, Descriptor, Kind};
use machine::memory::percpu::{self, Count};
use machine::memory::{file_block, zero_block, zero_frame};

/// A frame for a page table, with any content. Dropping it frees the frame.
#[derive(Debug)]
pub(super) struct TableFrame(Frame);

impl TableFrame {
    /// Allocates a frame that can move (`moving_tables`). Does not wait. Fails if no frame is free.
    pub(super) fn try_new() -> Result<Self, AllocError> {
        Self::of_mobility(Mobility::Movable)
    }

    /// Allocates a frame for a root, which cannot move. Does not wait. Fails if no frame is free.
    pub(super) fn try_new_root() -> Result<Self, AllocError> {
        Self::of_mobility(Mobility::Unmovable)
    }

    fn of_mobility(mobility: Mobility) -> Result<Self, AllocError> {
        let request = Request::new(Order::BASE, mobility).reserve(Reserve::Keep);
        let frame = percpu::allocate(request)?;
        percpu::add(Kind::PageTable.count(), 1);
        Descriptor::get(frame).take(Kind::PageTable, Order::BASE);
        Ok(Self(frame))
    }

    /// Returns a value that owns `frame`, which [`Self::into_frame`] has returned. Dropping the
    /// value frees the frame.
    pub(super) fn from_frame(frame: Frame) -> Self {
        Self(frame)
    }

    /// Returns the frame, which this value continues to own.
    pub(super) fn frame(&self) -> Frame {
        self.0
    }

    /// Returns the frame and gives it to the caller, who uses it as a page table and frees it
    /// later.
    pub(super) fn into_frame(self) -> Frame {
        let frame = self.0;
        core::mem::forget(self);
        frame
    }
}

impl Drop for TableFrame {
    fn drop(&mut self) {
        memmap::release(self.0);
    }
}

/// A huge block and the table in reserve for its entry.
#[derive(Debug)]
pub(super) struct HugeSupply {
    pub(super) block: HugeFrame,
    pub(super) table: TableFrame,
}

/// The most tables in reserve that are searched for one that moves.
const SEARCHED: usize = 4096;

/// The tables in reserve: a list that is linked by the frames' descriptors.
#[derive(Debug, Default)]
pub(super) struct Deposits {
    first: Option<Frame>,
    count: u64,
}

impl Deposits {
    /// Adds `table` to the tables in reserve.
    pub(super) fn push(&mut self, table: TableFrame) {
        let frame = table.into_frame();
        Descriptor::get(frame).set_next(self.first);
        self.first = Some(frame);
        self.count += 1;
    }

    /// Takes any of the tables in reserve out of the list.
    ///
    /// # Panics
    /// Panics if there is none, since each huge page has one.
    pub(super) fn pop(&mut self) -> TableFrame {
        let Some(frame) = self.first else {
            panic!("a huge page has no page table in reserve")
        };
        self.first = Descriptor::get(frame).take_next();
        self.count -= 1;
        TableFrame(frame)
    }

    /// Returns the number of tables in reserve.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// Replaces the frame `from` in the list by `to`. Returns `false` if the search does not find
    /// `from`. The search ends after [`SEARCHED`] tables.
    pub(super) fn exchange(&mut self, from: Frame, to: Frame) -> bool {
        let mut at = self.first;
        let mut before: Option<Frame> = None;
        for _ in 0..SEARCHED {
            let Some(frame) = at else { break };
            let descriptor = Descriptor::get(frame);
            if frame != from {
                at = descriptor.next();
                before = Some(frame);
                continue;
            }
            let new = Descriptor::get(to);
            new.set_next(descriptor.take_next());
            new.set_owner(descriptor.owner());
            match before {
                Some(before) => Descriptor::get(before).set_next(Some(to)),
                None => self.first = Some(to),
            }
            return true;
        }
        false
    }
}

impl PageTables {
    /// Maps a huge block at the unused entry `slot`. `entry` has the block's address and the
    /// rights; the caller's reference to the block passes to the entry. `table` becomes its table
    /// in reserve.
    pub(super) fn set_huge(&mut self, slot: &AtomicU64, entry: u64, table: TableFrame) {
        debug_assert_eq!(slot.load(Ordering::Relaxed), 0);
        // Any address: which of the tables in reserve is taken for a place is not known.
        self.note_place(table.frame(), 0);
        self.deposits.push(table);
        self.count += 1;
        // Release: the block was cleared before; x86 keeps that order anyway.
        slot.store(entry | HUGE, Ordering::Release);
    }

    /// Unmaps the huge page of `bytes` bytes at `slot`, and passes it to the gather, with its table
    /// in reserve unless it is a page of the pool. The gather must have room for them.
    pub(super) fn take_huge(&mut self, slot: &AtomicU64, bytes: u64, gather: &mut Gather) {
        let entry = slot.load(Ordering::Relaxed);
        slot.store(0, Ordering::Relaxed);
        if entry & POOL != 0 {
            self.pool_bytes -= bytes;
            gather.pool(frame_of(entry));
            return;
        }
        self.count -= 1;
        let table = self.deposits.pop().into_frame();
        if entry & ZERO != 0 {
            gather.zeros(table);
        } else if entry & (FILE | SHMEM) != 0 {
            gather.file_block(entry, table);
        } else {
            gather.huge(frame_of(entry), table);
        }
    }

    /// Splits the huge page that maps the region of `address`, if there is one. If the page is on
    /// trial, keeps all of its pages.
    pub(super) fn split(&mut self, address: u64, cpus: &CpuSet) {
        if let Some(slot) = self.trial_slot(address) {
            self.end_trial(slot);
            return;
        }
        let Some(slot) = self.huge_slot(address) else {
            return;
        };
        let entry = slot.load(Ordering::Relaxed);
        // Areas of the pool begin and end with its pages.
        assert_eq!(
            entry & POOL,
            0,
            "a page of the pool at {address:#x} is split"
        );
        if entry & (FILE | SHMEM | ZERO) == 0 {
            // The reference to the block becomes one to each of its frames.
            huge::part(frame_of(entry));
        } else if entry & ZERO == 0 {
            // The entry has one to each.
            file_block::unmap(frame_of(entry));
        }
        let frame = self.deposits.pop().into_frame();
        self.note_place(frame, address);
        let table = table_at(frame.address());
        let (first, step) = if entry & ZERO == 0 {
            (entry & !HUGE, 4096)
        } else {
            (zero_frame().address() | entry & !(HUGE | ADDRESS), 0)
        };
        for (page, to) in (0_u64..).zip(table) {
            to.store(first + page * step, Ordering::Relaxed);
        }
        // Not both at once: some CPUs must not find one address in their TLBs in two sizes.
        slot.store(0, Ordering::Relaxed);
        let start = address / REGION * REGION;
        // Dropping any of its addresses drops a huge page.
        tlb::flush(cpus, start..start + 1);
        if entry & ZERO != 0 {
            zero_block::release(1);
        }
        let entry = frame.address() | PRESENT | WRITABLE | USER | ACCESSED;
        // Release: the table's entries come before it.
        slot.store(entry, Ordering::Release);
        percpu::add(Count::HugeSplits, 1);
    }

    /// Splits the huge pages that the ends of `range` cut.
    pub(super) fn split_edges(&mut self, range: &Range<u64>, cpus: &CpuSet) {
        for end in [range.start, range.end] {
            if !end.is_multiple_of(REGION) {
                self.split(end, cpus);
            }
        }
    }

    /// Splits the huge pages that `range` touches. Visits at most `most` tables and huge pages.
    /// Returns the address where it stopped, or the end of `range`.
    pub(super) fn split_all(&mut self, range: Range<u64>, most: u32, cpus: &CpuSet) -> u64 {
        let mut left = most;
        let mut at = range.start;
        while at < range.end {
            let region = self.region(at);
            if let Region::AbsentUntil(next) = region {
                at = next;
                continue;
            }
            if left == 0 {
                return at;
            }
            left -= 1;
            if !matches!(region, Region::Table(_)) {
                self.split(at, cpus);
            }
            at = (at / REGION + 1) * REGION;
        }
        range.end
    }
}
