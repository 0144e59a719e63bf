//! Every invariant of the metadata, checked.

use core::{error, fmt};

use crate::{
    Allocator,
    giant::{GIANT_BLOCKS, GIANT_TREES},
    state::{BLOCK_FRAMES, Class},
    summary::{AtomicSummary, TREE_BLOCKS},
    zone::{FREE_GIANTS, Wanted, Zone},
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
    /// The summary of a tree does not count its blocks.
    Summary {
        /// The zone.
        zone: usize,
        /// The tree in it.
        tree: usize,
    },
    /// A search would not come to a tree that has what it is for, or to a free GiB.
    Hidden {
        /// The zone.
        zone: usize,
        /// The tree, or the first tree of the GiB.
        tree: usize,
    },
    /// A free run of a block is larger than what the block is said to have.
    Reach {
        /// The zone.
        zone: usize,
        /// The block in it.
        block: usize,
    },
    /// A GiB's count is not the number of its blocks that are in use.
    Giant {
        /// The zone.
        zone: usize,
        /// The GiB in it.
        giant: usize,
        /// What its word says.
        count: u32,
        /// How many are in use.
        used: u32,
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
        // Signed: of a block that is being emptied the room for what is in use is set aside.
        let mut free = 0;
        for (tree, summary) in arrays.summaries.iter().enumerate() {
            let counted = AtomicSummary::new();
            for block in tree * TREE_BLOCKS..(tree + 1) * TREE_BLOCKS {
                let state = arrays.states[block].load();
                let (bits, touched) = (&arrays.bits[block], arrays.touched.get(block));
                let marks = touched.map_or(0, |touched| touched.count_ones());
                let set = bits.count_ones();
                counted.count(Class::Untouched, state.class());
                let whole = state.is_whole();
                if whole && set != 0 {
                    return Err(Broken::WholeWithBits { zone: index, block });
                }
                let count = state.used();
                if !whole && count != set || whole && count != BLOCK_FRAMES {
                    return Err(Broken::Count {
                        zone: index,
                        block,
                        count,
                        bits: set,
                    });
                }
                let fine = state.is_touched() && state.is_fine();
                if !fine && (state.is_fine() || marks != 0) {
                    return Err(Broken::TouchedMarks { zone: index, block });
                }
                if state.class() != Class::Isolated
                    && !whole
                    && bits.reach() > arrays.reaches[block].load()
                {
                    return Err(Broken::Reach { zone: index, block });
                }
                if state.is_emptying() {
                    free -= i64::from(count);
                } else if !zone.giant(tree).load().is_huge() {
                    free += i64::from(BLOCK_FRAMES - count);
                }
            }
            if counted.load() != summary.load() {
                return Err(Broken::Summary { zone: index, tree });
            }
            let hidden = |wanted: Wanted| zone.has(wanted, tree) && !zone.shows(wanted, tree);
            if Wanted::all().any(hidden) {
                return Err(Broken::Hidden { zone: index, tree });
            }
        }
        validate_giants(index, zone)?;
        let (count, free) = (zone.free_frames(), u64::try_from(free).unwrap_or(0));
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

fn validate_giants(index: usize, zone: &Zone<'_>) -> Result<(), Broken> {
    let arrays = &zone.arrays;
    for (giant, word) in arrays.giants.iter().enumerate() {
        let count = word.load().count();
        let Some(tree) = zone.first_tree(giant) else {
            // On the edge of an extent: what it lacks counts as used.
            if count == 0 {
                let (zone, used) = (index, GIANT_BLOCKS);
                return Err(Broken::Giant {
                    zone,
                    giant,
                    count,
                    used,
                });
            }
            continue;
        };
        let blocks = tree * TREE_BLOCKS..(tree + GIANT_TREES) * TREE_BLOCKS;
        let used = blocks.filter(|&block| !arrays.states[block].load().is_free());
        let used = u32::try_from(used.count()).unwrap_or(GIANT_BLOCKS);
        if used != count || word.load().is_huge() && used != 0 {
            let zone = index;
            return Err(Broken::Giant {
                zone,
                giant,
                count,
                used,
            });
        }
        if word.load().is_free() && !arrays.giant_map.shows(FREE_GIANTS, giant) {
            return Err(Broken::Hidden { zone: index, tree });
        }
    }
    Ok(())
}
