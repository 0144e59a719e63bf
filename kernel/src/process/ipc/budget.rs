//! Limits the kernel memory of messages and semaphores to a quarter of RAM.
//!
//! No process owns them, so killing one would not bring their memory back.

use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::memory::{self, PAGE_SIZE};
use machine::sync::Once;

/// Bytes in use.
static USED: AtomicU64 = AtomicU64::new(0);

/// Memory of messages or semaphores, which counts as used until this value is dropped. The field is
/// the size in bytes.
#[derive(Debug)]
pub(super) struct Charge(u64);

impl Drop for Charge {
    fn drop(&mut self) {
        // Relaxed: no other data depends on the sum.
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

fn most() -> u64 {
    static MOST: Once<u64> = Once::new();
    if MOST.get().is_none() {
        // Every CPU computes the same value, so the first may set it.
        let _ = MOST.set(memory::stats::frames().managed_frames * PAGE_SIZE as u64 / 4);
    }
    MOST.get().copied().unwrap_or(0)
}

/// Charges `bytes` bytes to the memory of messages and semaphores. The charge lasts until the
/// result is dropped.
///
/// # Errors
/// Fails with `ENOMEM` if the sum of all charges would exceed a quarter of RAM.
pub(super) fn charge(bytes: u64) -> Result<Charge, Errno> {
    // Relaxed: no other data depends on the sum.
    let sum = USED.fetch_add(bytes, Ordering::Relaxed);
    let charge = Charge(bytes);
    if sum.checked_add(bytes).is_none_or(|sum| sum > most()) {
        return Err(Errno::ENOMEM);
    }
    Ok(charge)
}
