//! What is known of the contents of a frame: whether anybody was ever handed it.
//!
//! A kernel whose memory starts zeroed, as a virtual machine's does, need not clear a frame that
//! nobody was handed since. That a frame was *reported* says nothing of it: what the host gives for
//! memory that it dropped is the host's affair. An attached host that drops memory itself knows that
//! it is zero again, and forgets the marks ([`attach`](crate::attach)).

use crate::{
    AllocError, Allocator, Frame, Front, Order, Request,
    bitmap::{WORD_FRAMES, WORDS},
    frame::{PAGEBLOCK_FRAMES, index},
    sync::{AtomicU8, Ordering},
    zone::Zone,
};

/// What a block that was just allocated holds.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Contents {
    /// What it held before the allocator was made: nobody was handed any of it since, or since an
    /// attached host dropped it.
    Fresh,
    /// Anything.
    Unknown,
}

/// Which words of a pageblock have frames that somebody was handed: a bit for each, set once.
///
/// Set by whoever has just taken frames and before he hands them out: all orderings are `Relaxed`,
/// as the exchange by which he took them orders him after the one who gave them back, and so after
/// that one's mark.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicUsed(AtomicU8);

const _: () = assert!(WORDS == u8::BITS as usize);

impl AtomicUsed {
    /// Whether all these words were without a mark; they have one now.
    fn note(&self, words: u8) -> bool {
        // The mark of one word is set by a single change: of two who take frames of a fresh word at
        // once one is told that it is.
        let marked = self.0.load(Ordering::Relaxed);
        marked & words != words && self.0.fetch_or(words, Ordering::Relaxed) & words == 0
    }

    /// Forgets all marks of a block that is taken out, whose memory is as it was before the first use.
    #[cfg(not(ebb_model))]
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Zone<'_> {
    /// Notes that frames of these words of a block are handed out; whether they are fresh.
    pub(crate) fn hand_out_words(&self, block: usize, words: u8) -> bool {
        self.arrays
            .used
            .get(block)
            .is_some_and(|used| used.note(words))
    }

    /// Notes that a block is handed out that was just taken; whether it is fresh.
    pub(crate) fn hand_out(&self, frame: Frame, order: Order) -> bool {
        if self.arrays.used.is_empty() {
            return false;
        }
        let Some(block) = self.block_of(frame) else {
            return false;
        };
        if order >= Order::PAGEBLOCK {
            let blocks = index(order.frames() / PAGEBLOCK_FRAMES);
            // Not `all`, which would stop at the first that is not fresh.
            return (block..block + blocks)
                .fold(true, |fresh, block| self.hand_out_words(block, !0) & fresh);
        }
        let size = u64::from(WORD_FRAMES);
        let first = frame.number() % PAGEBLOCK_FRAMES / size;
        let words = order.frames().div_ceil(size);
        let mask = (0..words).fold(0, |mask, word| mask | 1 << (first + word));
        self.hand_out_words(block, mask)
    }
}

impl Allocator<'_> {
    /// Takes a block and says what is known of its contents. Needs
    /// [`Config::with_fresh_marks`](crate::Config::with_fresh_marks); without, nothing is known.
    ///
    /// Frames below a pageblock are told to be fresh by words of 64: of a word of which some were
    /// handed out before, the others are not known to be.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    #[inline]
    pub fn allocate_known(
        &self,
        front: &mut Front,
        request: Request,
    ) -> Result<(Frame, Contents), AllocError> {
        if let Some(frame) = front
            .take_held(request)
            .or_else(|| front.take_freed(request))
        {
            return Ok((frame, Contents::Unknown));
        }
        if let Some(frame) = front.take_fresh(request) {
            return Ok((frame, Contents::Fresh));
        }
        self.allocate_known_shared(front, request)
    }

    /// Takes a block that the front does not hold. What is left of a word that turns out to be fresh
    /// is kept where only requests like this look.
    #[inline(never)]
    fn allocate_known_shared(
        &self,
        front: &mut Front,
        request: Request,
    ) -> Result<(Frame, Contents), AllocError> {
        front.fresh = false;
        let frame = self.allocate(front, request)?;
        if !front.fresh {
            return Ok((frame, Contents::Unknown));
        }
        if request.order == Order::BASE && request.takes_any() {
            let rest = front.words.empty_slot(request.mobility);
            front.fresh_words[request.mobility.index()] = rest;
        }
        Ok((frame, Contents::Fresh))
    }
}
