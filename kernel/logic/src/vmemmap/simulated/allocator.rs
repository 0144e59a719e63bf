//! The simulated machine's allocator, which can be set to refuse.

use ebb_mm::Frame;
use std::vec::Vec;

/// The owner of a frame, as the allocator sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    None,
    User,
    /// The memmap, since boot.
    Boot,
}

/// The calls of the allocator that fail, by their number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refuse {
    None,
    #[cfg(not(ebb_model))]
    One(u64),
    From(u64),
}

/// The allocator.
#[derive(Debug)]
pub(super) struct Allocator {
    pub(super) owners: Vec<Owner>,
    /// Seed for a random choice of free frames. If it is 0, the first free frame is chosen.
    seed: u64,
    pub(super) calls: u64,
    pub(super) refuse: Refuse,
    /// Number of frames that are counted as the memmap's from this allocator.
    pub(super) counted: u64,
    /// Only set by a machine that flushes too late.
    pub(super) flush_is_due: bool,
}

impl Allocator {
    /// Returns an allocator of frames with these `owners`. `seed` is the seed for the choice of
    /// free frames.
    pub(super) const fn new(owners: Vec<Owner>, seed: u64) -> Self {
        Self {
            owners,
            seed,
            calls: 0,
            refuse: Refuse::None,
            counted: 0,
            flush_is_due: false,
        }
    }

    /// Counts a call of the allocator. Returns whether the call must fail.
    pub(super) fn is_refused(&mut self) -> bool {
        self.calls += 1;
        match self.refuse {
            Refuse::None => false,
            #[cfg(not(ebb_model))]
            Refuse::One(call) => self.calls == call,
            Refuse::From(call) => self.calls >= call,
        }
    }

    /// Allocates the `frames` frames from frame `start` on. Returns the first one, or `None` if one
    /// of them is not free.
    pub(super) fn take(&mut self, start: usize, frames: usize) -> Option<Frame> {
        let wanted = self.owners.get_mut(start..start + frames)?;
        if wanted.iter().any(|&owner| owner != Owner::None) {
            return None;
        }
        wanted.fill(Owner::User);
        Some(Frame::new(start as u64))
    }

    /// Returns a random number below `limit`, or 0 if the seed is 0.
    fn chance(&mut self, limit: usize) -> usize {
        if self.seed == 0 {
            return 0;
        }
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed % limit as u64) as usize
    }

    /// Allocates `frames` adjacent free frames, aligned to their number. Returns the first one, or
    /// `None` if there are none.
    pub(super) fn take_aligned(&mut self, frames: usize) -> Option<Frame> {
        let blocks = self.owners.len() / frames;
        let from = self.chance(blocks);
        (0..blocks).find_map(|index| self.take((from + index) % blocks * frames, frames))
    }

    /// Allocates a free frame, or returns `None` if there is none.
    pub(super) fn take_one(&mut self) -> Option<Frame> {
        self.take_aligned(1)
    }
}
