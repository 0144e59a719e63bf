//! Memory of the pageblocks that could not be emptied ([`StuckBlocks`]), so that they are not tried
//! again and again.

use core::time::Duration;

use crate::ids::{BlockId, Id};

/// The maximum number of entries. If a set is full, a new entry replaces the one that expires
/// first.
const ENTRIES: usize = 256;
/// Number of entries of a set. A pageblock has an entry in one set only.
const WAYS: usize = 4;
const SETS: usize = ENTRIES / WAYS;
/// How long the first entry of a pageblock is valid. Frames that are pinned now may be unpinned in
/// a minute.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How often this time doubles at most: to 16 minutes. In that time there are more attempts than
/// entries, even if compaction pauses after each 16 of them.
const DOUBLED: u32 = 4;

/// A pageblock that could not be emptied.
#[derive(Copy, Clone, Debug)]
struct Stuck {
    block: BlockId,
    /// Number of frames that stayed in use.
    left: u32,
    /// When the entry expires. It stays in its set, since the next failure depends on it.
    until: Duration,
    /// How often the time for which it is valid was doubled.
    doubled: u32,
}

/// The pageblocks of a zone that could not be emptied: a set-associative cache.
#[derive(Debug)]
pub(crate) struct StuckBlocks {
    sets: [[Option<Stuck>; WAYS]; SETS],
}

impl StuckBlocks {
    /// Returns an empty set.
    pub(crate) const fn new() -> Self {
        Self {
            sets: [[None; WAYS]; SETS],
        }
    }

    /// Returns the set for a pageblock.
    fn set(&mut self, block: BlockId) -> &mut [Option<Stuck>; WAYS] {
        &mut self.sets[block.index() % SETS]
    }

    /// Forgets all pageblocks that could not be emptied.
    pub(crate) fn forget(&mut self) {
        self.sets.as_flattened_mut().fill(None);
    }

    /// Forgets `block`, which was emptied.
    pub(crate) fn forget_block(&mut self, block: BlockId) {
        for entry in self.set(block) {
            if entry.is_some_and(|stuck| stuck.block == block) {
                *entry = None;
            }
        }
    }

    /// Notes that compaction could not empty `block`: `left` frames stayed in use. The entry is
    /// valid for a minute, and may replace that of another pageblock. For a pageblock that fails
    /// again when its entry has expired, the entry is valid twice as long, so that the pageblocks
    /// that cost more get their turn.
    pub(crate) fn note(&mut self, now: Duration, block: BlockId, left: u32) {
        let set = self.set(block);
        let same = |entry: &&mut Option<Stuck>| entry.is_some_and(|stuck| stuck.block == block);
        let known = set.iter_mut().find(same);
        let doubled = known.as_ref().and_then(|entry| **entry).map_or(0, |stuck| {
            let again = u32::from(now >= stuck.until);
            DOUBLED.min(stuck.doubled + again)
        });
        let stuck = Stuck {
            block,
            left,
            until: now.saturating_add(REMEMBERED * (1 << doubled)),
            doubled,
        };
        if let Some(entry) = known {
            *entry = Some(stuck);
        } else if let Some(entry) = set
            .iter_mut()
            .min_by_key(|entry| entry.map_or(Duration::ZERO, |stuck| stuck.until))
        {
            *entry = Some(stuck);
        }
    }

    /// Returns `true` if compaction need not try `block`, which has `used` frames in use, as it
    /// failed to empty it before. Returns `false` if there is no entry for it.
    ///
    /// If fewer frames are in use than stayed, one of those was freed. Then this removes the entry
    /// and returns `false`. Also returns `false` if the entry has expired.
    pub(crate) fn holds(&mut self, now: Duration, block: BlockId, used: u32) -> bool {
        let set = self.set(block);
        let same = |entry: &&mut Option<Stuck>| entry.is_some_and(|stuck| stuck.block == block);
        let Some(entry) = set.iter_mut().find(same) else {
            return false;
        };
        if entry.is_some_and(|stuck| used < stuck.left) {
            *entry = None;
        }
        entry.is_some_and(|stuck| now < stuck.until)
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    fn block(index: usize) -> BlockId {
        BlockId::new(index)
    }

    #[test]
    fn failures_before_a_success_do_not_count() {
        let mut stuck = StuckBlocks::new();
        stuck.note(NOW, block(3), 9);
        stuck.note(NOW, block(3 + SETS), 9);
        stuck.forget_block(block(3));
        assert!(!stuck.holds(NOW, block(3), 9));
        assert!(
            stuck.holds(NOW, block(3 + SETS), 9),
            "another block of the set"
        );
        let again = NOW + REMEMBERED;
        stuck.note(again, block(3), 9);
        assert!(
            !stuck.holds(again + REMEMBERED, block(3), 9),
            "not for twice as long"
        );
    }

    #[test]
    fn a_stuck_block_is_forgotten_when_one_of_its_frames_is_freed_or_after_a_while() {
        let mut stuck = StuckBlocks::new();
        assert!(!stuck.holds(NOW, block(3), 9));
        stuck.note(NOW, block(3), 9);
        assert!(stuck.holds(NOW, block(3), 9) && stuck.holds(NOW, block(3), 300));
        assert!(!stuck.holds(NOW, block(3), 8), "one of the nine was freed");
        assert!(!stuck.holds(NOW, block(3), 9), "so it is tried");
        stuck.note(NOW, block(3), 9);
        let then = NOW + REMEMBERED;
        assert!(stuck.holds(then - Duration::from_millis(1), block(3), 9));
        assert!(!stuck.holds(then, block(3), 9));
    }

    #[test]
    fn a_block_that_fails_again_is_remembered_for_twice_as_long() {
        let mut stuck = StuckBlocks::new();
        let mut now = NOW;
        for doubled in (0..=DOUBLED).chain([DOUBLED]) {
            stuck.note(now, block(3), 9);
            // A failure before the entry expires is none more.
            stuck.note(now, block(3), 9);
            now += REMEMBERED * (1 << doubled);
            assert!(stuck.holds(now - Duration::from_millis(1), block(3), 9));
            assert!(!stuck.holds(now, block(3), 9), "{doubled}");
        }
        assert!(!stuck.holds(now, block(3), 8), "one of the nine was freed");
        stuck.note(now, block(3), 9);
        assert!(!stuck.holds(now + REMEMBERED, block(3), 9));
    }

    #[test]
    fn of_many_the_oldest_makes_room() {
        let mut stuck = StuckBlocks::new();
        for turn in 0..=WAYS {
            let now = NOW + Duration::from_secs(turn as u64);
            stuck.note(now, block(7 + turn * SETS), 1);
        }
        assert!(!stuck.holds(NOW, block(7), 1));
        for turn in 1..=WAYS {
            assert!(stuck.holds(NOW, block(7 + turn * SETS), 1));
        }
    }
}
