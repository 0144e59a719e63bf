//! Free page reporting: an asynchronous scan that gives free blocks to the host.
//!
//! The semantics are those of Linux's free page reporting (Alexander Duyck, v16, 2020). A block of
//! the reporting order becomes free while the reporter sleeps → [`Events::report_requested`] →
//! two seconds later a pass → while it leaves work, another every two seconds → sleep.
//!
//! A pass looks at each zone once, from where the last one stopped. It isolates up to
//! [`REQUEST_RANGES`] ranges, hands them to the sink, puts them back and goes on with the next,
//! until nothing is left or its budget is used up.
//!
//! [`Events::report_requested`]: crate::Events::report_requested
//! [`REQUEST_RANGES`]: crate::REQUEST_RANGES

use core::time::Duration;

use crate::{
    Allocator, FrameRange, Order, config::MAX_ZONES, frame::PAGEBLOCK_FRAMES,
    report::ReportRequest, state::Class, summary::TREE_BLOCKS,
};

/// From the free that calls for a pass to the pass, and from one pass to the next.
pub const REPORTING_DELAY: Duration = Duration::from_secs(2);

/// A pass reports at least this part of a zone's free frames, if they are to be reported.
const PASS_PART: u64 = 16;
/// And at least so many frames: half a GiB, so that a small zone is done in few passes.
const PASS_FRAMES: u64 = 256 * PAGEBLOCK_FRAMES;
/// And in no more ranges than this: small orders make many small ones.
const PASS_RANGES: u64 = 8192;

/// Who tells the host.
pub trait ReportSink {
    /// Why it could not.
    type Error;

    /// Tells the host that these ranges are free, and returns when it has taken note: their
    /// contents are gone then. The ranges are isolated meanwhile.
    ///
    /// # Errors
    /// If the host did not take them: they stay to be reported.
    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), Self::Error>;
}

/// What a call to [`Reporter::poll`] did.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says when to poll next"]
pub struct Poll<E> {
    /// When it wants to be polled next; none: when `Events::report_requested` is called.
    pub next: Option<Duration>,
    /// Requests that the sink has taken.
    pub requests: u64,
    /// Ranges in them.
    pub ranges: u64,
    /// Frames in those.
    pub frames: u64,
    /// What the sink failed with, which ended the pass.
    pub error: Option<E>,
}

impl<E> Poll<E> {
    /// Nothing was done yet, and nothing is to come.
    pub(crate) const fn nothing() -> Self {
        Self {
            next: None,
            requests: 0,
            ranges: 0,
            frames: 0,
            error: None,
        }
    }
}

/// The reporter: a state machine without a thread or a clock of its own. There must be one at
/// most for each allocator.
#[derive(Debug)]
pub struct Reporter {
    stage: Stage,
    delay: Duration,
    /// For each zone, the block at which the next pass starts.
    cursors: [usize; MAX_ZONES],
}

#[derive(Copy, Clone, Debug)]
enum Stage {
    /// Waits for a block to be freed.
    Asleep,
    /// Makes a pass then.
    Due(Duration),
}

/// Why a pass ended.
pub(crate) enum PassEnd<E> {
    /// Every block was looked at.
    Done,
    /// The budget is used up, the reserve must be kept, or somebody needs what is isolated.
    WorkLeft,
    /// The sink failed.
    Failed(E),
}

impl Reporter {
    /// A reporter with the delay of [`REPORTING_DELAY`].
    pub const fn new() -> Self {
        Self::with_delay(REPORTING_DELAY)
    }

    /// A reporter with another delay.
    pub const fn with_delay(delay: Duration) -> Self {
        Self {
            stage: Stage::Asleep,
            delay,
            cursors: [0; MAX_ZONES],
        }
    }

    /// Makes a pass if one is due. `now` is the time of any clock that does not run backwards.
    pub fn poll<S: ReportSink>(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        sink: &mut S,
    ) -> Poll<S::Error> {
        let mut poll = Poll::nothing();
        let Some(order) = allocator.reporting_order() else {
            self.stage = Stage::Asleep;
            return poll;
        };
        match self.stage {
            Stage::Asleep if allocator.hub.pass_is_wanted() => {
                self.stage = Stage::Due(now.saturating_add(self.delay));
            }
            Stage::Due(at) if at <= now => self.pass(now, order, allocator, sink, &mut poll),
            Stage::Asleep | Stage::Due(_) => {}
        }
        if let Stage::Due(at) = self.stage {
            poll.next = Some(at);
        }
        poll
    }

    /// Makes one pass over all memory now, whether or not one is due, and with reporting off, too. False: there is more
    /// than a pass may report, or somebody needed what was isolated.
    pub fn pass_now<S: ReportSink>(
        &mut self,
        allocator: &Allocator<'_>,
        sink: &mut S,
    ) -> (Poll<S::Error>, bool) {
        let mut poll = Poll::nothing();
        let order = allocator.reporting_order().unwrap_or(Order::PAGEBLOCK);
        let done = match self.pass_zones(order, allocator, sink, &mut poll) {
            PassEnd::Done => true,
            PassEnd::WorkLeft => false,
            PassEnd::Failed(error) => {
                poll.error = Some(error);
                false
            }
        };
        (poll, done)
    }

    fn pass<S: ReportSink>(
        &mut self,
        now: Duration,
        order: Order,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) {
        allocator.hub.work();
        // What fronts hold keeps blocks from being free; what they give back now, the next pass
        // finds.
        allocator.request_drain();
        let work_left = match self.pass_zones(order, allocator, sink, poll) {
            PassEnd::Done => false,
            PassEnd::WorkLeft => true,
            PassEnd::Failed(error) => {
                poll.error = Some(error);
                true
            }
        };
        if work_left {
            allocator.hub.rest();
            self.stage = Stage::Due(now.saturating_add(self.delay));
        } else if allocator.hub.finish() {
            self.stage = Stage::Due(now.saturating_add(self.delay));
        } else {
            self.stage = Stage::Asleep;
        }
    }

    /// Looks at each zone once.
    pub(crate) fn pass_zones<S: ReportSink>(
        &mut self,
        order: Order,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> PassEnd<S::Error> {
        let mut end = PassEnd::Done;
        let misses = allocator.hub.misses();
        for zone in 0..allocator.zones() {
            match self.pass_zone(zone, order, misses, allocator, sink, poll) {
                PassEnd::Done => {}
                PassEnd::WorkLeft => end = PassEnd::WorkLeft,
                failed @ PassEnd::Failed(_) => return failed,
            }
        }
        end
    }

    fn pass_zone<S: ReportSink>(
        &mut self,
        zone: usize,
        order: Order,
        misses: u32,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> PassEnd<S::Error> {
        let at = allocator.zone(zone).zone;
        let mut budget = Budget::new(at.free_frames());
        let start = self.cursors[zone];
        let blocks = at.blocks();
        let mut request = budget.request(allocator, zone, order);
        let (mut block, mut unseen) = (start, blocks);
        while unseen != 0 {
            let of_tree = (TREE_BLOCKS - block % TREE_BLOCKS).min(unseen);
            if allocator.may_report(zone, block, order) {
                allocator.zone(zone).settle_tree(block / TREE_BLOCKS);
                let mut left = block..block + of_tree;
                // Bounded by the budget: each turn after the first has sent a request.
                while let Some(block) = request.collect_in_tree(left.clone()) {
                    self.cursors[zone] = block;
                    if request.frames() == 0 {
                        return PassEnd::WorkLeft;
                    }
                    if let Err(error) = budget.send(request, sink, poll) {
                        return PassEnd::Failed(error);
                    }
                    if allocator.hub.misses() != misses {
                        return PassEnd::WorkLeft;
                    }
                    request = budget.request(allocator, zone, order);
                    left.start = block;
                }
            }
            unseen -= of_tree;
            block = (block + of_tree) % blocks;
        }
        if request.frames() != 0
            && let Err(error) = budget.send(request, sink, poll)
        {
            return PassEnd::Failed(error);
        }
        PassEnd::Done
    }
}

impl Default for Reporter {
    fn default() -> Self {
        Self::new()
    }
}

/// What a pass may still report of one zone.
struct Budget {
    frames: u64,
    ranges: u64,
}

impl Budget {
    fn new(free_frames: u64) -> Self {
        Self {
            frames: free_frames.div_ceil(PASS_PART).max(PASS_FRAMES),
            ranges: PASS_RANGES,
        }
    }

    /// A request of what the budget and the zone's low watermark allow.
    fn request<'a, 'm>(
        &self,
        allocator: &'a Allocator<'m>,
        zone: usize,
        order: Order,
    ) -> ReportRequest<'a, 'm> {
        let at = allocator.zone(zone).zone;
        let spare = at.free_frames().saturating_sub(at.marks.load().low);
        let limit = if self.ranges == 0 {
            0
        } else {
            self.frames.min(spare)
        };
        ReportRequest::new(allocator, zone, order, limit)
    }

    fn send<S: ReportSink>(
        &mut self,
        request: ReportRequest<'_, '_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> Result<(), S::Error> {
        let before = (poll.ranges, poll.frames);
        request.send(sink, poll)?;
        let (ranges, frames) = (poll.ranges - before.0, poll.frames - before.1);
        self.frames = self.frames.saturating_sub(frames);
        self.ranges = self.ranges.saturating_sub(ranges);
        Ok(())
    }
}

impl Allocator<'_> {
    /// Whether a tree may have anything to report, by its summary.
    fn may_report(&self, zone: usize, block: usize, order: Order) -> bool {
        let summary = self.zone(zone).zone.summary(block / TREE_BLOCKS);
        let partial = crate::Mobility::ALL.map(|mobility| summary.count(Class::Partial(mobility)));
        summary.count(Class::Touched) != 0
            || order < Order::PAGEBLOCK && partial.iter().any(|&blocks| blocks != 0)
    }
}
