//! Frames to which other frames move.

use super::allocator::allocator;
use super::percpu;
use ebb_mm::{Compactor, Compacts, Frame, Mobility, Order, Request, Reserve};

/// An allocated frame with any content that is not in use. Dropping it frees the frame.
#[derive(Debug)]
pub struct Target(Frame);

impl Target {
    /// Returns the frame, which the caller puts into use.
    #[inline]
    pub(super) fn into_frame(self) -> Frame {
        let frame = self.0;
        core::mem::forget(self);
        frame
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        percpu::free(self.0, Order::BASE);
    }
}

/// Up to [`Targets::MOST`] targets. Dropping it frees those that were not taken.
#[derive(Debug)]
pub struct Targets {
    targets: [Option<Target>; Self::MOST],
    /// The number of targets found, of which the first `taken` were taken.
    found: usize,
    taken: usize,
}

impl Targets {
    /// The most targets.
    pub const MOST: usize = 32;

    /// Returns `count` targets that `compactor` finds in its zone, or fewer if there are no more.
    /// `by` says which counters count the work.
    ///
    /// # Panics
    /// Panics if `count` is larger than [`Self::MOST`].
    pub fn find(compactor: &mut Compactor, by: Compacts, count: usize) -> Self {
        let mut frames = [Frame::new(0); Self::MOST];
        let found = compactor.targets(allocator(), by, &mut frames[..count]);
        percpu::count_taken(&frames[..found]);
        let mut targets = Self {
            targets: [const { None }; Self::MOST],
            found,
            taken: 0,
        };
        for (place, &frame) in targets.targets.iter_mut().zip(&frames[..found]) {
            *place = Some(Target(frame));
        }
        targets
    }

    /// Allocates targets anywhere until there are `count`, or no frame is free. Does not wait.
    pub fn fill(&mut self, count: usize) {
        while self.found < count {
            let request = Request::new(Order::BASE, Mobility::Movable).reserve(Reserve::Keep);
            let Ok(frame) = percpu::allocate(request) else {
                break;
            };
            self.targets[self.found] = Some(Target(frame));
            self.found += 1;
        }
    }

    /// Returns the number of targets that were not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.found - self.taken
    }

    /// Takes the next target. Returns `None` if none is left.
    pub fn take(&mut self) -> Option<Target> {
        if self.left() == 0 {
            return None;
        }
        self.taken += 1;
        self.targets[self.taken - 1].take()
    }
}
