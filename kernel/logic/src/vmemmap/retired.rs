//! Frames removed from the memmap.

use super::machine::Machine;
use ebb_mm::{Frame, FrameRange};

/// The number of runs of frames that are kept until all CPUs have flushed.
pub(super) const RUNS: usize = 64;

/// Frames that were removed from the memmap. They are freed when no TLB can map them any more.
#[derive(Debug)]
pub(super) struct Retired {
    /// Each run, and whether it came from the allocator. The entries of the page tables say so. Its
    /// descriptors do not, as the host may not back them with memory yet.
    runs: [(FrameRange, bool); RUNS],
    len: usize,
}

impl Retired {
    /// Returns a value without frames.
    #[inline]
    pub(super) const fn new() -> Self {
        Self {
            runs: [(FrameRange::new(Frame::new(0), 0), false); RUNS],
            len: 0,
        }
    }

    /// Adds `frame`, which came from the allocator if `owned`, and returns `true`. Returns `false`,
    /// and does not add it, if there is no room for another run of frames.
    #[inline]
    pub(super) fn push(&mut self, frame: Frame, owned: bool) -> bool {
        if let Some((last, of)) = self.runs[..self.len].last_mut()
            && last.end() == frame
            && *of == owned
        {
            last.frames += 1;
            return true;
        }
        if self.len == RUNS {
            return false;
        }
        self.runs[self.len] = (FrameRange::new(frame, 1), owned);
        self.len += 1;
        true
    }

    /// Makes the retired frames that the memmap has from boot known to the allocator of `machine`
    /// ([`Machine::admit`]). They are not free yet. The caller must hold the exchange's lock.
    pub(super) fn admit<M: Machine>(&self, machine: M) {
        for &(run, owned) in &self.runs[..self.len] {
            if !owned {
                machine.admit(run);
            }
        }
    }

    /// Frees all retired frames to the allocator of `machine`. Call [`Self::admit`] first.
    pub(super) fn free<M: Machine>(&mut self, machine: M) {
        for &(run, owned) in &self.runs[..core::mem::take(&mut self.len)] {
            if owned {
                for index in 0..run.frames {
                    machine.disown(run.start.offset(index));
                }
                machine.uncount(run.frames);
            }
            machine.free(run);
        }
    }
}
