//! The log of requests under way, in memory that outlives the back-end.
//!
//! The front-end keeps the memory and passes it to the back-end's successor. Its layout is that of
//! the vhost-user specification ("Inflight I/O tracking", split virtqueues): for each queue a
//! header, and an entry for each descriptor. After a crash the successor finds here the requests
//! that were taken from the ring and not answered, and does them again in the same order. The crash
//! may have come between any two stores. So the log names each answer (`last_batch_head`) before
//! the used ring shows it, and clears its entry afterwards.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstatfs, memfd_create};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// The region of each queue begins at a cache line.
const REGION_ALIGN: usize = 64;
const VERSION: u16 = 1;

/// Offsets in the header of a queue's region.
const VERSION_AT: usize = 8;
const DESCRIPTORS_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
/// Offsets in an entry.
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// The mapped in-flight log of all queues of a device.
#[derive(Debug)]
pub struct Area {
    map: Arc<MmapRegion>,
    region_bytes: usize,
    queues: u16,
    queue_size: u16,
}

/// The in-flight log of one queue: the requests that were taken from the ring and not answered.
#[derive(Debug)]
pub struct QueueLog {
    map: Arc<MmapRegion>,
    base: usize,
    size: u16,
    counter: u64,
}

/// The requests that a predecessor left in the in-flight log of one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Head descriptors of requests that were taken and not answered, in the order in which they
    /// were taken.
    pub heads: Vec<u16>,
}

/// Returns the number of bytes of one queue's region.
fn region_bytes(queue_size: u16) -> usize {
    (HEADER_BYTES + ENTRY_BYTES * usize::from(queue_size)).next_multiple_of(REGION_ALIGN)
}

impl Area {
    /// Makes a file in memory for the logs of `queues` queues with `queue_size` entries, and seals
    /// its size. Returns the file, which the front-end keeps, and its size in bytes.
    ///
    /// # Errors
    /// Fails if the system refuses memory or a descriptor.
    pub fn create(queues: u16, queue_size: u16) -> io::Result<(File, u64)> {
        let bytes = (region_bytes(queue_size) * usize::from(queues)) as u64;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("ebb-blk-inflight", flags)?);
        file.set_len(bytes)?;
        // The size is sealed, so that no process can change it.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((file, bytes))
    }

    /// Maps the log that the front-end passed: `bytes` bytes of `file` from `offset` on, for
    /// `queues` queues with `queue_size` entries.
    ///
    /// # Errors
    /// Fails if `bytes` is too small for the queues, or the file is too short, no regular file, or
    /// cannot be mapped.
    pub fn map(
        file: File,
        offset: u64,
        bytes: u64,
        queues: u16,
        queue_size: u16,
    ) -> io::Result<Self> {
        let region_bytes = region_bytes(queue_size);
        let needed = region_bytes * usize::from(queues);
        if bytes < needed as u64 {
            return Err(io::Error::other(format!(
                "in-flight memory of {bytes} bytes; {queues} queues of {queue_size} take {needed}"
            )));
        }
        check_span(&file, offset, needed as u64)?;
        let map = MmapRegion::from_file(FileOffset::new(file, offset), needed)
            .map_err(io::Error::other)?;
        Ok(Self {
            map: Arc::new(map),
            region_bytes,
            queues,
            queue_size,
        })
    }

    /// Returns the address of the log's mapping in this process and its length in bytes.
    pub fn span(&self) -> (*mut u8, usize) {
        (self.map.as_ptr(), self.map.size())
    }

    /// Returns the log of queue number `index`, counted from 0, with `size` entries. Returns `None`
    /// if the area was made for fewer or smaller queues. At most one log of a queue may be in use.
    pub fn queue(&self, index: u16, size: u16) -> Option<QueueLog> {
        (index < self.queues && size <= self.queue_size).then(|| QueueLog {
            map: self.map.clone(),
            base: usize::from(index) * self.region_bytes,
            size,
            counter: 0,
        })
    }
}

/// Checks that `file` has the `bytes` from `offset` on that are to be mapped. An access behind the
/// end of a file raises a signal instead of an error. Of a file with huge pages only whole pages
/// can be mapped: the kernel would map more than `bytes`, and [`super::truncated`] could not
/// replace a part of a page.
///
/// # Errors
/// Fails if the file is shorter or is no regular file. Fails if it has huge pages and `offset` or
/// `bytes` is no multiple of their size.
pub(super) fn check_span(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("what is to be mapped is no file"));
    }
    let end = offset.checked_add(bytes);
    if end.is_none_or(|end| end > metadata.len()) {
        let length = metadata.len();
        return Err(io::Error::other(format!(
            "{bytes} bytes at {offset} are to be mapped of a file of {length}"
        )));
    }
    let system = fstatfs(file)?;
    if system.f_type == libc::HUGETLBFS_MAGIC {
        let page = u64::try_from(system.f_bsize).map_err(io::Error::other)?;
        if !offset.is_multiple_of(page) || !bytes.is_multiple_of(page) {
            return Err(io::Error::other(format!(
                "{bytes} bytes at {offset} are to be mapped of a file with pages of {page}"
            )));
        }
    }
    Ok(())
}

impl QueueLog {
    // All offsets are inside this queue's region, so loads and stores cannot fail. If one did, only
    // the successor would lack the information.

    /// Loads a field at the offset `at` of this queue's region.
    fn load<T: vm_memory::AtomicAccess + Default>(&self, at: usize) -> T {
        // Acquire: pairs with the Release of the thread that stored it, maybe in another process.
        let slice = self.map.as_volatile_slice();
        slice
            .load(self.base + at, Ordering::Acquire)
            .unwrap_or_default()
    }

    /// Stores a field at the offset `at` of this queue's region.
    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        // Release: a successor that sees this store also sees the earlier ones.
        let slice = self.map.as_volatile_slice();
        let result = slice.store(value, self.base + at, Ordering::Release);
        debug_assert!(result.is_ok(), "{result:?}");
    }

    /// Returns the offset of the entry of the descriptor `head`.
    fn entry(head: u16) -> usize {
        HEADER_BYTES + ENTRY_BYTES * usize::from(head)
    }

    /// Reads the log that a predecessor left and prepares it for this back-end. `used` is the index
    /// of the used ring. Returns the requests to do again. If the log was never used, initialises
    /// it and returns no request.
    pub fn recover(&mut self, used: u16) -> Recovered {
        if self.load::<u16>(VERSION_AT) != VERSION {
            self.store(DESCRIPTORS_AT, self.size);
            self.store(USED_AT, used);
            self.store(VERSION_AT, VERSION);
        }
        // The used ring shows an answer whose entry was not cleared.
        if self.load::<u16>(USED_AT) != used {
            let head: u16 = self.load(LAST_HEAD_AT);
            if head < self.size {
                self.store(Self::entry(head), 0_u8);
            }
            self.store(USED_AT, used);
        }
        let mut found: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| self.load::<u8>(Self::entry(*head)) != 0)
            .map(|head| (self.load(Self::entry(head) + COUNTER_AT), head))
            .collect();
        found.sort_unstable();
        self.counter = found
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        Recovered {
            heads: found.into_iter().map(|(_, head)| head).collect(),
        }
    }

    /// Notes in the log that the request with the head descriptor `head` was taken from the ring.
    /// Ignores a `head` outside of the ring.
    pub fn taken(&mut self, head: u16) {
        if head < self.size {
            self.store(Self::entry(head) + COUNTER_AT, self.counter);
            self.counter = self.counter.wrapping_add(1);
            self.store(Self::entry(head), 1_u8);
        }
    }

    /// Notes in the log that the answer to the request `head` will be put into the used ring. Call
    /// this before doing so. Ignores a `head` outside of the ring.
    pub fn answering(&mut self, head: u16) {
        if head < self.size {
            let last: u16 = self.load(LAST_HEAD_AT);
            self.store(Self::entry(head) + NEXT_AT, last);
            self.store(LAST_HEAD_AT, head);
        }
    }

    /// Removes the request `head`, whose answer is in the used ring, from the log. `used` is the
    /// used ring's index after that answer. Ignores a `head` outside of the ring.
    pub fn answered(&mut self, head: u16, used: u16) {
        if head < self.size {
            self.store(Self::entry(head), 0_u8);
            self.store(USED_AT, used);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Returns two logs of the same queue: of a back-end and of its successor.
    fn logs() -> (QueueLog, QueueLog) {
        let (file, bytes) = Area::create(2, 16).unwrap();
        let again = file.try_clone().unwrap();
        let first = Area::map(file, 0, bytes, 2, 16).unwrap();
        let second = Area::map(again, 0, bytes, 2, 16).unwrap();
        (first.queue(1, 16).unwrap(), second.queue(1, 16).unwrap())
    }

    #[test]
    fn what_was_not_answered_is_found_in_order() {
        let (mut log, mut successor) = logs();
        assert!(log.recover(7).heads.is_empty());
        for head in [3, 9, 0, 5] {
            log.taken(head);
        }
        log.answering(9);
        log.answered(9, 8);
        log.taken(9);
        assert_eq!(successor.recover(8).heads, [3, 0, 5, 9]);
    }

    #[test]
    fn an_answer_counts_from_when_the_ring_shows_it() {
        let (mut log, mut successor) = logs();
        log.recover(0);
        log.taken(2);
        log.taken(4);
        log.answering(4);
        // The back-end died before the ring showed the answer, or after.
        assert_eq!(successor.recover(0).heads, [2, 4]);
        assert_eq!(successor.recover(1).heads, [2]);
        assert_eq!(successor.recover(1).heads, [2]);
    }

    #[test]
    fn areas_that_are_too_small_are_refused() {
        let (file, bytes) = Area::create(1, 16).unwrap();
        assert!(Area::map(file.try_clone().unwrap(), 0, bytes, 2, 16).is_err());
        assert!(
            Area::map(file, 4096, 1 << 20, 2, 16).is_err(),
            "past the end of the file"
        );
    }

    #[test]
    fn areas_in_a_part_of_a_huge_page_are_refused() {
        let Ok(file) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
            println!("there are no huge pages here");
            return;
        };
        let file = File::from(file);
        let page = u64::try_from(fstatfs(&file).unwrap().f_bsize).unwrap();
        file.set_len(2 * page).unwrap();
        let why = Area::map(file.try_clone().unwrap(), 0, 4096, 1, 16).unwrap_err();
        assert!(why.to_string().contains(&page.to_string()), "{why}");
        assert!(check_span(&file, 0, page - 4096).is_err());
        assert!(check_span(&file, page - 4096, page).is_err());
        assert!(check_span(&file, page, page).is_ok());
    }

    #[test]
    fn a_predecessor_that_wrote_nonsense_harms_no_successor() {
        let (log, mut successor) = logs();
        log.store(VERSION_AT, VERSION);
        log.store(LAST_HEAD_AT, u16::MAX);
        for head in 0..16 {
            log.store(QueueLog::entry(head), 0xff_u8);
            log.store(QueueLog::entry(head) + COUNTER_AT, u64::MAX);
        }
        assert_eq!(successor.recover(3).heads.len(), 16);
    }
}
