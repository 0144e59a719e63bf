//! Frames of physical memory, powers of two of them, and ranges.

use core::fmt;

/// Bytes in a frame.
pub const FRAME_SIZE: usize = 4096;
const FRAME_SHIFT: u32 = FRAME_SIZE.trailing_zeros();

/// The order of a pageblock: 512 frames, 2 MiB, one entry of an x86-64 page directory.
pub const PAGEBLOCK_ORDER: Order = Order::PAGEBLOCK;
/// Frames in a pageblock.
pub const PAGEBLOCK_FRAMES: u64 = PAGEBLOCK_ORDER.frames();

/// Frames beyond this number have addresses that x86-64 cannot form (52 bits).
pub(crate) const FRAME_LIMIT: u64 = 1 << (52 - FRAME_SHIFT);

const _: () = assert!(usize::BITS == 64, "frame numbers are used as indices");

/// A frame number as an index. Lossless: `usize` has 64 bits (asserted above).
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits, asserted above"
)]
pub(crate) const fn index(number: u64) -> usize {
    number as usize
}

/// A frame of physical memory, by its number: the address divided by [`FRAME_SIZE`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Frame(u64);

impl Frame {
    /// The frame with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The physical address of its first byte.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0 << FRAME_SHIFT
    }

    /// The frame that holds the byte at this physical address.
    #[inline]
    pub const fn containing(address: u64) -> Self {
        Self(address >> FRAME_SHIFT)
    }

    /// The frame `frames` further on.
    #[inline]
    pub const fn offset(self, frames: u64) -> Self {
        Self(self.0 + frames)
    }

    /// Whether a block of this order may start here.
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames() - 1) == 0
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:#x})", self.0)
    }
}

/// The binary logarithm of a number of frames: 0 is one frame, 9 a pageblock, 10 the most but for
/// 18, a GiB.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// One frame.
    pub const BASE: Self = Self(0);
    /// A pageblock: 512 frames.
    pub const PAGEBLOCK: Self = Self(9);
    /// The largest but for [`Order::GIANT`]: two adjacent pageblocks.
    pub const MAX: Self = Self(10);
    /// A GiB: an entry of an x86-64 page directory pointer table. Taken and given back in one step,
    /// like a pageblock. Free memory is not counted by it, nor reported.
    pub const GIANT: Self = Self(18);
    /// How many orders there are, [`Order::GIANT`] apart.
    pub const COUNT: usize = Self::MAX.0 as usize + 1;

    /// The order, if it is at most [`Order::MAX`].
    #[inline]
    pub const fn new(order: u8) -> Option<Self> {
        if order <= Self::MAX.0 {
            Some(Self(order))
        } else {
            None
        }
    }

    /// The smallest order with at least so many frames; none if that is above [`Order::MAX`].
    pub const fn at_least(frames: u64) -> Option<Self> {
        let mut order = Self::BASE;
        while order.frames() < frames {
            match Self::new(order.0 + 1) {
                Some(next) => order = next,
                None => return None,
            }
        }
        Some(order)
    }

    /// The number: 0 to 10, or 18.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Frames in a block of this order.
    #[inline]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// Bytes in a block of this order.
    #[inline]
    pub const fn bytes(self) -> u64 {
        (FRAME_SIZE as u64) << self.0
    }

    /// Every order but [`Order::GIANT`], smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=Self::MAX.0).map(Self)
    }
}

/// Adjacent frames.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrameRange {
    /// The first of them.
    pub start: Frame,
    /// How many.
    pub frames: u64,
}

impl FrameRange {
    /// `frames` frames from `start`.
    #[inline]
    pub const fn new(start: Frame, frames: u64) -> Self {
        Self { start, frames }
    }

    /// The frames that lie wholly inside these bytes.
    pub const fn inside(address: u64, bytes: u64) -> Self {
        let start = address.div_ceil(FRAME_SIZE as u64);
        let end = address.saturating_add(bytes) >> FRAME_SHIFT;
        Self {
            start: Frame(start),
            frames: end.saturating_sub(start),
        }
    }

    /// The frames that these bytes touch.
    pub const fn covering(address: u64, bytes: u64) -> Self {
        let start = address >> FRAME_SHIFT;
        let end = address.saturating_add(bytes).div_ceil(FRAME_SIZE as u64);
        Self {
            start: Frame(start),
            frames: end.saturating_sub(start),
        }
    }

    /// The frame after the last.
    #[inline]
    pub const fn end(self) -> Frame {
        Frame(self.start.0 + self.frames)
    }

    /// Whether the frame is one of them.
    #[inline]
    pub const fn contains(self, frame: Frame) -> bool {
        frame.0 >= self.start.0 && frame.0 - self.start.0 < self.frames
    }

    /// Whether every frame of the other is one of them.
    #[inline]
    pub const fn contains_range(self, other: Self) -> bool {
        other.start.0 >= self.start.0 && other.end().0 <= self.end().0
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.frames == 0
    }

    /// Their size.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.frames << FRAME_SHIFT
    }
}
