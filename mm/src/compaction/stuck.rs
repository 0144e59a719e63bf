//! Memory of the pageblocks that could not be emptied ([`StuckBlocks`]), so that they are not tried
//! again and again.

use core::time::Duration;

use crate::ids::{BlockId, Id};

use super::scan::Source;

/// The maximum number of entries. If a set is full, a new entry replaces the one that expires
/// first.
const ENTRIES: usize = 256;
/// Number of entries of a set. A pageblock has an entry in one set only.
const WAYS: usize = 4;
const SETS: usize = ENTRIES / WAYS;
/// How long the first entry of a pageblock is valid. Frames that are pinned now may be unpinned in
/// a minute.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How often this time doubles at most: to 16 minutes.
const DOUBLED: u32 = 4;

/// A pageblock that could not be emptied.
#[derive(Copy, Clone, Debug)]
struct Stuck {
    /// The pageblock with the frames that stayed in use.
    source: Source,
    /// When the entry expires. It stays in its set, since the next failure depends on it.
    until: Duration,
    /// How often the time for which it is valid was doubled.
    doubled: u32,
}

/// The price up to which pageblocks are passed over.
#[derive(Copy, Clone, Debug)]
struct Passed {
    /// The dearest pageblock that is passed over.
    source: Source,
    /// When this price is forgotten.
    until: Duration,
}

/// The pageblocks of a zone that could not be emptied: a set-associative cache, and a price for
/// those that found no place in it.
///
/// Pageblocks are tried in ascending order of their price. So when an entry is replaced before it
/// has expired, cheaper pageblocks than its own were tried as well. From then on all pageblocks up
/// to its price are passed over, until no such entry was replaced for a minute. So any number of
/// pageblocks that cannot be emptied hides the others for a limited time only.
#[derive(Debug)]
pub(crate) struct StuckBlocks {
    sets: [[Option<Stuck>; WAYS]; SETS],
    passed: Option<Passed>,
}

impl StuckBlocks {
    /// Returns an empty set.
    pub(crate) const fn new() -> Self {
        Self {
            sets: [[None; WAYS]; SETS],
            passed: None,
        }
    }

    /// Returns the set for a pageblock.
    fn set(&mut self, block: BlockId) -> &mut [Option<Stuck>; WAYS] {
        &mut self.sets[block.index() % SETS]
    }

    /// Forgets all pageblocks that could not be emptied.
    pub(crate) fn forget(&mut self) {
        self.sets.as_flattened_mut().fill(None);
        self.passed = None;
    }

    /// Forgets the price up to which pageblocks are passed over. Call this when prices change their
    /// meaning.
    pub(crate) fn forget_price(&mut self) {
        self.passed = None;
    }

    /// Forgets `block`, which was emptied.
    pub(crate) fn forget_block(&mut self, block: BlockId) {
        for entry in self.set(block) {
            if entry.is_some_and(|stuck| stuck.source.block() == block) {
                *entry = None;
            }
        }
    }

    /// Notes that compaction could not empty the pageblock `source`, whose number of frames in use
    /// is the number that stayed. It was the cheapest that [`passes`](Self::passes) did not
    /// exclude.
    ///
    /// The entry is valid for a minute, and may replace that of another pageblock. For a pageblock
    /// that fails again when its entry has expired, the entry is valid twice as long, so that the
    /// pageblocks that cost more get their turn.
    pub(crate) fn note(&mut self, now: Duration, source: Source) {
        let replaced = self.enter(now, source);
        let lost = replaced.filter(|stuck| now < stuck.until && stuck.source <= source);
        if let Some(lost) = lost {
            let passed = self.passed.map_or(lost.source, |passed| passed.source);
            self.passed = Some(Passed {
                source: passed.max(lost.source),
                until: now.saturating_add(REMEMBERED),
            });
        }
    }

    /// Like [`note`](Self::note), for a pageblock of a GiB, which was tried whatever its price is.
    pub(crate) fn note_in_gib(&mut self, now: Duration, source: Source) {
        self.enter(now, source);
    }

    /// Enters the pageblock `source` in its set. Returns the entry of another pageblock that it
    /// replaces, which may have expired, or `None` if there was room.
    fn enter(&mut self, now: Duration, source: Source) -> Option<Stuck> {
        let block = source.block();
        let set = self.set(block);
        let same =
            |entry: &&mut Option<Stuck>| entry.is_some_and(|stuck| stuck.source.block() == block);
        let known = set.iter_mut().find(same);
        let doubled = known.as_ref().and_then(|entry| **entry).map_or(0, |stuck| {
            let again = u32::from(now >= stuck.until);
            DOUBLED.min(stuck.doubled + again)
        });
        let stuck = Stuck {
            source,
            until: now.saturating_add(REMEMBERED * (1 << doubled)),
            doubled,
        };
        if let Some(entry) = known {
            *entry = Some(stuck);
            return None;
        }
        let first = |entry: &&mut Option<Stuck>| entry.map_or(Duration::ZERO, |stuck| stuck.until);
        set.iter_mut().min_by_key(first)?.replace(stuck)
    }

    /// Returns `true` if compaction need not try the pageblock `source`: it failed to empty it
    /// before, or passes over pageblocks of this price.
    pub(crate) fn passes(&mut self, now: Duration, source: Source) -> bool {
        self.passed = self.passed.filter(|passed| now < passed.until);
        self.holds(now, source.block(), source.used())
            || self.passed.is_some_and(|passed| source <= passed.source)
    }

    /// Returns `true` if there is an entry for `block`, which has `used` frames in use: compaction
    /// failed to empty it before.
    ///
    /// If fewer frames are in use than stayed, one of those was freed. Then this removes the entry
    /// and returns `false`. Also returns `false` if the entry has expired.
    pub(crate) fn holds(&mut self, now: Duration, block: BlockId, used: u32) -> bool {
        let set = self.set(block);
        let same =
            |entry: &&mut Option<Stuck>| entry.is_some_and(|stuck| stuck.source.block() == block);
        let Some(entry) = set.iter_mut().find(same) else {
            return false;
        };
        if entry.is_some_and(|stuck| used < stuck.source.used()) {
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

    /// Returns the pageblock `index` with `used` frames in use.
    fn source(index: usize, used: u32) -> Source {
        Source::new(block(index), used, 512)
    }

    #[test]
    fn failures_before_a_success_do_not_count() {
        let mut stuck = StuckBlocks::new();
        stuck.note(NOW, source(3, 9));
        stuck.note(NOW, source(3 + SETS, 9));
        stuck.forget_block(block(3));
        assert!(!stuck.holds(NOW, block(3), 9));
        assert!(
            stuck.holds(NOW, block(3 + SETS), 9),
            "another block of the set"
        );
        let again = NOW + REMEMBERED;
        stuck.note(again, source(3, 9));
        assert!(
            !stuck.holds(again + REMEMBERED, block(3), 9),
            "not for twice as long"
        );
    }

    #[test]
    fn a_stuck_block_is_forgotten_when_one_of_its_frames_is_freed_or_after_a_while() {
        let mut stuck = StuckBlocks::new();
        assert!(!stuck.holds(NOW, block(3), 9));
        stuck.note(NOW, source(3, 9));
        assert!(stuck.holds(NOW, block(3), 9) && stuck.holds(NOW, block(3), 300));
        assert!(!stuck.holds(NOW, block(3), 8), "one of the nine was freed");
        assert!(!stuck.holds(NOW, block(3), 9), "so it is tried");
        stuck.note(NOW, source(3, 9));
        let then = NOW + REMEMBERED;
        assert!(stuck.holds(then - Duration::from_millis(1), block(3), 9));
        assert!(!stuck.holds(then, block(3), 9));
    }

    #[test]
    fn a_block_that_fails_again_is_remembered_for_twice_as_long() {
        let mut stuck = StuckBlocks::new();
        let mut now = NOW;
        for doubled in (0..=DOUBLED).chain([DOUBLED]) {
            stuck.note(now, source(3, 9));
            // A failure before the entry expires is none more.
            stuck.note(now, source(3, 9));
            now += REMEMBERED * (1 << doubled);
            assert!(stuck.holds(now - Duration::from_millis(1), block(3), 9));
            assert!(!stuck.holds(now, block(3), 9), "{doubled}");
        }
        assert!(!stuck.holds(now, block(3), 8), "one of the nine was freed");
        stuck.note(now, source(3, 9));
        assert!(!stuck.holds(now + REMEMBERED, block(3), 9));
    }

    #[test]
    fn of_many_the_oldest_makes_room() {
        let mut stuck = StuckBlocks::new();
        for turn in 0..=WAYS {
            let now = NOW + Duration::from_secs(turn as u64);
            stuck.note(now, source(7 + turn * SETS, 1));
        }
        assert!(!stuck.holds(NOW, block(7), 1));
        for turn in 1..=WAYS {
            assert!(stuck.holds(NOW, block(7 + turn * SETS), 1));
        }
    }

    #[test]
    fn what_finds_no_place_is_passed_over_by_its_price() {
        let mut stuck = StuckBlocks::new();
        // The highest are the cheapest of the same number of frames.
        let count = 3 * ENTRIES;
        for index in (0..count).rev() {
            assert!(!stuck.passes(NOW, source(index, 1)), "{index}");
            stuck.note(NOW, source(index, 1));
        }
        for index in 0..count {
            assert!(stuck.passes(NOW, source(index, 1)), "{index}");
        }
        assert!(!stuck.passes(NOW, source(count, 2)), "a dearer one");
        assert!(!stuck.holds(NOW, block(count - 1), 1), "by its price only");
        let then = NOW + REMEMBERED;
        assert!(!stuck.passes(then, source(count - 1, 1)));
    }

    #[test]
    fn an_entry_that_is_dearer_or_has_expired_passes_over_none() {
        let full = |used| {
            let mut stuck = StuckBlocks::new();
            for way in 0..WAYS {
                stuck.note(NOW, source(7 + way * SETS, used));
            }
            stuck
        };
        let next = source(7 + WAYS * SETS, 9);
        let mut stuck = full(300);
        stuck.note(NOW, next);
        assert!(!stuck.passes(NOW, source(1, 1)));
        let mut stuck = full(9);
        stuck.note(NOW + REMEMBERED, next);
        assert!(!stuck.passes(NOW + REMEMBERED, source(1, 1)));
        let mut stuck = full(9);
        stuck.note_in_gib(NOW, next);
        assert!(!stuck.passes(NOW, source(1, 1)));
        let mut stuck = full(8);
        stuck.note(NOW, next);
        assert!(stuck.passes(NOW, source(1, 1)));
        stuck.forget_price();
        assert!(!stuck.passes(NOW, source(1, 1)));
        assert!(stuck.passes(NOW, next));
    }
}
