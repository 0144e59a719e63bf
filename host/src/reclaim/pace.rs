//! Decides how long a free block of a guest is left alone before it is taken.
//!
//! Taking a block that the guest soon uses again is wasted work: the host punched a hole, and the guest
//! faults and has the host zero memory. Each block of 2 MiB notes when it was last taken. One that is
//! used again within [`SOON`] has come back: its cost becomes a debt, which is paid off by a part of
//! the time. While there is a debt, blocks that have come back are left alone, up to a longest time.
//! Other blocks are taken once they have been free for a short time. So memory that is freed for good
//! goes back at once, and memory that comes and goes stays.

use ebb_mm::{Frame, PAGEBLOCK_FRAMES};
use std::time::Duration;

/// A block that is used again within this time of being taken has come back.
const SOON: Duration = Duration::from_secs(10);
/// The largest part of the time that wasted work may take.
const PART_WASTED: f64 = 1.0 / 20.0;
/// What getting memory again costs, beside taking it: faults of 4 KiB zero what a hole drops in one go.
const AGAIN: u32 = 3;

/// The times that fit the pages that the host keeps a guest in.
#[derive(Copy, Clone, Debug)]
struct Times {
    /// A block is taken when it has been free for this time.
    first: Duration,
    /// A block that has come back is taken when it has been free for this time, whatever is owed.
    longest: Duration,
    /// The least cost of taking a block that the guest soon uses again.
    cost: Duration,
    /// Between two looks while a block is younger than `first`, and while none is.
    looks: [Duration; 2],
}

/// For huge pages, where taking a block and touching it again cost little.
const HUGE: Times = Times {
    first: Duration::from_millis(10),
    longest: Duration::from_millis(300),
    cost: Duration::from_micros(200),
    looks: [Duration::from_millis(10), Duration::from_millis(50)],
};
/// For base pages.
const BASE: Times = Times {
    first: Duration::from_millis(150),
    longest: Duration::from_secs(20),
    cost: Duration::from_millis(2),
    looks: [Duration::from_millis(25), Duration::from_millis(100)],
};

/// What is known of a block.
#[derive(Copy, Clone, Debug, Default)]
struct Block {
    /// The last look at which it was free and touched.
    seen: u64,
    /// The time from which on it was free and touched at every look.
    since: Duration,
    /// When it was last taken, until it is seen again.
    taken: Option<Duration>,
    has_come_back: bool,
}

/// What is known of a guest's blocks. Times are since it was made.
#[derive(Debug)]
pub(super) struct Pace {
    times: Times,
    /// One for each 2 MiB of guest-physical memory, as far as free blocks were seen.
    blocks: Vec<Block>,
    /// The most blocks that this guest has.
    blocks_max: usize,
    /// The number of this look, and when it began.
    look: u64,
    now: Duration,
    /// Wasted time that is not paid off yet.
    debt: Duration,
    /// What taking a block and getting it again took, at the last take.
    cost: Duration,
    /// Blocks at this look that are left alone: younger than `first`, and older.
    young: bool,
    old: bool,
}

impl Pace {
    /// Makes the pace of a guest whose memory ends below `end`. `huge`: the host keeps it in huge pages.
    pub(super) fn new(huge: bool, end: u64) -> Self {
        let times = if huge { HUGE } else { BASE };
        let blocks = Frame::containing(end).number().div_ceil(PAGEBLOCK_FRAMES);
        Self {
            times,
            blocks: Vec::new(),
            blocks_max: usize::try_from(blocks).unwrap_or(usize::MAX),
            look: 0,
            now: Duration::ZERO,
            debt: Duration::ZERO,
            cost: times.cost,
            young: false,
            old: false,
        }
    }

    /// Begins a look at all blocks.
    pub(super) fn begin(&mut self, now: Duration) {
        let paid = now.saturating_sub(self.now).mul_f64(PART_WASTED);
        self.debt = self.debt.saturating_sub(paid);
        self.now = now;
        self.look += 1;
        (self.young, self.old) = (false, false);
    }

    /// Returns whether a block that is free and touched may be taken now. Call this for each of them at every look.
    pub(super) fn is_due(&mut self, frame: Frame) -> bool {
        let Some(index) = self.index(frame) else {
            // It is none of the guest's memory: the engine says so.
            return true;
        };
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, Block::default());
        }
        let block = &mut self.blocks[index];
        if block.seen != self.look {
            if block.seen == 0 || block.seen + 1 < self.look {
                block.since = self.now;
            }
            block.seen = self.look;
            if let Some(taken) = block.taken.take() {
                // Only a block that was used since is seen again.
                block.since = self.now;
                block.has_come_back = self.now.saturating_sub(taken) < SOON;
                if block.has_come_back {
                    // More than keeps the last block for the longest time changes nothing.
                    let most = self.times.longest.mul_f64(PART_WASTED);
                    self.debt = (self.debt + self.cost).min(most);
                }
            }
        }
        let age = self.now.saturating_sub(block.since);
        let owed = block.has_come_back && !self.debt.is_zero();
        let least = if owed {
            self.times.longest
        } else {
            self.times.first
        };
        let due = age >= least;
        self.young |= !due && age < self.times.first;
        self.old |= !due && age >= self.times.first;
        due
    }

    /// Notes that a block was taken at this look.
    pub(super) fn took(&mut self, frame: Frame) {
        let now = self.now;
        if let Some(block) = self.index(frame).and_then(|at| self.blocks.get_mut(at)) {
            block.taken = Some(now);
        }
    }

    /// Notes that taking `blocks` blocks took `work`.
    pub(super) fn worked(&mut self, blocks: u64, work: Duration) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).max(1);
        let cost = work / blocks * (1 + AGAIN);
        self.cost = cost.clamp(self.times.cost, self.times.cost * 8);
    }

    /// Returns the time until the next look. Returns `None` if no block is left alone.
    pub(super) fn wait(&self) -> Option<Duration> {
        let [short, long] = self.times.looks;
        match (self.young, self.old) {
            (true, _) => Some(short),
            (false, true) => Some(long),
            (false, false) => None,
        }
    }

    /// Returns the time between a guest's call and the first look.
    pub(super) fn first(&self) -> Duration {
        self.times.looks[0]
    }

    fn index(&self, frame: Frame) -> Option<usize> {
        let index = usize::try_from(frame.number() / PAGEBLOCK_FRAMES).ok()?;
        (index < self.blocks_max).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64) -> Frame {
        Frame::new(number * PAGEBLOCK_FRAMES)
    }

    /// Looks at the blocks, and takes what is due: their numbers.
    fn look(pace: &mut Pace, milliseconds: u64, blocks: &[u64]) -> Vec<u64> {
        pace.begin(Duration::from_millis(milliseconds));
        let due = |number: &u64| pace.is_due(block(*number));
        let due: Vec<u64> = blocks.iter().copied().filter(due).collect();
        due.iter().for_each(|&number| pace.took(block(number)));
        pace.worked(
            due.len() as u64,
            Duration::from_micros(500) * u32::try_from(due.len()).unwrap(),
        );
        due
    }

    #[test]
    fn what_stays_free_is_taken_after_a_short_time() {
        for (huge, first) in [(true, 10), (false, 150)] {
            let mut pace = Pace::new(huge, 1 << 30);
            assert_eq!(pace.wait(), None);
            assert!(look(&mut pace, 0, &[3, 4]).is_empty());
            assert_eq!(pace.wait(), Some(pace.first()));
            // Block 4 was in use at one look.
            assert!(look(&mut pace, first - 1, &[3]).is_empty());
            assert_eq!(look(&mut pace, first, &[3, 4]), [3]);
            assert_eq!(look(&mut pace, 2 * first, &[4]), [4]);
            assert_eq!(pace.wait(), None);
        }
    }

    #[test]
    fn what_comes_back_stays_until_it_is_paid_for() {
        let mut pace = Pace::new(false, 1 << 30);
        look(&mut pace, 0, &[1, 2]);
        assert_eq!(look(&mut pace, 150, &[1, 2]), [1, 2]);
        // Both are seen again, and cost 2 ms each: 80 ms of time pay that off.
        assert!(look(&mut pace, 1000, &[1, 2]).is_empty());
        assert!(!pace.debt.is_zero());
        // A block that has not come back is taken all the same.
        assert!(look(&mut pace, 1010, &[1, 2, 7]).is_empty());
        pace.debt = Duration::from_millis(500);
        for at in (1020..=1160).step_by(20) {
            let due = look(&mut pace, at, &[1, 2, 7]);
            assert_eq!(due, if at == 1160 { vec![7] } else { vec![] }, "{at}");
        }
        assert_eq!(pace.wait(), Some(BASE.looks[1]));
        pace.debt = Duration::from_millis(1);
        assert_eq!(look(&mut pace, 1200, &[1, 2]), [1, 2]);
    }

    #[test]
    fn no_debt_keeps_a_block_longer_than_the_longest_time() {
        let mut pace = Pace::new(true, 1 << 30);
        let mut now = 0;
        let all: Vec<u64> = (0..512).collect();
        for _ in 0..50 {
            look(&mut pace, now, &all);
            now += 10;
            look(&mut pace, now, &all);
            now += 5;
        }
        let stays_free_since = now;
        while pace.wait().is_some() {
            now += 10;
            look(&mut pace, now, &all);
            assert!(now <= stays_free_since + 310);
        }
    }

    #[test]
    fn what_comes_back_late_is_not_owed() {
        let mut pace = Pace::new(false, 1 << 30);
        look(&mut pace, 0, &[1]);
        look(&mut pace, 150, &[1]);
        look(&mut pace, 20_000, &[1]);
        assert!(pace.debt.is_zero());
        assert_eq!(look(&mut pace, 20_150, &[1]), [1]);
    }

    #[test]
    fn memory_that_a_guest_does_not_have_is_for_the_engine_to_refuse() {
        let mut pace = Pace::new(true, 1 << 30);
        pace.begin(Duration::ZERO);
        assert!(pace.is_due(block(1 << 20)));
        assert!(pace.is_due(block(512)) && pace.blocks.is_empty());
        assert!(!pace.is_due(block(511)));
    }
}
