//! Moving frames that page tables are in.
//!
//! A table moves under the lock of its space. The entry that leads to it is taken out, the CPUs
//! forget it, and with it where the table was: from here on no CPU reads or writes the table, and
//! who needs it faults and waits for the lock. Its entries are copied, and the entry leads to the
//! copy. What the table shows stays in the TLBs, and stays true. A root is known to CPUs by its
//! address, and does not move.
//!
//! The word of a table's frame says whose it is and at which address, as that of a page does
//! (`family`). Tables in reserve have an address that says nothing: they are looked for in their
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
    /// Moves a table of this space, which its word says is at an address, to a frame that nobody
    /// has; false: it is none of the space's. Who gets true has the old frame.
    pub(super) fn move_table(&self, address: u64, from: Frame, to: Frame) -> bool {
        let mut state = self.state.lock();
        state.tables.relocate(address, from, to, &self.cpus)
            || state.tables.deposits.exchange(from, to)
    }
}

impl PageTables {
    /// Notes in the word of a table's frame where it is.
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
        // Dropping any address drops what a CPU knows of the tables above. The pages of a trial are
        // dropped, too: a first store to one writes to the table.
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
