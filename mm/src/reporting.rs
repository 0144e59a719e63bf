//! Free page reporting: a background scan that reports free blocks to the host.
//!
//! The semantics are those of Linux's free page reporting (Alexander Duyck, v16, 2020). When a
//! block of the reporting order becomes free while the reporter sleeps,
//! [`Events::report_requested`] is called. A pass follows two seconds later, and further passes
//! every two seconds while there is more to report. Then the reporter sleeps again. It does not
//! wait for a zone that is at its low watermark.
//!
//! A pass visits each zone once, from where the last pass stopped. It isolates up to
//! [`REQUEST_RANGES`] ranges, hands them to the sink, puts them back and continues, until no range
//! is left or its budget is used up.
//!
//! [`Events::report_requested`]: crate::Events::report_requested
//! [`REQUEST_RANGES`]: crate::REQUEST_RANGES

use core::time::Duration;

use crate::{
    Allocator, FrameRange, Order, ZoneId,
    config::MAX_ZONES,
    frame::PAGEBLOCK_FRAMES,
    ids::{BlockId, Id},
    report::ReportRequest,
    state::Class,
    zone::Zone,
};

/// The time from the free that requests a pass to the pass, and from one pass to the next.
pub const REPORTING_DELAY: Duration = Duration::from_secs(2);

/// The budget of a pass is the zone's free frames divided by this number, but at least
/// [`PASS_FRAMES`].
const PASS_PART: u64 = 16;
/// The smallest budget of a pass in frames: half a GiB, so that a small zone needs few passes.
const PASS_FRAMES: u64 = 256 * PAGEBLOCK_FRAMES;
/// The budget of a pass in ranges, which limits passes at small orders. It is larger where a
/// [`PASS_PART`] of the zone's free frames may lie in more ranges.
const PASS_RANGES: u64 = 8192;

/// Passes free ranges on to the host, for example through a balloon driver.
pub trait ReportSink {
    /// The error of a report that failed.
    type Error;

    /// Tells the host that `ranges` are free, and returns when the host is done with them. Their
    /// contents are lost then. The ranges are isolated during the call and put back after it.
    ///
    /// # Errors
    /// Fails if the host did not take the ranges. They keep their contents and are reported again
    /// later, unless [`may_drop_later`](Self::may_drop_later) returns `true` for the error.
    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), Self::Error>;

    /// Returns whether the host may still drop the ranges of the report that failed with `error`.
    /// These ranges stay out of use for ever then. The default returns `false`.
    fn may_drop_later(error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// Called after each request, when its ranges are back in the allocator. Other threads may run
    /// now: during [`report`](Self::report) they would miss the isolated ranges. The default does
    /// nothing.
    fn give_way(&mut self) {}
}

/// The result of a call to [`Reporter::poll`] or [`Hinter::poll`](crate::Hinter::poll).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says when to poll next"]
pub struct Poll<E> {
    /// The time of the next poll. `None` means that the next poll is due when
    /// `Events::report_requested` is called.
    pub next: Option<Duration>,
    /// The number of requests that the sink has taken.
    pub requests: u64,
    /// The number of ranges in these requests.
    pub ranges: u64,
    /// The number of frames in these ranges.
    pub frames: u64,
    /// The error of the sink, which ended the pass, or `None`.
    pub error: Option<E>,
}

impl<E> Poll<E> {
    /// Returns a result without any work done and without a next poll.
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

/// Reports free memory to the host. It is a state machine without a thread or a clock of its own.
/// Use at most one for each allocator.
#[derive(Debug)]
pub struct Reporter {
    stage: Stage,
    delay: Duration,
    /// For each zone, the pageblock at which the next pass starts.
    cursors: [BlockId; MAX_ZONES],
}

/// The state of the reporter.
#[derive(Copy, Clone, Debug)]
enum Stage {
    /// Waits until a block is freed.
    Asleep,
    /// Makes a pass at this time.
    Due(Duration),
}

/// Why a pass over the zones ended.
pub(crate) enum PassEnd<E> {
    /// Every pageblock was examined.
    Done,
    /// A zone has too few free frames above its low watermark to isolate a block. A later free
    /// wakes the reporter.
    Short,
    /// The budget is used up, an allocation failed for lack of isolated memory, the reporting order
    /// was changed, or a block was allocated while it was collected.
    WorkLeft,
    /// The sink failed.
    Failed(E),
}

impl Reporter {
    /// Returns a reporter with the delay [`REPORTING_DELAY`].
    pub const fn new() -> Self {
        Self::with_delay(REPORTING_DELAY)
    }

    /// Returns a reporter that waits `delay` before the first pass and from one pass to the next.
    pub const fn with_delay(delay: Duration) -> Self {
        Self {
            stage: Stage::Asleep,
            delay,
            cursors: [BlockId::FIRST; MAX_ZONES],
        }
    }

    /// Makes a pass if one is due, or sets the time of a pass if freed memory waits for one.
    /// Returns what was reported and when to poll next. `now` is the time of any clock that does
    /// not run backwards.
    ///
    /// A pass requests a drain of all per-CPU caches. If the sink fails, the pass ends,
    /// [`Poll::error`] has the error, and another pass follows after the delay. Does nothing while
    /// reporting is off.
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
            Stage::Asleep if allocator.shared.pass_is_wanted() => {
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

    /// Makes one pass over all memory now, whether or not one is due, and even if reporting is off:
    /// at order 9 then. Returns what was reported. [`Poll::next`] is `None`; the time of the next
    /// regular pass does not change.
    ///
    /// The `bool` is `true` if every pageblock was examined. It is `false` if the budget of a pass
    /// was used up, a zone is at its low watermark, an allocation failed for lack of the isolated
    /// memory, the reporting order was changed, or the sink failed ([`Poll::error`]).
    pub fn pass_now<S: ReportSink>(
        &mut self,
        allocator: &Allocator<'_>,
        sink: &mut S,
    ) -> (Poll<S::Error>, bool) {
        let mut poll = Poll::nothing();
        let set = allocator.reporting_order();
        let order = set.unwrap_or(Order::PAGEBLOCK);
        let done = match self.pass_zones(order, set, allocator, sink, &mut poll) {
            PassEnd::Done => true,
            PassEnd::Short | PassEnd::WorkLeft => false,
            PassEnd::Failed(error) => {
                poll.error = Some(error);
                false
            }
        };
        (poll, done)
    }

    /// Makes one pass, and chooses the next state.
    fn pass<S: ReportSink>(
        &mut self,
        now: Duration,
        order: Order,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) {
        allocator.shared.work();
        // Frames in per-CPU caches keep pageblocks from being free. The caches return them now, and
        // the next pass finds them.
        allocator.request_drain();
        let work_left = match self.pass_zones(order, Some(order), allocator, sink, poll) {
            // As Linux, it does not wait for a zone that is short of memory.
            PassEnd::Done | PassEnd::Short => false,
            PassEnd::WorkLeft => true,
            PassEnd::Failed(error) => {
                poll.error = Some(error);
                true
            }
        };
        if work_left {
            allocator.shared.rest();
            self.stage = Stage::Due(now.saturating_add(self.delay));
        } else if allocator.shared.finish() {
            self.stage = Stage::Due(now.saturating_add(self.delay));
        } else {
            self.stage = Stage::Asleep;
        }
    }

    /// Makes one pass over all zones: reports their free ranges of at least `order` to `sink`. Adds
    /// the numbers of requests, ranges and frames that the sink took to those in `poll`. Returns
    /// why the pass ended. If the sink fails, or the reporting order is not `set` any more, the
    /// pass ends at once, and the other zones are left out.
    pub(crate) fn pass_zones<S: ReportSink>(
        &mut self,
        order: Order,
        set: Option<Order>,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> PassEnd<S::Error> {
        let mut end = PassEnd::Done;
        let isolation_failures = allocator.shared.isolation_failures();
        let stops = || {
            allocator.shared.isolation_failures() != isolation_failures
                || allocator.reporting_order() != set
        };
        for zone in allocator.zone_ids() {
            if allocator.reporting_order() != set {
                return PassEnd::WorkLeft;
            }
            match self.pass_zone(zone, order, &stops, allocator, sink, poll) {
                PassEnd::Done => {}
                PassEnd::Short if matches!(end, PassEnd::WorkLeft) => {}
                short_or_left @ (PassEnd::Short | PassEnd::WorkLeft) => end = short_or_left,
                failed @ PassEnd::Failed(_) => return failed,
            }
        }
        end
    }

    /// Reports free ranges of one zone. Ends early if `stops` returns `true` after a request.
    fn pass_zone<S: ReportSink>(
        &mut self,
        zone: ZoneId,
        order: Order,
        stops: &impl Fn() -> bool,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> PassEnd<S::Error> {
        let at = allocator.zone(zone).zone;
        let mut budget = Budget::new(at.free_frames(), order);
        let start = self.cursors[zone.index()];
        let blocks = at.blocks();
        let mut request = budget.request(allocator, zone, order);
        let (mut block, mut unseen) = (start, blocks);
        while unseen != 0 {
            let of_tree = block.left_in_tree().min(unseen);
            let behind = block.offset(of_tree);
            if allocator.may_report(zone, block, order) {
                allocator.zone(zone).settle_tree(block.tree());
                let mut left = block..behind;
                // Bounded by the budget: each turn after the first has sent a request.
                while let Some(block) = request.collect_in_tree(left.clone()) {
                    self.cursors[zone.index()] = block;
                    if request.frames() == 0 {
                        return if spare(at) < order.max(Order::PAGEBLOCK).frames() {
                            PassEnd::Short
                        } else {
                            PassEnd::WorkLeft
                        };
                    }
                    if let Err(error) = budget.send(request, sink, poll) {
                        return PassEnd::Failed(error);
                    }
                    if stops() {
                        return PassEnd::WorkLeft;
                    }
                    request = budget.request(allocator, zone, order);
                    left.start = block;
                }
            }
            unseen -= of_tree;
            block = BlockId::new(behind.index() % blocks);
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

/// Returns the number of free frames of `zone` above its low watermark.
fn spare(zone: &Zone<'_>) -> u64 {
    zone.free_frames().saturating_sub(zone.marks.load().low)
}

/// What a pass may still report of one zone.
struct Budget {
    frames: u64,
    ranges: u64,
}

impl Budget {
    /// Returns the budget for a zone with `free_frames` free frames. Blocks of `order` and above
    /// are reported.
    fn new(free_frames: u64, order: Order) -> Self {
        let part = free_frames.div_ceil(PASS_PART);
        Self {
            frames: part.max(PASS_FRAMES),
            ranges: part.div_ceil(order.frames()).max(PASS_RANGES),
        }
    }

    /// Returns an empty request. Its limit is the budget, and the zone's free frames above its low
    /// watermark.
    fn request<'a, 'm>(
        &self,
        allocator: &'a Allocator<'m>,
        zone: ZoneId,
        order: Order,
    ) -> ReportRequest<'a, 'm> {
        let spare = spare(allocator.zone(zone).zone);
        let limit = if self.ranges == 0 {
            0
        } else {
            self.frames.min(spare)
        };
        ReportRequest::new(allocator, zone, order, limit)
    }

    /// Sends `request`, and subtracts its frames and ranges from the budget. Fails if the sink
    /// fails.
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
    /// Returns whether the tree of `block` may have free memory to report, by its summary.
    fn may_report(&self, zone: ZoneId, block: BlockId, order: Order) -> bool {
        let summary = self.zone(zone).zone.summary(block.tree());
        let partial = crate::Mobility::ALL.map(|mobility| summary.count(Class::Partial(mobility)));
        summary.count(Class::Touched) != 0
            || order < Order::PAGEBLOCK && partial.iter().any(|&blocks| blocks != 0)
    }
}
