//! What a search knows of 64 trees, 4 GiB, without looking at them.

use crate::{
    state::Class,
    summary::TREE_BLOCKS,
    sync::{AtomicU64, Ordering},
};

/// Trees in a group.
pub(crate) const GROUP_TREES: usize = 64;
/// Blocks in a group, less than half of what a lane can count: a lane that is off by a change
/// under way does not look like one that wrapped around.
const GROUP_BLOCKS: u64 = (GROUP_TREES * TREE_BLOCKS) as u64;
const LANE_BITS: u32 = 12;
const LANE: u64 = (1 << LANE_BITS) - 1;
const _: () = assert!(GROUP_BLOCKS * 2 - 1 <= LANE);

/// The unit of a class's lanes: five of twelve bits. Four count the classes that are searched for
/// but one; the fifth all blocks that are not untouched, so that a group that was never used is
/// zero.
#[inline]
const fn unit(class: Class) -> u64 {
    const USED: u64 = 1 << (4 * LANE_BITS);
    match class {
        Class::Untouched => 0,
        Class::Partial(mobility) => USED | 1 << (mobility as u32 * LANE_BITS),
        Class::Touched => USED | 1 << (3 * LANE_BITS),
        Class::Full(_) | Class::Isolated => USED,
    }
}

/// How many blocks of the classes that are searched for a group has; as exact as a summary.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicGroup(AtomicU64);

impl AtomicGroup {
    /// A group of blocks that are all free and untouched.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether the group, which has so many trees, may have a block of this class. `Relaxed`: a
    /// hint; the state words decide.
    #[inline]
    pub(crate) fn may_have(&self, class: Class, trees: usize) -> bool {
        let lanes = self.0.load(Ordering::Relaxed);
        let lane = |lane: u32| lanes >> (lane * LANE_BITS) & LANE;
        match class {
            Class::Partial(mobility) => lane(mobility as u32) != 0,
            Class::Touched => lane(3) != 0,
            Class::Untouched => lane(4) != (trees * TREE_BLOCKS) as u64,
            Class::Full(_) | Class::Isolated => true,
        }
    }

    /// Counts a change. `Relaxed`: nothing is published through it.
    #[inline]
    pub(crate) fn count(&self, old: Class, new: Class) {
        let delta = unit(new).wrapping_sub(unit(old));
        if delta != 0 {
            self.0.fetch_add(delta, Ordering::Relaxed);
        }
    }

    /// What it says, for comparison.
    pub(crate) fn bits(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
