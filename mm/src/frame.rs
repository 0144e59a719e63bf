//! Page frames, orders (block sizes as powers of two) and ranges of adjacent frames.

use core::fmt;

/// Size of a page frame in bytes.
pub const FRAME_SIZE: usize = 4096;
const FRAME_SHIFT: u32 = FRAME_SIZE.trailing_zeros();

/// The order of a pageblock: 512 frames, 2 MiB, one entry of an x86-64 page directory.
pub const PAGEBLOCK_ORDER: Order = Order::PAGEBLOCK;
/// Number of frames in a pageblock.
pub const PAGEBLOCK_FRAMES: u64 = PAGEBLOCK_ORDER.frames();

/// Frame numbers are below this limit. x86-64 physical addresses have at most 52 bits.
pub(crate) const FRAME_LIMIT: u64 = 1 << (52 - FRAME_SHIFT);

const _: () = assert!(usize::BITS == 64, "frame numbers are used as indices");

/// Converts a frame number, or any other `u64` number, to an index. Lossless, as `usize` has 64
/// bits (asserted above).
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits, asserted above"
)]
pub(crate) const fn index(number: u64) -> usize {
    number as usize
}

/// A frame of physical memory, identified by its number: the physical address divided by
/// [`FRAME_SIZE`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Frame(u64);

impl Frame {
    /// Returns the frame with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the frame number.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the physical address of the frame's first byte.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0 << FRAME_SHIFT
    }

    /// Returns the frame that contains the byte at this physical address.
    #[inline]
    pub const fn containing(address: u64) -> Self {
        Self(address >> FRAME_SHIFT)
    }

    /// Returns the frame that is `frames` frames above this one.
    #[inline]
    pub const fn offset(self, frames: u64) -> Self {
        Self(self.0 + frames)
    }

    /// Returns `true` if a block of `order` may start at this frame: its number is a multiple of
    /// the block's frames.
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

/// The size of a block as the binary logarithm of its frames: 0 is one frame, 9 a pageblock.
///
/// Valid orders are 0 to 10, and 18 for an aligned GiB ([`Order::GIB`]).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// Order 0: one frame.
    pub const BASE: Self = Self(0);
    /// Order 9: a pageblock of 512 frames.
    pub const PAGEBLOCK: Self = Self(9);
    /// Order 10: two adjacent pageblocks. The largest order apart from [`Order::GIB`].
    pub const MAX: Self = Self(10);
    /// Order 18: an aligned GiB, one entry of an x86-64 page directory pointer table.
    ///
    /// It is allocated and freed in one step, like a pageblock. Statistics by order and free page
    /// reporting do not use this order.
    pub const GIB: Self = Self(18);
    /// Number of orders from 0 to [`Order::MAX`], without [`Order::GIB`].
    pub const COUNT: usize = Self::MAX.0 as usize + 1;

    /// Returns the order with this number, or `None` if it is above [`Order::MAX`].
    ///
    /// So this never returns [`Order::GIB`].
    #[inline]
    pub const fn new(order: u8) -> Option<Self> {
        if order <= Self::MAX.0 {
            Some(Self(order))
        } else {
            None
        }
    }

    /// Returns the smallest order whose block has at least `frames` frames. Returns `None` if that
    /// order would be above [`Order::MAX`].
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

    /// Returns the number of the order: 0 to 10, or 18.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number of frames in a block of this order.
    #[inline]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// Returns the number of bytes in a block of this order.
    #[inline]
    pub const fn bytes(self) -> u64 {
        (FRAME_SIZE as u64) << self.0
    }

    /// Iterates over the orders from 0 to [`Order::MAX`], smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=Self::MAX.0).map(Self)
    }
}

/// A range of adjacent frames, which may be empty.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FrameRange {
    /// The first frame.
    pub start: Frame,
    /// Number of frames.
    pub frames: u64,
}

impl FrameRange {
    /// Returns the range of `frames` frames from `start` on.
    #[inline]
    pub const fn new(start: Frame, frames: u64) -> Self {
        Self { start, frames }
    }

    /// Returns the frames that lie completely inside the `bytes` bytes from the physical `address`
    /// on. The range is empty if there are none.
    pub const fn inside(address: u64, bytes: u64) -> Self {
        let start = address.div_ceil(FRAME_SIZE as u64);
        let end = address.saturating_add(bytes) >> FRAME_SHIFT;
        Self {
            start: Frame(start),
            frames: end.saturating_sub(start),
        }
    }

    /// Returns all frames that contain at least one of the `bytes` bytes from the physical
    /// `address` on.
    pub const fn covering(address: u64, bytes: u64) -> Self {
        let start = address >> FRAME_SHIFT;
        let end = address.saturating_add(bytes).div_ceil(FRAME_SIZE as u64);
        Self {
            start: Frame(start),
            frames: end.saturating_sub(start),
        }
    }

    /// Returns the frame behind the last frame of the range.
    #[inline]
    pub const fn end(self) -> Frame {
        Frame(self.start.0 + self.frames)
    }

    /// Returns `true` if `frame` is in the range.
    #[inline]
    pub const fn contains(self, frame: Frame) -> bool {
        frame.0 >= self.start.0 && frame.0 - self.start.0 < self.frames
    }

    /// Returns `true` if `other` starts and ends inside this range. An empty `other` gives `true`
    /// only if its start is inside this range or at its end.
    #[inline]
    pub const fn contains_range(self, other: Self) -> bool {
        other.start.0 >= self.start.0 && other.end().0 <= self.end().0
    }

    /// Returns `true` if the range has no frames.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.frames == 0
    }

    /// Returns the size of the range in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.frames << FRAME_SHIFT
    }
}
