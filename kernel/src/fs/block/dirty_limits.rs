//! The limits on dirty pages of disks, and the interval at which the kernel writes them:
//! `vm.dirty_*`.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use logic::errno::Errno;
use machine::arch::clock::Nanos;
use machine::memory::{self, PAGE_SIZE};

/// A limit on dirty pages, as a percentage of all memory or as a number of bytes. The value that
/// was set last counts, and the other one is 0.
#[derive(Debug)]
pub struct Limit {
    percent: AtomicU64,
    bytes: AtomicU64,
    least_bytes: u64,
    /// Whether setting a number to its present value also sets the other one to 0.
    always: bool,
}

/// The most pages of a limit in bytes.
const MOST_PAGES: u64 = u32::MAX as u64;
/// The smallest limit in bytes for writers.
pub const LEAST_BYTES: u64 = 2 * PAGE_SIZE as u64;

/// The limit above which the kernel thread begins to write dirty pages.
pub static BACKGROUND: Limit = Limit::of_percent(10, 1, true);
/// The limit above which tasks that make pages dirty wait.
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

    /// Returns the limit in percent of all memory, or 0 if the limit is a number of bytes.
    pub fn percent(&self) -> u64 {
        // Relaxed, in all accesses: the values are independent.
        self.percent.load(Ordering::Relaxed)
    }

    /// Returns the limit in bytes, or 0 if the limit is a part of memory.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets the limit to `percent` percent of all memory.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `percent` is above 100.
    pub fn set_percent(&self, percent: u64) -> Result<(), Errno> {
        if percent > 100 {
            return Err(Errno::EINVAL);
        }
        if self.percent.swap(percent, Ordering::Relaxed) != percent || self.always {
            self.bytes.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets the limit in bytes.
    ///
    /// # Errors
    /// Fails with `EINVAL` below the minimum, which is as on Linux: two pages for writers, one byte
    /// for the background. Fails with `ERANGE` for more than 2^32 - 1 pages.
    pub fn set_bytes(&self, bytes: u64) -> Result<(), Errno> {
        if bytes < self.least_bytes {
            return Err(Errno::EINVAL);
        }
        // The sum wraps as it does on Linux.
        if bytes.wrapping_add(PAGE_SIZE as u64 - 1) / PAGE_SIZE as u64 > MOST_PAGES {
            return Err(Errno::ERANGE);
        }
        if self.bytes.swap(bytes, Ordering::Relaxed) != bytes || self.always {
            self.percent.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the limit in pages.
    pub(super) fn pages(&self) -> u64 {
        match self.bytes() {
            0 => memory::allocator().managed_frames() / 100 * self.percent(),
            bytes => bytes / PAGE_SIZE as u64,
        }
    }
}

/// The interval at which the kernel writes dirty pages, in hundredths of a second. At 0 and below
/// it writes only above the limit.
static INTERVAL_CENTIS: AtomicI32 = AtomicI32::new(500);

/// Returns the interval at which the kernel writes dirty pages, in hundredths of a second. At 0 and
/// below, the kernel does not write them periodically.
pub fn interval_centis() -> i32 {
    INTERVAL_CENTIS.load(Ordering::Relaxed)
}

/// Sets the interval at which the kernel writes dirty pages, in hundredths of a second. At 0 and
/// below, the kernel does not write them periodically.
pub(super) fn set_interval_centis(centis: i32) {
    INTERVAL_CENTIS.store(centis, Ordering::Relaxed);
}

/// Returns the interval at which the kernel writes dirty pages. Returns `None` if the setting is 0
/// or negative, which turns periodic writing off.
pub(super) fn interval() -> Option<Nanos> {
    match u64::try_from(interval_centis()) {
        Ok(0) | Err(_) => None,
        Ok(centis) => Some(Nanos::from_millis(centis * 10)),
    }
}
