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
use super::entry::{REGION, TRIAL};
use super::leaf::TableFrame;
use super::tlb;
use ebb_mm::Frame;

impl AddressSpace {
    /// Moves the page table in the frame `from` to the frame `to`. `address` is the address in the
    /// owner word of `from`. Returns the old table.
    ///
    /// # Errors
    /// Returns `to` if the search finds no such table of this space.
    pub(super) fn move_table(
        &self,
        address: u64,
        from: Frame,
        to: TableFrame,
    ) -> Result<TableFrame, TableFrame> {
        let mut state = self.state.lock();
        let tables = &mut state.tables;
        let flush = |entry: u64| {
            let region = address / REGION * REGION;
            // A flush of any address drops the CPU's cached entries of the tables above. The pages
            // of a trial are dropped, too: a first store to one writes to the table.
            let dropped = if entry & TRIAL == 0 { 1 } else { REGION };
            tlb::flush(&self.cpus, region..region + dropped);
        };
        tables
            .tree
            .replace_table(address, from, to, flush)
            .or_else(|to| tables.deposits.exchange(from, to))
    }
}
