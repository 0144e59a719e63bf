//! A trace of calls and their results on the console (`ebb.trace=calls`). Only builds with
//! assertions have it.

use super::Args;
use logic::errno::SysResult;

#[cfg(debug_assertions)]
static ON: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Turns the trace on. Has no effect in builds without assertions.
pub(crate) fn enable() {
    #[cfg(debug_assertions)]
    ON.store(true, core::sync::atomic::Ordering::Relaxed);
}

#[cfg(debug_assertions)]
fn on() -> bool {
    // Relaxed: set before the first program starts.
    ON.load(core::sync::atomic::Ordering::Relaxed)
}

/// Prints a call and its arguments, if the trace is on.
#[inline(always)]
pub(super) fn call(number: u32, args: &Args) {
    #[cfg(debug_assertions)]
    if on() {
        let tid = crate::process::current().tid();
        machine::console!("{tid}: call {number} {:x?}", args.0);
    }
    #[cfg(not(debug_assertions))]
    let _ = (number, args);
}

/// Prints the result of a call, if the trace is on.
#[inline(always)]
pub(super) fn result(number: u32, result: SysResult) {
    #[cfg(debug_assertions)]
    if on() {
        let tid = crate::process::current().tid();
        machine::console!("{tid}: call {number} gives {result:x?}");
    }
    #[cfg(not(debug_assertions))]
    let _ = (number, result);
}
