//! What a thread has read and written: `/proc/PID/io`.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes and calls of one thread. Written by the thread alone and read by all: so Relaxed, and
/// plain loads and stores.
#[derive(Debug, Default)]
pub struct Transfers {
    read: AtomicU64,
    written: AtomicU64,
    read_calls: AtomicU64,
    write_calls: AtomicU64,
    disk_read: AtomicU64,
    disk_written: AtomicU64,
}

/// The figures of [`Transfers`], or a sum of several.
#[derive(Copy, Clone, Debug, Default)]
pub struct Transferred {
    /// Bytes that calls such as `read` gave, and those that calls such as `write` took.
    pub read: u64,
    /// See `read`.
    pub written: u64,
    /// Such calls.
    pub read_calls: u64,
    /// See `read_calls`.
    pub write_calls: u64,
    /// Bytes that were asked of disks.
    pub disk_read: u64,
    /// Bytes of disks that were changed, in memory at first.
    pub disk_written: u64,
}

impl Transferred {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.written += other.written;
        self.read_calls += other.read_calls;
        self.write_calls += other.write_calls;
        self.disk_read += other.disk_read;
        self.disk_written += other.disk_written;
    }
}

#[inline]
fn count(place: &AtomicU64, by: u64) {
    place.store(place.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Transfers {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            read_calls: AtomicU64::new(0),
            write_calls: AtomicU64::new(0),
            disk_read: AtomicU64::new(0),
            disk_written: AtomicU64::new(0),
        }
    }

    /// Counts a call that gave the caller `bytes` bytes.
    #[inline]
    pub fn count_read(&self, bytes: usize) {
        count(&self.read, bytes as u64);
        count(&self.read_calls, 1);
    }

    /// Counts a call that took `bytes` bytes from the caller.
    #[inline]
    pub fn count_write(&self, bytes: usize) {
        count(&self.written, bytes as u64);
        count(&self.write_calls, 1);
    }

    /// Counts bytes that are asked of a disk.
    pub fn count_disk_read(&self, bytes: usize) {
        count(&self.disk_read, bytes as u64);
    }

    /// Counts bytes of a disk that are changed.
    pub fn count_disk_write(&self, bytes: usize) {
        count(&self.disk_written, bytes as u64);
    }

    /// Returns the figures.
    pub fn get(&self) -> Transferred {
        Transferred {
            read: self.read.load(Relaxed),
            written: self.written.load(Relaxed),
            read_calls: self.read_calls.load(Relaxed),
            write_calls: self.write_calls.load(Relaxed),
            disk_read: self.disk_read.load(Relaxed),
            disk_written: self.disk_written.load(Relaxed),
        }
    }
}
