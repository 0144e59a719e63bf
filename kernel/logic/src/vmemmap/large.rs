//! A part of the memmap brought back by a large page, as it was at boot.

use super::exchange::Exchange;
use super::machine::Machine;
use super::shared::Shared;
use core::ops::DerefMut;
use ebb_mm::{Frame, FrameRange};

/// Brings back the part of the memmap under one table, whose first frame is `first` and all of whose frames are of huge
/// pages that are not in use, by one pageblock of zeros; false: there is none. When this returns, every CPU knows.
pub fn restore_large<M, G>(machine: M, lock: impl FnOnce() -> G, first: Frame) -> bool
where
    M: Machine,
    G: DerefMut<Target = Option<Shared>>,
{
    let Ok(block) = machine.allocate_block() else {
        return false;
    };
    // Before the lock: this is long.
    machine.clear(FrameRange::new(block, M::ENTRIES));
    for index in 0..M::ENTRIES {
        machine.own(block.offset(index));
    }
    machine.count(M::ENTRIES);
    let mut exchange = Exchange::begin(machine, lock());
    exchange.put_large(first, block);
    exchange.end();
    true
}
