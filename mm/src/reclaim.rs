//! Which free memory of a guest its host takes, in which order and how much at a time.
//!
//! The guest's maps and summaries say where free blocks are that the host may hold memory for, so a pass over a guest that has
//! none costs a few words, whatever its size. Where there are some the host takes up to [`TAKE_BLOCKS`] of one GiB,
//! drops them in ranges as large as neighbours make them, and puts them back. The guest lacks no more than that at
//! any time, and no more than half of what a zone has free.

use core::convert::Infallible;

use crate::{
    Frame, FrameRange, PutBack, ReportSink,
    attach::Attached,
    frame::PAGEBLOCK_FRAMES,
    state::{Class, State},
    summary::TREE_BLOCKS,
    take::{OpenGiant, TAKE_BLOCKS},
    zone::{Wanted, Zone},
};

/// Trees that a step looks at: those of a guest of 1 TiB.
const STEP_TREES: usize = 1 << 14;
/// Of what a zone has free, this part at most is out.
const FREE_PART: u64 = 2;

/// How a step ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StepEnd<E = Infallible> {
    /// There may be more: the next step goes on from here.
    More,
    /// All memory was looked at since the pass began. The next step begins another.
    Done,
    /// The guest has failed to get memory while some was out. It should be left alone for a while.
    Missed,
    /// The sink failed; what it was to drop is as it was.
    Failed(E),
}

/// What a step did.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "says whether there is more"]
pub struct Step<E> {
    /// Frames that were dropped.
    pub frames: u64,
    /// Ranges of them.
    pub ranges: u64,
    /// How it ended.
    pub end: StepEnd<E>,
}

/// The host's way through a guest's memory: a state machine without a thread or a clock. One for a guest.
#[derive(Debug, Default)]
pub struct Reclaimer {
    zone: usize,
    tree: usize,
    misses: Option<u32>,
}

impl Reclaimer {
    /// At the start of all memory.
    pub const fn new() -> Self {
        Self {
            zone: 0,
            tree: 0,
            misses: None,
        }
    }

    /// Begins a pass at the start of all memory.
    pub fn restart(&mut self) {
        (self.zone, self.tree) = (0, 0);
    }

    /// Has the sink drop what is free, touched and next: of one GiB, `most` frames at most (rounded up to a block), and
    /// no more than [`TAKE_BLOCKS`] blocks. The sink gets what the metadata says: it checks that the guest was given it.
    pub fn step<S: ReportSink>(
        &mut self,
        attached: &Attached<'_>,
        most: u64,
        sink: &mut S,
    ) -> Step<S::Error> {
        self.step_where(attached, most, sink, &mut |_| true)
    }

    /// Like [`Self::step`], of the blocks alone for whose first frame `wanted` returns true. It may be asked about a
    /// block more than once in a pass, and is asked about each that is free and touched.
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
        let misses = attached.misses();
        if self
            .misses
            .replace(misses)
            .is_some_and(|seen| seen != misses)
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
            // What a map says is checked, as all is.
            let Some(tree) = next.filter(|&tree| tree < zone.trees()) else {
                (self.zone, self.tree) = (self.zone + 1, 0);
                continue;
            };
            self.tree = tree;
            if is_any_wanted(zone, tree, wanted) {
                if self.take(zone, most, sink, &mut step, wanted) {
                    return step;
                }
            } else {
                self.tree += 1;
            }
        }
        step
    }

    /// Takes blocks from the tree on that is next, and drops them; false: none could be taken there.
    fn take<S: ReportSink>(
        &mut self,
        zone: &Zone<'_>,
        most: u64,
        sink: &mut S,
        step: &mut Step<S::Error>,
        wanted: &mut impl FnMut(Frame) -> bool,
    ) -> bool {
        let Ok(mut open) = OpenGiant::enter(zone, self.tree) else {
            self.tree += 1;
            return false;
        };
        let spare = (zone.free_frames() / FREE_PART).min(most);
        let mut limit = spare.div_ceil(PAGEBLOCK_FRAMES).max(1);
        let giant = zone.giant_of(self.tree);
        let mut ranges = [FrameRange::new(Frame::new(0), 0); TAKE_BLOCKS];
        let mut count: usize = 0;
        'trees: while self.tree < zone.trees() && zone.giant_of(self.tree) == giant {
            if zone.summary(self.tree).count(Class::Touched) != 0 {
                for block in self.tree * TREE_BLOCKS..(self.tree + 1) * TREE_BLOCKS {
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
                                // As many ranges as blocks at most.
                                ranges[count] = range;
                                count += 1;
                            }
                        }
                    }
                }
            }
            self.tree += 1;
        }
        let ranges = &ranges[..count];
        if ranges.is_empty() {
            let _ = open.close(PutBack::Unchanged);
            return false;
        }
        match sink.report(ranges) {
            Ok(()) => {
                let _ = open.close(PutBack::Reported);
                // All that was dropped, though the guest may have taken some back: who asks for so much ends.
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

/// Asks about every block of a tree that is free and touched. Returns whether one of them is wanted.
fn is_any_wanted(zone: &Zone<'_>, tree: usize, wanted: &mut impl FnMut(Frame) -> bool) -> bool {
    if zone.summary(tree).count(Class::Touched) == 0 {
        return false;
    }
    // The blocks of a GiB that is free as a whole say nothing themselves.
    let whole = zone.giant(tree).load().is_touched();
    let mut any = false;
    for block in tree * TREE_BLOCKS..(tree + 1) * TREE_BLOCKS {
        let state = zone.arrays.states.get(block);
        if state.is_some_and(|state| whole || state.load().is(Class::Touched)) {
            any |= wanted(zone.first_frame(block));
        }
    }
    any
}
