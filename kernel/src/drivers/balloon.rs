//! The balloon device: where freed memory goes.

use core::fmt;
use ebb_mm::FrameRange;

/// Why a report did not reach the host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReportFailure;

impl fmt::Display for ReportFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no balloon device")
    }
}

/// Whether freed memory can be reported.
pub fn reporting() -> Result<(), ReportFailure> {
    Err(ReportFailure)
}

/// Tells the host that these ranges are free; returns when it has taken note.
pub fn report(ranges: &[FrameRange]) -> Result<(), ReportFailure> {
    let _ = ranges;
    Err(ReportFailure)
}

/// Takes up to `frames` pages back from the balloon; how many came.
pub fn deflate_on_oom(frames: u32) -> u32 {
    let _ = frames;
    0
}

use super::discovery::Found;

/// Takes the balloon device.
pub(super) fn add(found: Found) {
    let _ = found;
}

/// Starts the thread that follows the host's target.
pub(super) fn start() {}
