//! Empties pageblocks: the allocator's policy chooses them, `moving` moves their frames.
//!
//! Blocks are emptied for a huge fault that finds none, for the pools of huge pages (`gib` makes a
//! whole GiB), for `compact_memory`, and in the background (`daemon`).

mod carriers;
pub(crate) mod daemon;
pub(crate) mod gib;
pub(crate) mod knobs;
pub(crate) mod proactive;

use super::moving::{BATCH, Mover};
use core::time::Duration;
use ebb_mm::{
    BlockPlace, CompactionCounters, Compactor, Compacts, Emptied, EmptyingBlock, Frame, HostPlan,
    Order, PAGEBLOCK_FRAMES, ZoneId,
};
use logic::errno::Errno;
use machine::arch::clock;
use machine::memory::memmap::Descriptor;
use machine::memory::targets::Targets;
use machine::memory::{allocator, percpu};
use machine::sched;
use machine::sync::{Mutex, MutexGuard};

/// The compactors of the zones, by the index of the zone.
static COMPACTORS: [Mutex<Compactor>; 8] = [
    Mutex::new(Compactor::new(ZoneId::new(0))),
    Mutex::new(Compactor::new(ZoneId::new(1))),
    Mutex::new(Compactor::new(ZoneId::new(2))),
    Mutex::new(Compactor::new(ZoneId::new(3))),
    Mutex::new(Compactor::new(ZoneId::new(4))),
    Mutex::new(Compactor::new(ZoneId::new(5))),
    Mutex::new(Compactor::new(ZoneId::new(6))),
    Mutex::new(Compactor::new(ZoneId::new(7))),
];
const _: () = assert!(COMPACTORS.len() == ebb_mm::MAX_ZONES);

/// Locks the compactor of a zone.
fn compactor(zone: ZoneId) -> MutexGuard<'static, Compactor> {
    COMPACTORS[zone.index()].lock()
}

fn now() -> Duration {
    Duration::from_nanos(clock::now().0)
}

/// The result of an attempt to empty a block of the buddy allocator.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum End {
    /// The block is free.
    Whole,
    /// The block is not free, because one of its frames could not be moved or found no free frame
    /// elsewhere.
    Stuck,
    /// No block was emptied: there is none, the least cost is too high, or a GiB is being made.
    Nothing,
}

/// The most blocks that are tried for a waiting task.
const TRIES: u32 = 3;

/// The most blocks in a row that an attempt passes over because they have filled up since the
/// compactor looked at them. The attempt then ends without a block.
const BEGINNINGS: u32 = 64;

/// The most frames in use for which [`empty_remains`] empties a block. Moving them costs little
/// beside the work that freed the others.
const REMAINS: u32 = 32;

/// The effort for frames that are hard to free: those in the CPUs' caches, and those that are not
/// mapped at the address in their owner word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Patience {
    /// Waits for the CPUs to empty their caches, and searches the page tables for the frames'
    /// entries.
    Thorough,
    /// Leaves such frames where they are, because a task waits for the block.
    Brief,
}

/// The blocks to which frames may be moved.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Room {
    /// Blocks in partial use, so that each emptied block is one more free block.
    Partial,
    /// Any block with free frames.
    Anywhere,
}

/// Begins to empty the cheapest block of a zone, and returns that block. Returns `None` if more
/// than `dearest` of its frames are in use, or no block can be emptied.
fn begin(zone: ZoneId, by: Compacts, dearest: u64) -> Option<EmptyingBlock> {
    begin_planned(zone, |compactor| {
        let plan = compactor.plan(now(), allocator(), 1, by);
        plan.is_some_and(|plan| plan.frames <= dearest)
    })
}

/// Begins to empty the block of a zone that the compactor has planned in `plan`. Returns `None` if
/// `plan` returns `false`.
fn begin_planned(zone: ZoneId, plan: impl Fn(&mut Compactor) -> bool) -> Option<EmptyingBlock> {
    let mut compactor = compactor(zone);
    // Blocks that have filled up since they were looked at are passed over.
    for _ in 0..BEGINNINGS {
        if !plan(&mut compactor) {
            return None;
        }
        let begun = compactor.next(allocator());
        if begun.is_some() {
            return begun;
        }
    }
    None
}

/// Moves the movable frames of a block elsewhere, on behalf of `by`. Returns `false` if there was
/// no room for them.
fn empty(
    block: BlockPlace,
    by: Compacts,
    mover: &mut Mover,
    room: Room,
    patience: Patience,
) -> bool {
    percpu::drain();
    let mut held = false;
    for look in 0..2 {
        let mut from = [Frame::new(0); BATCH];
        let mut count = 0;
        let mut roomy = true;
        let mut frames = allocator().frames_in_use(block);
        while roomy {
            let next = frames.next();
            if let Some(frame) = next {
                if Descriptor::get(frame).kind().is_none() {
                    held = true;
                    continue;
                }
                from[count] = frame;
                count += 1;
            }
            if count == BATCH || next.is_none() && count != 0 {
                roomy = move_out(block.zone(), by, &from[..count], room, mover);
                count = 0;
                sched::cond_resched();
            }
            if next.is_none() {
                break;
            }
        }
        percpu::drain();
        if !roomy || allocator().frames_left(block) == 0 {
            return roomy;
        }
        if look == 0 && held {
            if patience == Patience::Thorough {
                percpu::drain_all();
            } else {
                allocator().request_drain();
            }
            sched::yield_now();
        }
        if look == 0 && patience == Patience::Thorough {
            mover.search();
        }
    }
    true
}

/// Moves the frames `from`. Returns `false` if there is no room for them.
fn move_out(zone: ZoneId, by: Compacts, from: &[Frame], room: Room, mover: &mut Mover) -> bool {
    let mut to = Targets::find(&mut compactor(zone), by, from.len());
    if room == Room::Anywhere {
        to.fill(from.len());
    }
    let found = to.left();
    mover.run(&from[..found], to);
    found == from.len()
}

/// Empties the cheapest block of a zone, if no more than `dearest` of its frames are in use.
/// Returns `Whole` if the block is free now, `Stuck` if a frame could not be moved, and `Nothing`
/// if there is no such block.
fn empty_next(zone: ZoneId, by: Compacts, mover: &mut Mover, dearest: u64) -> End {
    // No task waits for this block. It may be in the GiB that one waits for.
    if by == Compacts::Daemon && gib::is_being_made() {
        return End::Nothing;
    }
    match begin(zone, by, dearest) {
        Some(block) => finish(zone, block, by, mover, Patience::Thorough),
        None => End::Nothing,
    }
}

/// Empties the block of a zone with the least cost for the host's gain, if `pays` accepts the plan.
/// `order` is the order of the smallest free block that the host gets. Returns `Whole` if the block
/// is free now, `Stuck` if a frame could not be moved, and `Nothing` if there is no such block.
fn empty_for_host(
    zone: ZoneId,
    order: Order,
    pays: impl Fn(HostPlan) -> bool,
    mover: &mut Mover,
) -> End {
    // The block may be in the GiB that a task waits for.
    if gib::is_being_made() {
        return End::Nothing;
    }
    let begun = begin_planned(zone, |compactor| {
        let plan = compactor.plan_for_host(now(), allocator(), order);
        plan.is_some_and(&pays)
    });
    match begun {
        Some(block) => finish(zone, block, Compacts::Daemon, mover, Patience::Thorough),
        None => End::Nothing,
    }
}

/// Empties a block and returns it to the allocator. Returns `Whole` if the block is free now, and
/// `Stuck` otherwise.
fn finish(
    zone: ZoneId,
    block: EmptyingBlock,
    by: Compacts,
    mover: &mut Mover,
    patience: Patience,
) -> End {
    let roomy = empty(*block, by, mover, Room::Partial, patience);
    let mut compactor = compactor(zone);
    if !roomy {
        compactor.give_up(allocator(), block);
        return End::Stuck;
    }
    match compactor.finish(now(), allocator(), by, block) {
        Emptied::Whole => End::Whole,
        Emptied::Stuck(_) => End::Stuck,
    }
}

/// Empties the block of `frame` if only a few of its frames are still in use, after most were freed
/// at once. No task waits for this. Does nothing while `vm.compaction_proactiveness` is 0 or a GiB
/// is being made.
pub(super) fn empty_remains(frame: Frame, mover: &mut Mover) {
    // It may be in the GiB that a task waits for.
    if daemon::proactiveness() == 0 || gib::is_being_made() {
        return;
    }
    empty_aside(frame, mover, REMAINS);
}

/// Moves the frames of the block of `frame` elsewhere, if at most `most` of them are in use.
fn empty_aside(frame: Frame, mover: &mut Mover, most: u32) {
    let Some(block) = allocator().begin_emptying(frame) else {
        return;
    };
    if allocator().frames_left(*block) <= most {
        empty(
            *block,
            Compacts::Daemon,
            mover,
            Room::Partial,
            Patience::Brief,
        );
    }
    allocator().end_emptying(block);
}

/// Empties all blocks that can be emptied (`vm.compact_memory`).
///
/// # Errors
/// Fails with `EINTR` if the task is being killed; blocks emptied before stay empty. Fails with
/// `ENOMEM` if the buffers for moving frames cannot be allocated.
pub(crate) fn compact_all() -> Result<(), Errno> {
    let mut mover = Mover::new()?;
    percpu::drain_all();
    for zone in allocator().zone_ids() {
        compactor(zone).insist();
        // Each block once, and again what came of others: no more than there are.
        let blocks = allocator().fragmentation(zone).present_frames / Order::PAGEBLOCK.frames();
        for _ in 0..2 * blocks {
            if empty_next(zone, Compacts::Direct, &mut mover, PAGEBLOCK_FRAMES) == End::Nothing {
                break;
            }
            if sched::current().killed() {
                return Err(Errno::EINTR);
            }
        }
    }
    Ok(())
}

/// Empties a block for the calling task, which waits for the copies of one block, or of [`TRIES`]
/// blocks if their frames are busy. Returns whether there is a free block now. Another CPU may take
/// that block first. Returns `false` without a wait if no block can be emptied, or if the policy
/// does not allow a wait.
pub(crate) fn make_block() -> bool {
    let Ok(mut mover) = Mover::new() else {
        return false;
    };
    // From the highest zone down, as allocations go.
    for zone in allocator().zone_ids().rev() {
        if !knobs::is_fragmented(zone) || !compactor(zone).may_stall(now()) {
            continue;
        }
        let mut next = begin(zone, Compacts::Direct, PAGEBLOCK_FRAMES);
        if next.is_none() {
            continue;
        }
        let _stalls = sched::pressure::memory_stall();
        compactor(zone).count_stall();
        let (mut whole, mut tries) = (false, 0);
        while let Some(block) = next.take() {
            whole =
                finish(zone, block, Compacts::Direct, &mut mover, Patience::Brief) == End::Whole;
            tries += 1;
            if !whole && tries < TRIES {
                next = begin(zone, Compacts::Direct, PAGEBLOCK_FRAMES);
            }
        }
        compactor(zone).count_stall_ended(now(), whole);
        proactive::note_stall();
        return whole;
    }
    false
}

/// Returns the counters of compaction, for `/proc/vmstat`.
pub(crate) fn counters() -> CompactionCounters {
    allocator()
        .zone_ids()
        .map(|zone| compactor(zone).counters())
        .fold(CompactionCounters::default(), CompactionCounters::and)
}
