//! Moves frames that contain page tables.
//!
//! A table moves under the lock of its space. The entry that leads to the table is cleared, and the
//! CPUs flush it together with their cached place of the table. From here on no CPU reads or writes
//! the table, and an access that needs it faults and waits for the lock. The table's entries are
//! copied, and the entry is set to the copy. Translations by the table stay valid in the TLBs. CPUs
//! hold a root by its address, so a root does not move.
//!
//! The owner word of a table's frame names the space and an address, like that of a page
//! (`family`). The address of a table in reserve is meaningless, so such a table is searched in its
//! list.

use super::AddressSpace;
use super::entry::{ADDRESS, HUGE, REGION, TRIAL, frame_of, table_at};
use super::pagetable::PageTables;
use super::tlb;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::Frame;
use machine::arch::CpuSet;
use machine::memory::memmap::Descriptor;

impl AddressSpace {
    /// Moves the page table in the frame `from` to the unused frame `to`. `address` is the address
    /// in the owner word of `from`. Returns `true` if the table moved; the caller then owns `from`.
    /// Returns `false` if the search finds no such table of this space.
    pub(super) fn move_table(&self, address: u64, from: Frame, to: Frame) -> bool {
        let mut state = self.state.lock();
        state.tables.relocate(address, from, to, &self.cpus)
            || state.tables.deposits.exchange(from, to)
    }
}

impl PageTables {
    /// Writes the owner word of the frame `table`: this space, and the `address` that the table
    /// maps.
    pub(super) fn note_place(&self, table: Frame, address: u64) {
        Descriptor::get(table).set_owner(self.owner_of(address).0);
    }

    fn relocate(&mut self, address: u64, from: Frame, to: Frame, cpus: &CpuSet) -> bool {
        let leads_there = |slot: &&'static AtomicU64| {
            // Relaxed: under the space's lock.
            let entry = slot.load(Ordering::Relaxed);
            entry & (HUGE | TRIAL) != HUGE && frame_of(entry) == from
        };
        let slots = (1..4).filter_map(|level| self.upper_slot(address, level).ok());
        let Some(slot) = slots.into_iter().find(leads_there) else {
            return false;
        };
        let entry = slot.load(Ordering::Relaxed);
        self.forget_tables();
        slot.store(0, Ordering::Relaxed);
        let region = address / REGION * REGION;
        // A flush of any address drops the CPU's cached entries of the tables above. The pages of a
        // trial are dropped, too: a first store to one writes to the table.
        let dropped = if entry & TRIAL == 0 { 1 } else { REGION };
        tlb::flush(cpus, region..region + dropped);
        for (old, new) in table_at(from.address()).iter().zip(table_at(to.address())) {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Descriptor::get(to).set_owner(Descriptor::get(from).owner());
        // Release: the copied entries come before it.
        slot.store(entry & !ADDRESS | to.address(), Ordering::Release);
        true
    }
}
