//! Checks the invariants of the metadata, for tests.

use core::{error, fmt};

use crate::{
    Allocator, ZoneId,
    gib::GIB_BLOCKS,
    ids::Id,
    state::{BLOCK_FRAMES, Class},
    summary::AtomicSummary,
    zone::{FREE_GIBS, Wanted, Zone},
};

/// The invariant that does not hold, and where.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The count of a pageblock is not the number of its bits that are set.
    Count {
        /// The zone.
        zone: ZoneId,
        /// The index of the pageblock in the zone.
        block: usize,
        /// The count in its state word.
        count: u32,
        /// The number of bits that are set.
        bits: u32,
    },
    /// A pageblock that is allocated whole, isolated, missing or offline has bits set.
    WholeWithBits {
        /// The zone.
        zone: ZoneId,
        /// The index of the pageblock in the zone.
        block: usize,
    },
    /// Frames are marked as touched in a pageblock that is untouched or has no exact touched bits.
    TouchedMarks {
        /// The zone.
        zone: ZoneId,
        /// The index of the pageblock in the zone.
        block: usize,
    },
    /// The summary of a tree does not match the classes of its pageblocks.
    Summary {
        /// The zone.
        zone: ZoneId,
        /// The index of the tree in the zone.
        tree: usize,
    },
    /// The map hides a tree that has pageblocks of a kind that is searched for, or hides a free
    /// GiB.
    Hidden {
        /// The zone.
        zone: ZoneId,
        /// The index of the tree, or of the first tree of the GiB.
        tree: usize,
    },
    /// A free run of a pageblock is larger than its run bound allows.
    RunBound {
        /// The zone.
        zone: ZoneId,
        /// The index of the pageblock in the zone.
        block: usize,
    },
    /// The count of a GiB is not the number of its pageblocks in use.
    Gib {
        /// The zone.
        zone: ZoneId,
        /// The index of the GiB in the zone.
        gib: usize,
        /// The count in the GiB's word.
        count: u32,
        /// The number of its pageblocks in use.
        used: u32,
    },
    /// The zone's count of free frames does not match the sum over its pageblocks. Also returned if
    /// a per-CPU cache was not drained before.
    Free {
        /// The zone.
        zone: ZoneId,
        /// The zone's count of free frames.
        count: u64,
        /// The sum over its pageblocks.
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
    /// Checks every invariant of the metadata, for tests. Reads all of it and changes nothing. The
    /// caller must have drained all per-CPU caches, and no other thread may use the allocator.
    ///
    /// # Errors
    /// Fails with the first invariant found broken.
    pub fn validate(&self) -> Result<(), Broken> {
        self.zone_ids()
            .try_for_each(|zone| self.validate_zone(zone))
    }

    fn validate_zone(&self, id: ZoneId) -> Result<(), Broken> {
        let zone = self.zone(id).zone;
        let arrays = &zone.arrays;
        // Signed: frames are set aside for those in use in a pageblock that is being emptied.
        let mut free = 0;
        for (tree, summary) in arrays.summaries.entries() {
            let counted = AtomicSummary::new();
            for block in tree.blocks() {
                let state = arrays.states[block].load();
                let (bits, touched) = (&arrays.bits[block], arrays.touched.get(block));
                let marks = touched.map_or(0, |touched| touched.count_ones());
                let set = bits.count_ones();
                counted.count(Class::Untouched, state.class());
                let whole = state.is_whole();
                if whole && set != 0 {
                    return Err(Broken::WholeWithBits {
                        zone: id,
                        block: block.index(),
                    });
                }
                let count = state.used();
                if !whole && count != set || whole && count != BLOCK_FRAMES {
                    return Err(Broken::Count {
                        zone: id,
                        block: block.index(),
                        count,
                        bits: set,
                    });
                }
                let exact_marks = state.is_touched() && state.has_exact_marks();
                if !exact_marks && (state.has_exact_marks() || marks != 0) {
                    return Err(Broken::TouchedMarks {
                        zone: id,
                        block: block.index(),
                    });
                }
                if state.class() != Class::Isolated
                    && !whole
                    && bits.run_bound() > arrays.run_bounds[block].load()
                {
                    return Err(Broken::RunBound {
                        zone: id,
                        block: block.index(),
                    });
                }
                if state.is_emptying() {
                    free -= i64::from(count);
                } else if !zone.gib(tree).load().is_huge() {
                    free += i64::from(BLOCK_FRAMES - count);
                }
            }
            if counted.load() != summary.load() {
                return Err(Broken::Summary {
                    zone: id,
                    tree: tree.index(),
                });
            }
            let hidden = |wanted: Wanted| zone.has(wanted, tree) && !zone.shows(wanted, tree);
            if Wanted::all().any(hidden) {
                return Err(Broken::Hidden {
                    zone: id,
                    tree: tree.index(),
                });
            }
        }
        validate_gibs(id, zone)?;
        let (count, free) = (zone.free_frames(), u64::try_from(free).unwrap_or(0));
        if count != free {
            return Err(Broken::Free {
                zone: id,
                count,
                sum: free,
            });
        }
        Ok(())
    }
}

/// Checks the word of each GiB of a zone.
fn validate_gibs(id: ZoneId, zone: &Zone<'_>) -> Result<(), Broken> {
    let arrays = &zone.arrays;
    for (gib, word) in arrays.gibs.entries() {
        let count = word.load().count();
        let Some(tree) = zone.first_tree(gib) else {
            // On the edge of an extent: its missing pageblocks count as used.
            if count == 0 {
                return Err(Broken::Gib {
                    zone: id,
                    gib: gib.index(),
                    count,
                    used: GIB_BLOCKS,
                });
            }
            continue;
        };
        let states = arrays.states.slice(tree.blocks_of_gib()).iter();
        let used = states.filter(|state| !state.load().is_free());
        let used = u32::try_from(used.count()).unwrap_or(GIB_BLOCKS);
        if used != count || word.load().is_huge() && used != 0 {
            return Err(Broken::Gib {
                zone: id,
                gib: gib.index(),
                count,
                used,
            });
        }
        if word.load().is_free() && !arrays.gib_map.shows(FREE_GIBS, gib) {
            return Err(Broken::Hidden {
                zone: id,
                tree: tree.index(),
            });
        }
    }
    Ok(())
}
