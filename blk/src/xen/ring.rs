//! One ring in memory shared with a front-end, which puts requests in; the back-end puts answers
//! in.
//!
//! ```text
//! 0 req_prod   4 req_event   8 rsp_prod   12 rsp_event   20 journal   64 entries …
//! ```
//!
//! An answer overwrites the entry of the oldest request. A back-end may be killed at any time, and
//! must leave its successor all unanswered requests. Two measures, which other back-ends lack,
//! ensure that:
//!
//! * **Answers are given in the order of the requests.** So the entries from `rsp_prod` to
//!   `req_prod` are exactly the unanswered requests. Doing them again is harmless, because the
//!   front-end has seen no answer to them.
//! * **A journal.** An answer is written over a request, and `rsp_prod` is moved on afterwards. A
//!   back-end killed in between would have destroyed an unanswered request. So the request's first
//!   bytes are saved in unused space of the ring's header before.

use super::grants::Mapping;
use super::protocol::{Abi, REQUEST_BYTES, RESPONSE_BYTES};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Offsets of the indices in the header.
const REQ_PROD: usize = 0;
const REQ_EVENT: usize = 4;
const RSP_PROD: usize = 8;
const RSP_EVENT: usize = 12;
/// Offset of the journal: the number of the saved request, its complement, and its first bytes.
const JOURNAL: usize = 20;
/// Offset of the first entry.
const ENTRIES: usize = 64;

/// The error that the front-end's index of a ring is invalid.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{waiting} requests wait in a ring with room for {room}")]
pub struct OutOfStep {
    /// Number of waiting requests by the front-end's index. An index that ran backwards gives a
    /// very large number.
    pub waiting: u32,
    /// Maximum number of waiting requests.
    pub room: u32,
}

/// The number of a request since the ring was set up. It wraps around.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sequence(u32);

/// The back-end's side of a ring. The front-end can change its contents at any time, so nothing
/// that is read from it is trusted.
#[derive(Debug)]
pub struct Ring {
    memory: Mapping,
    abi: Abi,
    /// Number of entries, a power of two.
    size: u32,
    /// Number of the next request to take.
    taken: u32,
    /// Number of the next answer to publish.
    answered: u32,
    /// `answered` when the front-end's wish for a notification was last checked.
    told: u32,
    /// Answers that are not published because an older one is missing, from number `answered` on.
    answers: VecDeque<Option<[u8; RESPONSE_BYTES]>>,
}

/// Returns the number of entries of a ring in `bytes` of memory. Returns 0 if there is no space for
/// one.
fn entries(abi: Abi, bytes: usize) -> u32 {
    let fit = bytes.saturating_sub(ENTRIES) / abi.entry_bytes();
    fit.checked_ilog2().map_or(0, |log| 1 << log)
}

impl Ring {
    /// Takes over the ring in `memory`, which may be new or have been used by a predecessor. Its
    /// unanswered requests are taken again. Restores one that the predecessor had half overwritten.
    ///
    /// # Panics
    /// If the memory has no space for an entry.
    pub fn new(memory: Mapping, abi: Abi) -> Self {
        let size = entries(abi, memory.bytes());
        assert!(size > 0, "a ring has a page at least");
        let mut ring = Self {
            memory,
            abi,
            size,
            taken: 0,
            answered: 0,
            told: 0,
            answers: VecDeque::new(),
        };
        let answered = ring.word(RSP_PROD).load(Ordering::Acquire);
        (ring.taken, ring.answered, ring.told) = (answered, answered, answered);
        ring.recover();
        ring
    }

    /// Restores from the journal a request that an unpublished answer has overwritten.
    fn recover(&self) {
        let saved = self.word(JOURNAL).load(Ordering::Acquire);
        let check = self.word(JOURNAL + 4).load(Ordering::Acquire);
        if saved == self.answered && check == !saved {
            let entry = self.entry(saved);
            for at in (0..RESPONSE_BYTES).step_by(4) {
                let word = self.word(JOURNAL + 8 + at).load(Ordering::Relaxed);
                self.word(entry + at).store(word, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of entries of the ring, a power of two.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the word at `offset` in bytes.
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.memory.bytes());
        // SAFETY: the word is inside the mapping, which begins at a page and lives as long as the
        // ring. All accesses to it are atomic accesses to words.
        unsafe { &*self.memory.base().as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// Returns the offset of the entry for request number `index`.
    fn entry(&self, index: u32) -> usize {
        ENTRIES + (index & (self.size - 1)) as usize * self.abi.entry_bytes()
    }

    /// Returns the number of requests in the ring that were not taken yet.
    ///
    /// # Errors
    /// Fails if the front-end's index is invalid, because more requests would wait than there are
    /// free entries.
    pub fn waiting(&self) -> Result<u32, OutOfStep> {
        // Acquire: pairs with the front-end's barrier between request and index.
        let produced = self.word(REQ_PROD).load(Ordering::Acquire);
        let waiting = produced.wrapping_sub(self.taken);
        let room = self.size - self.taken.wrapping_sub(self.answered);
        if waiting > room {
            return Err(OutOfStep { waiting, room });
        }
        Ok(waiting)
    }

    /// Copies the next request out of the ring. Returns its number for [`Self::answer`] and its
    /// bytes. Returns `None` if none waits.
    ///
    /// # Errors
    /// Fails if the front-end's index is invalid.
    pub fn take(&mut self) -> Result<Option<(Sequence, [u8; REQUEST_BYTES])>, OutOfStep> {
        if self.waiting()? == 0 {
            return Ok(None);
        }
        let entry = self.entry(self.taken);
        let mut raw = [0; REQUEST_BYTES];
        let words = raw.as_chunks_mut::<4>().0;
        for (index, word) in words
            .iter_mut()
            .take(self.abi.entry_bytes() / 4)
            .enumerate()
        {
            // Relaxed: the Acquire load of the index orders these loads. If the front-end changes
            // the entry at the same time, only this copy is checked and carried out.
            *word = self
                .word(entry + index * 4)
                .load(Ordering::Relaxed)
                .to_ne_bytes();
        }
        let sequence = Sequence(self.taken);
        self.taken = self.taken.wrapping_add(1);
        self.answers.push_back(None);
        Ok(Some((sequence, raw)))
    }

    /// Answers the request `request` with the bytes `response`. The front-end sees the answer when
    /// all older requests are answered, too. Does not notify it.
    ///
    /// # Panics
    /// If the request was not taken or is answered already.
    pub fn answer(&mut self, request: Sequence, response: [u8; RESPONSE_BYTES]) {
        let place = request.0.wrapping_sub(self.answered) as usize;
        let answer = self.answers.get_mut(place);
        let answer = answer.expect("only requests that were taken are answered");
        assert!(answer.replace(response).is_none(), "answered twice");
        while let Some(Some(response)) = self.answers.front().copied() {
            self.publish(response);
            self.answers.pop_front();
        }
    }

    /// Writes an answer into the ring and moves the index on.
    fn publish(&mut self, response: [u8; RESPONSE_BYTES]) {
        let index = self.answered;
        let entry = self.entry(index);
        // Each store is a Release, so that it comes after those before it. A process is killed
        // between two of its instructions, so its successor sees the stores in the order of the
        // program.
        for at in (0..RESPONSE_BYTES).step_by(4) {
            let word = self.word(entry + at).load(Ordering::Relaxed);
            self.word(JOURNAL + 8 + at).store(word, Ordering::Release);
        }
        self.word(JOURNAL).store(index, Ordering::Release);
        self.word(JOURNAL + 4).store(!index, Ordering::Release);
        for (at, word) in response.as_chunks::<4>().0.iter().enumerate() {
            let word = u32::from_ne_bytes(*word);
            self.word(entry + at * 4).store(word, Ordering::Release);
        }
        self.answered = index.wrapping_add(1);
        // Release: pairs with the front-end's barrier between index and answer.
        self.word(RSP_PROD).store(self.answered, Ordering::Release);
    }

    /// Returns whether the front-end must be notified of the answers published since the last call.
    /// The caller must then do so.
    pub fn wants_notification(&mut self) -> bool {
        let fresh = self.answered.wrapping_sub(self.told);
        self.told = self.answered;
        // SeqCst: the index is stored before the front-end's event index is read. The front-end
        // stores its event index, then reads this index, with a full barrier in between. So one of
        // the two sees the other's store.
        fence(Ordering::SeqCst);
        let wish = self.word(RSP_EVENT).load(Ordering::Relaxed);
        self.answered.wrapping_sub(wish) < fresh
    }

    /// Enables the front-end's notification for the next request. Returns whether a request waits
    /// already, for which no notification may come.
    ///
    /// # Errors
    /// Fails if the front-end's index is invalid.
    pub fn enable_notifications(&self) -> Result<bool, OutOfStep> {
        let next = self.taken.wrapping_add(1);
        self.word(REQ_EVENT).store(next, Ordering::Relaxed);
        // SeqCst: the event index is stored before the front-end's index is read. Pairs with the
        // front-end's full barrier.
        fence(Ordering::SeqCst);
        self.waiting().map(|waiting| waiting > 0)
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
