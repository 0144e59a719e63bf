//! The map of a guest: the use of each pageblock, and whether the host holds memory for it.
//!
//! The guest's allocator keeps the use of each pageblock in guest memory, which the host can read.
//! The file of that memory shows which pages are resident. This needs no agent in the guest, writes
//! nothing, and trusts nothing: the map has exactly the pageblocks that the host gave to the guest.

use super::pool_map::PoolMap;
use super::protocol::{BlockMap, Cell, Counts, Region};
use super::snapshot::Snapshot;
use crate::guest::Guest;
use crate::qemu::GuestRam;
use ebb_mm::attach::Usage;
use ebb_mm::view::View;
use ebb_mm::{FRAME_SIZE, PAGEBLOCK_FRAMES};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::sync::Arc;

const PAGE: u64 = FRAME_SIZE as u64;
const BLOCK: u64 = PAGEBLOCK_FRAMES * FRAME_SIZE as u64;
/// The number of pageblocks that the allocator may describe beyond RAM. Its trees cover 64 MiB
/// each, so there may be a part of one at each end of a range, and there are few ranges.
const BEYOND_MAX: usize = 4096;

/// Produces the map of one guest: for each pageblock of 2 MiB, how it is used and whether the host
/// holds memory for it.
#[derive(Debug)]
pub(crate) struct Mapper {
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
}

impl Mapper {
    /// Returns a mapper for the guest `guest` with the memory `ram`. Reads nothing yet.
    pub(crate) fn new(ram: Arc<GuestRam>, guest: Arc<dyn Guest>) -> Self {
        Self { ram, guest }
    }

    /// Reads the guest's metadata and returns the current map, with one letter for each pageblock
    /// of each region of its memory. A pageblock that the allocator does not describe is reserved.
    /// Fails with a message for the user if the guest's allocator is not ready, its metadata is
    /// malformed, or the RAM file cannot be searched.
    pub(super) fn map(&self) -> Result<BlockMap, String> {
        let not_yet = || "the guest's allocator does not work yet".to_owned();
        let metadata = self.guest.metadata().ok_or_else(not_yet)?;
        let snapshot = Snapshot::new(&self.ram, metadata.address, metadata.bytes);
        let view = View::new(snapshot).map_err(|_| not_yet())?;
        let view = view.within(self.ram.frames());
        let pool = PoolMap::read(&self.ram, self.guest.as_ref());
        let mut regions: Vec<(u64, Vec<Cell>)> = self
            .ram
            .regions()
            .iter()
            .map(|region| {
                let blocks = usize::try_from(region.bytes.div_ceil(BLOCK)).unwrap_or(0);
                (region.start.0, vec![Cell::Reserved; blocks])
            })
            .collect();
        let blocks: usize = regions.iter().map(|(_, cells)| cells.len()).sum();
        let resident = resident_blocks(&self.ram, blocks)
            .map_err(|errno| format!("the guest's memory cannot be searched: {errno}"))?;
        for block in view.blocks().take(blocks + BEYOND_MAX) {
            let block = block.map_err(|error| error.to_string())?;
            let address = block.start.address();
            let mut before = 0;
            for (start, cells) in &mut regions {
                let index = address.checked_sub(*start).map(|bytes| bytes / BLOCK);
                let index = index.and_then(|index| usize::try_from(index).ok());
                if let Some(index) = index
                    && let Some(cell) = cells.get_mut(index)
                {
                    let held = resident.get(before + index).copied().unwrap_or(false);
                    *cell = match cell_of(block.usage, held) {
                        Cell::Huge => pool.cell(address / BLOCK).unwrap_or(Cell::Huge),
                        cell => cell,
                    };
                    break;
                }
                before += cells.len();
            }
        }
        let mut counts = Counts::default();
        let regions = regions.into_iter().map(|(start, cells)| {
            cells.iter().for_each(|cell| counts.add(*cell));
            Region {
                start,
                blocks: cells.into_iter().map(Cell::letter).collect(),
            }
        });
        let regions = regions.collect();
        Ok(BlockMap {
            block_bytes: BLOCK,
            counts,
            regions,
        })
    }
}

fn cell_of(usage: Usage, held: bool) -> Cell {
    match usage {
        Usage::Missing => Cell::Reserved,
        // The allocator's own record of resident blocks is only an upper bound. The file is exact.
        Usage::Free { .. } if held => Cell::Held,
        Usage::Free { .. } => Cell::Returned,
        Usage::Partial(frames) => {
            let ninths = (u64::from(frames) * 9)
                .div_ceil(PAGEBLOCK_FRAMES)
                .clamp(1, 9);
            Cell::Partial(u8::try_from(ninths).unwrap_or(9))
        }
        Usage::Full => Cell::Full,
        Usage::Whole => Cell::Huge,
        Usage::Isolated => Cell::Isolated,
        Usage::Emptying(_) => Cell::Moving,
    }
}

/// Returns for each block of the file whether a page that the guest has used is resident. Makes one
/// call to lseek(2) per such block. Holes between blocks are skipped. Fails as lseek(2).
fn resident_blocks(ram: &GuestRam, blocks: usize) -> Result<Vec<bool>, Errno> {
    let mut resident = vec![false; blocks];
    let mut next = 0u64;
    // Each block can need two calls, because the page that keeps a block in base pages is skipped.
    for _ in 0..2 * blocks {
        // QEMU shares the file's position and never uses it.
        let data = match rustix::fs::seek(ram.fd(), SeekFrom::Data(next)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        if ram.is_first_of_kept(data) {
            next = data + PAGE;
            continue;
        }
        let block = data / BLOCK;
        let Some(held) = usize::try_from(block)
            .ok()
            .and_then(|at| resident.get_mut(at))
        else {
            break;
        };
        *held = true;
        next = (block + 1) * BLOCK;
    }
    Ok(resident)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{EbbGuest, Header};
    use crate::machine::Machine;
    use crate::qemu::GuestAddress;

    #[test]
    fn residency_is_by_block() {
        let ram = GuestRam::new(Machine::Microvm, 9 << 20).unwrap();
        assert_eq!(resident_blocks(&ram, 5).unwrap(), [false; 5]);
        for at in [0, 3 << 20, (9 << 20) - 1] {
            rustix::io::pwrite(ram.fd(), &[1], at).unwrap();
        }
        let found = resident_blocks(&ram, 5).unwrap();
        assert_eq!(found, [true, true, false, false, true]);
        assert_eq!(resident_blocks(&ram, 2).unwrap(), [true, true]);
    }

    #[test]
    fn shares_are_in_ninths() {
        let level = |frames| cell_of(Usage::Partial(frames), true);
        assert_eq!(level(1), Cell::Partial(1));
        assert_eq!(level(57), Cell::Partial(2));
        assert_eq!(level(511), Cell::Partial(9));
        let free = Usage::Free { unreported: true };
        assert_eq!(cell_of(free, false), Cell::Returned);
        assert_eq!(cell_of(free, true), Cell::Held);
    }

    #[test]
    fn a_guest_without_an_allocator_has_no_map() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 4 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(0x3000));
        let guest = Arc::new(EbbGuest::new(header, 0));
        let error = Mapper::new(ram, guest).map().unwrap_err();
        assert!(error.contains("does not work yet"), "{error}");
    }
}
