//! Pageblocks that could not be emptied, so that they are not tried again and again.

use core::time::Duration;

/// How many are remembered. Of more the one that would be forgotten first makes room.
const ENTRIES: usize = 256;
/// Places that a block may be at.
const WAYS: usize = 4;
const SETS: usize = ENTRIES / WAYS;
/// How long: what was pinned for a minute may be so no longer.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A block that could not be emptied.
#[derive(Copy, Clone, Debug)]
struct Stuck {
    block: usize,
    /// Frames that were left in use.
    left: u32,
    /// When it is forgotten.
    until: Duration,
}

/// Those of a zone.
#[derive(Debug)]
pub(crate) struct StuckBlocks {
    sets: [[Option<Stuck>; WAYS]; SETS],
}

impl StuckBlocks {
    pub(crate) const fn new() -> Self {
        Self {
            sets: [[None; WAYS]; SETS],
        }
    }

    fn set(&mut self, block: usize) -> &mut [Option<Stuck>; WAYS] {
        &mut self.sets[block % SETS]
    }

    /// Forgets all.
    pub(crate) fn forget(&mut self) {
        self.sets.as_flattened_mut().fill(None);
    }

    /// Notes that so many frames of a block stayed where they were.
    pub(crate) fn note(&mut self, now: Duration, block: usize, left: u32) {
        let stuck = Stuck {
            block,
            left,
            until: now.saturating_add(REMEMBERED),
        };
        let set = self.set(block);
        let same = |entry: &&mut Option<Stuck>| entry.is_some_and(|stuck| stuck.block == block);
        if let Some(entry) = set.iter_mut().find(same) {
            *entry = Some(stuck);
        } else if let Some(entry) = set
            .iter_mut()
            .min_by_key(|entry| entry.map_or(Duration::ZERO, |stuck| stuck.until))
        {
            *entry = Some(stuck);
        }
    }

    /// Whether a block of which so many frames are in use need not be tried. Fewer than were left
    /// say that one of those was freed: it is forgotten then, as it is after a while.
    pub(crate) fn holds(&mut self, now: Duration, block: usize, used: u32) -> bool {
        let set = self.set(block);
        let same = |entry: &&mut Option<Stuck>| entry.is_some_and(|stuck| stuck.block == block);
        let Some(entry) = set.iter_mut().find(same) else {
            return false;
        };
        let holds = entry.is_some_and(|stuck| stuck.left <= used && now < stuck.until);
        if !holds {
            *entry = None;
        }
        holds
    }
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn a_stuck_block_is_forgotten_when_one_of_its_frames_is_freed_or_after_a_while() {
        let mut stuck = StuckBlocks::new();
        assert!(!stuck.holds(NOW, 3, 9));
        stuck.note(NOW, 3, 9);
        assert!(stuck.holds(NOW, 3, 9) && stuck.holds(NOW, 3, 300));
        assert!(!stuck.holds(NOW, 3, 8), "one of the nine was freed");
        assert!(!stuck.holds(NOW, 3, 9), "so it is tried");
        stuck.note(NOW, 3, 9);
        let then = NOW + REMEMBERED;
        assert!(stuck.holds(then - Duration::from_millis(1), 3, 9));
        assert!(!stuck.holds(then, 3, 9));
    }

    #[test]
    fn of_many_the_oldest_makes_room() {
        let mut stuck = StuckBlocks::new();
        for turn in 0..=WAYS {
            stuck.note(NOW + Duration::from_secs(turn as u64), 7 + turn * SETS, 1);
        }
        assert!(!stuck.holds(NOW, 7, 1));
        for turn in 1..=WAYS {
            assert!(stuck.holds(NOW, 7 + turn * SETS, 1));
        }
    }
}
