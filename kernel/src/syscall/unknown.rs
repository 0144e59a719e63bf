//! Calls that are not supported: each is named once on the console.

use core::sync::atomic::{AtomicU64, Ordering};

/// The number of calls that are remembered one by one. All higher numbers share the last place.
const REMEMBERED: u32 = 512;

static NAMED: [AtomicU64; (REMEMBERED / 64) as usize] =
    [const { AtomicU64::new(0) }; (REMEMBERED / 64) as usize];

/// Prints on the console that call `number` is not supported, the first time that a program makes
/// it.
#[cold]
pub(super) fn name_once(number: u32) {
    let slot = number.min(REMEMBERED - 1);
    let bit = 1u64 << (slot % 64);
    // Relaxed: only this bit matters, and it guards no other data.
    let before = NAMED[(slot / 64) as usize].fetch_or(bit, Ordering::Relaxed);
    if before & bit == 0 {
        machine::console!("system call {number} is not supported (answered ENOSYS)");
    }
}
