//! Compaction of a whole GiB: select the GiB that is the cheapest to empty ([`GibPlan`]), and
//! take all of it out while its frames are migrated ([`EmptyingGib`]).

use core::time::Duration;

use crate::{
    Allocator, Frame, Mobility, Order, ZoneId,
    frame::PAGEBLOCK_FRAMES,
    gib::GIB_BLOCKS,
    ids::{GibId, TreeId, each},
    state::{BLOCK_FRAMES, Class, State},
    zone::ZoneRef,
};

use super::{compactor::Compactor, emptying::BlockPlace, scan::Source};

/// How often the allocation of an empty GiB is tried. A CPU that searches for a free pageblock may
/// be counted in it for a moment.
const JOIN_ATTEMPTS: usize = 1000;

/// A GiB that compaction can empty, and the cost of that.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GibPlan {
    zone: ZoneId,
    gib: GibId,
    /// Number of single frames that must be migrated.
    pub frames: u64,
    /// Number of pageblocks allocated as a whole, which must be split and migrated.
    pub wholes: u64,
}

/// Why compaction can empty no GiB.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NoGib {
    /// Pageblocks are isolated at the moment, for example to be reported, or are being emptied. A
    /// later attempt can succeed.
    Busy,
    /// Each GiB contains memory that cannot be migrated, or there are too few free frames
    /// elsewhere.
    Nowhere,
}

/// What [`Compactor::plan_gib`] does with GiBs that have pageblocks which could not be emptied a
/// short time ago.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StuckGibs {
    /// Leaves them out.
    Skip,
    /// Selects them like others: what could not be migrated then may be gone by now.
    Include,
}

/// A GiB that is being emptied: its memory in use is to be migrated.
///
/// If this value is dropped, the free frames of the GiB are lost.
#[derive(Debug)]
#[must_use = "what is free of it is lost unless it is given back"]
pub struct EmptyingGib {
    zone: ZoneId,
    gib: GibId,
    /// The first of its trees.
    first: TreeId,
}

/// The memory in use of a GiB.
#[derive(Copy, Clone, Default)]
struct Contents {
    /// Frames in use in pageblocks that are not allocated as a whole.
    frames: u64,
    /// Pageblocks allocated as a whole.
    wholes: u64,
}

impl Contents {
    const fn cost(&self) -> u64 {
        self.frames + self.wholes * PAGEBLOCK_FRAMES
    }
}

impl Compactor {
    /// Selects the GiB of this zone with the fewest frames to migrate, and returns it with its
    /// cost. Changes nothing in the allocator.
    ///
    /// Leaves out the GiBs of `tried`, and those for whose first frame `stays` returns `true`,
    /// because the caller knows of frames that cannot be migrated. Reads two bytes for each
    /// pageblock of each other GiB whose memory is all movable.
    ///
    /// # Errors
    /// Fails with [`NoGib::Busy`] if a GiB could be emptied later, and with [`NoGib::Nowhere`] if
    /// none can be emptied.
    pub fn plan_gib(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        stuck: StuckGibs,
        tried: &[Option<GibPlan>],
        stays: impl Fn(Frame) -> bool,
    ) -> Result<GibPlan, NoGib> {
        let zone = allocator.zone(self.zone());
        let reserve = zone.zone.marks.load().min;
        let needed = reserve.saturating_add(Order::GIB.frames());
        let free = zone.zone.free_frames();
        if free + zone.zone.isolated_frames() < needed {
            return Err(NoGib::Nowhere);
        }
        if free < needed {
            return Err(NoGib::Busy);
        }
        let mut best: Option<(GibId, Contents)> = None;
        let mut none = NoGib::Nowhere;
        for gib in zone.zone.arrays.gibs.ids() {
            let is_tried = |plan: &GibPlan| (plan.zone, plan.gib) == (self.zone(), gib);
            if tried.iter().flatten().any(is_tried) {
                continue;
            }
            match self.gib_contents(now, zone, gib, stuck) {
                Ok((first, found)) => {
                    if best.is_none_or(|(_, best)| found.cost() < best.cost()) && !stays(first) {
                        best = Some((gib, found));
                    }
                }
                Err(NoGib::Busy) => none = NoGib::Busy,
                Err(NoGib::Nowhere) => {}
            }
        }
        let (gib, found) = best.ok_or(none)?;
        // There is room elsewhere: the free frames beyond a GiB.
        Ok(GibPlan {
            zone: self.zone(),
            gib,
            frames: found.frames,
            wholes: found.wholes,
        })
    }

    /// Returns the first frame and the memory in use of `gib`.
    ///
    /// # Errors
    /// Fails if something in it cannot be migrated, or not at the moment, and if the zone does not
    /// have all of it.
    fn gib_contents(
        &mut self,
        now: Duration,
        at: ZoneRef<'_, '_>,
        gib: GibId,
        stuck: StuckGibs,
    ) -> Result<(Frame, Contents), NoGib> {
        let zone = at.zone;
        let first = zone.first_tree(gib).ok_or(NoGib::Nowhere)?;
        if zone.arrays.gibs[gib].load().is_huge() {
            return Err(NoGib::Nowhere);
        }
        let moves = |tree: TreeId| {
            let summary = zone.summary(tree);
            let others = [Mobility::Unmovable, Mobility::Reclaimable];
            others.into_iter().all(|other| summary.of(other) == 0)
        };
        if !each(first.trees_of_gib()).all(moves) {
            return Err(NoGib::Nowhere);
        }
        let mut found = Contents::default();
        let mut busy = false;
        for block in each(first.blocks_of_gib()) {
            let state = zone.arrays.states[block].load();
            let used = state.used();
            match state.class() {
                Class::Touched | Class::Untouched => {}
                _ if state.is_emptying() => busy = true,
                Class::Partial(Mobility::Movable) | Class::Full(Mobility::Movable) => {
                    if stuck == StuckGibs::Skip && self.stuck.holds(now, block, used) {
                        return Err(NoGib::Nowhere);
                    }
                    if state.is_huge() {
                        found.wholes += 1;
                    } else {
                        found.frames += u64::from(used);
                    }
                }
                Class::Isolated => busy = true,
                Class::Partial(_) | Class::Full(_) => return Err(NoGib::Nowhere),
            }
        }
        if busy {
            return Err(NoGib::Busy);
        }
        Ok((zone.first_frame(first.first_block()), found))
    }

    /// Starts to empty a planned GiB: takes out all of its pageblocks, so that their free frames
    /// cannot be allocated. Returns `None`, with all pageblocks given back, if one of them has
    /// changed since, so that it cannot be emptied.
    ///
    /// The caller migrates single frames to those of [`targets`](Self::targets), or to any others
    /// that it allocates, and pageblocks to others that it allocates.
    pub fn begin_gib(&mut self, allocator: &Allocator<'_>, plan: GibPlan) -> Option<EmptyingGib> {
        let first = allocator.zone(plan.zone).zone.first_tree(plan.gib)?;
        for block in each(first.blocks_of_gib()) {
            let begun = allocator.set_aside(plan.zone, block, |at| {
                let free = |state: &crate::state::AtomicState| state.begin_emptying(State::is_free);
                let moves = |state: State| state.mobility() == Mobility::Movable;
                at.begin_emptying(moves)
                    .or_else(|| at.use_whole(free).map(|change| change.new))
            });
            if begun.is_none() {
                for begun in each(first.first_block()..block) {
                    allocator.end_block(allocator.place(plan.zone, begun));
                }
                return None;
            }
        }
        Some(EmptyingGib {
            zone: plan.zone,
            gib: plan.gib,
            first,
        })
    }

    /// Ends the emptying of a GiB, and gives it back pageblock by pageblock. Pageblocks with frames
    /// in use are remembered as ones that cannot be emptied, unless `given_up` says that compaction
    /// stopped for another reason.
    pub fn end_gib(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        gib: EmptyingGib,
        given_up: bool,
    ) {
        for block in each(gib.first.blocks_of_gib()) {
            let left = allocator.end_block(allocator.place(gib.zone, block));
            if left != 0 && !given_up {
                let stuck = Source::new(block, left, BLOCK_FRAMES);
                self.stuck.note_in_gib(now, stuck);
            }
        }
    }
}

impl EmptyingGib {
    /// Iterates over the positions of the 512 pageblocks of the GiB, in ascending order.
    pub fn blocks<'a>(
        &self,
        allocator: &'a Allocator<'_>,
    ) -> impl Iterator<Item = BlockPlace> + use<'a> {
        let zone = self.zone;
        each(self.first.blocks_of_gib()).map(move |block| allocator.place(zone, block))
    }
}

impl Allocator<'_> {
    /// Allocates an emptied GiB at [`Order::GIB`] for `mobility`, and returns its first frame. Ends
    /// the emptying.
    ///
    /// # Errors
    /// Fails if frames of the GiB are still in use, or if other CPUs that search for pageblocks are
    /// counted in it for too long. Returns the GiB then, which is still being emptied.
    pub fn take_emptied_gib(
        &self,
        gib: EmptyingGib,
        mobility: Mobility,
    ) -> Result<Frame, EmptyingGib> {
        let at = self.zone(gib.zone);
        let states = at.zone.arrays.states.slice(gib.first.blocks_of_gib());
        let empty = states.iter().all(|state| state.load().used() == 0);
        let word = &at.zone.arrays.gibs[gib.gib];
        // After the GiB is allocated as a whole, no CPU reads the states of its pageblocks. So they
        // can be set to free.
        if !empty || !(0..JOIN_ATTEMPTS).any(|_| word.join(GIB_BLOCKS, mobility)) {
            return Err(gib);
        }
        for block in each(gib.first.blocks_of_gib()) {
            let change = at.zone.arrays.states[block].end_emptying();
            at.count_free_class(block, change);
        }
        let frame = at.zone.first_frame(gib.first.first_block());
        at.zone.hand_out(frame, Order::GIB);
        at.zone.count_isolated(-(Order::GIB.frames().cast_signed()));
        Ok(frame)
    }
}
