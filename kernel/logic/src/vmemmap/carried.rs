//! Blocks whose first frames carry their part of the memmap.

use super::exchange::Exchange;
use super::machine::Machine;
use super::shared::Shared;
use core::ops::DerefMut;
use ebb_mm::{Frame, FrameRange};

/// A pageblock whose first frames carry its part of the memmap, so that only the others can be
/// free.
#[derive(Copy, Clone, Debug)]
pub struct Carrier {
    /// First frame of the pageblock.
    pub block: Frame,
    /// Number of frames that carry its part of the memmap.
    pub carried: u64,
    /// Whether [`relieve`] has made the pageblock whole.
    pub whole: bool,
}

impl Carrier {
    /// Returns a carrier that is not whole. The first `carried` frames of the pageblock at `block`
    /// carry.
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

/// The most blocks that [`relieve`] makes whole together.
pub const TOGETHER: usize = 8;

/// Makes those of `carriers` whole whose other frames are free, as far as there are frames
/// elsewhere. There must be at most [`TOGETHER`] carriers. The free frames of all these blocks are
/// allocated first. Otherwise the memmap part of one block could move into another, which could
/// then not be made whole. Calls `is_whole` with each block before it is freed, because afterwards
/// the block may have another owner.
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
