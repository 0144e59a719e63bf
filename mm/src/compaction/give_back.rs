//! When blocks are emptied for the host's sake: memory that is free in pieces is of no use to it
//! while only whole pageblocks are reported.
//!
//! The rule: **memory that is free in pieces is worth collecting once it has cost as much as the
//! copies would.** To move a frame takes about 2 µs of a CPU; to hold one keeps others from it. Where
//! both are paid for, a CPU costs about what 8 GiB cost, so to move a frame costs what it costs to hold
//! it for [`COPY_PAYS_AFTER`]. A block of which `used` frames are
//! in use gives the host 512 of them: the others move into frames that it holds anyway. So it pays
//! after 4 s times `used` / 512, and it is emptied when it has been free in pieces for so long: who
//! waits until the loss is as high as the price never pays more than twice what would have been best.

use core::time::Duration;

use crate::{REPORTING_DELAY, frame::PAGEBLOCK_FRAMES};

use super::compactor::Plan;

/// So long a frame is held for the price of a copy.
pub const COPY_PAYS_AFTER: Duration = Duration::from_secs(4);
/// The guest is quiet when one of its CPUs was idle for so much of the time, in percent.
pub const QUIET: u32 = 50;

/// What [`GiveBack::poll`] says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says what to do, and when to poll next"]
pub struct GiveBackPoll {
    /// Pageblocks to empty now, at most: the cheapest, one by one, as long as [`GiveBack::pays`].
    pub blocks: u64,
    /// When to poll next, though it takes a wake-up; none: when memory has been freed.
    pub next: Option<Duration>,
}

/// Decides for one zone. Without a thread or a clock of its own.
#[derive(Debug, Default)]
pub struct GiveBack {
    /// Since when how many frames have been free in pieces without a break.
    stays: Option<Stays>,
    /// It takes turns with others until then.
    rests_until: Duration,
}

#[derive(Copy, Clone, Debug)]
struct Stays {
    since: Duration,
    frames: u64,
}

impl GiveBack {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self {
            stays: None,
            rests_until: Duration::ZERO,
        }
    }

    /// What is to be done now. `pieces`: frames that are free in no free pageblock
    /// ([`ZoneFragmentation::pieces`](crate::ZoneFragmentation::pieces)). `idle`: the part of the time
    /// since the last poll, in percent, for which that CPU was idle that was so most. `cheapest`: what
    /// one block costs ([`Compactor::plan`](crate::Compactor::plan)), asked for only when it matters.
    pub fn poll(
        &mut self,
        now: Duration,
        pieces: u64,
        idle: u32,
        cheapest: impl FnOnce() -> Option<Plan>,
    ) -> GiveBackPoll {
        let wait = |next| GiveBackPoll { blocks: 0, next };
        if pieces < PAGEBLOCK_FRAMES {
            self.stays = None;
            return wait(None);
        }
        let begun = Stays {
            since: now,
            frames: pieces,
        };
        let mut stays = self.stays.unwrap_or(begun);
        stays.frames = stays.frames.min(pieces);
        if stays.frames < PAGEBLOCK_FRAMES {
            // What there is now was freed since.
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
        GiveBackPoll {
            blocks: stays.frames / PAGEBLOCK_FRAMES,
            next: Some(now),
        }
    }

    /// Whether it pays now to carry out a plan.
    pub fn pays(&self, now: Duration, plan: Plan) -> bool {
        self.stays
            .is_some_and(|stays| now.saturating_sub(stays.since) >= pays_after(plan))
    }

    /// Says for how long blocks were emptied, and how many became free. As long it rests.
    pub fn worked(&mut self, now: Duration, spent: Duration, blocks: u64) {
        self.rests_until = now.saturating_add(spent);
        if let Some(stays) = &mut self.stays {
            stays.frames = stays.frames.saturating_sub(blocks * PAGEBLOCK_FRAMES);
        }
    }
}

/// How long the memory that a plan collects must have been free in pieces.
fn pays_after(plan: Plan) -> Duration {
    let blocks = u32::try_from(plan.blocks.max(1)).unwrap_or(u32::MAX);
    let frames = u32::try_from(plan.frames).unwrap_or(u32::MAX);
    COPY_PAYS_AFTER.saturating_mul(frames) / blocks / 512
}

const _: () = assert!(PAGEBLOCK_FRAMES == 512);

#[cfg(all(test, not(ebb_model)))]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn block(frames: u64) -> Option<Plan> {
        Some(Plan { blocks: 1, frames })
    }

    #[test]
    fn what_is_cheap_goes_after_two_seconds_and_what_is_dear_later() {
        let mut rule = GiveBack::new();
        let unasked = || panic!("not yet");
        assert_eq!(rule.poll(s(9), 511, 100, unasked).next, None);
        assert_eq!(
            rule.poll(s(10), 5000, 100, unasked).next,
            Some(s(11) + s(1))
        );
        assert_eq!(rule.poll(s(11), 5000, 100, unasked).next, Some(s(12)));
        let poll = rule.poll(s(12), 5000, 100, || block(128));
        assert_eq!((poll.blocks, poll.next), (9, Some(s(12))));
        assert!(rule.pays(
            s(12),
            Plan {
                blocks: 2,
                frames: 512
            }
        ));
        assert!(!rule.pays(
            s(12),
            Plan {
                blocks: 2,
                frames: 514
            }
        ));
        let poll = rule.poll(s(12), 4000, 100, || block(384));
        assert_eq!((poll.blocks, poll.next), (0, Some(s(13))));
        assert_eq!(rule.poll(s(13), 4000, 100, || block(384)).blocks, 7);
        assert_eq!(rule.poll(s(14), 4000, 100, || block(511)).blocks, 7);
    }

    #[test]
    fn a_busy_guest_and_one_without_a_choice_are_let_alone() {
        let mut rule = GiveBack::new();
        let unasked = || panic!("not asked");
        let poll = rule.poll(s(1), 5000, 100, unasked);
        assert_eq!(poll.next, Some(s(3)));
        assert_eq!(rule.poll(s(3), 5000, 49, unasked).next, Some(s(5)));
        assert_eq!(rule.poll(s(5), 5000, 50, || None).next, None);
    }

    #[test]
    fn memory_that_is_used_meanwhile_does_not_count() {
        let mut rule = GiveBack::new();
        let unasked = || panic!("not yet");
        _ = rule.poll(s(1), 5000, 100, unasked);
        _ = rule.poll(s(2), 1100, 100, unasked);
        assert_eq!(rule.poll(s(3), 9000, 100, || block(9)).blocks, 2);
        // The two blocks have been given back: the rest has to wait.
        rule.worked(s(3), s(1), 1);
        assert_eq!(rule.poll(s(3), 8488, 100, unasked).next, Some(s(4)));
        assert_eq!(rule.poll(s(4), 8488, 100, || block(9)).blocks, 1);
        rule.worked(s(4), Duration::ZERO, 1);
        assert_eq!(rule.poll(s(5), 7976, 100, unasked).next, Some(s(7)));
        assert_eq!(rule.poll(s(6), 100, 100, unasked).next, None);
    }
}
