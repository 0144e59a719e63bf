//! A front-end's half of the protocol: requests as it writes them, and its side of a ring. Not used
//! to serve; tests and the front-end of the Xen laboratory (`examples/xen-front`) are made of it.
//! Offsets are written down here once more, so that a mistake in [`super::protocol`] is noticed.

use super::protocol::Abi;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

const REQ_PROD: usize = 0;
const REQ_EVENT: usize = 4;
const RSP_PROD: usize = 8;
const RSP_EVENT: usize = 12;
const ENTRIES: usize = 64;

/// Where the number lies that names a request. The other fields follow it.
fn id_at(abi: Abi) -> usize {
    match abi {
        Abi::X86_64 => 8,
        Abi::X86_32 => 4,
    }
}

/// Bytes from one entry of a ring to the next.
fn entry_bytes(abi: Abi) -> usize {
    match abi {
        Abi::X86_64 => 112,
        Abi::X86_32 => 108,
    }
}

fn empty(abi: Abi, operation: u8, id: u64, sector: u64) -> Vec<u8> {
    let (mut raw, at) = (vec![0; entry_bytes(abi)], id_at(abi));
    raw[0] = operation;
    raw[at..at + 8].copy_from_slice(&id.to_le_bytes());
    raw[at + 8..at + 16].copy_from_slice(&sector.to_le_bytes());
    raw
}

/// A request with its segments in it: grant, first and last sector of each.
///
/// # Panics
/// If they have no room.
pub fn data(abi: Abi, write: bool, id: u64, sector: u64, segments: &[(u32, u8, u8)]) -> Vec<u8> {
    let mut raw = empty(abi, write.into(), id, sector);
    raw[1] = u8::try_from(segments.len()).unwrap_or(u8::MAX);
    for (index, segment) in segments.iter().enumerate() {
        let at = id_at(abi) + 16 + index * 8;
        raw[at..at + 8].copy_from_slice(&table_entry(*segment));
    }
    raw
}

/// A segment as it lies in a request or a table.
pub fn table_entry((grant, first, last): (u32, u8, u8)) -> [u8; 8] {
    let mut raw = [0; 8];
    raw[..4].copy_from_slice(&grant.to_le_bytes());
    (raw[4], raw[5]) = (first, last);
    raw
}

/// A request whose segments stand in a granted page: its grant, and how many they are.
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

/// A request to make what was written last.
pub fn flush(abi: Abi, id: u64) -> Vec<u8> {
    empty(abi, 3, id, 0)
}

/// A request to give sectors up.
pub fn discard(abi: Abi, id: u64, sector: u64, sectors: u64) -> Vec<u8> {
    let (mut raw, at) = (empty(abi, 5, id, sector), id_at(abi) + 16);
    raw[at..at + 8].copy_from_slice(&sectors.to_le_bytes());
    raw
}

/// Memory that is shared with the other domain, by words.
pub trait SharedWords {
    /// The word at `offset`, a multiple of 4 inside of it.
    fn word(&self, offset: usize) -> &AtomicU32;
    /// All bytes of it.
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

/// A front-end's side of a ring.
#[derive(Debug)]
pub struct FrontRing<M> {
    memory: M,
    abi: Abi,
    size: u32,
    produced: u32,
    consumed: u32,
}

/// An answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The request's number.
    pub id: u64,
    /// What was done, or not.
    pub operation: u8,
    /// 0, or why it was not: -1 is an I/O error, -2 nothing that the disk does.
    pub status: i16,
}

impl<M: SharedWords> FrontRing<M> {
    /// A new ring over all of `memory`, which is zeroed.
    ///
    /// # Panics
    /// If that has not a whole page.
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

    /// What it lies in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// A word of it.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        self.memory.word(offset)
    }

    /// Requests that it has room for.
    pub fn size(&self) -> u32 {
        self.size
    }

    fn entry(&self, index: u32) -> usize {
        ENTRIES + (index & (self.size - 1)) as usize * entry_bytes(self.abi)
    }

    /// Puts a request into the ring, without telling of it.
    pub fn put(&mut self, raw: &[u8]) {
        let at = self.entry(self.produced);
        for (index, word) in raw.as_chunks::<4>().0.iter().enumerate() {
            self.word(at + index * 4)
                .store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
        self.produced = self.produced.wrapping_add(1);
    }

    /// Tells of what was put. Returns whether the back-end wants to be notified.
    pub fn push(&self) -> bool {
        let before = self.word(REQ_PROD).load(Ordering::Relaxed);
        self.word(REQ_PROD).store(self.produced, Ordering::Release);
        // SeqCst: the index before the back-end's wish; it sets its wish, then looks at the index.
        fence(Ordering::SeqCst);
        let wish = self.word(REQ_EVENT).load(Ordering::Relaxed);
        self.produced.wrapping_sub(wish) < self.produced.wrapping_sub(before)
    }

    /// The next answer, if there is one.
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

    /// Asks to be notified of the next answer. Returns whether one is there already.
    pub fn listen(&self) -> bool {
        let next = self.consumed.wrapping_add(1);
        self.word(RSP_EVENT).store(next, Ordering::Relaxed);
        // SeqCst: our wish before the back-end's index; pairs with the fence behind its index.
        fence(Ordering::SeqCst);
        self.word(RSP_PROD).load(Ordering::Acquire) != self.consumed
    }
}
