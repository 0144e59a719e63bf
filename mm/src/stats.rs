//! Statistics of the allocator, for `/proc/meminfo`, `/proc/zoneinfo`, `/proc/buddyinfo` and
//! `/proc/pagetypeinfo`.

use crate::{
    Allocator, Mobility, Order, Watermarks, ZoneId, ZoneKind,
    bitmap::{WORDS, run, runs},
    frame::PAGEBLOCK_FRAMES,
    ids::Id,
    state::{BLOCK_FRAMES, Class},
    summary::TREE_BLOCKS,
    sync::Ordering,
};

/// Statistics of one zone. Frames in per-CPU caches count as in use. Each cache may be ahead of the
/// zone's count of free frames by up to 256 frames or, in zones with much free memory, by a 1024th
/// of it up to 4096 frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ZoneStats {
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// The NUMA node of the zone.
    pub node: u16,
    /// The number of frames that the zone manages, without those that are offline.
    pub managed_frames: u64,
    /// The number of free frames.
    pub free_frames: u64,
    /// The number of frames in free pageblocks that the host may hold memory for.
    pub unreported_free_frames: u64,
    /// The number of free frames that are isolated and cannot be allocated now.
    pub isolated_frames: u64,
    /// The number of pageblocks that have any memory.
    pub blocks: u64,
    /// The number of pageblocks whose frames are all free.
    pub free_blocks: u64,
    /// The number of pageblocks in use, by mobility.
    pub blocks_of: [u64; Mobility::COUNT],
    /// The watermarks of the zone.
    pub watermarks: Watermarks,
}

/// Sums of the statistics of several zones.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// The number of managed frames, without those that are offline.
    pub managed_frames: u64,
    /// The number of free frames.
    pub free_frames: u64,
    /// The number of frames in free pageblocks that the host may hold memory for.
    pub unreported_free_frames: u64,
    /// The number of free frames that are isolated and cannot be allocated now.
    pub isolated_frames: u64,
    /// The sums of the zones' watermarks.
    pub watermarks: Watermarks,
}

/// The number of free blocks of a zone by order and mobility. Each free block counts once, at the
/// largest order that it is aligned for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FreeAreas {
    /// The counts by order, then by mobility. Free pageblocks have no mobility and count as
    /// movable.
    pub counts: [[u64; Mobility::COUNT]; Order::COUNT],
}

impl FreeAreas {
    /// Returns the number of free blocks of `order`: of one mobility, or of all if `mobility` is
    /// `None`. Returns 0 for [`Order::GIB`]: a free GiB counts as blocks of order 10.
    pub fn count(&self, order: Order, mobility: Option<Mobility>) -> u64 {
        let Some(counts) = self.counts.get(usize::from(order.get())) else {
            return 0;
        };
        mobility.map_or_else(|| counts.iter().sum(), |mobility| counts[mobility.index()])
    }

    /// Returns the number of frames in all free blocks, of orders 0 to 10.
    pub fn frames(&self) -> u64 {
        Order::all()
            .map(|order| self.count(order, None) * order.frames())
            .sum()
    }
}

impl Allocator<'_> {
    /// Returns the statistics of all zones. Reads their summaries, 8 bytes for each 64 MiB.
    pub fn stats(&self) -> Stats {
        self.stats_of(|_| true)
    }

    /// Returns `true` if all zones with memory are low on it. A zone is, from the time a request
    /// finds fewer free frames than its `low` watermark until it has as many as its `high`
    /// watermark. Linux's background reclaim runs at these times. The value may be out of date.
    pub fn is_low_on_memory(&self) -> bool {
        self.zone_ids()
            .map(|zone| self.zone(zone).zone)
            .filter(|zone| zone.managed() != 0)
            .all(|zone| zone.low_memory.is_low())
    }

    /// Returns the number of managed frames of all zones together, without those that are offline.
    /// Reads one counter for each zone.
    pub fn managed_frames(&self) -> u64 {
        self.zone_ids()
            .map(|zone| self.zone(zone).zone.managed())
            .sum()
    }

    /// Returns the sums of the statistics of the zones for which `wanted` returns `true`, or zeros
    /// if there is none.
    pub(crate) fn stats_of(&self, wanted: impl Fn(ZoneId) -> bool) -> Stats {
        self.zone_ids()
            .filter(|&zone| wanted(zone))
            .map(|zone| self.zone_stats(zone))
            .fold(Stats::default(), |sum, zone| {
                let (marks, of) = (sum.watermarks, zone.watermarks);
                Stats {
                    managed_frames: sum.managed_frames + zone.managed_frames,
                    free_frames: sum.free_frames + zone.free_frames,
                    unreported_free_frames: sum.unreported_free_frames
                        + zone.unreported_free_frames,
                    isolated_frames: sum.isolated_frames + zone.isolated_frames,
                    watermarks: Watermarks {
                        min: marks.min + of.min,
                        low: marks.low + of.low,
                        high: marks.high + of.high,
                    },
                }
            })
    }

    /// Returns the statistics of one zone.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn zone_stats(&self, zone: ZoneId) -> ZoneStats {
        let zone = self.zone(zone).zone;
        let (mut blocks_of, mut free_blocks, mut touched) = ([0; Mobility::ALL.len()], 0, 0);
        for tree in zone.tree_ids() {
            let summary = zone.summary(tree);
            let at_most = |blocks: u8| u64::from(blocks).min(TREE_BLOCKS as u64);
            for (sum, mobility) in blocks_of.iter_mut().zip(Mobility::ALL) {
                *sum += at_most(summary.of(mobility));
            }
            free_blocks += at_most(summary.free());
            touched += at_most(summary.count(Class::Touched));
        }
        // The state of a pageblock without memory says full and unmovable.
        let missing = zone.record.missing.load(Ordering::Relaxed);
        blocks_of[0] = blocks_of[0].saturating_sub(missing);
        let isolated_frames = zone.isolated_frames();
        ZoneStats {
            kind: zone.kind,
            node: zone.node,
            managed_frames: zone.managed(),
            free_frames: zone.free_frames().min(zone.managed()),
            unreported_free_frames: touched * PAGEBLOCK_FRAMES,
            isolated_frames,
            blocks: (zone.blocks() as u64).saturating_sub(missing),
            free_blocks,
            blocks_of,
            watermarks: zone.marks.load(),
        }
    }

    /// Returns the number of free blocks of `order` in a zone: of one mobility, or of all if
    /// `mobility` is `None`. Reads as much as [`free_areas`](Self::free_areas), which counts all
    /// orders at once. Returns 0 for [`Order::GIB`].
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn free_blocks(&self, zone: ZoneId, order: Order, mobility: Option<Mobility>) -> u64 {
        self.free_areas(zone).count(order, mobility)
    }

    /// Counts all free blocks of a zone by order and mobility. Reads the bitmaps of all partly used
    /// pageblocks, but not those of trees (64 MiB) that are free as a whole.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn free_areas(&self, zone: ZoneId) -> FreeAreas {
        let zone = self.zone(zone).zone;
        let mut areas = FreeAreas::default();
        let movable = Mobility::Movable.index();
        for tree in zone.tree_ids() {
            if zone.gib(tree).load().is_huge() {
                continue;
            }
            if usize::from(zone.summary(tree).free()) == TREE_BLOCKS {
                areas.counts[10][movable] += TREE_BLOCKS as u64 / 2;
                continue;
            }
            for low in tree.blocks().step_by(2) {
                let pair = [low, low.next()];
                let pair = pair.map(|block| (block, zone.arrays.states[block].load()));
                if pair.iter().all(|(_, state)| state.is_free()) {
                    areas.counts[10][movable] += 1;
                    continue;
                }
                for (block, state) in pair {
                    if state.is_free() {
                        areas.counts[9][movable] += 1;
                    } else if state.count() < BLOCK_FRAMES {
                        let mobility = state.mobility().index();
                        let bits = &zone.arrays.bits[block];
                        let words = core::array::from_fn(|word| !bits.word(word));
                        count_runs(words, |order| areas.counts[order][mobility] += 1);
                    }
                }
            }
        }
        areas
    }
}

/// Calls `found` with the order of each free block in the bitmap `free` (1 = free) that is not part
/// of a larger free block.
fn count_runs(mut free: [u64; WORDS], mut found: impl FnMut(usize)) {
    for (order, span) in [(8, 4), (7, 2)] {
        for words in free.chunks_exact_mut(span) {
            if words.iter().all(|&word| word == !0) {
                words.fill(0);
                found(order);
            }
        }
    }
    for word in &mut free {
        for order in (0..=6).rev() {
            // Bounded by the 64 bits: each turn takes one away.
            while let starts @ 1.. = runs(*word, order) {
                *word &= !(run(order) << starts.trailing_zeros());
                found(usize::from(order));
            }
        }
    }
}
