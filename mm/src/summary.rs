//! The summary of a tree: how many of its 32 pageblocks are in each class, so that a search can
//! skip the tree without reading their state words.

use crate::{
    Mobility,
    state::Class,
    sync::{AtomicU64, Ordering},
};

/// The number of pageblocks in a tree, the unit for which searches have a summary.
pub(crate) const TREE_BLOCKS: usize = 32;
/// The binary logarithm of [`TREE_BLOCKS`].
pub(crate) const TREE_BLOCKS_SHIFT: u32 = TREE_BLOCKS.trailing_zeros();
/// The largest count of a class while no change is in progress: all pageblocks of a tree.
const LANE_MOST: u8 = 32;
const _: () = assert!(LANE_MOST as usize == TREE_BLOCKS);
/// The number of frames in a tree: 64 MiB.
pub(crate) const TREE_FRAMES: u64 = TREE_BLOCKS as u64 * crate::PAGEBLOCK_FRAMES;

/// Returns the value that counts one pageblock of `class` in a summary. A summary has eight lanes
/// of eight bits. Free untouched pageblocks have no lane, so that the summary of an unused tree is
/// zero.
#[inline]
const fn unit(class: Class) -> u64 {
    let lane = match class {
        Class::Untouched => return 0,
        Class::Partial(mobility) => mobility as u32,
        Class::Full(mobility) => 3 + mobility as u32,
        Class::Touched => 6,
        Class::Isolated => 7,
    };
    1 << (8 * lane)
}

/// The number of pageblocks of each class in a tree. Each lane sums up changes that arrive in any
/// order. So a lane can be wrong while changes are in progress, and is exact otherwise.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Summary(u64);

impl Summary {
    /// Returns the summary of a tree whose pageblocks are all of `class`.
    pub(crate) const fn all(class: Class) -> Self {
        Self(unit(class) * LANE_MOST as u64)
    }

    /// Returns the summary with these bits, which may be any.
    #[cfg(not(ebb_model))]
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the number that has to be added to `other` to make it equal to this summary, for
    /// [`AtomicSummary::correct`]. The number wraps around.
    #[cfg(not(ebb_model))]
    pub(crate) const fn minus(self, other: Self) -> u64 {
        self.0.wrapping_sub(other.0)
    }

    /// Returns the count in lane 0 to 7.
    #[inline]
    const fn lane(self, lane: usize) -> u8 {
        self.0.to_le_bytes()[lane]
    }

    /// Returns the number of pageblocks of `class`: 0 to 32, and exact, if no change is in
    /// progress.
    #[inline]
    pub(crate) const fn count(self, class: Class) -> u8 {
        match class {
            Class::Partial(mobility) => self.lane(mobility as usize),
            Class::Full(mobility) => self.lane(3 + mobility as usize),
            Class::Touched => self.lane(6),
            Class::Isolated => self.lane(7),
            Class::Untouched => {
                // The sum of all lanes, in the highest lane.
                let sum = self.0.wrapping_mul(0x0101_0101_0101_0101).to_le_bytes()[7];
                LANE_MOST.saturating_sub(sum)
            }
        }
    }

    /// Returns the number of pageblocks whose frames are all free, touched or untouched.
    pub(crate) const fn free(self) -> u8 {
        self.count(Class::Touched)
            .saturating_add(self.count(Class::Untouched))
    }

    /// Returns whether the tree has a partly used pageblock.
    pub(crate) fn has_partial(self) -> bool {
        let partial = |mobility| self.count(Class::Partial(mobility)) != 0;
        Mobility::ALL.into_iter().any(partial)
    }

    /// Returns the number of partly used and full pageblocks of `mobility`.
    pub(crate) const fn of(self, mobility: Mobility) -> u8 {
        self.count(Class::Partial(mobility))
            .saturating_add(self.count(Class::Full(mobility)))
    }
}

/// The summary of a tree in memory.
///
/// `SeqCst` throughout: a CPU that makes a pageblock available counts it here and then reads the
/// [map](crate::map), and a CPU that clears a bit of the map then reads the summary. So at least
/// one of them sees the other.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicSummary(AtomicU64);

impl AtomicSummary {
    /// Returns the summary of a tree whose pageblocks are all free and untouched.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the summary. It is a hint: the state words decide.
    #[inline]
    pub(crate) fn load(&self) -> Summary {
        Summary(self.0.load(Ordering::SeqCst))
    }

    /// Counts the change of `blocks` pageblocks (at most those of a tree) from class `old` to
    /// `new`.
    #[inline]
    pub(crate) fn count_many(&self, old: Class, new: Class, blocks: u64) {
        let one = unit(new).wrapping_sub(unit(old));
        self.0.fetch_add(one.wrapping_mul(blocks), Ordering::SeqCst);
    }

    /// Adds `by`, a difference from [`Summary::minus`], to repair a summary that has missed a
    /// change.
    #[cfg(not(ebb_model))]
    pub(crate) fn correct(&self, by: u64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }

    /// Counts the change of one pageblock from class `old` to `new`.
    #[inline]
    pub(crate) fn count(&self, old: Class, new: Class) {
        self.0
            .fetch_add(unit(new).wrapping_sub(unit(old)), Ordering::SeqCst);
    }
}
