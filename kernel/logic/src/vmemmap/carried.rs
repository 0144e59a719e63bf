//! Blocks that carry their part of the memmap.

use super::exchange::Exchange;
use super::machine::Machine;
use super::shared::Shared;
use core::ops::DerefMut;
use ebb_mm::{Frame, FrameRange};

/// Makes a block whole that carries its part of the memmap, if the rest of it is free and there are frames elsewhere;
/// says whether. `is_whole` is called when it is, before it is freed: then it may be somebody else's.
pub fn relieve<M, G>(
    machine: M,
    lock: impl FnOnce() -> G,
    block: Frame,
    carried: u64,
    is_whole: impl FnOnce(),
) -> bool
where
    M: Machine,
    G: DerefMut<Target = Option<Shared>>,
{
    let rest = FrameRange::new(block.offset(carried), M::ENTRIES - carried);
    if !machine.allocate_range(rest) {
        return false;
    }
    let mut exchange = Exchange::begin(machine, lock());
    let moved = exchange.move_out(block, carried);
    exchange.end();
    if moved {
        is_whole();
        machine.free(FrameRange::new(block, M::ENTRIES));
    } else {
        machine.free(rest);
    }
    moved
}
