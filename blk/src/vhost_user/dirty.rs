//! The log of written guest pages, for a front-end that migrates the guest while it runs
//! (vhost-user specification, "Migration").
//!
//! The front-end passes a file with one bit for each page of [`PAGE_BYTES`], from guest physical
//! address 0 on. It clears bits at any time, when it copies their pages again. So a page is marked
//! after it was written, never before, and before the used ring shows the answer. If the back-end
//! dies in between, the request is still under way, and its successor does it again and marks the
//! page.
//!
//! The front-end owns the file, as it owns guest memory. Addresses behind its end are not marked,
//! and [`super::truncated`] handles a file that is made shorter.

use super::inflight::check_span;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Bytes of guest memory for which one bit of the log stands, independent of the host's page size.
pub const PAGE_BYTES: u64 = 4096;
/// Maximum size of a log of written pages in bytes: enough for 64 TiB of guest memory.
pub const MAX_LOG_BYTES: u64 = 2 << 30;

/// A mapped log of written pages: one bit for each page, from guest physical address 0 on.
#[derive(Debug)]
pub struct DirtyLog {
    map: MmapRegion,
}

impl DirtyLog {
    /// Maps `bytes` bytes of the log `file` from `offset` on.
    ///
    /// # Errors
    /// Fails if the file is shorter, is no regular file, or cannot be mapped, or if `bytes` is
    /// above [`MAX_LOG_BYTES`].
    pub fn map(file: File, offset: u64, bytes: u64) -> io::Result<Self> {
        if bytes > MAX_LOG_BYTES {
            return Err(io::Error::other(format!(
                "a log of {bytes} bytes; {MAX_LOG_BYTES} is the most"
            )));
        }
        check_span(&file, offset, bytes)?;
        let size = usize::try_from(bytes).map_err(io::Error::other)?;
        let map = MmapRegion::from_file(FileOffset::new(file, offset), size);
        Ok(Self {
            map: map.map_err(io::Error::other)?,
        })
    }

    /// Returns the address of the log's mapping in this process and its length in bytes.
    pub fn span(&self) -> (*mut u8, usize) {
        (self.map.as_ptr(), self.map.size())
    }

    /// Returns whether the log has a bit for the page at the guest physical address `address`.
    pub fn covers(&self, address: u64) -> bool {
        address / PAGE_BYTES / 8 < self.map.size() as u64
    }

    /// Marks the pages of the `bytes` bytes from the guest physical address `address` on as
    /// written. Pages for which the log has no bit are ignored.
    pub fn mark(&self, address: u64, bytes: u64) {
        let Some(last) = bytes.checked_sub(1) else {
            return;
        };
        // A range that would wrap around is behind the end of any log.
        let last = address.saturating_add(last) / PAGE_BYTES;
        let first = address / PAGE_BYTES;
        let end = (last / 8 + 1).min(self.map.size() as u64);
        for at in first / 8..end {
            let from = if at == first / 8 { first % 8 } else { 0 };
            let to = if at == last / 8 { last % 8 } else { 7 };
            self.set(at, 0xff << from & 0xff >> (7 - to));
        }
    }

    /// Sets `bits` in byte `at` of the log.
    fn set(&self, at: u64, bits: u8) {
        let byte = usize::try_from(at).ok();
        let byte = byte.and_then(|at| self.map.get_atomic_ref::<AtomicU8>(at).ok());
        debug_assert!(byte.is_some(), "byte {at} of {}", self.map.size());
        if let Some(byte) = byte {
            // Release: a front-end that sees the bit sees what was written to the page. Pairs with
            // the exchange by which the front-end clears bits.
            byte.fetch_or(bits, Ordering::Release);
        }
    }
}

/// The guest physical address at which writes to a used ring are logged, which may differ from the
/// ring's own address.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UsedRing {
    /// The guest physical address that is marked for the first byte of the used ring.
    pub log_address: u64,
    /// Number of entries of the ring.
    pub size: u16,
}

/// Bytes of the parts of a used ring (virtio 1.2, 2.7.8): flags and index, then the entries, then
/// the index at which the device wants to be notified.
const FLAGS_BYTES: u64 = 2;
const HEADER_BYTES: u64 = 4;
const ENTRY_BYTES: u64 = 8;
const EVENT_BYTES: u64 = 2;

impl UsedRing {
    /// Marks `bytes` of the used ring from `offset` on.
    fn mark(self, log: &DirtyLog, offset: u64, bytes: u64) {
        // A log cannot cover an address that would overflow.
        if let Some(address) = self.log_address.checked_add(offset) {
            log.mark(address, bytes);
        }
    }

    /// Marks the bytes of the used ring that answer number `index` has changed in `log`: its entry,
    /// and the ring's index. `index` may exceed the ring's size.
    pub fn answered(self, log: &DirtyLog, index: u16) {
        let entry = u64::from(index.checked_rem(self.size).unwrap_or(0));
        self.mark(log, HEADER_BYTES + entry * ENTRY_BYTES, ENTRY_BYTES);
        self.mark(log, 0, HEADER_BYTES);
    }

    /// Marks in `log` the field of the used ring by which the device enables notifications: the
    /// event index if `event_idx`, else the flags.
    pub fn asked(self, log: &DirtyLog, event_idx: bool) {
        if event_idx {
            let entries = u64::from(self.size) * ENTRY_BYTES;
            self.mark(log, HEADER_BYTES + entries, EVENT_BYTES);
        } else {
            self.mark(log, 0, FLAGS_BYTES);
        }
    }

    /// Marks the whole used ring in `log`.
    pub fn all(self, log: &DirtyLog) {
        let entries = u64::from(self.size) * ENTRY_BYTES;
        self.mark(log, 0, HEADER_BYTES + entries + EVENT_BYTES);
    }
}

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
