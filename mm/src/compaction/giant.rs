//! A GiB made of memory in use: the one whose emptying costs least, all of it taken out until what is
//! in it has been moved.

use core::time::Duration;

use crate::{
    Allocator, Frame, Mobility, Order,
    frame::PAGEBLOCK_FRAMES,
    giant::GIANT_BLOCKS,
    state::{Class, State},
    summary::TREE_BLOCKS,
    whole::blocks_from,
    zone::ZoneRef,
};

use super::{compactor::Compactor, emptying::BlockPlace};

/// How often is tried to take a GiB that is empty: one who looks for a free block may count as being
/// in it for a moment.
const JOIN_ATTEMPTS: usize = 1000;

/// A GiB that can be had, and what it costs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GiantPlan {
    zone: usize,
    giant: usize,
    /// Single frames that have to be moved.
    pub frames: u64,
    /// Pageblocks allocated whole, that have to be parted.
    pub wholes: u64,
}

/// Why no GiB can be had.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NoGiant {
    /// Blocks of one are out for a moment: reported to the host, or being emptied.
    Busy,
    /// Something in each does not move, or there is no room for what does.
    Nowhere,
}

/// A GiB that is being emptied.
#[derive(Debug)]
#[must_use = "what is free of it is lost unless it is given back"]
pub struct EmptyingGiant {
    zone: usize,
    giant: usize,
    first: usize,
}

/// What a GiB has, or several.
#[derive(Copy, Clone, Default)]
struct Contents {
    /// Frames in use one by one, in blocks that have movable ones.
    frames: u64,
    /// Blocks allocated whole, to be parted and moved.
    wholes: u64,
}

impl Contents {
    const fn cost(&self) -> u64 {
        self.frames + self.wholes * PAGEBLOCK_FRAMES
    }
}

impl Compactor {
    /// The GiB of this zone that is the cheapest to make, of memory in use or free.
    ///
    /// Reads two bytes for each pageblock of those in which everything is movable.
    ///
    /// # Errors
    /// If there is none in which everything moves, or no room for what is in it.
    pub fn plan_giant(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
    ) -> Result<GiantPlan, NoGiant> {
        let zone = allocator.zone(self.zone());
        let stays = zone.zone.marks.load().min;
        let needed = stays.saturating_add(Order::GIANT.frames());
        let free = zone.zone.free_frames();
        if free + zone.zone.isolated_frames() < needed {
            return Err(NoGiant::Nowhere);
        }
        if free < needed {
            return Err(NoGiant::Busy);
        }
        let mut best: Option<(usize, Contents)> = None;
        let mut none = NoGiant::Nowhere;
        for giant in 0..zone.zone.arrays.giants.len() {
            let Some(first) = zone.zone.first_tree(giant) else {
                continue;
            };
            match self.giant_contents(now, zone, giant, first) {
                Ok(found) => {
                    if best.is_none_or(|(_, best)| found.cost() < best.cost()) {
                        best = Some((giant, found));
                    }
                }
                Err(NoGiant::Busy) => none = NoGiant::Busy,
                Err(NoGiant::Nowhere) => {}
            }
        }
        let (giant, found) = best.ok_or(none)?;
        // There is room elsewhere: as many frames as are free in all beyond a GiB.
        Ok(GiantPlan {
            zone: self.zone(),
            giant,
            frames: found.frames,
            wholes: found.wholes,
        })
    }

    /// What a GiB has.
    ///
    /// # Errors
    /// If something of it does not move, or not now.
    fn giant_contents(
        &mut self,
        now: Duration,
        at: ZoneRef<'_, '_>,
        giant: usize,
        first: usize,
    ) -> Result<Contents, NoGiant> {
        let zone = at.zone;
        if zone.arrays.giants[giant].load().is_huge() {
            return Err(NoGiant::Nowhere);
        }
        let blocks = blocks_from(first);
        let trees = first..blocks.end / TREE_BLOCKS;
        let moves = |tree: usize| {
            let summary = zone.summary(tree);
            let others = [Mobility::Unmovable, Mobility::Reclaimable];
            others.into_iter().all(|other| summary.of(other) == 0)
        };
        if !trees.into_iter().all(moves) {
            return Err(NoGiant::Nowhere);
        }
        let mut found = Contents::default();
        let mut busy = false;
        for block in blocks {
            let state = zone.arrays.states[block].load();
            let used = state.used();
            match state.class() {
                Class::Touched | Class::Untouched => {}
                _ if state.is_emptying() => busy = true,
                Class::Partial(Mobility::Movable) | Class::Full(Mobility::Movable) => {
                    if self.stuck.holds(now, block, used) {
                        return Err(NoGiant::Nowhere);
                    }
                    if state.is_huge() {
                        found.wholes += 1;
                    } else {
                        found.frames += u64::from(used);
                    }
                }
                Class::Isolated => busy = true,
                Class::Partial(_) | Class::Full(_) => return Err(NoGiant::Nowhere),
            }
        }
        if busy {
            return Err(NoGiant::Busy);
        }
        Ok(found)
    }

    /// Takes all of a planned GiB out, to be emptied; none if something has changed. Single frames go
    /// where [`targets`](Self::targets) says, or where any others are allocated; blocks where any
    /// are.
    pub fn begin_giant(
        &mut self,
        allocator: &Allocator<'_>,
        plan: GiantPlan,
    ) -> Option<EmptyingGiant> {
        let first = allocator.zone(plan.zone).zone.first_tree(plan.giant)?;
        for block in blocks_from(first) {
            let begun = allocator.set_aside(plan.zone, block, |at| {
                let free = |state: &crate::state::AtomicState| state.begin_emptying(State::is_free);
                let moves = |state: State| state.mobility() == Mobility::Movable;
                at.begin_emptying(moves)
                    .or_else(|| at.use_whole(free).map(|change| change.new))
            });
            if begun.is_none() {
                for begun in blocks_from(first).take_while(|&begun| begun < block) {
                    allocator.end_block(allocator.place(plan.zone, begun));
                }
                return None;
            }
        }
        Some(EmptyingGiant {
            zone: plan.zone,
            giant: plan.giant,
            first,
        })
    }

    /// Gives a GiB back, block by block. Blocks of which something stayed are remembered, unless it
    /// was `given_up` for another reason.
    pub fn end_giant(
        &mut self,
        now: Duration,
        allocator: &Allocator<'_>,
        giant: EmptyingGiant,
        given_up: bool,
    ) {
        for block in blocks_from(giant.first) {
            let left = allocator.end_block(allocator.place(giant.zone, block));
            if left != 0 && !given_up {
                self.stuck.note(now, block, left);
            }
        }
    }
}

impl EmptyingGiant {
    /// Its pageblocks.
    pub fn blocks<'a>(
        &self,
        allocator: &'a Allocator<'_>,
    ) -> impl Iterator<Item = BlockPlace> + use<'a> {
        let zone = self.zone;
        blocks_from(self.first).map(move |block| allocator.place(zone, block))
    }
}

impl Allocator<'_> {
    /// Takes a GiB that was emptied, as one of [`Order::GIANT`].
    ///
    /// # Errors
    /// With the GiB, if something of it is in use still.
    pub fn take_emptied_giant(
        &self,
        giant: EmptyingGiant,
        mobility: Mobility,
    ) -> Result<Frame, EmptyingGiant> {
        let at = self.zone(giant.zone);
        let states = &at.zone.arrays.states[blocks_from(giant.first)];
        let empty = states.iter().all(|state| state.load().used() == 0);
        let word = &at.zone.arrays.giants[giant.giant];
        // Once it is taken whole nobody looks at its blocks, and they can be as free as any.
        if !empty || !(0..JOIN_ATTEMPTS).any(|_| word.join(GIANT_BLOCKS, mobility)) {
            return Err(giant);
        }
        for block in blocks_from(giant.first) {
            let change = at.zone.arrays.states[block].end_emptying();
            at.count_free_class(block, change);
        }
        let frame = at.zone.first_frame(giant.first * TREE_BLOCKS);
        at.zone.hand_out(frame, Order::GIANT);
        at.zone
            .count_isolated(-(Order::GIANT.frames().cast_signed()));
        Ok(frame)
    }
}
