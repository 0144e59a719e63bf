//! Which requests are under way, in memory that the front-end keeps for the back-end's successor.
//!
//! The layout is that of the vhost-user specification ("Inflight I/O tracking", split virtqueues):
//! for each queue a header and an entry for each descriptor. A back-end that takes over after a
//! crash finds here what was taken from the ring and never answered, and does it again in the
//! order in which it was taken. Whoever crashed may have done so between any two stores, so each
//! answer is announced (`last_batch_head`) before the used ring shows it, and struck off after.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstatfs, memfd_create};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Regions of queues begin at cache lines.
const REGION_ALIGN: usize = 64;
const VERSION: u16 = 1;

/// Offsets in the header.
const VERSION_AT: usize = 8;
const DESCRIPTORS_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
/// Offsets in an entry.
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// The memory for all queues of a device.
#[derive(Debug)]
pub struct Area {
    map: Arc<MmapRegion>,
    region_bytes: usize,
    queues: u16,
    queue_size: u16,
}

/// One queue's part of it.
#[derive(Debug)]
pub struct QueueLog {
    map: Arc<MmapRegion>,
    base: usize,
    size: u16,
    counter: u64,
}

/// What a back-end that takes over finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Heads that were taken and not answered, in the order in which they were taken.
    pub heads: Vec<u16>,
}

/// Bytes of one queue's region.
fn region_bytes(queue_size: u16) -> usize {
    (HEADER_BYTES + ENTRY_BYTES * usize::from(queue_size)).next_multiple_of(REGION_ALIGN)
}

impl Area {
    /// Memory for `queues` queues of `queue_size`, to be given to the front-end.
    ///
    /// # Errors
    /// If the system has no memory or descriptor left.
    pub fn create(queues: u16, queue_size: u16) -> io::Result<(File, u64)> {
        let bytes = (region_bytes(queue_size) * usize::from(queues)) as u64;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("ebb-blk-inflight", flags)?);
        file.set_len(bytes)?;
        // It is as large as it is, whoever has it.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((file, bytes))
    }

    /// Maps what the front-end hands in.
    ///
    /// # Errors
    /// If it is too small for what it is said to be, or cannot be mapped.
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

    /// Where it is mapped, and how many bytes.
    pub fn span(&self) -> (*mut u8, usize) {
        (self.map.as_ptr(), self.map.size())
    }

    /// The log of queue `index`, if the area has one for a queue of `size`.
    pub fn queue(&self, index: u16, size: u16) -> Option<QueueLog> {
        (index < self.queues && size <= self.queue_size).then(|| QueueLog {
            map: self.map.clone(),
            base: usize::from(index) * self.region_bytes,
            size,
            counter: 0,
        })
    }
}

/// Checks that a file has the bytes that are to be mapped: touching a mapping behind the end of its
/// file is a signal, not an error. Of a file of huge pages whole pages alone can be mapped: the
/// kernel would map more than `bytes`, and [`super::truncated`] could not put zeroes over a part of
/// a page.
///
/// # Errors
/// If the file is shorter or is no regular file, or if it has huge pages and `offset` or `bytes` is
/// no multiple of their size.
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
    // The offsets are below the end of this queue's region by construction, so these cannot fail;
    // a log that could not be written would only cost the successor's knowledge.

    fn load<T: vm_memory::AtomicAccess + Default>(&self, at: usize) -> T {
        // Acquire: pairs with the Release of whoever wrote the log before, maybe another process.
        let slice = self.map.as_volatile_slice();
        slice
            .load(self.base + at, Ordering::Acquire)
            .unwrap_or_default()
    }

    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        // Release: a successor that sees this store must see those before it.
        let slice = self.map.as_volatile_slice();
        let result = slice.store(value, self.base + at, Ordering::Release);
        debug_assert!(result.is_ok(), "{result:?}");
    }

    fn entry(head: u16) -> usize {
        HEADER_BYTES + ENTRY_BYTES * usize::from(head)
    }

    /// Reads what a predecessor left, given where the used ring stands, and makes the log ours.
    pub fn recover(&mut self, used: u16) -> Recovered {
        if self.load::<u16>(VERSION_AT) != VERSION {
            self.store(DESCRIPTORS_AT, self.size);
            self.store(USED_AT, used);
            self.store(VERSION_AT, VERSION);
        }
        // An answer that the used ring shows but that was not struck off.
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

    /// `head` was taken from the ring.
    pub fn taken(&mut self, head: u16) {
        if head < self.size {
            self.store(Self::entry(head) + COUNTER_AT, self.counter);
            self.counter = self.counter.wrapping_add(1);
            self.store(Self::entry(head), 1_u8);
        }
    }

    /// `head` is about to be put into the used ring.
    pub fn answering(&mut self, head: u16) {
        if head < self.size {
            let last: u16 = self.load(LAST_HEAD_AT);
            self.store(Self::entry(head) + NEXT_AT, last);
            self.store(LAST_HEAD_AT, head);
        }
    }

    /// `head` is in the used ring, which stands at `used` now.
    pub fn answered(&mut self, head: u16, used: u16) {
        if head < self.size {
            self.store(Self::entry(head), 0_u8);
            self.store(USED_AT, used);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

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
        // Died before the ring showed it, or after.
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
    fn a_predecessor_that_wrote_nonsense_harms_nobody() {
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
