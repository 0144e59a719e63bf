//! The policy by which a host takes free memory out of its guest: which pageblocks, in which order
//! and how many at a time.
//!
//! The guest's maps and summaries say which trees may have free pageblocks that the host holds
//! memory for. So a pass over a guest without such pageblocks reads a few words, even if the guest
//! is large. Where there are some, the host takes up to [`TAKE_BLOCKS`] pageblocks of one GiB,
//! drops them in ranges as large as possible, and puts them back. The guest never lacks more than
//! these blocks, nor more than half of a zone's free frames.

use core::convert::Infallible;

use crate::{
    Frame, FrameRange, PutBack, ReportSink, ZoneId,
    attach::Attached,
    frame::PAGEBLOCK_FRAMES,
    ids::{Id, TreeId},
    state::{Class, State},
    take::{OpenGib, TAKE_BLOCKS},
    zone::{Wanted, Zone},
};

/// The most trees that one step examines: those of a guest of 1 TiB.
const STEP_TREES: usize = 1 << 14;
/// A step takes at most the free frames of a zone divided by this number.
const FREE_PART: u64 = 2;

/// How a step of the [`Reclaimer`] ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StepEnd<E = Infallible> {
    /// There may be more memory to take. The next step continues there.
    More,
    /// All memory was examined since the pass began. The next step begins a new pass.
    Done,
    /// An allocation of the guest has failed while some memory was taken out. Leave the guest alone
    /// for a while.
    Missed,
    /// The sink failed. The pageblocks were put back unchanged and still count as touched.
    Failed(E),
}

/// The result of one step of the [`Reclaimer`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says whether there is more"]
pub struct Step<E> {
    /// The number of frames that the sink dropped.
    pub frames: u64,
    /// The number of ranges that these frames formed.
    pub ranges: u64,
    /// How the step ended.
    pub end: StepEnd<E>,
}

/// Takes free memory out of one guest, step by step, and has a sink drop it. It is a state machine
/// without a thread or a clock. Use one for each guest.
#[derive(Debug, Default)]
pub struct Reclaimer {
    zone: ZoneId,
    tree: TreeId,
    isolation_failures: Option<u32>,
}

impl Reclaimer {
    /// Returns a reclaimer that begins at the start of memory.
    pub const fn new() -> Self {
        Self {
            zone: ZoneId::FIRST,
            tree: TreeId::FIRST,
            isolation_failures: None,
        }
    }

    /// Makes the next step begin a new pass at the start of memory. Does not access the guest.
    pub fn restart(&mut self) {
        (self.zone, self.tree) = (ZoneId::FIRST, TreeId::FIRST);
    }

    /// Takes free, touched pageblocks out of the next GiB that has some, has `sink` drop their
    /// memory, and puts them back. Takes at least one pageblock, and at most `most` frames (rounded
    /// up to a pageblock), [`TAKE_BLOCKS`] pageblocks, or half of the zone's free frames.
    ///
    /// Returns what was dropped, and how the step ended. Takes nothing and returns
    /// [`StepEnd::Missed`] if an allocation of the guest failed for lack of isolated memory since
    /// the last step. A step that examines the memory of 1 TiB without result returns
    /// [`StepEnd::More`].
    ///
    /// The ranges come from the guest's metadata: the sink must check that each lies in memory of
    /// the guest.
    pub fn step<S: ReportSink>(
        &mut self,
        attached: &Attached<'_>,
        most: u64,
        sink: &mut S,
    ) -> Step<S::Error> {
        self.step_where(attached, most, sink, &mut |_| true)
    }

    /// Like [`Self::step`], but takes only pageblocks for whose first frame `wanted` returns
    /// `true`. Calls `wanted` for every pageblock that is free and touched, some more than once in
    /// a pass.
    pub fn step_where<S: ReportSink>(
        &mut self,
        attached: &Attached<'_>,
        most: u64,
        sink: &mut S,
        wanted: &mut impl FnMut(Frame) -> bool,
    ) -> Step<S::Error> {
        let mut step = Step {
            frames: 0,
            ranges: 0,
            end: StepEnd::More,
        };
        let isolation_failures = attached.isolation_failures();
        if self
            .isolation_failures
            .replace(isolation_failures)
            .is_some_and(|seen| seen != isolation_failures)
        {
            step.end = StepEnd::Missed;
            return step;
        }
        for _ in 0..STEP_TREES {
            let Some(zone) = attached.zone(self.zone) else {
                self.restart();
                step.end = StepEnd::Done;
                return step;
            };
            let next = zone.arrays.map.next(Wanted::Touched.kind(), self.tree);
            // The map is checked like everything that the guest writes.
            let end = zone.arrays.summaries.end();
            let Some(tree) = next.filter(|&tree| tree < end) else {
                (self.zone, self.tree) = (self.zone.next(), TreeId::FIRST);
                continue;
            };
            self.tree = tree;
            if is_any_wanted(zone, tree, wanted) {
                if self.take(zone, most, sink, &mut step, wanted) {
                    return step;
                }
            } else {
                self.tree = tree.next();
            }
        }
        step
    }

    /// Takes pageblocks from the next tree on and has the sink drop them. Returns `false` if none
    /// could be taken there; `step` is unchanged then.
    fn take<S: ReportSink>(
        &mut self,
        zone: &Zone<'_>,
        most: u64,
        sink: &mut S,
        step: &mut Step<S::Error>,
        wanted: &mut impl FnMut(Frame) -> bool,
    ) -> bool {
        let Ok(mut open) = OpenGib::enter(zone, self.tree) else {
            self.tree = self.tree.next();
            return false;
        };
        let spare = (zone.free_frames() / FREE_PART).min(most);
        let mut limit = spare.div_ceil(PAGEBLOCK_FRAMES).max(1);
        let gib = zone.gib_of(self.tree);
        let mut ranges = [FrameRange::new(Frame::new(0), 0); TAKE_BLOCKS];
        let mut count: usize = 0;
        let end = zone.arrays.summaries.end();
        'trees: while self.tree < end && zone.gib_of(self.tree) == gib {
            if zone.summary(self.tree).count(Class::Touched) != 0 {
                for block in self.tree.blocks() {
                    if limit == 0 || open.is_full() {
                        break 'trees;
                    }
                    if zone.arrays.states[block].load().is(Class::Touched)
                        && wanted(zone.first_frame(block))
                        && open.take_block(block, State::is_touched).is_ok()
                    {
                        limit -= 1;
                        let range = FrameRange::new(zone.first_frame(block), PAGEBLOCK_FRAMES);
                        match count.checked_sub(1).and_then(|last| ranges.get_mut(last)) {
                            Some(last) if last.end() == range.start => {
                                last.frames += range.frames;
                            }
                            _ => {
                                // There are no more ranges than pageblocks, for which there is
                                // space.
                                ranges[count] = range;
                                count += 1;
                            }
                        }
                    }
                }
            }
            self.tree = self.tree.next();
        }
        let ranges = &ranges[..count];
        if ranges.is_empty() {
            let _ = open.close(PutBack::Unchanged);
            return false;
        }
        match sink.report(ranges) {
            Ok(()) => {
                let _ = open.close(PutBack::Reported);
                // Counts every dropped frame, even if the guest has allocated some again: a caller
                // with a goal must come to an end.
                step.frames = ranges.iter().map(|range| range.frames).sum();
                step.ranges = ranges.len() as u64;
            }
            Err(error) => {
                let _ = open.close(PutBack::Unchanged);
                step.end = StepEnd::Failed(error);
            }
        }
        true
    }
}

/// Calls `wanted` for every free and touched pageblock of `tree`. Returns whether it wants one of
/// them.
fn is_any_wanted(zone: &Zone<'_>, tree: TreeId, wanted: &mut impl FnMut(Frame) -> bool) -> bool {
    if zone.summary(tree).count(Class::Touched) == 0 {
        return false;
    }
    // The state words of a GiB that is free as a whole do not say that its pageblocks are touched.
    let whole = zone.gib(tree).load().is_touched();
    let mut any = false;
    for block in tree.blocks() {
        let state = zone.arrays.states.get(block);
        if state.is_some_and(|state| whole || state.load().is(Class::Touched)) {
            any |= wanted(zone.first_frame(block));
        }
    }
    any
}
