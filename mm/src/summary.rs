//! What a search knows of 32 pageblocks without looking at them.

use crate::{
    Mobility,
    state::Class,
    sync::{AtomicU64, Ordering},
};

/// Pageblocks in a tree.
pub(crate) const TREE_BLOCKS: usize = 32;
/// Its binary logarithm.
pub(crate) const TREE_BLOCKS_SHIFT: u32 = TREE_BLOCKS.trailing_zeros();
/// The most that a lane counts at rest: all blocks of a tree.
const LANE_MOST: u8 = 32;
const _: () = assert!(LANE_MOST as usize == TREE_BLOCKS);
/// Frames in a tree: 64 MiB.
pub(crate) const TREE_FRAMES: u64 = TREE_BLOCKS as u64 * crate::PAGEBLOCK_FRAMES;

/// The unit of a class's lane: eight lanes of eight bits; a free untouched block has none, so
/// that a tree that was never used is zero.
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

/// How many blocks of each class a tree has. Lanes sum up changes that arrive in any order, so
/// while changes are under way a lane can be off by them; at rest all are exact.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Summary(u64);

impl Summary {
    /// A tree all of whose blocks are of this class.
    pub(crate) const fn all(class: Class) -> Self {
        Self(unit(class) * LANE_MOST as u64)
    }

    #[cfg(not(ebb_model))]
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// What has to be added to the other to make it this.
    #[cfg(not(ebb_model))]
    pub(crate) const fn minus(self, other: Self) -> u64 {
        self.0.wrapping_sub(other.0)
    }

    #[inline]
    const fn lane(self, lane: usize) -> u8 {
        self.0.to_le_bytes()[lane]
    }

    /// Blocks of this class, if no change is under way.
    #[inline]
    pub(crate) const fn count(self, class: Class) -> u8 {
        match class {
            Class::Partial(mobility) => self.lane(mobility as usize),
            Class::Full(mobility) => self.lane(3 + mobility as usize),
            Class::Touched => self.lane(6),
            Class::Isolated => self.lane(7),
            Class::Untouched => {
                // The sum of all lanes, in the highest.
                let sum = self.0.wrapping_mul(0x0101_0101_0101_0101).to_le_bytes()[7];
                LANE_MOST.saturating_sub(sum)
            }
        }
    }

    /// Blocks all of whose frames are free.
    pub(crate) const fn free(self) -> u8 {
        self.count(Class::Touched)
            .saturating_add(self.count(Class::Untouched))
    }

    /// Whether some frames of a block are in use, and some free.
    pub(crate) fn has_partial(self) -> bool {
        let partial = |mobility| self.count(Class::Partial(mobility)) != 0;
        Mobility::ALL.into_iter().any(partial)
    }

    /// Blocks whose frames in use, if any, have this mobility.
    pub(crate) const fn of(self, mobility: Mobility) -> u8 {
        self.count(Class::Partial(mobility))
            .saturating_add(self.count(Class::Full(mobility)))
    }
}

/// The summary in memory.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicSummary(AtomicU64);

impl AtomicSummary {
    /// The summary of blocks that are all free and untouched.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// `Relaxed`: a hint; the state words decide.
    #[inline]
    pub(crate) fn load(&self) -> Summary {
        Summary(self.0.load(Ordering::Relaxed))
    }

    /// Counts so many of the same change, at most those of a tree.
    #[inline]
    pub(crate) fn count_many(&self, old: Class, new: Class, blocks: u64) {
        let one = unit(new).wrapping_sub(unit(old));
        self.0
            .fetch_add(one.wrapping_mul(blocks), Ordering::Relaxed);
    }

    /// Corrects it by what [`Summary::minus`] said.
    #[cfg(not(ebb_model))]
    pub(crate) fn correct(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Counts a change. `Relaxed`: nothing is published through a summary.
    #[inline]
    pub(crate) fn count(&self, old: Class, new: Class) {
        self.0
            .fetch_add(unit(new).wrapping_sub(unit(old)), Ordering::Relaxed);
    }
}
