//! The log of written pages, used as QEMU does while it copies a guest's memory to another host.

use super::{Client, Failed, HEADERS, MEMORY, QUEUE_SIZE, USED};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use vhost::vhost_user::message::VhostUserVirtioFeatures;
use vhost::{VhostBackend, VhostUserDirtyLogRegion};
use vm_memory::{Bytes, FileOffset, GuestAddress, MmapRegion, VolatileMemory};

/// Bytes of a page of the log.
pub const PAGE: u64 = 4096;
/// Bytes of the log: bits for the guest's memory, and for as much behind it.
pub const LOG: u64 = 2 * MEMORY / PAGE / 8;

/// A log of written pages, as the front-end sees it.
pub struct Log {
    pub file: File,
    map: MmapRegion,
}

impl Log {
    /// Makes an empty log.
    pub fn new() -> Result<Self, Failed> {
        let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, LOG)?;
        let map = MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), LOG as usize)?;
        Ok(Self { file, map })
    }

    /// Returns the marked pages and clears their marks.
    pub fn take(&self) -> Result<BTreeSet<u64>, Failed> {
        let mut pages = BTreeSet::new();
        for at in 0..LOG {
            let byte = self.map.get_atomic_ref::<AtomicU8>(at as usize)?;
            // Acquire: pairs with the Release of the back-end's marks.
            let bits = byte.swap(0, Ordering::AcqRel);
            let set = (0..8).filter(|bit| bits & 1 << bit != 0);
            pages.extend(set.map(|bit| at * 8 + bit));
        }
        Ok(pages)
    }
}

/// Returns the pages of `bytes` from `address` on.
pub fn pages(address: u64, bytes: u64) -> BTreeSet<u64> {
    if bytes == 0 {
        return BTreeSet::new();
    }
    (address / PAGE..(address + bytes).div_ceil(PAGE)).collect()
}

impl Client {
    /// Starts the logging of written pages, in QEMU's order of messages. Used rings are logged
    /// `behind` bytes from their addresses.
    pub fn start_logging(&mut self, log: &Log, behind: u64) -> Result<(), Failed> {
        self.set_log(log, LOG)?;
        self.log_all(Some(behind))
    }

    /// Passes a log to the back-end.
    pub fn set_log(&mut self, log: &Log, mmap_size: u64) -> Result<(), Failed> {
        let region = VhostUserDirtyLogRegion {
            mmap_size,
            mmap_offset: 0,
            mmap_handle: log.file.as_raw_fd(),
        };
        Ok(self.frontend.set_log_base(0, Some(region))?)
    }

    /// Enables or disables logging. `behind` is the distance at which used rings are logged; `None`
    /// disables it.
    pub fn log_all(&mut self, behind: Option<u64>) -> Result<(), Failed> {
        let all = VhostUserVirtioFeatures::LOG_ALL.bits();
        let wanted = if behind.is_some() { all } else { 0 };
        self.frontend.set_features(self.features | wanted)?;
        for queue in 0..self.rings.len() {
            let address = behind.map(|bytes| self.at(queue, USED).0.wrapping_add(bytes));
            let addresses = self.addresses(queue, address)?;
            self.frontend.set_vring_addr(queue, &addresses)?;
        }
        Ok(())
    }

    /// Stops the rings. Afterwards no request is under way.
    pub fn stop(&mut self) -> Result<(), Failed> {
        for queue in 0..self.rings.len() {
            self.frontend.get_vring_base(queue)?;
        }
        Ok(())
    }

    /// Returns the ranges of a queue that only the back-end writes: the used ring and the statuses.
    pub fn answers(&self, queue: usize) -> Vec<(u64, usize)> {
        let ring = (self.at(queue, USED).0, 6 + 8 * usize::from(QUEUE_SIZE));
        let slots = u64::from(super::SLOTS);
        let status = |slot| (self.status_at(queue, slot), 1);
        [ring].into_iter().chain((0..slots).map(status)).collect()
    }

    /// Returns the guest physical address of a slot's status.
    pub fn status_at(&self, queue: usize, slot: u64) -> u64 {
        self.at(queue, HEADERS + slot * 32 + 16).0
    }

    /// Returns the guest physical address of a used ring.
    pub fn used_at(&self, queue: usize) -> u64 {
        self.at(queue, USED).0
    }

    /// Copies a page to the destination's memory.
    pub fn copy_page(&self, page: u64, to: &mut [u8]) -> Result<(), Failed> {
        let at = (page * PAGE) as usize;
        let part = &mut to[at..at + PAGE as usize];
        Ok(self.memory.read_slice(part, GuestAddress(page * PAGE))?)
    }
}
