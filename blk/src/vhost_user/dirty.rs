//! Which pages of the guest's memory were written, for a front-end that is copying that memory to
//! another host while the guest runs (vhost-user specification, "Migration").
//!
//! The front-end hands in a file of one bit for each page of [`PAGE_BYTES`], from guest physical
//! address 0 on. It takes bits away when it copies their pages again, at any time. So a page is
//! marked after it was written, never before, and before the used ring tells of it: whoever dies
//! in between leaves the request under way, and its successor does it again and marks it.
//!
//! The file is the front-end's, like the guest's memory: addresses behind its end are not marked,
//! and if it is cut, [`super::truncated`] takes care.

use super::inflight::check_span;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Bytes of a page, whatever the host's are.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a log at most: enough for 64 TiB of guest.
pub const MAX_LOG_BYTES: u64 = 2 << 30;

/// The log, mapped.
#[derive(Debug)]
pub struct DirtyLog {
    map: MmapRegion,
}

impl DirtyLog {
    /// Maps `bytes` from `offset` of what the front-end hands in.
    ///
    /// # Errors
    /// If the file has not that many, or cannot be mapped.
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

    /// Where it is mapped, and how many bytes.
    pub fn span(&self) -> (*mut u8, usize) {
        (self.map.as_ptr(), self.map.size())
    }

    /// Whether it has a bit for the page of this guest physical address.
    pub fn covers(&self, address: u64) -> bool {
        address / PAGE_BYTES / 8 < self.map.size() as u64
    }

    /// Marks the pages of `bytes` from this guest physical address on, as far as there are bits
    /// for them.
    pub fn mark(&self, address: u64, bytes: u64) {
        let Some(last) = bytes.checked_sub(1) else {
            return;
        };
        // What would wrap around lies behind the end of any log.
        let last = address.saturating_add(last) / PAGE_BYTES;
        let first = address / PAGE_BYTES;
        let end = (last / 8 + 1).min(self.map.size() as u64);
        for at in first / 8..end {
            let from = if at == first / 8 { first % 8 } else { 0 };
            let to = if at == last / 8 { last % 8 } else { 7 };
            self.set(at, 0xff << from & 0xff >> (7 - to));
        }
    }

    fn set(&self, at: u64, bits: u8) {
        let byte = usize::try_from(at).ok();
        let byte = byte.and_then(|at| self.map.get_atomic_ref::<AtomicU8>(at).ok());
        debug_assert!(byte.is_some(), "byte {at} of {}", self.map.size());
        if let Some(byte) = byte {
            // Release: who sees the bit sees what was written to the page. Pairs with the exchange
            // by which the front-end takes bits away.
            byte.fetch_or(bits, Ordering::Release);
        }
    }
}

/// A used ring as the log knows it: where its first byte is logged, which need not be where it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UsedRing {
    /// The address to be marked for the first byte.
    pub log_address: u64,
    /// Entries.
    pub size: u16,
}

/// Bytes of the parts of a used ring (virtio 1.2, 2.7.8): flags and index in front, entries, then
/// the index at which the device wants to be notified.
const FLAGS_BYTES: u64 = 2;
const HEADER_BYTES: u64 = 4;
const ENTRY_BYTES: u64 = 8;
const EVENT_BYTES: u64 = 2;

impl UsedRing {
    fn mark(self, log: &DirtyLog, offset: u64, bytes: u64) {
        // No log reaches as far as an address that would overflow.
        if let Some(address) = self.log_address.checked_add(offset) {
            log.mark(address, bytes);
        }
    }

    /// An answer was written to the entry of this index, and the index behind it.
    pub fn answered(self, log: &DirtyLog, index: u16) {
        let entry = u64::from(index.checked_rem(self.size).unwrap_or(0));
        self.mark(log, HEADER_BYTES + entry * ENTRY_BYTES, ENTRY_BYTES);
        self.mark(log, 0, HEADER_BYTES);
    }

    /// What drivers are asked about notifications was written: by the event index or by the flags.
    pub fn asked(self, log: &DirtyLog, event_idx: bool) {
        if event_idx {
            let entries = u64::from(self.size) * ENTRY_BYTES;
            self.mark(log, HEADER_BYTES + entries, EVENT_BYTES);
        } else {
            self.mark(log, 0, FLAGS_BYTES);
        }
    }

    /// Any of it may have been written.
    pub fn all(self, log: &DirtyLog) {
        let entries = u64::from(self.size) * ENTRY_BYTES;
        self.mark(log, 0, HEADER_BYTES + entries + EVENT_BYTES);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "dirty_tests.rs"]
mod tests;
