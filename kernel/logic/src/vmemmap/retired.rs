//! Frames on their way out of the memmap.

use super::machine::Machine;
use ebb_mm::{Frame, FrameRange};

/// Runs of frames that are kept until all CPUs have flushed.
pub(super) const RUNS: usize = 64;

/// Frames that were taken out of the memmap.
#[derive(Debug)]
pub(super) struct Retired {
    runs: [FrameRange; RUNS],
    len: usize,
}

impl Retired {
    #[inline]
    pub(super) const fn new() -> Self {
        Self {
            runs: [FrameRange::new(Frame::new(0), 0); RUNS],
            len: 0,
        }
    }

    /// Keeps a frame; false: it is full.
    #[inline]
    pub(super) fn push(&mut self, frame: Frame) -> bool {
        if let Some(last) = self.runs[..self.len].last_mut()
            && last.end() == frame
        {
            last.frames += 1;
            return true;
        }
        if self.len == RUNS {
            return false;
        }
        self.runs[self.len] = FrameRange::new(frame, 1);
        self.len += 1;
        true
    }

    /// Frees all of them.
    pub(super) fn free<M: Machine>(&mut self, machine: M) {
        for run in &self.runs[..core::mem::take(&mut self.len)] {
            let mut start = run.start;
            while start != run.end() {
                let owned = machine.is_owned(start);
                let mut end = start.offset(1);
                while end != run.end() && machine.is_owned(end) == owned {
                    end = end.offset(1);
                }
                let part = FrameRange::new(start, end.number() - start.number());
                free_part(machine, part, owned);
                start = end;
            }
        }
    }
}

/// Frees frames that came from the allocator, or that the memmap has from boot.
fn free_part<M: Machine>(machine: M, part: FrameRange, owned: bool) {
    if owned {
        for index in 0..part.frames {
            machine.disown(part.start.offset(index));
        }
        machine.uncount(part.frames);
    } else {
        machine.admit(part);
    }
    machine.free(part);
}
