//! A GiB made of memory in use, for the pool of pages of 1 GiB.
//!
//! All free memory of the cheapest GiB is taken out first, so that no new allocation lies in it.
//! Huge pages of programs in it are parted, and their frames move one by one. Pages of the pools do
//! not move, so no GiB with such a page is tried.

use super::{Patience, Room, compactor, empty, now};
use crate::vm::moving::Mover;
use core::sync::atomic::{AtomicU32, Ordering};
use ebb_mm::{BlockPlace, Compacts, EmptyingGib, Frame, GibPlan, NoGib, StuckGibs, ZoneId};
use machine::arch::clock::{self, Nanos};
use machine::memory::memmap::Descriptor;
use machine::memory::{allocator, hugetlb, percpu, pressure};
use machine::sched;

/// The number of GiBs of a zone that are tried. After a failure the unmovable frames are known, and
/// another GiB is planned.
const TRIES: usize = 3;
/// The number of passes over the remaining frames: a frame that was busy in one pass may move in
/// the next.
const PASSES: u32 = 3;

/// The number of waits for blocks that another CPU holds for a moment, and the time of one wait in
/// nanoseconds.
const WAITS: u32 = 2500;
const WAIT: u64 = 2_000_000;
/// The number of waits for other CPUs and the host, when nothing of a GiB is left but frames in
/// CPUs' caches, or a CPU or the host searches it for a block. None of its memory can be allocated
/// in that time. A virtual CPU may have to wait for a busy host before it answers.
const OTHERS_WAITS: u32 = 500;

/// The number of GiBs being made. In that time blocks without a waiting task are not emptied.
static MAKING: AtomicU32 = AtomicU32::new(0);

/// Returns whether a GiB is being made.
pub(super) fn is_being_made() -> bool {
    // Relaxed: a task that looks too early is waited for.
    MAKING.load(Ordering::Relaxed) != 0
}

/// Allocates a GiB. Makes it from memory in use if necessary, by moving the frames elsewhere. May
/// block for seconds. Returns `None` if no GiB could be emptied, if the task is being killed, if
/// memory is short, or if tasks cannot block yet.
pub(crate) fn take() -> Option<Frame> {
    if !pressure::may_block() {
        // So early that nothing moves yet.
        return None;
    }
    let mut mover = Mover::new().ok()?;
    MAKING.fetch_add(1, Ordering::Relaxed);
    percpu::drain_all();
    sched::yield_now();
    let mut zones = allocator().zone_ids().rev();
    let taken = zones.find_map(|zone| take_from(zone, &mut mover));
    MAKING.fetch_sub(1, Ordering::Relaxed);
    taken
}

/// Allocates a GiB of a zone, made of memory in use. Returns `None` if no GiB of the zone could be
/// emptied.
fn take_from(zone: ZoneId, mover: &mut Mover) -> Option<Frame> {
    let mut tried = [None; TRIES];
    let mut tries = 0;
    // The GiBs that other compaction could not empty come last. Their frames may have been in use
    // for a moment.
    for stuck in [StuckGibs::Skip, StuckGibs::Include] {
        while tries < TRIES {
            let (gib, plan) = match begin(zone, stuck, &tried) {
                Ok(begun) => begun,
                Err(NoGib::Nowhere) => break,
                Err(NoGib::Busy) => return None,
            };
            let taken = make(zone, gib, mover);
            if taken.is_some() {
                return taken;
            }
            tried[tries] = Some(plan);
            tries += 1;
        }
    }
    None
}

/// Begins with the cheapest GiB of a zone that is not in `tried`. Pages of the pools, and blocks
/// that carry their part of the memmap, count as movable memory, but cannot move. So a GiB with
/// one of these is left out.
///
/// # Errors
/// Fails with `Nowhere` if there is none, and with `Busy` if the caller is being killed or
/// pageblocks are out for too long.
fn begin(
    zone: ZoneId,
    stuck: StuckGibs,
    tried: &[Option<GibPlan>],
) -> Result<(EmptyingGib, GibPlan), NoGib> {
    for _ in 0..WAITS {
        {
            let mut compactor = compactor(zone);
            let stays = hugetlb::stays_in_gib;
            match compactor.plan_gib(now(), allocator(), stuck, tried, stays) {
                Ok(plan) => {
                    if let Some(begun) = compactor.begin_gib(allocator(), plan) {
                        return Ok((begun, plan));
                    }
                    // A block was taken since the look: the host, too, has some for a moment.
                }
                Err(NoGib::Nowhere) => return Err(NoGib::Nowhere),
                Err(NoGib::Busy) => {}
            }
        }
        if !pause() {
            break;
        }
    }
    Err(NoGib::Busy)
}

/// Waits between two looks. Returns `false` if the caller is being killed.
fn pause() -> bool {
    if sched::current().killed() {
        return false;
    }
    sched::sleep_until(clock::now().saturating_add(Nanos(WAIT)));
    true
}

/// Moves the frames in use of a GiB elsewhere and allocates the GiB. Returns `None` and gives the
/// GiB back if that fails.
fn make(zone: ZoneId, mut gib: EmptyingGib, mover: &mut Mover) -> Option<Frame> {
    let mut given_up = false;
    let (mut passes, mut waits) = (PASSES, OTHERS_WAITS);
    while passes != 0 && waits != 0 {
        given_up = !empty_all(&gib, mover);
        if given_up {
            break;
        }
        match percpu::this().take_emptied_gib(gib) {
            Ok(frame) => return Some(frame),
            Err(left) => gib = left,
        }
        if waits_for_others(&gib) {
            waits -= 1;
            percpu::drain_all();
            given_up = !pause();
            if given_up {
                break;
            }
        } else {
            passes -= 1;
        }
    }
    let mut compactor = compactor(zone);
    compactor.end_gib(now(), allocator(), gib, given_up);
    None
}

/// Returns `true` if all frames of a GiB are free, where those in CPUs' caches count as free.
fn waits_for_others(gib: &EmptyingGib) -> bool {
    let is_cached = |frame: Frame| Descriptor::get(frame).kind().is_none();
    gib.blocks(allocator()).all(|block| {
        if allocator().is_whole(block) {
            is_cached(block.range().start)
        } else {
            allocator().frames_in_use(block).all(is_cached)
        }
    })
}

/// Moves the movable frames of a GiB elsewhere. Returns `false` if there is no room, or the caller
/// is being killed.
fn empty_all(gib: &EmptyingGib, mover: &mut Mover) -> bool {
    gib.blocks(allocator()).all(|block| {
        if allocator().frames_left(block) == 0 {
            return true;
        }
        part(block, mover);
        let roomy = empty(
            block,
            Compacts::Direct,
            mover,
            Room::Anywhere,
            Patience::Thorough,
        );
        sched::cond_resched();
        roomy && !sched::current().killed()
    })
}

/// Splits the huge page of a program that lies in the block.
fn part(block: BlockPlace, mover: &mut Mover) {
    if allocator().is_whole(block) {
        mover.part(block.range().start);
    }
}
