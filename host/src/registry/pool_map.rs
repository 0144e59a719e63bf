//! Finds the pageblocks that belong to a guest's pools of huge pages, from the table in the guest's
//! memory.

use super::protocol::Cell;
use super::snapshot::Snapshot;
use crate::guest::Guest;
use crate::qemu::{GuestAddress, GuestRam};
use ebb_mm::PAGEBLOCK_FRAMES;
use ebb_mm::view::Memory;
use ebb_wire::header::pool::{ENTRIES, GIGANTIC, POOLED, REFERENCES};

/// The size of a table entry in bytes.
const ENTRY_BYTES: u64 = 16;
/// The number of pageblocks of a page of 1 GiB.
const IN_GIGANTIC: u64 = 512;

/// A copy of a guest's table of its pools of huge pages: the first word of the entry of each
/// pageblock, by the pageblock's number. A word is 0 if there is no entry.
#[derive(Debug, Default)]
pub(super) struct PoolMap(Vec<u64>);

impl PoolMap {
    /// Copies the table from the guest's memory, up to the end of that memory, and returns it. The
    /// map is empty if the guest has no table. Parts that cannot be read have no entries.
    pub(super) fn read(ram: &GuestRam, guest: &dyn Guest) -> Self {
        let Some(table) = guest.pool_table() else {
            return Self::default();
        };
        let regions = ram.regions();
        let end = regions
            .iter()
            .map(|region| region.start.0.saturating_add(region.bytes))
            .max();
        let page_covers = ENTRIES * PAGEBLOCK_FRAMES * 4096;
        let pages = table.pages.min(end.unwrap_or(0).div_ceil(page_covers));
        let list = Snapshot::new(ram, table.address, pages * 8);
        let mut heads = Vec::new();
        for page in 0..pages {
            let address = list.word(page * 8).filter(|&address| address != 0);
            let entries = address
                .map(|address| Snapshot::new(ram, GuestAddress(address), ENTRIES * ENTRY_BYTES));
            heads.extend((0..ENTRIES).map(|entry| {
                let head = entries
                    .as_ref()
                    .and_then(|all| all.word(entry * ENTRY_BYTES));
                head.unwrap_or(0)
            }));
        }
        Self(heads)
    }

    /// Returns whether the pageblock with the number `block` (2 MiB each, from address 0) is in a
    /// pool of pages of 2 MiB or of 1 GiB, and whether its page is free. Returns `None` if it is in
    /// no pool.
    pub(super) fn cell(&self, block: u64) -> Option<Cell> {
        let head = |block: u64| {
            let index = usize::try_from(block).ok()?;
            self.0.get(index).copied().filter(|head| head & POOLED != 0)
        };
        let own = head(block)?;
        if own & GIGANTIC == 0 {
            let free = own & REFERENCES == 0;
            return Some(Cell::Pool { free });
        }
        // While the guest writes the entries of a page of 1 GiB, its first pageblock may not be in
        // the pool yet.
        let first = head(block - block % IN_GIGANTIC)?;
        let free = first & REFERENCES == 0;
        Some(Cell::Gib { free })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_a_gib_is_free_where_its_first_entry_says_so() {
        let mut heads = vec![0; 2048];
        heads[3] = POOLED;
        heads[4] = POOLED | 1;
        heads[5] = 7;
        heads[512..1536].fill(POOLED | GIGANTIC);
        heads[512] |= 2;
        let mut map = PoolMap(heads);
        let pool = |free| Some(Cell::Pool { free });
        let gib = |free| Some(Cell::Gib { free });
        let expected = [(2, None), (3, pool(true)), (4, pool(false)), (5, None)];
        for (block, cell) in expected {
            assert_eq!(map.cell(block), cell, "{block}");
        }
        assert_eq!([map.cell(512), map.cell(1023)], [gib(false); 2]);
        assert_eq!([map.cell(1024), map.cell(1535)], [gib(true); 2]);
        assert_eq!([map.cell(1536), map.cell(u64::MAX)], [None; 2]);
        // Half of the page is not in the pool yet.
        map.0[1024] = 0;
        assert_eq!(map.cell(1025), None);
    }
}
