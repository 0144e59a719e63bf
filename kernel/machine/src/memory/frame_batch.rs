//! A batch of frames on the stack.

use crate::arch::pte::each_used;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use ebb_mm::Frame;

/// Up to `N` frames, in the order in which they were added. Making a batch writes none of its
/// places.
pub struct FrameBatch<const N: usize> {
    /// At most `N`.
    len: usize,
    /// The first `len` are initialized.
    frames: [MaybeUninit<Frame>; N],
}

impl<const N: usize> FrameBatch<N> {
    /// Returns an empty batch.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            len: 0,
            frames: [const { MaybeUninit::uninit() }; N],
        }
    }

    /// Returns the number of frames.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no frame.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether there is no room for another frame.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len == N
    }

    /// Adds `frame`.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        self.frames[self.len].write(frame);
        self.len += 1;
    }

    /// Calls `take` with each used entry of `entries`, a part of a page table, and the entry's
    /// value. Adds the frames that `take` returns.
    ///
    /// # Panics
    /// If there is no room for a frame of each entry.
    #[inline(always)]
    pub fn push_used(
        &mut self,
        entries: &[AtomicU64],
        mut take: impl FnMut(&AtomicU64, u64) -> Option<Frame>,
    ) {
        assert!(entries.len() <= N - self.len, "no room for more frames");
        let mut len = self.len;
        let frames = &mut self.frames;
        each_used(entries, |_, entry, value| {
            if let Some(frame) = take(entry, value) {
                // SAFETY: `each_used` visits each entry once, and there was room for all of them.
                unsafe { frames.get_unchecked_mut(len) }.write(frame);
                len += 1;
            }
        });
        self.len = len;
    }

    /// Returns the frames, which leave the batch.
    #[inline]
    pub fn take_all(&mut self) -> impl Iterator<Item = Frame> + '_ {
        let len = core::mem::take(&mut self.len);
        self.frames[..len].iter().map(|frame| {
            // SAFETY: these places are initialized.
            unsafe { frame.assume_init() }
        })
    }
}

impl<const N: usize> Default for FrameBatch<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for FrameBatch<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {N} frames", self.len)
    }
}
