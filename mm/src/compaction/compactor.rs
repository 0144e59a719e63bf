//! The compactor of a zone ([`Compactor`]): which pageblock to empty next, where to migrate its
//! frames, and what that costs.

use core::time::Duration;

use crate::{
    Allocator, Frame, Mobility, Order, ZoneId, frame::PAGEBLOCK_FRAMES, state::BLOCK_FRAMES,
    zone::Zone,
};

use super::{
    counters::{CompactionCounters, Compacts},
    emptying::EmptyingBlock,
    gain::{HostPlan, gained},
    scan::{Scan, Source, is_movable},
    stuck::StuckBlocks,
    targets::Targets,
};

/// How long the result of a scan is used. Each pageblock is checked again before it is emptied.
const SCAN_LASTS: Duration = Duration::from_secs(1);
/// The number of consecutive pageblocks that the background thread could not empty after which it
/// pauses in the zone. An attempt at a pageblock with few frames in use costs little.
const FRUITLESS: u32 = 512;
/// The number of frames in use of such pageblocks, all together, after which it pauses too: that of
/// 16 full ones.
const FRUITLESS_FRAMES: u32 = 16 * BLOCK_FRAMES;
/// How long the background thread pauses in the zone then. Linux's proactive compaction waits as
/// long after a run without progress.
const FRUITLESS_REST: Duration = Duration::from_secs(32);
/// The number of consecutive waits of tasks without success after which no task waits for
/// compaction of the zone for [`NOTHING_REST`].
const FRUITLESS_STALLS: u32 = 6;
/// After a scan that found nothing, the zone is not scanned again for this time, unless a
/// pageblock's worth of frames was freed.
const NOTHING_REST: Duration = Duration::from_millis(500);

/// The gain and the cost of a plan to empty pageblocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Number of pageblocks that become free.
    pub blocks: u64,
    /// Number of frames that must be migrated for that, all together.
    pub frames: u64,
}

/// The result of an attempt to empty a pageblock.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Emptied {
    /// The pageblock is free now.
    Whole,
    /// This number of frames stayed in use. The pageblock is not tried again until one of these
    /// frames is freed or a minute has passed, up to 16 minutes if it fails again and again.
    Stuck(u32),
}

/// Until when a zone is not scanned, after a scan that found nothing.
#[derive(Copy, Clone, Debug)]
struct Rest {
    until: Duration,
    /// The number of free frames at the scan: an increase by a pageblock's worth ends the pause.
    free: u64,
}

/// Empties the pageblocks of a zone, the cheapest first, into the fullest. A state machine without
/// a thread or a clock, which copies no memory itself.
///
/// 1. [`plan`](Self::plan) selects pageblocks to empty.
/// 2. [`next`](Self::next) starts to empty the next one.
/// 3. The caller migrates the frames of [`Allocator::frames_in_use`] to those of
///    [`targets`](Self::targets), and frees the old ones.
/// 4. [`finish`](Self::finish) gives the pageblock back as a free one. [`take`](Self::take)
///    allocates it instead, for a caller that waits for it.
///
/// Several threads may compact one zone. They share the compactor under a lock, and need not hold
/// the lock while they migrate frames.
#[derive(Debug)]
pub struct Compactor {
    zone: ZoneId,
    scan: Scan,
    /// The time of the last scan.
    scanned: Duration,
    /// The order of the free blocks that the last scan looked for: 9, or that of the host.
    order: Order,
    /// The number of pageblocks of the scan that are still to be emptied.
    planned: usize,
    targets: Targets,
    /// The pageblocks that could not be emptied.
    pub(crate) stuck: StuckBlocks,
    /// Number of consecutive pageblocks that the background thread could not empty.
    fruitless: u32,
    /// Number of their frames in use before the attempts.
    fruitless_frames: u32,
    /// Until when the background thread pauses.
    daemon_rests_until: Duration,
    /// Number of consecutive waits of tasks without success.
    fruitless_stalls: u32,
    /// Until when no task waits for compaction.
    no_stall_until: Duration,
    rest: Option<Rest>,
    by: Compacts,
    counters: CompactionCounters,
}

impl Compactor {
    /// Returns the compactor of this zone, without a plan. Whether there is such a zone is not
    /// checked here.
    pub const fn new(zone: ZoneId) -> Self {
        Self {
            zone,
            scan: Scan::new(),
            scanned: Duration::ZERO,
            order: Order::PAGEBLOCK,
            planned: 0,
            targets: Targets::new(),
            stuck: StuckBlocks::new(),
            fruitless: 0,
            fruitless_frames: 0,
            daemon_rests_until: Duration::ZERO,
            fruitless_stalls: 0,
            no_stall_until: Duration::ZERO,
            rest: None,
            by: Compacts::Daemon,
            counters: CompactionCounters::new(),
        }
    }

    /// Returns the compactor's zone.
    pub const fn zone(&self) -> ZoneId {
        self.zone
    }

    /// Returns the counters of this zone's compaction.
    pub const fn counters(&self) -> CompactionCounters {
        self.counters
    }

    /// Counts the start of a task's wait for the compaction of this zone. Changes only the
    /// counters.
    pub fn count_stall(&mut self) {
        self.counters.stall += 1;
    }

    /// Counts the end of a task's wait for compaction at `now`: a success if `got`, a failure
    /// otherwise. After 6 failures in a row [`may_stall`](Self::may_stall) is `false` for 500 ms.
    pub fn count_stall_ended(&mut self, now: Duration, got: bool) {
        if got {
            self.counters.success += 1;
            self.fruitless_stalls = 0;
            return;
        }
        self.counters.fail += 1;
        self.fruitless_stalls += 1;
        if self.fruitless_stalls >= FRUITLESS_STALLS {
            self.fruitless_stalls = 0;
            self.no_stall_until = now.saturating_add(NOTHING_REST);
        }
    }

    /// Returns whether a task may wait for compaction of the zone at `now`. A task that compacts on
    /// a user's request need not ask.
    pub fn may_stall(&self, now: Duration) -> bool {
        now >= self.no_stall_until
    }

    /// Counts a wake-up of the background thread that compacts.
    pub fn count_wake(&mut self) {
        self.counters.daemon_wake += 1;
    }

    /// Counts a run of proactive compaction that begins ([`ProactivePoll::begins`]).
    ///
    /// [`ProactivePoll::begins`]: crate::ProactivePoll::begins
    pub fn count_run(&mut self) {
        self.counters.daemon_run += 1;
    }

    /// Plans to empty up to `blocks` pageblocks, at most 64, and returns how many become free and
    /// how many frames must be migrated. Selects the pageblocks with the fewest frames in use.
    /// Replaces the plan made before. `by` says which counters count the work. `now` is the time of
    /// any clock that does not run backwards.
    ///
    /// Returns `None` if `blocks` is 0 or no pageblock can be emptied: the others in partial use
    /// have too few free frames, the frames in use cannot be migrated, or free frames are needed
    /// for the zone's `min` watermark. Also returns `None` while the zone pauses after a scan that
    /// found nothing, or `by` is the background thread and pauses after attempts without success.
    ///
    /// Most calls read nothing. From time to time a call scans the zone: two bytes for each
    /// pageblock of each tree (64 MiB) with a pageblock in partial use.
    pub fn plan(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        blocks: usize,
        by: Compacts,
    ) -> Option<Plan> {
        self.by = by;
        self.plan_at(now, allocator, blocks, Order::PAGEBLOCK)
    }

    /// Plans to empty one pageblock for the host, whose smallest free block is of `order`
    /// ([`Allocator::host_order`]). Selects the pageblock with the fewest frames to migrate for
    /// each frame that the host gains. Replaces the plan made before. `now` is the time of any
    /// clock that does not run backwards.
    ///
    /// Returns `None` if [`plan`](Self::plan) would, if the host gains nothing from any pageblock,
    /// or if the zone would be below its low watermark without the emptied pageblock. The reporter
    /// keeps such a pageblock. Scans as `plan` does, and at orders below 9 it reads the bitmaps of
    /// the pageblocks as well.
    pub fn plan_for_host(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        order: Order,
    ) -> Option<HostPlan> {
        self.by = Compacts::Daemon;
        let zone = allocator.zone(self.zone).zone;
        let spare = zone.free_frames().saturating_sub(zone.marks.load().low);
        if spare < order.max(Order::PAGEBLOCK).frames() {
            return None;
        }
        // Two turns: the pageblock may have changed since the scan.
        for _ in 0..2 {
            self.plan_at(now, allocator, 1, order)?;
            let source = *self.scan.sources().first()?;
            let gained = gained(zone, source.block(), order);
            if gained != 0 {
                return Some(HostPlan {
                    frames: u64::from(source.used()),
                    gained: u64::from(gained),
                });
            }
            self.forget_scan();
        }
        None
    }

    /// Plans to empty up to `blocks` pageblocks for free blocks of `order`. If that is not 9,
    /// `blocks` must be 1.
    fn plan_at(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        blocks: usize,
        order: Order,
    ) -> Option<Plan> {
        self.planned = 0;
        let zone = allocator.zone(self.zone).zone;
        let daemon_rests = self.by == Compacts::Daemon && now < self.daemon_rests_until;
        if daemon_rests || self.rests(now, zone) {
            return None;
        }
        let stale = now.saturating_sub(self.scanned) >= SCAN_LASTS;
        if stale || self.order != order || self.scan.sources().is_empty() {
            self.scan_zone(now, zone, order);
        }
        let sources = self.scan.sources();
        let sources = &sources[..blocks.min(sources.len())];
        if sources.is_empty() {
            // A larger or smaller block may still be there for others.
            if blocks != 0 && order == Order::PAGEBLOCK {
                self.rest = Some(Rest {
                    until: now.saturating_add(NOTHING_REST),
                    free: zone.free_frames(),
                });
            }
            return None;
        }
        self.planned = sources.len();
        self.targets.aim(self.scan.fullest_with_room(sources));
        Some(Plan {
            blocks: sources.len() as u64,
            frames: sources.iter().map(|source| u64::from(source.used())).sum(),
        })
    }

    /// Returns the time until which this compactor pauses after failures: it plans nothing for the
    /// background thread until then. The pause may be over.
    pub const fn daemon_rests_until(&self) -> Duration {
        self.daemon_rests_until
    }

    /// Returns `true` if there is certainly nothing to gain, without a scan.
    fn rests(&mut self, now: Duration, zone: &Zone<'_>) -> bool {
        let free = zone.free_frames();
        if free < zone.marks.load().min.saturating_add(PAGEBLOCK_FRAMES) {
            return true;
        }
        let Some(rest) = self.rest else {
            return false;
        };
        if now < rest.until && free < rest.free.saturating_add(PAGEBLOCK_FRAMES) {
            return true;
        }
        self.rest = None;
        false
    }

    /// Scans the zone for pageblocks to empty, for free blocks of `order`.
    fn scan_zone(&mut self, now: Duration, zone: &Zone<'_>, order: Order) {
        if self.order != order {
            self.order = order;
            self.stuck.forget_price();
        }
        let stuck = &mut self.stuck;
        let gained = |block| gained(zone, block, order);
        let skip = |source| stuck.passes(now, source);
        let lines_read = self.scan.scan(zone, gained, skip);
        self.counters.count_sources(self.by, lines_read, 0);
        self.scanned = now;
        self.targets = Targets::new();
    }

    /// Forgets failed attempts, pauses, the plan and the last scan, so that the next
    /// [`plan`](Self::plan) tries everything again.
    pub fn insist(&mut self) {
        self.rest = None;
        self.end_row();
        self.daemon_rests_until = Duration::ZERO;
        self.fruitless_stalls = 0;
        self.no_stall_until = Duration::ZERO;
        self.stuck.forget();
        self.forget_scan();
    }

    /// Forgets the last scan and the plan.
    fn forget_scan(&mut self) {
        self.scan = Scan::new();
        self.planned = 0;
    }

    /// Starts to empty the next planned pageblock: from here on its free frames cannot be
    /// allocated. Planned pageblocks that have become fuller, or cannot be emptied any more, are
    /// left out. Returns `None` if no planned pageblock is left: plan again.
    pub fn next(&mut self, allocator: &Allocator<'_>) -> Option<EmptyingBlock> {
        while self.planned != 0 {
            self.planned -= 1;
            let source = self.scan.pop()?;
            // The pageblock may be fuller now, as it was a target or others allocated from it. Then
            // others may be cheaper.
            let cheap = |state| is_movable(state) && state.used() <= source.used();
            let begun = allocator.begin_block(self.zone, source.block(), cheap);
            if let Some(block) = begun {
                self.scan.changed(source.used(), 0);
                let frames = u64::from(block.used());
                self.counters.count_sources(self.by, 1, frames);
                return Some(block);
            }
        }
        None
    }

    /// Allocates frames of order 0 to migrate other frames to, and stores them in the slice
    /// `frames`. They are movable and come from the fullest pageblocks, not from planned ones.
    /// Returns how many it stored. Free the frames that are not used, like any others. `by` says
    /// which counters count the work.
    ///
    /// Fewer frames than requested mean that other CPUs allocated them: plan again.
    pub fn targets(
        &mut self,
        allocator: &Allocator<'_>,
        by: Compacts,
        frames: &mut [Frame],
    ) -> usize {
        let zone = allocator.zone(self.zone);
        let mut found = 0;
        // At most two iterations: one from the current position, and one from the start.
        loop {
            let rest = &mut frames[found..];
            let filled = self.targets.fill(zone, &mut self.scan, self.planned, rest);
            self.counters
                .count_targets(by, filled.lines_read, filled.frames as u64);
            found += filled.frames;
            if found == frames.len() {
                return found;
            }
            if !self.targets.widen() {
                // The result of the scan is out of date.
                self.scan = Scan::new();
                return found;
            }
        }
    }

    /// Ends the emptying of a pageblock, and gives it back to the allocator.
    ///
    /// Returns [`Emptied::Whole`] if it is free now. Otherwise returns [`Emptied::Stuck`] with the
    /// number of frames in use, and the pageblock is not tried again for a while. After 512 such
    /// pageblocks without a success between them, or fewer with 8,192 frames in use, the background
    /// thread pauses in the zone for 32 s. A failure of a waiting task (`by`) does not count, since
    /// such a task leaves frames alone that take long to migrate.
    pub fn finish(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        by: Compacts,
        block: EmptyingBlock,
    ) -> Emptied {
        let (at, tried) = (block.block, block.used());
        let left = allocator.end_emptying(block);
        if left == 0 {
            self.end_row();
            self.stuck.forget_block(at);
            return Emptied::Whole;
        }
        self.scan.changed(0, left);
        let zone = allocator.zone(self.zone).zone;
        let gained = gained(zone, at, self.order).max(1);
        self.stuck.note(now, Source::new(at, left, gained));
        if by == Compacts::Daemon {
            self.fruitless += 1;
            self.fruitless_frames = self.fruitless_frames.saturating_add(tried);
            if self.fruitless >= FRUITLESS || self.fruitless_frames >= FRUITLESS_FRAMES {
                self.end_row();
                self.daemon_rests_until = now.saturating_add(FRUITLESS_REST);
            }
        }
        Emptied::Stuck(left)
    }

    /// Ends a row of attempts without success.
    const fn end_row(&mut self) {
        self.fruitless = 0;
        self.fruitless_frames = 0;
    }

    /// Allocates an emptied pageblock as a whole for `mobility`, and returns its first frame.
    ///
    /// # Errors
    /// Fails if frames of it are still in use. The pageblock was given back then, and the error is
    /// the result of [`finish`](Self::finish): [`Emptied::Stuck`], or `Whole` if the last frames
    /// were freed in between.
    pub fn take(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        by: Compacts,
        block: EmptyingBlock,
        mobility: Mobility,
    ) -> Result<Frame, Emptied> {
        let at = block.block;
        match allocator.take_emptied(block, mobility) {
            Ok(frame) => {
                self.end_row();
                self.stuck.forget_block(at);
                Ok(frame)
            }
            Err(block) => Err(self.finish(now, allocator, by, block)),
        }
    }

    /// Returns a partly emptied pageblock to the allocator, without noting a failure. Call this
    /// when compaction stops for lack of time or of target frames, not because a frame could not be
    /// migrated.
    pub fn give_up(&mut self, allocator: &Allocator<'_>, block: EmptyingBlock) {
        let left = allocator.end_emptying(block);
        self.scan.changed(0, left);
    }
}
