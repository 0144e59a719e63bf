//! Blocks whose first frames carry their part of the memmap.

use super::exchange::Exchange;
use super::machine::Machine;
use super::shared::Shared;
use core::ops::DerefMut;
use ebb_mm::{Frame, FrameRange};

/// A block whose first frames carry its part of the memmap.
#[derive(Copy, Clone, Debug)]
pub struct Carrier {
    /// First frame of the block.
    pub block: Frame,
    /// Number of carrying frames.
    pub carried: u64,
    /// Set by [`relieve`] if the block is whole again.
    pub whole: bool,
}

impl Carrier {
    /// Returns a block that still carries.
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

/// Makes blocks whole that carry their part of the memmap, if their other frames are free and there
/// are frames elsewhere. At most [`TOGETHER`] blocks. The free frames of all these blocks are
/// allocated first. Otherwise the memmap part of one block could move into another, which could
/// then not be made whole. `is_whole` is called for each block before it is freed, because
/// afterwards it may have another owner.
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
