//! One ring in memory that a front-end shares: its requests come out of it, answers go into it.
//!
//! ```text
//! 0 req_prod   4 req_event   8 rsp_prod   12 rsp_event   20 journal   64 entries …
//! ```
//!
//! An answer takes the place of a request, the oldest first. So that a back-end which is killed
//! leaves behind what its successor needs, two things are done here that others do not:
//!
//! * **Answers are given in the order of the requests.** Then the entries from `rsp_prod` to
//!   `req_prod` are the requests that nobody answered: all of them, and no other. Doing them again
//!   is harmless, for the front-end knows of none of them that it was done.
//! * **A journal.** An answer is written over the request whose entry it takes, and only then is
//!   `rsp_prod` moved on. Who is killed in between has destroyed a request that is not answered.
//!   So its first bytes go to spare room in the ring's header before.

use super::grants::Mapping;
use super::protocol::{Abi, REQUEST_BYTES, RESPONSE_BYTES};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering, fence};

const REQ_PROD: usize = 0;
const REQ_EVENT: usize = 4;
const RSP_PROD: usize = 8;
const RSP_EVENT: usize = 12;
/// Number of the request that was saved, its complement, and its first bytes.
const JOURNAL: usize = 20;
const ENTRIES: usize = 64;

/// A ring whose indices make no sense.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{waiting} requests wait in a ring with room for {room}")]
pub struct OutOfStep {
    /// What the front-end's index says. One that ran backwards says very many.
    pub waiting: u32,
    /// What it can be at most.
    pub room: u32,
}

/// Number of a request since the ring was set up; wraps around.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sequence(u32);

/// A ring. The front-end owns its contents, and nothing that is read from it is believed.
#[derive(Debug)]
pub struct Ring {
    memory: Mapping,
    abi: Abi,
    /// Entries, a power of two.
    size: u32,
    /// Next request to take.
    taken: u32,
    /// Next answer to give.
    answered: u32,
    /// `answered` when the front-end was last told.
    told: u32,
    /// Answers that wait for an older one, from `answered` on.
    answers: VecDeque<Option<[u8; RESPONSE_BYTES]>>,
}

/// Entries of a ring over `bytes`.
fn entries(abi: Abi, bytes: usize) -> u32 {
    let fit = bytes.saturating_sub(ENTRIES) / abi.entry_bytes();
    fit.checked_ilog2().map_or(0, |log| 1 << log)
}

impl Ring {
    /// Takes over the ring in `memory`, new or used.
    ///
    /// # Panics
    /// If it has not a whole page.
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

    /// Puts back what an answer that was never published was written over.
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

    /// Entries of the ring.
    pub fn size(&self) -> u32 {
        self.size
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.memory.bytes());
        // SAFETY: inside of the mapping, which begins at a page and lives as long as the ring;
        // all of it is only ever read and written by atomic words.
        unsafe { &*self.memory.base().as_ptr().add(offset).cast::<AtomicU32>() }
    }

    fn entry(&self, index: u32) -> usize {
        ENTRIES + (index & (self.size - 1)) as usize * self.abi.entry_bytes()
    }

    /// How many requests wait.
    ///
    /// # Errors
    /// If there are more than there can be.
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

    /// Copies the next request out, if there is one.
    ///
    /// # Errors
    /// If the front-end's index makes no sense.
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
            // Relaxed: ordered behind the index by its Acquire. A front-end that changes the entry
            // meanwhile gets whatever it wrote, once: this copy is what is checked and done.
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

    /// Answers a request that was taken. The front-end sees it once all older ones are answered.
    ///
    /// # Panics
    /// If it was not taken or is answered already.
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

    fn publish(&mut self, response: [u8; RESPONSE_BYTES]) {
        let index = self.answered;
        let entry = self.entry(index);
        // The stores are Release, each of those before it: a process that is killed stops between
        // two of its instructions, and what it stored is then seen in the order of the program.
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

    /// Whether the front-end wants to be notified of the answers since the last call.
    pub fn wants_notification(&mut self) -> bool {
        let fresh = self.answered.wrapping_sub(self.told);
        self.told = self.answered;
        // SeqCst: the index before the front-end's wish. It sets its wish, then looks at the
        // index, with a full barrier in between: one of us sees the other.
        fence(Ordering::SeqCst);
        let wish = self.word(RSP_EVENT).load(Ordering::Relaxed);
        self.answered.wrapping_sub(wish) < fresh
    }

    /// Asks to be notified of the next request. Returns whether one is there already.
    ///
    /// # Errors
    /// If the front-end's index makes no sense.
    pub fn listen(&self) -> Result<bool, OutOfStep> {
        let next = self.taken.wrapping_add(1);
        self.word(REQ_EVENT).store(next, Ordering::Relaxed);
        // SeqCst: our wish before its index; pairs with the front-end's full barrier.
        fence(Ordering::SeqCst);
        self.waiting().map(|waiting| waiting > 0)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ring_tests.rs"]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
