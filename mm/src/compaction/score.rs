//! The fragmentation score of a zone for huge pages ([`ZoneFragmentation`]), as in Nitin Gupta's
//! *Proactive compaction* for Linux (v7, 2020).

use crate::{Allocator, ZoneId, ZoneStats, frame::PAGEBLOCK_FRAMES};

/// Fragmentation, in percent, down to which proactive compaction goes at most. Without this limit
/// it would work without end.
pub(crate) const FLOOR_PERCENT: u64 = 5;
/// A pageblock is cheap to empty if at most this number of its frames are in use: one is copied for
/// each that becomes free.
const CHEAP_FRAMES: u64 = PAGEBLOCK_FRAMES / 2;

/// The figures from which the fragmentation score of a zone follows.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ZoneFragmentation {
    /// Number of frames in the zone.
    pub present_frames: u64,
    /// Number of free frames.
    pub free_frames: u64,
    /// Number of free pageblocks.
    pub free_blocks: u64,
}

impl From<&ZoneStats> for ZoneFragmentation {
    fn from(zone: &ZoneStats) -> Self {
        Self {
            present_frames: zone.managed_frames,
            free_frames: zone.free_frames,
            free_blocks: zone.free_blocks,
        }
    }
}

impl ZoneFragmentation {
    /// Returns the number of free frames that are in no free pageblock.
    ///
    /// Per-CPU caches update the counter of free frames late. If there seem to be fewer free frames
    /// than in the free pageblocks, this returns 0.
    pub const fn scattered_frames(&self) -> u64 {
        self.free_frames
            .saturating_sub(self.free_blocks * PAGEBLOCK_FRAMES)
    }

    /// Returns the external fragmentation at the order of a pageblock, in percent: the part of the
    /// free frames that is not in free pageblocks. It is 0 if no frame is free. This is Linux's
    /// `extfrag_for_order`.
    pub const fn percent(&self) -> u64 {
        match (self.scattered_frames() * 100).checked_div(self.free_frames) {
            Some(percent) => percent,
            None => 0,
        }
    }

    /// Returns the zone's contribution to its node's fragmentation score, 0 to 100: the zone's
    /// fragmentation in percent, weighted by its part of the node's `node_present_frames` frames.
    /// So small zones count for little.
    pub const fn score(&self, node_present_frames: u64) -> u64 {
        self.present_frames * self.percent() / (node_present_frames + 1)
    }

    /// Returns the fragmentation score of the node with these `zones`, 0 to 100: the sum of the
    /// zones' scores.
    pub fn node_score(zones: impl Iterator<Item = Self> + Clone) -> u64 {
        let present = zones.clone().map(|zone| zone.present_frames).sum();
        zones.map(|zone| zone.score(present)).sum()
    }

    /// Returns how many frames in use a pageblock of this zone may have that proactive compaction
    /// empties: any number while the zone's fragmentation is above `low` percent, half of them
    /// below that, and 0 (none is emptied) at 5 percent and less.
    ///
    /// `low` is the low threshold of a node ([`Thresholds::low`](crate::Thresholds::low)). A zone
    /// is compared with it by its own fragmentation, not weighted by its size, as in Linux since
    /// 5.11: with two zones of the same size, none has a weighted score above 50.
    pub const fn dearest(&self, low: u64) -> u64 {
        match self.percent() {
            ..=FLOOR_PERCENT => 0,
            percent if percent > low => PAGEBLOCK_FRAMES,
            _ => CHEAP_FRAMES,
        }
    }

    /// Returns how many pageblocks must become free so that the zone's fragmentation score is at
    /// most `score`; 0 if it is already. `node_present_frames` is the number of frames of the
    /// zone's node.
    pub fn blocks_to(&self, score: u64, node_present_frames: u64) -> u64 {
        let mut after = *self;
        // Binary search, as each pageblock that becomes free lowers the score or leaves it
        // unchanged.
        let (mut least, mut most) = (0, self.scattered_frames().div_ceil(PAGEBLOCK_FRAMES));
        while least < most {
            let middle = least.midpoint(most);
            after.free_blocks = self.free_blocks + middle;
            if after.score(node_present_frames) <= score {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        least
    }
}

impl Allocator<'_> {
    /// Returns the figures from which a zone's fragmentation score follows. Pageblocks that an
    /// attached host has taken out count as in use. Reads 8 bytes for each 64 MiB, and the state
    /// words of a GiB while a host is in it.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn fragmentation(&self, zone: ZoneId) -> ZoneFragmentation {
        let figures = ZoneFragmentation::from(&self.zone_stats(zone));
        let taken = self.zone(zone).zone.taken_blocks() * PAGEBLOCK_FRAMES;
        ZoneFragmentation {
            free_frames: figures.free_frames.saturating_sub(taken),
            ..figures
        }
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_that_of_the_seed() {
        let zone = ZoneFragmentation {
            present_frames: 1000,
            free_frames: 0,
            free_blocks: 0,
        };
        assert_eq!((zone.percent(), zone.score(1000)), (0, 0));
        let zone = ZoneFragmentation {
            present_frames: 262_144,
            free_frames: 100_000,
            free_blocks: 20,
        };
        // (100000 - 20 * 512) * 100 / 100000, then times 262144 / 1048577.
        assert_eq!(zone.percent(), 89);
        assert_eq!(zone.score(1_048_576), 22);
        assert_eq!(zone.score(262_144), 88);
        let late = ZoneFragmentation {
            free_frames: 20,
            ..zone
        };
        assert_eq!(late.percent(), 0);
    }

    #[test]
    fn the_score_of_a_node_is_the_sum_of_its_zones() {
        let zone = |present_frames, free_blocks| ZoneFragmentation {
            present_frames,
            free_frames: 51_200,
            free_blocks,
        };
        let zones = [zone(100_000, 10), zone(300_000, 60), zone(0, 0)];
        // 100000 * 90 / 400001, 300000 * 40 / 400001, and nothing of the zone without frames.
        assert_eq!(
            ZoneFragmentation::node_score(zones.iter().copied()),
            22 + 29
        );
        assert_eq!(
            ZoneFragmentation::node_score(zones[..1].iter().copied()),
            89
        );
        assert_eq!(ZoneFragmentation::node_score([].into_iter()), 0);
    }

    #[test]
    fn dear_blocks_are_emptied_above_low_and_cheap_ones_below() {
        let at = |percent: u64| ZoneFragmentation {
            present_frames: 1_000_000,
            free_frames: 51_200,
            free_blocks: 100 - percent,
        };
        let dearest = |percent: u64, low| at(percent).dearest(low);
        assert_eq!(at(81).percent(), 81);
        assert_eq!((dearest(100, 80), dearest(81, 80)), (512, 512));
        assert_eq!((dearest(80, 80), dearest(6, 80)), (256, 256));
        assert_eq!((dearest(5, 80), dearest(0, 80)), (0, 0));
        assert_eq!((dearest(6, 5), dearest(5, 5)), (512, 0));
    }

    #[test]
    fn as_many_blocks_as_it_takes_and_no_more() {
        for (free_frames, free_blocks) in [(100_000, 0), (100_000, 60), (9_999, 3), (600, 0)] {
            let zone = ZoneFragmentation {
                present_frames: 262_144,
                free_frames,
                free_blocks,
            };
            for low in [5, 50, 80, 90] {
                let blocks = zone.blocks_to(low, 300_000);
                let with = |blocks| ZoneFragmentation {
                    free_blocks: free_blocks + blocks,
                    ..zone
                };
                assert!(with(blocks).score(300_000) <= low);
                assert!(blocks == 0 || with(blocks - 1).score(300_000) > low);
            }
        }
    }
}
