//! Counts of a thread's reads and writes: `/proc/PID/io`.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The numbers of bytes that one thread has read and written, and of its read and write calls. Only
/// the thread itself writes them, and all CPUs read them. So accesses are Relaxed, and plain loads
/// and stores.
#[derive(Debug, Default)]
pub struct Transfers {
    read: AtomicU64,
    written: AtomicU64,
    read_calls: AtomicU64,
    write_calls: AtomicU64,
    disk_read: AtomicU64,
    disk_written: AtomicU64,
}

/// The numbers of [`Transfers`] at one moment, or a sum of the numbers of several threads.
#[derive(Copy, Clone, Debug, Default)]
pub struct Transferred {
    /// Bytes that calls such as `read` returned.
    pub read: u64,
    /// Bytes that calls such as `write` took.
    pub written: u64,
    /// The number of calls such as `read`.
    pub read_calls: u64,
    /// The number of calls such as `write`.
    pub write_calls: u64,
    /// Bytes that were requested from disks.
    pub disk_read: u64,
    /// Bytes of disks that were changed, at first in memory.
    pub disk_written: u64,
}

impl Transferred {
    /// Adds the numbers of `other` to `self`.
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
    /// Makes counts of zero.
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

    /// Counts a call such as `read` that returned `bytes` bytes to the program.
    #[inline]
    pub fn count_read(&self, bytes: usize) {
        count(&self.read, bytes as u64);
        count(&self.read_calls, 1);
    }

    /// Counts a call such as `write` that took `bytes` bytes from the program.
    #[inline]
    pub fn count_write(&self, bytes: usize) {
        count(&self.written, bytes as u64);
        count(&self.write_calls, 1);
    }

    /// Counts `bytes` bytes that are requested from a disk.
    pub fn count_disk_read(&self, bytes: usize) {
        count(&self.disk_read, bytes as u64);
    }

    /// Counts `bytes` bytes of a disk that the thread changes, at first in memory.
    pub fn count_disk_write(&self, bytes: usize) {
        count(&self.disk_written, bytes as u64);
    }

    /// Returns the present numbers.
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
