//! Entries of 2 MiB, and of 1 GiB from the pool. Such an entry maps a huge block, where other
//! entries lead to a last-level table.
//!
//! Splitting such an entry into a table of pages must not fail for lack of memory, since unmapping,
//! for one, cannot return that error. So each has a table in reserve, which is allocated with the
//! entry and not touched before it is needed. The exception is an entry of a page of the pool,
//! which is never split.

use super::entry::{ADDRESS, FILE, HUGE, POOL, REGION, SHMEM, ZERO, frame_of};
use super::gather::Gather;
use super::pagetable::{PageTables, Region, Slot};
use super::tlb;
use core::ops::Range;
use core::sync::atomic::Ordering;
use machine::arch::CpuSet;
use machine::memory::huge::{self, HugeFrame};
pub(super) use machine::memory::page_tables::TableFrame;
use machine::memory::percpu::{self, Count};
use machine::memory::{file_block, zero_block, zero_frame};

/// A huge block and the table in reserve for its entry.
#[derive(Debug)]
pub(super) struct HugeSupply {
    pub(super) block: HugeFrame,
    pub(super) table: TableFrame,
}

impl PageTables {
    /// Maps a huge block at the unused entry `slot`. `entry` has the block's address and the
    /// rights; the caller's reference to the block passes to the entry. `table` becomes its table
    /// in reserve.
    pub(super) fn set_huge(&self, slot: Slot<'_>, entry: u64, table: TableFrame) {
        debug_assert_eq!(slot.load(), 0);
        // Any address: which of the tables in reserve is taken for a place is not known.
        table.set_owner(self.owner_of(0).0);
        self.deposits.push(table);
        slot.set_page(entry | HUGE);
    }

    /// Unmaps the huge page of `bytes` bytes at `slot`, and passes it to the gather, with its table
    /// in reserve unless it is a page of the pool. The gather must have room for them.
    pub(super) fn take_huge(&self, slot: Slot<'_>, bytes: u64, gather: &mut Gather) {
        let entry = slot.load();
        slot.set_page(0);
        if entry & POOL != 0 {
            self.pool_bytes.set(self.pool_bytes.get() - bytes);
            gather.pool(frame_of(entry));
            return;
        }
        let table = self.deposits.pop();
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
    pub(super) fn split(&self, address: u64, cpus: &CpuSet) {
        if let Some(slot) = self.trial_slot(address) {
            self.end_trial(slot);
            return;
        }
        let Some(slot) = self.huge_slot(address) else {
            return;
        };
        let entry = slot.load();
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
        let table = self.deposits.pop();
        table.set_owner(self.owner_of(address).0);
        let (first, step) = if entry & ZERO == 0 {
            (entry & !HUGE, 4096)
        } else {
            (zero_frame().address() | entry & !(HUGE | ADDRESS), 0)
        };
        for (page, to) in (0_u64..).zip(table.entries()) {
            to.store(first + page * step, Ordering::Relaxed);
        }
        // Not both at once: some CPUs must not find one address in their TLBs in two sizes.
        slot.set_page(0);
        let start = address / REGION * REGION;
        // Dropping any of its addresses drops a huge page.
        tlb::flush(cpus, start..start + 1);
        if entry & ZERO != 0 {
            zero_block::release(1);
        }
        self.put_table(slot, table, 0);
        percpu::add(Count::HugeSplits, 1);
    }

    /// Splits the huge pages that the ends of `range` cut.
    pub(super) fn split_edges(&self, range: &Range<u64>, cpus: &CpuSet) {
        for end in [range.start, range.end] {
            if !end.is_multiple_of(REGION) {
                self.split(end, cpus);
            }
        }
    }

    /// Splits the huge pages that `range` touches. Visits at most `most` tables and huge pages.
    /// Returns the address where it stopped, or the end of `range`.
    pub(super) fn split_all(&self, range: Range<u64>, most: u32, cpus: &CpuSet) -> u64 {
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
