//! A GiB made of memory in use, for the pool of pages of 1 GiB.
//!
//! All of the cheapest one is taken out first, so that nothing new gets into it. Huge pages of programs in it are parted, and
//! their frames move one by one. Pages of the pools stay, and whoever is in their GiB with them.

use super::{COMPACTORS, Patience, Room, empty, now};
use crate::vm::moving::Mover;
use ebb_mm::{BlockPlace, EmptyingGiant, Frame, Mobility};
use machine::memory::{allocator, percpu};
use machine::sched;

/// GiBs of a zone that are tried: what could not be moved is known then, and another one is planned.
const TRIES: u32 = 3;
/// How often what is left in use is gone over: what was in use just then may not be.
const PASSES: u32 = 3;

/// Takes a GiB, if one can be had.
pub(crate) fn take() -> Option<Frame> {
    let mut mover = Mover::new().ok()?;
    percpu::drain();
    allocator().request_drain();
    sched::yield_now();
    let zones = (0..allocator().zones()).rev();
    zones
        .flat_map(|zone| core::iter::repeat_n(zone, TRIES as usize))
        .find_map(|zone| try_zone(zone, &mut mover))
}

fn try_zone(zone: usize, mover: &mut Mover) -> Option<Frame> {
    let mut giant = {
        let mut compactor = COMPACTORS[zone].lock();
        let plan = compactor.plan_giant(now(), allocator())?;
        compactor.begin_giant(allocator(), plan)?
    };
    let mut given_up = false;
    for _ in 0..PASSES {
        given_up = !empty_all(&giant, mover);
        if given_up {
            break;
        }
        match allocator().take_emptied_giant(giant, Mobility::Movable) {
            Ok(frame) => return Some(frame),
            Err(left) => giant = left,
        }
    }
    let mut compactor = COMPACTORS[zone].lock();
    compactor.end_giant(now(), allocator(), giant, given_up);
    None
}

/// Moves what is in a GiB elsewhere, as far as it moves; false: there is no room, or the caller is being killed.
fn empty_all(giant: &EmptyingGiant, mover: &mut Mover) -> bool {
    giant.blocks(allocator()).all(|block| {
        if allocator().frames_left(block) == 0 {
            return true;
        }
        part(block, mover);
        let roomy = empty(block, mover, Room::Anywhere, Patience::Thorough);
        sched::cond_resched();
        roomy && !sched::current().killed()
    })
}

/// Has a huge page of a program be pages.
fn part(block: BlockPlace, mover: &mut Mover) {
    if allocator().is_whole(block) {
        mover.part(block.range().start);
    }
}
