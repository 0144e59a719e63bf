//! When to empty pageblocks for the host ([`Consolidation`]). Only free blocks of an order that is
//! set, mostly whole pageblocks, are reported to the host. So the host gains nothing from
//! *scattered* free frames: those outside such blocks ([`Allocator::scattered_frames`]). What is
//! reported where it is, is not migrated.
//!
//! The rule: **collect scattered free memory once holding it has cost as much as the copies
//! would.**
//!
//! - Migrating a frame takes about 2 µs of a CPU. Where CPU time and memory are both paid for, a
//!   CPU costs about as much as 8 GiB. So migrating a frame costs as much as holding it for
//!   [`COPY_PAYS_AFTER`].
//! - Emptying a pageblock with `used` frames in use gives `gained` frames to the host. If only
//!   whole pageblocks are reported, `gained` is 512, as the frames in use move into frames that the
//!   host holds anyway. So emptying pays after 4 s times `used` / `gained`.
//! - A pageblock is emptied when its memory has been scattered for that time. Waiting until the
//!   loss equals the price never costs more than twice the optimum.
//!
//! [`Allocator::scattered_frames`]: crate::Allocator::scattered_frames

use core::time::Duration;

use crate::{REPORTING_DELAY, frame::PAGEBLOCK_FRAMES};

use super::gain::HostPlan;

/// Holding a scattered free frame for this time costs as much as migrating a frame.
pub const COPY_PAYS_AFTER: Duration = Duration::from_secs(4);
/// The guest is quiet if one of its CPUs was idle for this part of the time, in percent.
pub const QUIET: u32 = 50;

/// The result of [`Consolidation::poll`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says what to do, and when to poll next"]
pub struct ConsolidationPoll {
    /// The maximum number of pageblocks to empty now. Empty the cheapest, one by one, while
    /// [`Consolidation::pays`] returns `true`.
    pub blocks: u64,
    /// When to poll again, even if that takes a wake-up. `None` means when memory was freed.
    pub next: Option<Duration>,
}

/// Decides when to empty pageblocks of one zone, so that the host gets their memory back. A state
/// machine without a thread or a clock of its own.
#[derive(Debug, Default)]
pub struct Consolidation {
    /// Since when there have been scattered free frames, or `None` if there are too few.
    stays: Option<Stays>,
    /// The time until which it pauses after work, so that others get the CPU.
    rests_until: Duration,
}

/// A time, and the smallest number of scattered free frames since then.
#[derive(Copy, Clone, Debug)]
struct Stays {
    since: Duration,
    frames: u64,
}

impl Consolidation {
    /// Returns the initial state.
    pub const fn new() -> Self {
        Self {
            stays: None,
            rests_until: Duration::ZERO,
        }
    }

    /// Returns how many pageblocks to empty now, and when to poll again. `now` is the time of any
    /// clock that does not run backwards.
    ///
    /// - `scattered` is the number of scattered free frames
    ///   ([`Allocator::scattered_frames`](crate::Allocator::scattered_frames)).
    /// - `idle` is the part of the time since the last poll, in percent, in which the CPU with the
    ///   most idle time was idle. Nothing is emptied below [`QUIET`].
    /// - `cheapest` returns the cost and the gain of emptying one pageblock
    ///   ([`Compactor::plan_for_host`](crate::Compactor::plan_for_host)), or `None` if none can be
    ///   emptied. It is called only if the answer matters.
    pub fn poll(
        &mut self,
        now: Duration,
        scattered: u64,
        idle: u32,
        cheapest: impl FnOnce() -> Option<HostPlan>,
    ) -> ConsolidationPoll {
        let wait = |next| ConsolidationPoll { blocks: 0, next };
        if scattered < PAGEBLOCK_FRAMES {
            self.stays = None;
            return wait(None);
        }
        let begun = Stays {
            since: now,
            frames: scattered,
        };
        let mut stays = self.stays.unwrap_or(begun);
        stays.frames = stays.frames.min(scattered);
        if stays.frames < PAGEBLOCK_FRAMES {
            // The frames that are free now were freed later.
            stays = begun;
        }
        self.stays = Some(stays);
        let earliest = stays
            .since
            .saturating_add(REPORTING_DELAY)
            .max(self.rests_until);
        if now < earliest {
            return wait(Some(earliest));
        }
        if idle < QUIET {
            return wait(Some(now.saturating_add(REPORTING_DELAY)));
        }
        let Some(plan) = cheapest() else {
            return wait(None);
        };
        let pays = stays.since.saturating_add(pays_after(plan));
        if now < pays {
            return wait(Some(pays));
        }
        ConsolidationPoll {
            blocks: stays.frames / PAGEBLOCK_FRAMES,
            next: Some(now),
        }
    }

    /// Returns `true` if the scattered memory has existed for long enough that it pays to carry out
    /// `plan` now. Returns `false` if the last poll found too few scattered frames.
    pub fn pays(&self, now: Duration, plan: HostPlan) -> bool {
        self.stays
            .is_some_and(|stays| now.saturating_sub(stays.since) >= pays_after(plan))
    }

    /// Records that pageblocks were emptied for the time `spent`, and that `blocks` of them became
    /// free. [`poll`](Self::poll) lets the next work start after a pause of the same length.
    pub fn worked(&mut self, now: Duration, spent: Duration, blocks: u64) {
        self.rests_until = now.saturating_add(spent);
        if let Some(stays) = &mut self.stays {
            stays.frames = stays.frames.saturating_sub(blocks * PAGEBLOCK_FRAMES);
        }
    }
}

/// Returns how long the memory that `plan` collects must have been scattered.
fn pays_after(plan: HostPlan) -> Duration {
    let gained = u32::try_from(plan.gained.max(1)).unwrap_or(u32::MAX);
    let frames = u32::try_from(plan.frames).unwrap_or(u32::MAX);
    COPY_PAYS_AFTER.saturating_mul(frames) / gained
}

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn plan(frames: u64, gained: u64) -> HostPlan {
        HostPlan { frames, gained }
    }

    fn block(frames: u64) -> Option<HostPlan> {
        Some(plan(frames, PAGEBLOCK_FRAMES))
    }

    #[test]
    fn what_is_cheap_goes_after_two_seconds_and_what_is_dear_later() {
        let mut rule = Consolidation::new();
        let unasked = || panic!("not yet");
        assert_eq!(rule.poll(s(9), 511, 100, unasked).next, None);
        assert_eq!(
            rule.poll(s(10), 5000, 100, unasked).next,
            Some(s(11) + s(1))
        );
        assert_eq!(rule.poll(s(11), 5000, 100, unasked).next, Some(s(12)));
        let poll = rule.poll(s(12), 5000, 100, || block(128));
        assert_eq!((poll.blocks, poll.next), (9, Some(s(12))));
        assert!(rule.pays(s(12), plan(256, 512)));
        assert!(!rule.pays(s(12), plan(257, 512)));
        assert!(rule.pays(s(12), plan(50, 100)));
        assert!(!rule.pays(s(12), plan(50, 99)));
        let poll = rule.poll(s(12), 4000, 100, || block(384));
        assert_eq!((poll.blocks, poll.next), (0, Some(s(13))));
        assert_eq!(rule.poll(s(13), 4000, 100, || block(384)).blocks, 7);
        assert_eq!(rule.poll(s(14), 4000, 100, || block(511)).blocks, 7);
    }

    #[test]
    fn a_busy_guest_and_one_without_a_choice_are_let_alone() {
        let mut rule = Consolidation::new();
        let unasked = || panic!("not asked");
        let poll = rule.poll(s(1), 5000, 100, unasked);
        assert_eq!(poll.next, Some(s(3)));
        assert_eq!(rule.poll(s(3), 5000, 49, unasked).next, Some(s(5)));
        assert_eq!(rule.poll(s(5), 5000, 50, || None).next, None);
    }

    #[test]
    fn memory_that_is_used_meanwhile_does_not_count() {
        let mut rule = Consolidation::new();
        let unasked = || panic!("not yet");
        _ = rule.poll(s(1), 5000, 100, unasked);
        _ = rule.poll(s(2), 1100, 100, unasked);
        assert_eq!(rule.poll(s(3), 9000, 100, || block(9)).blocks, 2);
        // One of the two pageblocks was given back. The rest has to wait.
        rule.worked(s(3), s(1), 1);
        assert_eq!(rule.poll(s(3), 8488, 100, unasked).next, Some(s(4)));
        assert_eq!(rule.poll(s(4), 8488, 100, || block(9)).blocks, 1);
        rule.worked(s(4), Duration::ZERO, 1);
        assert_eq!(rule.poll(s(5), 7976, 100, unasked).next, Some(s(7)));
        assert_eq!(rule.poll(s(6), 100, 100, unasked).next, None);
    }
}
