//! Knowledge of the contents of a frame: whether the frame was ever allocated.
//!
//! A kernel whose memory starts zeroed, as that of a virtual machine, need not clear a frame that
//! was never allocated before. Its contents are called *never used*. That a frame was *reported*
//! does not make it unused: what the host provides for memory that it dropped is up to the host. A
//! host that attaches ([`attach`](crate::attach)) and drops memory itself knows that it is zero
//! again, and clears the marks.

use crate::{
    AllocError, Allocator, CpuCache, Frame, Order, Request,
    bitmap::{WORD_FRAMES, WORDS},
    frame::{PAGEBLOCK_FRAMES, index},
    ids::{BlockId, Id, each},
    sync::{AtomicU8, Ordering},
    zone::Zone,
};

/// The known contents of a block that was just allocated.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Contents {
    /// The block has the contents that it had when the allocator was created. No part of it was
    /// allocated since then, or since an attached host dropped it.
    NeverUsed,
    /// The block may contain anything.
    Unknown,
}

/// Which of the eight groups of 64 frames of a pageblock contain frames that were ever allocated.
/// One bit for each group, set once.
///
/// A bit is set by the CPU that has just taken frames, before it hands them out. All orderings are
/// `Relaxed`: the exchange on the bitmap orders this CPU after the last owner of the frames, and so
/// after that owner's mark.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicUsed(AtomicU8);

const _: () = assert!(WORDS == u8::BITS as usize);

impl AtomicUsed {
    /// Sets the marks of the groups in the mask `words`. Returns `true` if all of them were
    /// unmarked.
    fn note(&self, words: u8) -> bool {
        // One atomic change sets the mark. If two CPUs take frames of the same unused group at
        // once, only one of them gets `true`.
        let marked = self.0.load(Ordering::Relaxed);
        marked & words != words && self.0.fetch_or(words, Ordering::Relaxed) & words == 0
    }

    /// Marks all groups of a pageblock as never allocated. The pageblock must be out of use, and
    /// the host must have dropped its memory.
    #[cfg(not(ebb_model))]
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Zone<'_> {
    /// Notes that frames of the groups of 64 in the mask `words` of this pageblock are allocated.
    /// Returns `true` if no frame of these groups was ever allocated before. Always returns `false`
    /// without use marks.
    pub(crate) fn hand_out_words(&self, block: BlockId, words: u8) -> bool {
        self.arrays
            .used
            .get(block)
            .is_some_and(|used| used.note(words))
    }

    /// Notes that the block of this order at `frame` is allocated. Returns `true` if no frame of
    /// it, or of its group of 64, was ever allocated before. Always returns `false` without use
    /// marks.
    pub(crate) fn hand_out(&self, frame: Frame, order: Order) -> bool {
        if self.arrays.used.is_empty() {
            return false;
        }
        let Some(block) = self.block_of(frame) else {
            return false;
        };
        if order >= Order::PAGEBLOCK {
            let blocks = index(order.frames() / PAGEBLOCK_FRAMES);
            // Not `all`, which would stop at the first block that is in use and leave the others
            // unmarked.
            return each(block..block.offset(blocks)).fold(true, |unused, block| {
                self.hand_out_words(block, !0) & unused
            });
        }
        let size = u64::from(WORD_FRAMES);
        let first = frame.number() % PAGEBLOCK_FRAMES / size;
        let words = order.frames().div_ceil(size);
        let mask = (0..words).fold(0, |mask, word| mask | 1 << (first + word));
        self.hand_out_words(block, mask)
    }
}

impl Allocator<'_> {
    /// Allocates one block, and returns its first frame and its known contents.
    ///
    /// The contents are [`NeverUsed`](Contents::NeverUsed) if the block was never allocated before.
    /// Marks exist for groups of 64 frames: after one frame of a group was allocated, the contents
    /// of the others are [`Unknown`](Contents::Unknown), too. Without
    /// [`Config::with_use_marks`](crate::Config::with_use_marks) the contents are always unknown.
    ///
    /// # Errors
    /// Fails like [`allocate`](Self::allocate).
    #[inline]
    pub fn allocate_known(
        &self,
        cache: &mut CpuCache,
        request: Request,
    ) -> Result<(Frame, Contents), AllocError> {
        if let Some(frame) = cache
            .take_held(request)
            .or_else(|| cache.take_freed(request))
        {
            return Ok((frame, Contents::Unknown));
        }
        if let Some(frame) = cache.take_unused(request) {
            return Ok((frame, Contents::NeverUsed));
        }
        self.allocate_known_shared(cache, request)
    }

    /// Allocates a block that the cache does not hold. If its group of 64 frames was never
    /// allocated before, the rest of the group is kept apart in the cache, for requests that ask
    /// for the contents.
    ///
    /// # Errors
    /// Fails like [`allocate`](Self::allocate).
    #[inline(never)]
    fn allocate_known_shared(
        &self,
        cache: &mut CpuCache,
        request: Request,
    ) -> Result<(Frame, Contents), AllocError> {
        cache.never_used = false;
        let frame = self.allocate(cache, request)?;
        if !cache.never_used {
            return Ok((frame, Contents::Unknown));
        }
        if request.order == Order::BASE && request.takes_any() {
            let rest = cache.groups.empty_slot(request.mobility);
            cache.unused_groups[request.mobility.index()] = rest;
        }
        Ok((frame, Contents::NeverUsed))
    }
}
