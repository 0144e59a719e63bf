//! The compactor of a zone: which pageblock to empty next, where its frames may go, what that costs.

use core::time::Duration;

use crate::{Allocator, Frame, Mobility, frame::PAGEBLOCK_FRAMES, zone::Zone};

use super::{
    counters::{CompactionCounters, Compacts},
    emptying::EmptyingBlock,
    stuck::StuckBlocks,
    survey::{Survey, is_movable},
    targets::Targets,
};

/// For so long a survey is gone by; each block is looked at again before it is emptied.
const SURVEY_LASTS: Duration = Duration::from_secs(1);
/// After so many blocks in a row that could not be emptied the zone is let alone,
const FRUITLESS: u32 = 16;
/// for so long: what the seed's proactive compaction waits after a run without progress.
const FRUITLESS_REST: Duration = Duration::from_secs(32);
/// For so long nothing is sought where there was nothing, unless a pageblock's worth was freed.
const NOTHING_REST: Duration = Duration::from_millis(500);

/// What is to be had, and what it costs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Pageblocks that become free.
    pub blocks: u64,
    /// Frames that have to be moved for that, all together.
    pub frames: u64,
}

/// What became of a block that was to be emptied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Emptied {
    /// It is free now.
    Whole,
    /// So many frames stayed. It is remembered and not tried again, until one of them is freed or
    /// a minute has passed.
    Stuck(u32),
}

/// When a zone was found to have nothing, and how much was free in it.
#[derive(Copy, Clone, Debug)]
struct Rest {
    until: Duration,
    /// None if only time helps.
    unless_free: Option<u64>,
}

/// Empties the pageblocks of a zone, cheapest first, into the fullest. It has no thread and no clock:
/// it is handed the time, and moves no bytes itself.
///
/// [`plan`](Self::plan) says what is to be had. Then, block by block: [`next`](Self::next) takes one
/// out; its owner moves the frames of [`Allocator::frames_in_use`] to those of
/// [`targets`](Self::targets) and frees the old ones; [`finish`](Self::finish) gives the block back,
/// or [`take`](Self::take) hands it to one who waits for it.
///
/// Several may be at it for one zone: they share the compactor under a lock, which none needs to
/// hold while frames are moved.
#[derive(Debug)]
pub struct Compactor {
    zone: usize,
    survey: Survey,
    /// When it was made.
    surveyed: Duration,
    /// How many of its sources are to be emptied.
    planned: usize,
    targets: Targets,
    pub(crate) stuck: StuckBlocks,
    /// Blocks in a row that could not be emptied.
    fruitless: u32,
    rest: Option<Rest>,
    by: Compacts,
    counters: CompactionCounters,
}

impl Compactor {
    /// The compactor of this zone.
    pub const fn new(zone: usize) -> Self {
        Self {
            zone,
            survey: Survey::new(),
            surveyed: Duration::ZERO,
            planned: 0,
            targets: Targets::new(),
            stuck: StuckBlocks::new(),
            fruitless: 0,
            rest: None,
            by: Compacts::Daemon,
            counters: CompactionCounters::new(),
        }
    }

    /// Its zone.
    pub const fn zone(&self) -> usize {
        self.zone
    }

    /// What has been done.
    pub const fn counters(&self) -> CompactionCounters {
        self.counters
    }

    /// Somebody begins to wait for this zone.
    pub fn count_stall(&mut self) {
        self.counters.stall += 1;
    }

    /// He got what he wanted, or did not.
    pub fn count_stall_ended(&mut self, got: bool) {
        if got {
            self.counters.success += 1;
        } else {
            self.counters.fail += 1;
        }
    }

    /// The background thread was woken.
    pub fn count_wake(&mut self) {
        self.counters.daemon_wake += 1;
    }

    /// What up to so many pageblocks cost, at most 64: the cheapest that there are. None if not one
    /// is to be had: because there is not enough room in blocks in partial use, because what is in
    /// them does not move, or because what is free is needed for the zone's `min` mark.
    ///
    /// Now and then reads two bytes for each pageblock in partial use and its neighbours in 64 MiB;
    /// mostly nothing.
    pub fn plan(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        blocks: usize,
        by: Compacts,
    ) -> Option<Plan> {
        self.by = by;
        self.planned = 0;
        let zone = allocator.zone(self.zone).zone;
        if self.rests(now, zone) {
            return None;
        }
        let stale = now.saturating_sub(self.surveyed) >= SURVEY_LASTS;
        if stale || self.survey.sources().is_empty() {
            self.look(now, zone);
        }
        let sources = self.survey.sources();
        let sources = &sources[..blocks.min(sources.len())];
        if sources.is_empty() {
            if blocks != 0 {
                self.rest = Some(Rest {
                    until: now.saturating_add(NOTHING_REST),
                    unless_free: Some(zone.free_frames()),
                });
            }
            return None;
        }
        self.planned = sources.len();
        self.targets.aim(self.survey.fullest_with_room(sources));
        Some(Plan {
            blocks: sources.len() as u64,
            frames: sources.iter().map(|source| u64::from(source.used())).sum(),
        })
    }

    /// Whether there is nothing to be had, without a look.
    fn rests(&mut self, now: Duration, zone: &Zone<'_>) -> bool {
        let free = zone.free_frames();
        if free < zone.marks.load().min.saturating_add(PAGEBLOCK_FRAMES) {
            return true;
        }
        let Some(Rest { until, unless_free }) = self.rest else {
            return false;
        };
        let freed = unless_free.is_some_and(|then| free >= then.saturating_add(PAGEBLOCK_FRAMES));
        if now < until && !freed {
            return true;
        }
        self.rest = None;
        false
    }

    fn look(&mut self, now: Duration, zone: &Zone<'_>) {
        let stuck = &mut self.stuck;
        let skip = |block: usize, used: u32| stuck.holds(now, block, used);
        let looked = self.survey.look(zone, skip);
        self.counters.count_sources(self.by, looked, 0);
        self.surveyed = now;
        self.targets = Targets::new();
    }

    /// Forgets what was in vain so far, and that it rests: somebody asks for all that there is.
    pub fn insist(&mut self) {
        self.rest = None;
        self.fruitless = 0;
        self.stuck.forget();
        self.survey = Survey::new();
        self.planned = 0;
    }

    /// Takes the next of the planned blocks out, to be emptied. None if there is none left: plan
    /// again.
    pub fn next(&mut self, allocator: &Allocator<'_>) -> Option<EmptyingBlock> {
        while self.planned != 0 {
            self.planned -= 1;
            let source = self.survey.pop()?;
            // It may be fuller by now, because it was a target or others allocate: then others may
            // be cheaper.
            let cheap = |state| is_movable(state) && state.used() <= source.used();
            let begun = allocator.begin_block(self.zone, source.block(), cheap);
            if let Some(block) = begun {
                self.survey.changed(source.used(), 0);
                let frames = u64::from(block.used());
                self.counters.count_sources(self.by, 1, frames);
                return Some(block);
            }
        }
        None
    }

    /// Takes frames to move others to, of order 0 and movable: how many of the slice it has filled.
    /// Those that are not used are freed as any others.
    ///
    /// Fewer than the slice has say that others were faster: plan again.
    pub fn targets(&mut self, allocator: &Allocator<'_>, frames: &mut [Frame]) -> usize {
        let zone = allocator.zone(self.zone);
        let mut found = 0;
        // Twice at most: from where it is, and once from the start.
        loop {
            let rest = &mut frames[found..];
            let filled = self
                .targets
                .fill(zone, &mut self.survey, self.planned, rest);
            self.counters
                .count_targets(self.by, filled.looked, filled.frames as u64);
            found += filled.frames;
            if found == frames.len() {
                return found;
            }
            if !self.targets.widen() {
                // Nothing that it knows is so any more.
                self.survey = Survey::new();
                return found;
            }
        }
    }

    /// Gives a block back.
    pub fn finish(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        block: EmptyingBlock,
    ) -> Emptied {
        let at = block.block;
        let left = allocator.end_emptying(block);
        self.ended(now, at, left)
    }

    /// Hands a block to one who waits for it, whole and of this mobility.
    ///
    /// # Errors
    /// If it is not empty: it is given back.
    pub fn take(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        block: EmptyingBlock,
        mobility: Mobility,
    ) -> Result<Frame, Emptied> {
        allocator
            .take_emptied(block, mobility)
            .inspect(|_| self.fruitless = 0)
            .map_err(|block| self.finish(now, allocator, block))
    }

    /// Gives a block back that nothing stands in the way of: there was no time, or no target.
    pub fn give_up(&mut self, allocator: &Allocator<'_>, block: EmptyingBlock) {
        let left = allocator.end_emptying(block);
        self.survey.changed(0, left);
    }

    fn ended(&mut self, now: Duration, block: usize, left: u32) -> Emptied {
        if left == 0 {
            self.fruitless = 0;
            return Emptied::Whole;
        }
        self.survey.changed(0, left);
        self.stuck.note(now, block, left);
        self.fruitless += 1;
        if self.fruitless >= FRUITLESS {
            self.fruitless = 0;
            self.rest = Some(Rest {
                until: now.saturating_add(FRUITLESS_REST),
                unless_free: None,
            });
        }
        Emptied::Stuck(left)
    }
}
