//! Blocks that carry their part of the memmap.

use super::exchange::Exchange;
use super::machine::Machine;
use super::shared::Shared;
use core::ops::DerefMut;
use ebb_mm::{Frame, FrameRange};

/// A block that carries its part of the memmap.
#[derive(Copy, Clone, Debug)]
pub struct Carrier {
    /// Its first frame.
    pub block: Frame,
    /// How many of its frames carry.
    pub carried: u64,
    /// Told by [`relieve`]: it is whole again.
    pub whole: bool,
}

impl Carrier {
    /// One that still carries.
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

/// The most blocks that are made whole together.
pub const TOGETHER: usize = 8;

/// Makes blocks whole that carry their part of the memmap, where the rest of them is free and there are frames elsewhere;
/// [`TOGETHER`] at most. Elsewhere is in none of these: all rests are taken first, or one's part of the memmap would move
/// into another, which could not be made whole then. `is_whole` is called for each before it is freed: then it may be
/// somebody else's.
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
