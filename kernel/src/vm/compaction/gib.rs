//! A GiB made of memory in use, for the pool of pages of 1 GiB.
//!
//! All free memory of the cheapest GiB is taken out first, so that no new allocation lies in it.
//! Huge pages of programs in it are parted, and their frames move one by one. Pages of the pools do
//! not move, so a GiB with such a page cannot be made whole.

use super::{COMPACTORS, Patience, Room, empty, now};
use crate::vm::moving::Mover;
use core::sync::atomic::{AtomicU32, Ordering};
use ebb_mm::{BlockPlace, EmptyingGib, Frame, Mobility, NoGib};
use machine::arch::clock::{self, Nanos};
use machine::memory::{allocator, percpu, pressure};
use machine::sched;

/// The number of GiBs of a zone that are tried. After a failure the unmovable frames are known, and
/// another GiB is planned.
const TRIES: u32 = 3;
/// The number of passes over the remaining frames: a frame that was busy in one pass may move in
/// the next.
const PASSES: u32 = 3;

/// How long blocks that are out for a moment are waited for, in looks and nanoseconds between two.
const WAITS: u32 = 2500;
const WAIT: u64 = 2_000_000;
/// The number of waits for another CPU or the host that may be searching an empty GiB for a block.
/// None of its memory can be allocated in that time.
const JOIN_WAITS: u32 = 50;

/// The number of GiBs being made. In that time blocks without a waiting task are not emptied.
static MAKING: AtomicU32 = AtomicU32::new(0);

/// Whether a GiB is being made.
pub(super) fn is_being_made() -> bool {
    // Relaxed: a task that looks too early is waited for.
    MAKING.load(Ordering::Relaxed) != 0
}

/// Allocates a GiB, made of memory in use if necessary. Returns `None` if that fails.
pub(crate) fn take() -> Option<Frame> {
    if !pressure::may_block() {
        // So early that nothing moves yet.
        return None;
    }
    let mut mover = Mover::new().ok()?;
    MAKING.fetch_add(1, Ordering::Relaxed);
    percpu::drain();
    allocator().request_drain();
    sched::yield_now();
    let zones = (0..allocator().zones()).rev();
    let taken = zones
        .flat_map(|zone| core::iter::repeat_n(zone, TRIES as usize))
        .find_map(|zone| try_zone(zone, &mut mover));
    MAKING.fetch_sub(1, Ordering::Relaxed);
    taken
}

/// Begins with the cheapest GiB of a zone.
fn begin(zone: usize) -> Option<EmptyingGib> {
    for _ in 0..WAITS {
        {
            let mut compactor = COMPACTORS[zone].lock();
            match compactor.plan_gib(now(), allocator()) {
                Ok(plan) => {
                    let begun = compactor.begin_gib(allocator(), plan);
                    if begun.is_some() {
                        return begun;
                    }
                    // A block was taken since the look: the host, too, has some for a moment.
                }
                Err(NoGib::Nowhere) => return None,
                Err(NoGib::Busy) => {}
            }
        }
        if !pause() {
            return None;
        }
    }
    None
}

/// Waits between two looks. Returns `false` if the caller is being killed.
fn pause() -> bool {
    if sched::current().killed() {
        return false;
    }
    sched::sleep_until(clock::now().saturating_add(Nanos(WAIT)));
    true
}

fn try_zone(zone: usize, mover: &mut Mover) -> Option<Frame> {
    let mut gib = begin(zone)?;
    let mut given_up = false;
    let (mut passes, mut waits) = (PASSES, JOIN_WAITS);
    while passes != 0 && waits != 0 {
        given_up = !empty_all(&gib, mover);
        if given_up {
            break;
        }
        match allocator().take_emptied_gib(gib, Mobility::Movable) {
            Ok(frame) => return Some(frame),
            Err(left) => gib = left,
        }
        if is_empty(&gib) {
            // Another CPU looks for a block in it, or the host does, and may have been interrupted.
            waits -= 1;
            given_up = !pause();
            if given_up {
                break;
            }
        } else {
            passes -= 1;
        }
    }
    let mut compactor = COMPACTORS[zone].lock();
    compactor.end_gib(now(), allocator(), gib, given_up);
    None
}

/// Whether nothing of a GiB is in use any more.
fn is_empty(gib: &EmptyingGib) -> bool {
    let mut blocks = gib.blocks(allocator());
    blocks.all(|block| allocator().frames_left(block) == 0)
}

/// Moves the movable frames of a GiB elsewhere. Returns `false` if there is no room, or the caller
/// is being killed.
fn empty_all(gib: &EmptyingGib, mover: &mut Mover) -> bool {
    gib.blocks(allocator()).all(|block| {
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
