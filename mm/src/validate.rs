//! Every invariant of the metadata, checked.

use core::{error, fmt};

use crate::{
    Allocator,
    group::{AtomicGroup, GROUP_TREES},
    state::{BLOCK_FRAMES, Class},
    summary::{AtomicSummary, TREE_BLOCKS},
};

/// An invariant that does not hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A block's count is not the number of its bits.
    Count {
        /// The zone.
        zone: usize,
        /// The block in it.
        block: usize,
        /// What its state word says.
        count: u32,
        /// How many bits are set.
        bits: u32,
    },
    /// A block that is in use, isolated or missing as a whole has bits set.
    WholeWithBits {
        /// The zone.
        zone: usize,
        /// The block in it.
        block: usize,
    },
    /// Frames of a block that is untouched, or has no exact marks, are marked as touched.
    TouchedMarks {
        /// The zone.
        zone: usize,
        /// The block in it.
        block: usize,
    },
    /// The summary of a tree, or that of the group that it ends, does not count its blocks.
    Summary {
        /// The zone.
        zone: usize,
        /// The tree in it.
        tree: usize,
    },
    /// A zone's count of free frames is not what its blocks add up to. Also if a front was not
    /// drained before.
    Free {
        /// The zone.
        zone: usize,
        /// What its count says.
        count: u64,
        /// What its blocks add up to.
        sum: u64,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken invariant: {self:?}")
    }
}

impl error::Error for Broken {}

impl Allocator<'_> {
    /// Checks every invariant. Only while nobody else uses the allocator and all fronts are
    /// drained. Reads all metadata.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn validate(&self) -> Result<(), Broken> {
        (0..self.zones()).try_for_each(|zone| self.validate_zone(zone))
    }

    fn validate_zone(&self, index: usize) -> Result<(), Broken> {
        let zone = self.zone(index).zone;
        let arrays = &zone.arrays;
        let mut free = 0;
        let mut group = AtomicGroup::new();
        for (tree, summary) in arrays.summaries.iter().enumerate() {
            let counted = AtomicSummary::new();
            for block in tree * TREE_BLOCKS..(tree + 1) * TREE_BLOCKS {
                let state = arrays.states[block].load();
                let (bits, touched) = (&arrays.bits[block], &arrays.touched[block]);
                let set = bits.count_ones();
                counted.count(Class::Untouched, state.class());
                group.count(Class::Untouched, state.class());
                let whole = state.is_huge() || state.is_isolated() || state.is_missing();
                if whole && set != 0 {
                    return Err(Broken::WholeWithBits { zone: index, block });
                }
                let count = state.count();
                if !whole && count != set || whole && count != BLOCK_FRAMES {
                    return Err(Broken::Count {
                        zone: index,
                        block,
                        count,
                        bits: set,
                    });
                }
                let fine = state.is_touched() && state.is_fine();
                if !fine && (state.is_fine() || touched.count_ones() != 0) {
                    return Err(Broken::TouchedMarks { zone: index, block });
                }
                free += u64::from(BLOCK_FRAMES - count);
            }
            let last = tree + 1 == arrays.summaries.len() || (tree + 1).is_multiple_of(GROUP_TREES);
            let counts = !last || group.bits() == arrays.groups[tree / GROUP_TREES].bits();
            if counted.load() != summary.load() || !counts {
                return Err(Broken::Summary { zone: index, tree });
            }
            if last {
                group = AtomicGroup::new();
            }
        }
        let count = zone.free_frames();
        if count != free {
            return Err(Broken::Free {
                zone: index,
                count,
                sum: free,
            });
        }
        Ok(())
    }
}
