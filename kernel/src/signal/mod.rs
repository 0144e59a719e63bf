//! Signals.

use crate::arch::UserFrame;

/// Raises a signal that the current task cannot refuse, for a fault at `address`: a blocked or
/// ignored one ends the process.
pub fn force(signo: u32, code: i32, address: u64) {
    let _ = (signo, code, address);
    unimplemented!()
}

/// An exception in user mode other than a page fault: raises its signal.
pub fn on_exception(frame: &mut UserFrame, vector: u8, error: u64) {
    let _ = (frame, vector, error);
    unimplemented!()
}
