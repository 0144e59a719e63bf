//! Restores a part of the memmap with a large page, as at boot.

use super::exchange::Exchange;
use super::machine::Machine;
use super::shared::Shared;
use core::ops::DerefMut;
use ebb_mm::{Frame, FrameRange};

/// Restores the part of the memmap of `machine` under one table with a pageblock of zeros. `first`
/// is the first frame described there, and all frames described there must belong to unused huge
/// pages. `lock` must return the guard of the lock of the shared page. Returns `true` once every
/// CPU has flushed its TLB. Returns `false`, and changes nothing, if no pageblock is free.
pub fn restore_large<M, G>(machine: M, lock: impl FnOnce() -> G, first: Frame) -> bool
where
    M: Machine,
    G: DerefMut<Target = Option<Shared>>,
{
    let Ok(block) = machine.allocate_block() else {
        return false;
    };
    // Cleared before the lock is taken, because that takes long.
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
