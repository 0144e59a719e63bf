//! Pageblocks whose first frames contain the block's own part of the memmap.

use super::exchange::Exchange;
use super::machine::Machine;
use super::shared::Shared;
use core::ops::DerefMut;
use ebb_mm::{Frame, FrameRange};

/// A pageblock whose first frames contain its own part of the memmap (they *carry* it), so that
/// only the other frames can be free.
#[derive(Copy, Clone, Debug)]
pub struct Carrier {
    /// First frame of the pageblock.
    pub block: Frame,
    /// Number of frames at the start of the pageblock that contain its part of the memmap.
    pub carried: u64,
    /// Whether [`relieve`] has moved the part of the memmap away and freed the whole pageblock.
    pub whole: bool,
}

impl Carrier {
    /// Returns a carrier that is not whole: the first `carried` frames of the pageblock at `block`
    /// contain its part of the memmap.
    pub const fn new(block: Frame, carried: u64) -> Self {
        Self {
            block,
            carried,
            whole: false,
        }
    }

    fn rest<M: Machine>(&self) -> FrameRange {
        FrameRange::new(self.block.offset(self.carried), M::ENTRIES - self.carried)
    }
}

/// The most pageblocks that one call of [`relieve`] makes whole.
pub const TOGETHER: usize = 8;

/// Moves the memmap parts of `carriers`, at most [`TOGETHER`] pageblocks of `machine`, to other
/// frames from the allocator. A pageblock whose part has moved is freed as a whole, and its
/// [`Carrier::whole`] is set. A pageblock stays a carrier if one of its other frames is in use, or
/// if the allocator has too few frames. `lock` must return the guard of the lock of the shared
/// page. Calls `is_whole` with each pageblock before it is freed, because afterwards the pageblock
/// may have another owner.
///
/// The free frames of all carriers are allocated first. Otherwise the part of one pageblock could
/// move into another one, which could then not be made whole.
pub fn relieve<M, G>(
    machine: M,
    lock: impl FnOnce() -> G,
    carriers: &mut [Carrier],
    mut is_whole: impl FnMut(Frame),
) where
    M: Machine,
    G: DerefMut<Target = Option<Shared>>,
{
    let mut held = [false; TOGETHER];
    for (carrier, held) in carriers.iter().zip(&mut held) {
        *held = machine.allocate_range(carrier.rest::<M>());
    }
    if held == [false; TOGETHER] {
        return;
    }
    let mut exchange = Exchange::begin(machine, lock());
    for (carrier, &held) in carriers.iter_mut().zip(&held) {
        carrier.whole = held && exchange.move_out(carrier.block, carrier.carried);
    }
    exchange.end();
    for (carrier, held) in carriers.iter().zip(held) {
        if carrier.whole {
            is_whole(carrier.block);
            machine.free(FrameRange::new(carrier.block, M::ENTRIES));
        } else if held {
            machine.free(carrier.rest::<M>());
        }
    }
}
