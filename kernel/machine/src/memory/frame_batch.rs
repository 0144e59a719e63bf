//! A batch of frames on the stack.

use core::mem::MaybeUninit;
use ebb_mm::Frame;

/// Up to `N` frames, in the order in which they were added. `N` is a power of two. Making a batch
/// writes none of its places.
pub struct FrameBatch<const N: usize> {
    len: usize,
    /// The first `min(len, N)` are initialized.
    frames: [MaybeUninit<Frame>; N],
}

impl<const N: usize> FrameBatch<N> {
    /// Returns an empty batch.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(N.is_power_of_two()) }
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
        self.len >= N
    }

    /// Adds `frame`.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        assert!(!self.is_full(), "no room for another frame");
        self.push_fast(frame);
    }

    /// Adds `frame`, for a caller where each instruction counts and which knows that there is room.
    /// If there is none, an earlier frame is lost. Only builds with assertions check this.
    #[inline(always)]
    pub fn push_fast(&mut self, frame: Frame) {
        debug_assert!(!self.is_full(), "no room for another frame");
        self.frames[self.len & (N - 1)].write(frame);
        self.len += 1;
    }

    /// Returns the frames, which leave the batch.
    #[inline]
    pub fn take_all(&mut self) -> impl Iterator<Item = Frame> + '_ {
        let len = core::mem::take(&mut self.len).min(N);
        // SAFETY: that many pushes have initialized these places, each the next one.
        let frames = self.frames[..len]
            .iter()
            .map(|frame| unsafe { frame.assume_init() });
        frames
    }
}

impl<const N: usize> Default for FrameBatch<N> {
    fn default() -> Self {
        Self::new()
    }
}
