//! Page hinting: freed memory goes to the host at once. Free page reporting instead scans for it
//! every two seconds.
//!
//! The method is that of Nitesh Narayan Lal's *free page hinting* for Linux (v7, 2019). Each CPU
//! notes in a [`HintList`] which blocks it frees. [`Hinter`] reads a list when it is full, and all
//! lists before it sends. It checks each entry again, drops blocks that were allocated since, and
//! merges adjacent and duplicate entries into one list. It sends that list to the host when it has
//! enough ranges, or after [`HINT_BOUND`]. A block is isolated while the host processes it.
//!
//! Entries are only hints, the state of a block decides. Free blocks that are in no list are found
//! by a *sweep*, which is a pass of the [`Reporter`]. This happens if a list had no room, memory
//! was low, the host failed, or hinting has just been turned on.

use core::time::Duration;

use crate::{
    Allocator, Frame, HintList, Order, Poll, REPORTING_DELAY, ReportSink, Reporter, ZoneId,
    frame::PAGEBLOCK_FRAMES,
    hints::Hint,
    hyperlist::{Added, HINT_THRESHOLD_MAX, HyperList},
    report::{Collected, ReportRequest},
    reporting::PassEnd,
};

/// The maximum age of a hint: after this time lists are read even if none is full, and sent even if
/// there are fewer ranges than the threshold.
pub const HINT_BOUND: Duration = Duration::from_millis(50);
/// The minimum time between two polls, so that constant freeing does not keep a CPU busy with
/// hints.
pub const HINT_PAUSE: Duration = Duration::from_millis(1);

/// How long nothing is isolated after a request has failed that isolated blocks could have served.
const LEFT_ALONE: Duration = Duration::from_millis(200);
/// The maximum number of requests to the host in one poll (256 MiB). The rest waits for the next
/// poll, so that others get the CPU.
const POLL_REQUESTS: u64 = 4;
/// A request isolates at most this fraction (one half) of the frames that a zone has above its
/// `low` watermark.
const SPARE_PART: u64 = 2;

/// Counters of how hints were processed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HintCounts {
    /// Entries that were read from the lists.
    pub entries: u64,
    /// Of these, entries whose block has nothing to hint any more: it is in use, or the host has
    /// dropped its memory already.
    pub dropped: u64,
    /// Of these, entries that were merged with others.
    pub merged: u64,
    /// Complete sweeps over all memory, in one pass or several.
    pub sweeps: u64,
}

/// Why sending ended.
enum End<E> {
    /// Everything was sent.
    Sent,
    /// The rest waits for the next poll.
    More,
    /// A request failed that isolated blocks could have served.
    Missed,
    /// The sink failed with this error.
    Failed(E),
}

/// Reads the hint lists of all CPUs and passes free ranges to the host. A state machine without a
/// thread or a clock of its own.
///
/// Use at most one for each allocator, and no [`Reporter`] at the same time.
#[derive(Debug)]
pub struct Hinter {
    list: HyperList,
    /// Since when hints have been waiting. `None` if there are none.
    since: Option<Duration>,
    /// Until this time nothing is isolated.
    not_before: Duration,
    /// Whether a sweep over all memory is necessary.
    sweep: bool,
    /// The first poll after this time sweeps, because a zone was at its `low` watermark. No poll is
    /// requested for that: memory that is freed causes one.
    sweep_again: Option<Duration>,
    sweeper: Reporter,
    /// The allocator's counter of requests that failed while blocks were isolated, as last read.
    isolation_failures: u32,
    counts: HintCounts,
}

impl Hinter {
    /// Returns a hinter without pending hints.
    pub const fn new() -> Self {
        Self {
            list: HyperList::new(),
            since: None,
            not_before: Duration::ZERO,
            sweep: false,
            sweep_again: None,
            sweeper: Reporter::new(),
            isolation_failures: 0,
            counts: HintCounts {
                entries: 0,
                dropped: 0,
                merged: 0,
                sweeps: 0,
            },
        }
    }

    /// Returns the counters since the last call or the creation of the hinter, and resets them.
    pub fn take_counts(&mut self) -> HintCounts {
        core::mem::take(&mut self.counts)
    }

    /// Reads the hint lists, and sends ranges to the host through `sink` if that is due.
    ///
    /// - `now` is the time of any clock that does not run backwards.
    /// - `lists` are the lists of all CPUs.
    /// - `threshold` is the number of ranges from which on they are sent before [`HINT_BOUND`] has
    ///   passed: 1 to [`HINT_THRESHOLD_MAX`]. Other values count as the nearest of these.
    ///
    /// Returns the numbers of requests, ranges and frames that were sent, and the error of the
    /// sink, if any. [`Poll::next`] is the time of the next poll, or `None` if no poll is necessary
    /// before [`Events::report_requested`](crate::Events::report_requested) is called. Two polls
    /// must be at least [`HINT_PAUSE`] apart.
    ///
    /// After an error of the sink, or after an allocation failed for lack of isolated memory,
    /// nothing is sent for a while. The lists are emptied then, and a sweep over all memory
    /// follows, which requests a drain of the per-CPU caches. Blocks of a zone at its `low`
    /// watermark are left out. A sweep finds them, at the first poll after [`REPORTING_DELAY`].
    ///
    /// After hints that have waited for [`HINT_BOUND`] were sent, the per-CPU caches are requested
    /// to drain, too.
    ///
    /// Does nothing if hinting is off. A sweep follows when it is on again.
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
            // When hinting is turned on again, a sweep is necessary.
            self.leave_alone(now);
            return poll;
        };
        let calls = allocator.shared.hints();
        calls.work();
        self.sweep |= calls.take_missed();
        if self.sweep_again.is_some_and(|again| again <= now) {
            self.sweep = true;
        }
        if self.isolation_failures != allocator.shared.isolation_failures() {
            self.isolation_failures = allocator.shared.isolation_failures();
            self.leave_alone(now.saturating_add(LEFT_ALONE));
        }
        if now < self.not_before {
            // Empty the lists. The sweep after this time finds those blocks.
            lists.iter().for_each(|list| list.take(|_| ()));
            poll.next = Some(self.not_before);
            return poll;
        }
        for list in lists.iter().filter(|list| calls.is_full(list.len())) {
            list.take(|hint| self.note(allocator, order, hint));
        }
        let due = self
            .since
            .is_some_and(|since| since.saturating_add(HINT_BOUND) <= now);
        // The number of ranges decides, not their size: memory that is allocated again within the
        // bound need not be sent.
        let ready = due || self.list.len() >= threshold.clamp(1, HINT_THRESHOLD_MAX);
        let mut end = End::Sent;
        if ready {
            // The entries of the other lists go, too. `since` has the age of the oldest of all
            // entries, and starts anew.
            for list in lists {
                list.take(|hint| self.note(allocator, order, hint));
            }
            end = self.send(now, order, allocator, sink, &mut poll);
            self.since = None;
            if due && poll.frames != 0 && matches!(end, End::Sent) {
                // What CPUs that never idle keep in their caches follows, once for each bound. Not
                // if nothing was sent: a cache that takes its frames back would be drained forever.
                allocator.request_drain();
            }
        }
        if self.sweep && matches!(end, End::Sent) {
            end = self.sweep(now, order, allocator, sink, &mut poll);
        }
        match end {
            End::Sent => {}
            End::More => {
                // The rest is due at once.
                self.since = Some(now.saturating_sub(HINT_BOUND));
                poll.next = Some(now.saturating_add(HINT_PAUSE));
                return poll;
            }
            End::Missed => self.leave_alone(now.saturating_add(LEFT_ALONE)),
            End::Failed(error) => {
                poll.error = Some(error);
                self.leave_alone(now.saturating_add(REPORTING_DELAY));
            }
        }
        poll.next = self.rest(now, allocator, lists);
        poll
    }

    /// Prepares the hinter for waiting, and returns when to poll again. Returns `None` if no time
    /// is set.
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
        if !allocator.shared.hints().rest(knows, lists) {
            return Some(now.saturating_add(HINT_PAUSE));
        }
        let pause = now.saturating_add(HINT_PAUSE);
        self.since
            .map(|since| since.saturating_add(HINT_BOUND).max(pause))
    }

    /// Sends nothing until this time, and sweeps all memory after it.
    fn leave_alone(&mut self, until: Duration) {
        self.not_before = until;
        self.sweep = true;
        self.since = None;
        self.list.clear();
    }

    /// Checks an entry again, and adds it to the merged list if its block is still free.
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

    /// Sends the merged list, in requests that each isolate a limited number of frames.
    fn send<S: ReportSink>(
        &mut self,
        now: Duration,
        order: Order,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> End<S::Error> {
        let mut zone = ZoneId::FIRST;
        let mut request = limited(allocator, zone, order);
        // Bounded: each iteration removes a block from the list or sends a request, and requests
        // are limited.
        while let Some(number) = self.list.first() {
            let Some((of, block)) = allocator.locate(frame(number)) else {
                self.list.pop();
                continue;
            };
            let mut full = of != zone;
            if !full {
                allocator.zone(zone).settle_tree(block.tree());
                full = request.collect(block) == Collected::Full;
            }
            if !full {
                self.list.pop();
                continue;
            }
            if request.frames() == 0 && of == zone {
                self.list.pop();
                self.sweep_again
                    .get_or_insert(now.saturating_add(REPORTING_DELAY));
                request = limited(allocator, zone, order);
                continue;
            }
            if let Err(error) = request.send(sink, poll) {
                return End::Failed(error);
            }
            if allocator.shared.isolation_failures() != self.isolation_failures {
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

    /// Passes over all memory and reports all free blocks.
    fn sweep<S: ReportSink>(
        &mut self,
        now: Duration,
        order: Order,
        allocator: &Allocator<'_>,
        sink: &mut S,
        poll: &mut Poll<S::Error>,
    ) -> End<S::Error> {
        // Frames in per-CPU caches keep their blocks in use. Blocks that a drain frees are hinted.
        allocator.request_drain();
        let before = poll.frames;
        self.sweep_again = None;
        match self
            .sweeper
            .pass_zones(order, Some(order), allocator, sink, poll)
        {
            PassEnd::Done => {
                self.counts.sweeps += 1;
                self.sweep = false;
                End::Sent
            }
            PassEnd::WorkLeft
                if allocator.shared.isolation_failures() != self.isolation_failures =>
            {
                End::Missed
            }
            // Bounded: each such pass leaves less to report.
            PassEnd::WorkLeft if poll.frames != before => End::More,
            PassEnd::WorkLeft | PassEnd::Short => {
                self.sweep = false;
                self.sweep_again = Some(now.saturating_add(REPORTING_DELAY));
                End::Sent
            }
            PassEnd::Failed(error) => End::Failed(error),
        }
    }
}

impl Default for Hinter {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the first frame of the pageblock with this number.
fn frame(number: u32) -> Frame {
    Frame::new(u64::from(number) * PAGEBLOCK_FRAMES)
}

/// Starts a request to the host, limited to a part of the frames that the zone can spare.
fn limited<'a, 'm>(
    allocator: &'a Allocator<'m>,
    zone: ZoneId,
    order: Order,
) -> ReportRequest<'a, 'm> {
    let at = allocator.zone(zone).zone;
    let spare = at.free_frames().saturating_sub(at.marks.load().low);
    // The limit is not below one block of order 10 if that can be spared: otherwise the last
    // pageblocks would never be sent.
    let limit = (spare / SPARE_PART).max(spare.min(Order::MAX.frames()));
    ReportRequest::new(allocator, zone, order, limit)
}

impl Allocator<'_> {
    /// Returns `true` if the pageblock of `frame` still has free memory of `order` that the host
    /// may hold.
    fn has_hint(&self, frame: Frame, order: Order) -> bool {
        let Some((zone, block)) = self.locate(frame) else {
            return false;
        };
        let states = self.zone(zone).zone.arrays.states;
        let state = states[block].load();
        if order > Order::PAGEBLOCK {
            let other = states.get(block.buddy()).map(|other| other.load());
            return other.is_some_and(|other| {
                state.is_free() && other.is_free() && (state.is_touched() || other.is_touched())
            });
        }
        state.is_touched() && !state.is_whole() && (state.is_free() || order < Order::PAGEBLOCK)
    }
}
