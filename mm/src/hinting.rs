//! Page hinting: freed memory goes to the host at once, rather than by a scan two seconds later.
//!
//! The mechanism is that of Nitesh Narayan Lal's free page hinting (v7, 2019). Each CPU notes what it frees in a
//! [`HintList`]. When one is full, the hinter looks at its entries again: what was allocated since drops out, neighbours and
//! duplicates are merged into one list of all CPUs. At a threshold that list is sent; what is below it waits
//! for more, for [`HINT_BOUND`] at most. A block is isolated while the host works: the seed's lock is not needed.
//!
//! Entries are hints, not the truth: the state of a block is. So whatever is in no list (a list had no room, memory was
//! short, the host failed, hinting has just begun) is found by a sweep, which is a pass of the reporter's.

use core::time::Duration;

use crate::{
    Allocator, Frame, HintList, Order, Poll, REPORTING_DELAY, ReportSink, Reporter,
    frame::PAGEBLOCK_FRAMES,
    hints::Hint,
    hyperlist::{Added, HINT_THRESHOLD_MAX, HyperList},
    report::{Collected, ReportRequest},
    reporting::PassEnd,
    summary::TREE_BLOCKS,
};

/// What was freed is looked at after so long, whether or not a list is full, and then sent, whether or not the
/// threshold is reached.
pub const HINT_BOUND: Duration = Duration::from_millis(50);
/// Between two polls at least: whoever frees all the time does not keep a CPU busy with hints.
pub const HINT_PAUSE: Duration = Duration::from_millis(1);

/// Memory is left alone for so long when a request has failed that isolated blocks might have met.
const LEFT_ALONE: Duration = Duration::from_millis(200);
/// Requests in a poll, 256 MiB: the rest has to wait for the next, and others get the CPU between.
const POLL_REQUESTS: u64 = 4;
/// Of what a zone has above its low watermark, a request isolates this part at most.
const SPARE_PART: u64 = 2;

/// What became of hints.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HintCounts {
    /// Entries that were looked at again.
    pub entries: u64,
    /// Of them, those of which nothing is free any more, or with the host already.
    pub dropped: u64,
    /// Of them, those that became part of others.
    pub merged: u64,
    /// Passes over all memory.
    pub sweeps: u64,
}

/// How sending ended.
enum End<E> {
    /// All was sent.
    Sent,
    /// There is more, for the next poll.
    More,
    /// The zone has no memory to spare.
    Short,
    /// Somebody needs what is isolated.
    Missed,
    /// The sink failed.
    Failed(E),
}

/// The hinter: a state machine without a thread or a clock of its own. There must be one at most for each allocator, and
/// no [`Reporter`] may be at work at the same time.
#[derive(Debug)]
pub struct Hinter {
    list: HyperList,
    /// Since when something has been waiting.
    since: Option<Duration>,
    /// Memory is left alone until then.
    not_before: Duration,
    /// All memory has to be looked through.
    sweep: bool,
    sweeper: Reporter,
    /// How often others had missed memory at the last look.
    misses: u32,
    counts: HintCounts,
}

impl Hinter {
    /// A hinter that knows of nothing.
    pub const fn new() -> Self {
        Self {
            list: HyperList::new(),
            since: None,
            not_before: Duration::ZERO,
            sweep: false,
            sweeper: Reporter::new(),
            misses: 0,
            counts: HintCounts {
                entries: 0,
                dropped: 0,
                merged: 0,
                sweeps: 0,
            },
        }
    }

    /// What became of hints since this was last asked.
    pub fn take_counts(&mut self) -> HintCounts {
        core::mem::take(&mut self.counts)
    }

    /// Does what is due. `lists`: those of all CPUs. `threshold`: how many ranges make it worth to send them, 1 to
    /// [`HINT_THRESHOLD_MAX`]; 0 is as 1, and more never are in the list. `now` is the time of any clock that does not run backwards.
    ///
    /// It wants to be polled again at `next`, and when [`Events::report_requested`](crate::Events::report_requested) is called;
    /// not within [`HINT_PAUSE`].
    pub fn poll<S: ReportSink>(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        lists: &[HintList],
        threshold: usize,
        sink: &mut S,
    ) -> Poll<S::Error> {
        let mut poll = Poll::nothing();
        let Some(order) = allocator
            .reporting_order()
            .filter(|_| allocator.is_hinting())
        else {
            // Should hinting begin again, all is looked through.
            self.leave_alone(now);
            return poll;
        };
        let calls = allocator.hub.hints();
        calls.work();
        self.sweep |= calls.take_missed();
        if self.misses != allocator.hub.misses() {
            self.misses = allocator.hub.misses();
            self.leave_alone(now.saturating_add(LEFT_ALONE));
        }
        if now < self.not_before {
            // The sweep finds all of it.
            lists.iter().for_each(|list| list.take(|_| ()));
            poll.next = Some(self.not_before);
            return poll;
        }
        let due = self
            .since
            .is_some_and(|since| since.saturating_add(HINT_BOUND) <= now);
        for list in lists {
            if due || calls.is_full(list.len()) {
                list.take(|hint| self.note(allocator, order, hint));
            }
        }
        // However much memory few ranges are: what is taken again within the bound need not go.
        let ready = due || self.list.len() >= threshold.clamp(1, HINT_THRESHOLD_MAX);
        let mut end = End::Sent;
        if ready {
            end = self.send(order, allocator, sink, &mut poll);
            self.since = None;
        }
        if self.sweep && matches!(end, End::Sent) {
            end = self.sweep(order, allocator, sink, &mut poll);
        }
        match end {
            End::Sent => {}
            End::More => {
                // What is left is due.
                self.since = Some(now.saturating_sub(HINT_BOUND));
                poll.next = Some(now.saturating_add(HINT_PAUSE));
                return poll;
            }
            End::Missed => self.leave_alone(now.saturating_add(LEFT_ALONE)),
            End::Short => self.leave_alone(now.saturating_add(REPORTING_DELAY)),
            End::Failed(error) => {
                poll.error = Some(error);
                self.leave_alone(now.saturating_add(REPORTING_DELAY));
            }
        }
        poll.next = self.rest(now, allocator, lists);
        poll
    }

    /// When to come again.
    fn rest(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        lists: &[HintList],
    ) -> Option<Duration> {
        if now < self.not_before {
            return Some(self.not_before);
        }
        let knows = !self.list.is_empty() || lists.iter().any(|list| list.len() != 0);
        self.since = knows.then(|| self.since.unwrap_or(now));
        if !allocator.hub.hints().rest(knows, lists) {
            return Some(now.saturating_add(HINT_PAUSE));
        }
        let pause = now.saturating_add(HINT_PAUSE);
        self.since
            .map(|since| since.saturating_add(HINT_BOUND).max(pause))
    }

    /// Does nothing until then, and looks through all memory after.
    fn leave_alone(&mut self, until: Duration) {
        self.not_before = until;
        self.sweep = true;
        self.since = None;
        self.list.clear();
    }

    /// Looks at an entry again.
    fn note(&mut self, allocator: &Allocator<'_>, order: Order, hint: Hint) {
        self.counts.entries += 1;
        let (mut first, mut count) = hint.blocks();
        if count == 1 && !allocator.has_hint(frame(first), order) {
            self.counts.dropped += 1;
            return;
        }
        if order > Order::PAGEBLOCK && count == 1 {
            (first, count) = (first & !1, 2);
        }
        match self.list.add(first, count) {
            Added::Apart => {}
            Added::Merged => self.counts.merged += 1,
            Added::NoRoom => self.sweep = true,
        }
    }

    /// Sends the list.
    fn send<S: ReportSink>(
        &mut self,
        order: Order,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> End<S::Error> {
        let mut zone = 0;
        let mut request = limited(allocator, zone, order);
        // Bounded: each turn takes a block off the list or sends a request, of which there are few.
        while let Some(number) = self.list.first() {
            let Some((of, block)) = allocator.locate(frame(number)) else {
                self.list.pop();
                continue;
            };
            let mut full = of != zone;
            if !full {
                allocator.zone(zone).settle_tree(block / TREE_BLOCKS);
                full = request.collect(block) == Collected::Full;
            }
            if !full {
                self.list.pop();
                continue;
            }
            if request.frames() == 0 && of == zone {
                return End::Short;
            }
            if let Err(error) = request.send(sink, poll) {
                return End::Failed(error);
            }
            if allocator.hub.misses() != self.misses {
                return End::Missed;
            }
            if poll.requests >= POLL_REQUESTS || !allocator.is_hinting() {
                return End::More;
            }
            zone = of;
            request = limited(allocator, zone, order);
        }
        match request.send(sink, poll) {
            Ok(()) => End::Sent,
            Err(error) => End::Failed(error),
        }
    }

    /// Looks through all memory.
    fn sweep<S: ReportSink>(
        &mut self,
        order: Order,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> End<S::Error> {
        self.counts.sweeps += 1;
        // What fronts hold keeps blocks from being free; what they give back now is noted.
        allocator.request_drain();
        let before = poll.frames;
        match self.sweeper.pass_zones(order, allocator, sink, poll) {
            PassEnd::Done => {
                self.sweep = false;
                End::Sent
            }
            PassEnd::WorkLeft if allocator.hub.misses() != self.misses => End::Missed,
            // Bounded by what there is: each such pass leaves less.
            PassEnd::WorkLeft if poll.frames != before => End::More,
            PassEnd::WorkLeft => End::Short,
            PassEnd::Failed(error) => End::Failed(error),
        }
    }
}

impl Default for Hinter {
    fn default() -> Self {
        Self::new()
    }
}

/// The first frame of a pageblock.
fn frame(number: u32) -> Frame {
    Frame::new(u64::from(number) * PAGEBLOCK_FRAMES)
}

/// A request of a part of what a zone can spare.
fn limited<'a, 'm>(
    allocator: &'a Allocator<'m>,
    zone: usize,
    order: Order,
) -> ReportRequest<'a, 'm> {
    let at = allocator.zone(zone).zone;
    let spare = at.free_frames().saturating_sub(at.marks.load().low);
    // The last pageblock that can be spared is not kept from the host for being half of what can.
    let limit = (spare / SPARE_PART).max(spare.min(Order::MAX.frames()));
    ReportRequest::new(allocator, zone, order, limit)
}

impl Allocator<'_> {
    /// Whether a pageblock has anything to hint.
    fn has_hint(&self, frame: Frame, order: Order) -> bool {
        let Some((zone, block)) = self.locate(frame) else {
            return false;
        };
        let states = self.zone(zone).zone.arrays.states;
        let state = states[block].load();
        if order > Order::PAGEBLOCK {
            let other = states.get(block ^ 1).map(|other| other.load());
            return other.is_some_and(|other| {
                state.is_free() && other.is_free() && (state.is_touched() || other.is_touched())
            });
        }
        state.is_touched() && !state.is_whole() && (state.is_free() || order < Order::PAGEBLOCK)
    }
}
