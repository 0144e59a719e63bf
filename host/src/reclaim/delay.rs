//! Decides how long a block of a guest must have been free before the host takes it.
//!
//! Taking a block that the guest soon uses again is wasted work: the host punches a hole, the guest
//! faults, and the host zeroes memory. Each block of 2 MiB records when it was last taken. A block
//! that is used again within [`SOON`] counts as reused, and its cost is added to a debt. The debt
//! decreases with time, at the rate [`PART_WASTED`]. While there is a debt, reused blocks must have
//! been free for a longer time. Other blocks are taken after a short time. So memory that is freed
//! for good returns at once, and memory that is freed and used alternately stays.

use ebb_mm::{Frame, PAGEBLOCK_FRAMES};
use std::time::Duration;

/// A block that is used again within this time after it was taken counts as reused.
const SOON: Duration = Duration::from_secs(10);
/// The largest part of the time that wasted work may take.
const PART_WASTED: f64 = 1.0 / 20.0;
/// The cost of using a block again, as a multiple of the cost of taking it. Faults zero each 4 KiB
/// of memory that one hole has dropped.
const AGAIN: u32 = 3;

/// The times for one size of host pages.
#[derive(Copy, Clone, Debug)]
struct Times {
    /// A block is taken when it has been free for this time.
    first: Duration,
    /// A reused block is taken when it has been free for this time, even if there is a debt.
    longest: Duration,
    /// The least cost of taking a block that the guest soon uses again.
    cost: Duration,
    /// The time between two passes while a free block is younger than `first`, and while all are
    /// older.
    intervals: [Duration; 2],
}

/// The times for huge pages, where taking a block and using it again cost little.
const HUGE: Times = Times {
    first: Duration::from_millis(10),
    longest: Duration::from_millis(300),
    cost: Duration::from_micros(200),
    intervals: [Duration::from_millis(10), Duration::from_millis(50)],
};
/// The times for base pages.
const BASE: Times = Times {
    first: Duration::from_millis(150),
    longest: Duration::from_secs(20),
    cost: Duration::from_millis(2),
    intervals: [Duration::from_millis(25), Duration::from_millis(100)],
};

/// The record of one block.
#[derive(Copy, Clone, Debug, Default)]
struct Block {
    /// The number of the last pass in which it was free and touched.
    seen: u64,
    /// The time since which it was free and touched in every pass.
    since: Duration,
    /// The time when it was last taken. `None` once it is seen free and touched again.
    taken: Option<Duration>,
    /// Whether it was used again within [`SOON`] after it was last taken.
    was_reused: bool,
}

/// Decides for each free block of 2 MiB of a guest whether it has been free for long enough to be
/// taken, from a record of each block. Times are measured from its creation.
#[derive(Debug)]
pub(super) struct ReclaimDelay {
    times: Times,
    /// One record for each 2 MiB of guest-physical memory, up to the highest free block that was
    /// seen.
    blocks: Vec<Block>,
    /// The number of blocks below the end of the guest's memory.
    blocks_max: usize,
    /// The number of the current pass and its start time.
    pass: u64,
    now: Duration,
    /// The wasted time that has not been paid off.
    debt: Duration,
    /// The cost of taking a block and using it again, from the last measurement.
    cost: Duration,
    /// Whether this pass has left a free block that is younger than `first`, or an older one.
    young: bool,
    old: bool,
}

impl ReclaimDelay {
    /// Returns the delays for a guest whose memory ends below the guest-physical address `end`.
    /// `huge` says whether the host keeps this memory in huge pages.
    pub(super) fn new(huge: bool, end: u64) -> Self {
        let times = if huge { HUGE } else { BASE };
        let blocks = Frame::containing(end).number().div_ceil(PAGEBLOCK_FRAMES);
        Self {
            times,
            blocks: Vec::new(),
            blocks_max: usize::try_from(blocks).unwrap_or(usize::MAX),
            pass: 0,
            now: Duration::ZERO,
            debt: Duration::ZERO,
            cost: times.cost,
            young: false,
            old: false,
        }
    }

    /// Starts a pass over all blocks at the time `now`, and pays off a part of the debt, the time
    /// that was wasted on blocks that the guest soon used again.
    pub(super) fn begin(&mut self, now: Duration) {
        let paid = now.saturating_sub(self.now).mul_f64(PART_WASTED);
        self.debt = self.debt.saturating_sub(paid);
        self.now = now;
        self.pass += 1;
        (self.young, self.old) = (false, false);
    }

    /// Returns whether the block that begins at `frame` may be taken now, because it has been free
    /// for long enough. Call this in every pass for each block that is free and touched, which
    /// means that the host holds memory for it. Returns `true` for a block outside of the guest's
    /// memory, so that taking it fails.
    pub(super) fn may_take(&mut self, frame: Frame) -> bool {
        let Some(index) = self.index(frame) else {
            // The block is outside of the guest's memory. The engine will report that.
            return true;
        };
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, Block::default());
        }
        let block = &mut self.blocks[index];
        if block.seen != self.pass {
            if block.seen == 0 || block.seen + 1 < self.pass {
                block.since = self.now;
            }
            block.seen = self.pass;
            if let Some(taken) = block.taken.take() {
                // A block that was taken is seen again only if it was used since.
                block.since = self.now;
                block.was_reused = self.now.saturating_sub(taken) < SOON;
                if block.was_reused {
                    // A larger debt than this would have no effect: it keeps the last block for the
                    // longest time.
                    let most = self.times.longest.mul_f64(PART_WASTED);
                    self.debt = (self.debt + self.cost).min(most);
                }
            }
        }
        let age = self.now.saturating_sub(block.since);
        let owed = block.was_reused && !self.debt.is_zero();
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

    /// Records that the block at `frame` was taken in this pass. Does nothing for a block that
    /// [`Self::may_take`] has not seen.
    pub(super) fn note_taken(&mut self, frame: Frame) {
        let now = self.now;
        if let Some(block) = self.index(frame).and_then(|at| self.blocks.get_mut(at)) {
            block.taken = Some(now);
        }
    }

    /// Records that taking `blocks` blocks took the time `work` in all. The cost of the next reused
    /// block follows from it, within limits.
    pub(super) fn worked(&mut self, blocks: u64, work: Duration) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).max(1);
        let cost = work / blocks * (1 + AGAIN);
        self.cost = cost.clamp(self.times.cost, self.times.cost * 8);
    }

    /// Returns the time until the next pass, shorter if this pass has left a block that was free
    /// only recently. Returns `None` if this pass has left no free block.
    pub(super) fn wait(&self) -> Option<Duration> {
        let [short, long] = self.times.intervals;
        match (self.young, self.old) {
            (true, _) => Some(short),
            (false, true) => Some(long),
            (false, false) => None,
        }
    }

    /// Returns the time between a signal of the guest that a block is free and the first pass.
    pub(super) fn first(&self) -> Duration {
        self.times.intervals[0]
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

    /// Makes a pass over the blocks and takes those that are due. Returns their numbers.
    fn pass(delay: &mut ReclaimDelay, milliseconds: u64, blocks: &[u64]) -> Vec<u64> {
        delay.begin(Duration::from_millis(milliseconds));
        let due = |number: &u64| delay.may_take(block(*number));
        let due: Vec<u64> = blocks.iter().copied().filter(due).collect();
        due.iter()
            .for_each(|&number| delay.note_taken(block(number)));
        delay.worked(
            due.len() as u64,
            Duration::from_micros(500) * u32::try_from(due.len()).unwrap(),
        );
        due
    }

    #[test]
    fn what_stays_free_is_taken_after_a_short_time() {
        for (huge, first) in [(true, 10), (false, 150)] {
            let mut delay = ReclaimDelay::new(huge, 1 << 30);
            assert_eq!(delay.wait(), None);
            assert!(pass(&mut delay, 0, &[3, 4]).is_empty());
            assert_eq!(delay.wait(), Some(delay.first()));
            // Block 4 was in use in one pass.
            assert!(pass(&mut delay, first - 1, &[3]).is_empty());
            assert_eq!(pass(&mut delay, first, &[3, 4]), [3]);
            assert_eq!(pass(&mut delay, 2 * first, &[4]), [4]);
            assert_eq!(delay.wait(), None);
        }
    }

    #[test]
    fn what_comes_back_stays_until_it_is_paid_for() {
        let mut delay = ReclaimDelay::new(false, 1 << 30);
        pass(&mut delay, 0, &[1, 2]);
        assert_eq!(pass(&mut delay, 150, &[1, 2]), [1, 2]);
        // Both are seen again and cost 2 ms each. 80 ms of time pay that off.
        assert!(pass(&mut delay, 1000, &[1, 2]).is_empty());
        assert!(!delay.debt.is_zero());
        // A block that was not reused is taken nevertheless.
        assert!(pass(&mut delay, 1010, &[1, 2, 7]).is_empty());
        delay.debt = Duration::from_millis(500);
        for at in (1020..=1160).step_by(20) {
            let due = pass(&mut delay, at, &[1, 2, 7]);
            assert_eq!(due, if at == 1160 { vec![7] } else { vec![] }, "{at}");
        }
        assert_eq!(delay.wait(), Some(BASE.intervals[1]));
        delay.debt = Duration::from_millis(1);
        assert_eq!(pass(&mut delay, 1200, &[1, 2]), [1, 2]);
    }

    #[test]
    fn no_debt_keeps_a_block_longer_than_the_longest_time() {
        let mut delay = ReclaimDelay::new(true, 1 << 30);
        let mut now = 0;
        let all: Vec<u64> = (0..512).collect();
        for _ in 0..50 {
            pass(&mut delay, now, &all);
            now += 10;
            pass(&mut delay, now, &all);
            now += 5;
        }
        let stays_free_since = now;
        while delay.wait().is_some() {
            now += 10;
            pass(&mut delay, now, &all);
            assert!(now <= stays_free_since + 310);
        }
    }

    #[test]
    fn what_comes_back_late_is_not_owed() {
        let mut delay = ReclaimDelay::new(false, 1 << 30);
        pass(&mut delay, 0, &[1]);
        pass(&mut delay, 150, &[1]);
        pass(&mut delay, 20_000, &[1]);
        assert!(delay.debt.is_zero());
        assert_eq!(pass(&mut delay, 20_150, &[1]), [1]);
    }

    #[test]
    fn memory_that_a_guest_does_not_have_is_for_the_engine_to_refuse() {
        let mut delay = ReclaimDelay::new(true, 1 << 30);
        delay.begin(Duration::ZERO);
        assert!(delay.may_take(block(1 << 20)));
        assert!(delay.may_take(block(512)) && delay.blocks.is_empty());
        assert!(!delay.may_take(block(511)));
    }
}
