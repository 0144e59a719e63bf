//! How much memory of the kernel's messages and semaphores take: no more than a quarter of RAM.
//!
//! No process owns them, so killing one would not bring their memory back.

use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::memory::{self, PAGE_SIZE};
use machine::sync::Once;

/// Bytes in use.
static USED: AtomicU64 = AtomicU64::new(0);

/// Memory that counts as used while this exists.
#[derive(Debug)]
pub(super) struct Charge(u64);

impl Drop for Charge {
    fn drop(&mut self) {
        // Relaxed: a sum of its own.
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

fn most() -> u64 {
    static MOST: Once<u64> = Once::new();
    if MOST.get().is_none() {
        // Whoever is first: they all say the same.
        let _ = MOST.set(memory::stats::frames().managed_frames * PAGE_SIZE as u64 / 4);
    }
    MOST.get().copied().unwrap_or(0)
}

/// Takes so many bytes.
///
/// # Errors
/// `ENOMEM`: more than there may be.
pub(super) fn charge(bytes: u64) -> Result<Charge, Errno> {
    // Relaxed: as above.
    let sum = USED.fetch_add(bytes, Ordering::Relaxed);
    let charge = Charge(bytes);
    if sum.checked_add(bytes).is_none_or(|sum| sum > most()) {
        return Err(Errno::ENOMEM);
    }
    Ok(charge)
}
