//! The front-end's half of the blkif protocol: requests as a front-end writes them, and its side of
//! a ring. Tests and the front-end of the Xen laboratory (`examples/xen-front`) use it; serving
//! disks does not. It has its own copy of the offsets, so that tests notice a mistake in
//! [`super::protocol`].

use super::protocol::Abi;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

const REQ_PROD: usize = 0;
const REQ_EVENT: usize = 4;
const RSP_PROD: usize = 8;
const RSP_EVENT: usize = 12;
const ENTRIES: usize = 64;

/// Returns the offset of a request's id. The other fields follow it.
fn id_at(abi: Abi) -> usize {
    match abi {
        Abi::X86_64 => 8,
        Abi::X86_32 => 4,
    }
}

/// Returns the number of bytes from one entry of a ring to the next.
fn entry_bytes(abi: Abi) -> usize {
    match abi {
        Abi::X86_64 => 112,
        Abi::X86_32 => 108,
    }
}

/// Makes a request without segments.
fn empty(abi: Abi, operation: u8, id: u64, sector: u64) -> Vec<u8> {
    let (mut raw, at) = (vec![0; entry_bytes(abi)], id_at(abi));
    raw[0] = operation;
    raw[at..at + 8].copy_from_slice(&id.to_le_bytes());
    raw[at + 8..at + 16].copy_from_slice(&sector.to_le_bytes());
    raw
}

/// Makes the bytes of a read or write request (`write`) that holds its segments. `sector` is the
/// first sector of the disk. Each segment is a grant, and its first and last sector in the page.
///
/// # Panics
/// If `segments` has more than the 11 that a request can hold.
pub fn data(abi: Abi, write: bool, id: u64, sector: u64, segments: &[(u32, u8, u8)]) -> Vec<u8> {
    let mut raw = empty(abi, write.into(), id, sector);
    raw[1] = u8::try_from(segments.len()).unwrap_or(u8::MAX);
    for (index, segment) in segments.iter().enumerate() {
        let at = id_at(abi) + 16 + index * 8;
        raw[at..at + 8].copy_from_slice(&table_entry(*segment));
    }
    raw
}

/// Makes the bytes of a segment, as in a request or a table: a grant, and the first and last sector
/// in its page.
pub fn table_entry((grant, first, last): (u32, u8, u8)) -> [u8; 8] {
    let mut raw = [0; 8];
    raw[..4].copy_from_slice(&grant.to_le_bytes());
    (raw[4], raw[5]) = (first, last);
    raw
}

/// Makes the bytes of a read or write request (`write`) whose segments are in a granted page.
/// `sector` is the first sector of the disk, `table` the page's grant, and `count` the number of
/// segments.
pub fn indirect(
    abi: Abi,
    write: bool,
    id: u64,
    sector: u64,
    (table, count): (u32, u16),
) -> Vec<u8> {
    let mut raw = empty(abi, 6, id, sector);
    raw[1] = write.into();
    raw[2..4].copy_from_slice(&count.to_le_bytes());
    let at = id_at(abi) + 20;
    raw[at..at + 4].copy_from_slice(&table.to_le_bytes());
    raw
}

/// Makes the bytes of a request to make all completed writes durable.
pub fn flush(abi: Abi, id: u64) -> Vec<u8> {
    empty(abi, 3, id, 0)
}

/// Makes the bytes of a request to discard `sectors` sectors from `sector` on.
pub fn discard(abi: Abi, id: u64, sector: u64, sectors: u64) -> Vec<u8> {
    let (mut raw, at) = (empty(abi, 5, id, sector), id_at(abi) + 16);
    raw[at..at + 8].copy_from_slice(&sectors.to_le_bytes());
    raw
}

/// Memory shared with the other domain, accessed by atomic words of 32 bits.
pub trait SharedWords {
    /// Returns the word at `offset` in bytes, which must be a multiple of 4 and inside the memory.
    /// Implementations panic otherwise.
    fn word(&self, offset: usize) -> &AtomicU32;
    /// Returns the size of the memory in bytes.
    fn bytes(&self) -> usize;
}

impl<T: SharedWords + ?Sized> SharedWords for Arc<T> {
    fn word(&self, offset: usize) -> &AtomicU32 {
        (**self).word(offset)
    }

    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

/// A front-end's side of a ring: puts requests in and takes answers out.
#[derive(Debug)]
pub struct FrontRing<M> {
    memory: M,
    abi: Abi,
    size: u32,
    produced: u32,
    consumed: u32,
}

/// An answer of the back-end to a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The id of the request.
    pub id: u64,
    /// The operation of the request.
    pub operation: u8,
    /// 0 on success, -1 for an I/O error, -2 for an operation that the disk does not support.
    pub status: i16,
}

impl<M: SharedWords> FrontRing<M> {
    /// Initialises a ring that fills `memory`, which must be zeroed. The back-end then notifies of
    /// the first answer.
    ///
    /// # Panics
    /// If the memory has no space for an entry.
    pub fn over(memory: M, abi: Abi) -> Self {
        let fit = (memory.bytes() - ENTRIES) / entry_bytes(abi);
        let ring = Self {
            memory,
            abi,
            size: 1 << fit.ilog2(),
            produced: 0,
            consumed: 0,
        };
        ring.word(REQ_EVENT).store(1, Ordering::Relaxed);
        ring.word(RSP_EVENT).store(1, Ordering::Relaxed);
        ring
    }

    /// Returns the memory that the ring is in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the word of the ring at `offset` in bytes.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        self.memory.word(offset)
    }

    /// Returns the number of entries of the ring, a power of two.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the offset of the entry for request number `index`.
    fn entry(&self, index: u32) -> usize {
        ENTRIES + (index & (self.size - 1)) as usize * entry_bytes(self.abi)
    }

    /// Writes the request `raw` into the next entry. The back-end sees it after [`Self::push`]. The
    /// caller must make sure that this entry is free.
    pub fn put(&mut self, raw: &[u8]) {
        let at = self.entry(self.produced);
        for (index, word) in raw.as_chunks::<4>().0.iter().enumerate() {
            self.word(at + index * 4)
                .store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
        self.produced = self.produced.wrapping_add(1);
    }

    /// Publishes the requests that were put. Returns whether the back-end must be notified, which
    /// the caller does.
    pub fn push(&self) -> bool {
        let before = self.word(REQ_PROD).load(Ordering::Relaxed);
        self.word(REQ_PROD).store(self.produced, Ordering::Release);
        // SeqCst: the index is stored before the event index is read. The back-end stores its event
        // index, then reads this index, so one of the two sees the other's store.
        fence(Ordering::SeqCst);
        let wish = self.word(REQ_EVENT).load(Ordering::Relaxed);
        self.produced.wrapping_sub(wish) < self.produced.wrapping_sub(before)
    }

    /// Takes the next answer. Returns `None` if none has arrived.
    pub fn answer(&mut self) -> Option<Answer> {
        if self.word(RSP_PROD).load(Ordering::Acquire) == self.consumed {
            return None;
        }
        let at = self.entry(self.consumed);
        let word = |n: usize| self.word(at + n * 4).load(Ordering::Relaxed);
        let id = u64::from(word(0)) | u64::from(word(1)) << 32;
        let [operation, _, low, high] = word(2).to_ne_bytes();
        self.consumed = self.consumed.wrapping_add(1);
        Some(Answer {
            id,
            operation,
            status: i16::from_ne_bytes([low, high]),
        })
    }

    /// Enables the back-end's notification for the next answer. Returns whether an answer has
    /// arrived already, for which no notification may come.
    pub fn enable_notifications(&self) -> bool {
        let next = self.consumed.wrapping_add(1);
        self.word(RSP_EVENT).store(next, Ordering::Relaxed);
        // SeqCst: the event index is stored before the back-end's index is read. Pairs with the
        // fence behind the back-end's store of its index.
        fence(Ordering::SeqCst);
        self.word(RSP_PROD).load(Ordering::Acquire) != self.consumed
    }
}
