//! How much of disks may be changed in memory before it is written, and how often the kernel looks:
//! `vm.dirty_*`.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use logic::errno::Errno;
use machine::arch::clock::Nanos;
use machine::memory::{self, PAGE_SIZE};

/// A part of all memory, or a number of bytes: the one that was set last counts, and the other is
/// 0.
#[derive(Debug)]
pub struct Limit {
    percent: AtomicU64,
    bytes: AtomicU64,
    least_bytes: u64,
    /// Setting a number that holds already sets the other one to 0, too.
    always: bool,
}

/// The most pages that bytes can stand for.
const MOST_PAGES: u64 = u32::MAX as u64;
/// The fewest bytes that may be dirty before writers wait.
pub const LEAST_BYTES: u64 = 2 * PAGE_SIZE as u64;

/// What may be dirty before the kernel begins to write.
pub static BACKGROUND: Limit = Limit::of_percent(10, 1, true);
/// What may be dirty before writers wait.
pub static WRITERS: Limit = Limit::of_percent(20, LEAST_BYTES, false);

impl Limit {
    const fn of_percent(percent: u64, least_bytes: u64, always: bool) -> Self {
        Self {
            percent: AtomicU64::new(percent),
            bytes: AtomicU64::new(0),
            least_bytes,
            always,
        }
    }

    /// The part of memory, in percent; 0: bytes count.
    pub fn percent(&self) -> u64 {
        // Relaxed (all of them): values of their own.
        self.percent.load(Ordering::Relaxed)
    }

    /// The number of bytes; 0: the part of memory counts.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets the part of memory.
    ///
    /// # Errors
    /// `EINVAL` above 100.
    pub fn set_percent(&self, percent: u64) -> Result<(), Errno> {
        if percent > 100 {
            return Err(Errno::EINVAL);
        }
        if self.percent.swap(percent, Ordering::Relaxed) != percent || self.always {
            self.bytes.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets the number of bytes.
    ///
    /// # Errors
    /// `EINVAL` for less than the least, as on Linux: two pages of writers, one byte before the kernel begins;
    /// `ERANGE` for more than 2^32 - 1 pages.
    pub fn set_bytes(&self, bytes: u64) -> Result<(), Errno> {
        if bytes < self.least_bytes {
            return Err(Errno::EINVAL);
        }
        // Linux's sum wraps, too.
        if bytes.wrapping_add(PAGE_SIZE as u64 - 1) / PAGE_SIZE as u64 > MOST_PAGES {
            return Err(Errno::ERANGE);
        }
        if self.bytes.swap(bytes, Ordering::Relaxed) != bytes || self.always {
            self.percent.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The limit in pages.
    pub(super) fn pages(&self) -> u64 {
        match self.bytes() {
            0 => memory::allocator().managed_frames() / 100 * self.percent(),
            bytes => bytes / PAGE_SIZE as u64,
        }
    }
}

/// Hundredths of a second between two looks of the kernel; 0 and less: it looks only when too much is dirty.
static INTERVAL_CENTIS: AtomicI32 = AtomicI32::new(500);

/// Hundredths of a second between two looks of the kernel at what is dirty; 0 and less: there are none.
pub fn interval_centis() -> i32 {
    INTERVAL_CENTIS.load(Ordering::Relaxed)
}

/// Sets that.
pub(super) fn set_interval_centis(centis: i32) {
    INTERVAL_CENTIS.store(centis, Ordering::Relaxed);
}

/// The time between two looks, or `None`.
pub(super) fn interval() -> Option<Nanos> {
    match u64::try_from(interval_centis()) {
        Ok(0) | Err(_) => None,
        Ok(centis) => Some(Nanos::from_millis(centis * 10)),
    }
}
