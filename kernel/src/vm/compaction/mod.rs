//! Emptying pageblocks: the allocator's policy says which, `moving` moves what is in them.

pub(crate) mod daemon;

use super::moving::{BATCH, Mover};
use core::time::Duration;
use ebb_mm::{
    CompactionCounters, Compactor, Compacts, Emptied, EmptyingBlock, Frame, Mobility, Order,
};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::memory::memmap::Descriptor;
use machine::memory::{allocator, percpu};
use machine::sched;
use machine::sync::Mutex;

/// The compactors of the zones.
static COMPACTORS: [Mutex<Compactor>; 8] = [
    Mutex::new(Compactor::new(0)),
    Mutex::new(Compactor::new(1)),
    Mutex::new(Compactor::new(2)),
    Mutex::new(Compactor::new(3)),
    Mutex::new(Compactor::new(4)),
    Mutex::new(Compactor::new(5)),
    Mutex::new(Compactor::new(6)),
    Mutex::new(Compactor::new(7)),
];
const _: () = assert!(COMPACTORS.len() == ebb_mm::MAX_ZONES);

fn now() -> Duration {
    Duration::from_nanos(clock::now().0)
}

/// What became of a block that was to be emptied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum End {
    /// It is free.
    Whole,
    /// Something in it stays.
    Stuck,
    /// There is none to be emptied.
    Nothing,
}

/// Begins with the cheapest block of a zone, if it costs no more than `most` frames.
fn begin(zone: usize, by: Compacts, most: u64) -> Option<EmptyingBlock> {
    let mut compactor = COMPACTORS[zone].lock();
    let plan = compactor.plan(now(), allocator(), 1, by)?;
    if plan.frames > most {
        return None;
    }
    compactor.next(allocator())
}

/// Moves what is in a block elsewhere, as far as it moves and there is room; false: there was no room.
fn empty(zone: usize, block: &EmptyingBlock, mover: &mut Mover) -> bool {
    // What CPUs have in hand of it they give back when they are asked, a moment later.
    percpu::drain();
    let mut held = false;
    for look in 0..2 {
        let mut from = [Frame::new(0); BATCH];
        let mut count = 0;
        let mut roomy = true;
        let mut frames = allocator().frames_in_use(**block);
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
                roomy = move_out(zone, &from[..count], mover);
                count = 0;
                sched::cond_resched();
            }
            if next.is_none() {
                break;
            }
        }
        percpu::drain();
        if !roomy || allocator().frames_left(**block) == 0 {
            return roomy;
        }
        if look == 0 && held {
            allocator().request_drain();
            sched::yield_now();
        }
    }
    true
}

/// Moves frames; false: there is no room for them.
fn move_out(zone: usize, from: &[Frame], mover: &mut Mover) -> bool {
    let mut room = [Frame::new(0); BATCH];
    let room = &mut room[..from.len()];
    let found = COMPACTORS[zone].lock().targets(allocator(), room);
    let from = &from[..from.len().min(found)];
    let roomy = found == room.len();
    percpu::count_taken(&room[..found]);
    let used = mover.run(from, &room[..found]);
    for &frame in &room[used..found] {
        percpu::free(frame, Order::BASE);
    }
    roomy
}

/// Empties the cheapest block of a zone, if that moves no more than `most` frames.
fn empty_next(zone: usize, by: Compacts, most: u64, mover: &mut Mover) -> End {
    let Some(block) = begin(zone, by, most) else {
        return End::Nothing;
    };
    let roomy = empty(zone, &block, mover);
    let mut compactor = COMPACTORS[zone].lock();
    if !roomy {
        compactor.give_up(allocator(), block);
        return End::Stuck;
    }
    match compactor.finish(now(), allocator(), block) {
        Emptied::Whole => End::Whole,
        Emptied::Stuck(_) => End::Stuck,
    }
}

/// Empties what can be, all of it: `vm.compact_memory`.
///
/// # Errors
/// `ENOMEM`, `EINTR` if the task is being killed.
pub(crate) fn compact_all() -> Result<(), Errno> {
    let mut mover = Mover::new()?;
    percpu::drain();
    allocator().request_drain();
    for zone in 0..allocator().zones() {
        // Each block once, and again what came of others: no more than there are.
        let blocks = allocator().fragmentation(zone).present_frames / Order::PAGEBLOCK.frames();
        for _ in 0..2 * blocks {
            if empty_next(zone, Compacts::Direct, u64::MAX, &mut mover) == End::Nothing {
                break;
            }
            if sched::current().killed() {
                return Err(Errno::EINTR);
            }
        }
    }
    Ok(())
}

/// Empties a block for one who waits for it, if that moves no more than `most` frames: the block, which is his.
pub(crate) fn take_block(most: u64) -> Option<Frame> {
    let mut mover = Mover::new().ok()?;
    // From the highest zone down, as allocations go.
    for zone in (0..allocator().zones()).rev() {
        let Some(block) = begin(zone, Compacts::Direct, most) else {
            continue;
        };
        COMPACTORS[zone].lock().count_stall();
        let roomy = empty(zone, &block, &mut mover);
        let mut compactor = COMPACTORS[zone].lock();
        let taken = if roomy {
            compactor
                .take(now(), allocator(), block, Mobility::Movable)
                .ok()
        } else {
            compactor.give_up(allocator(), block);
            None
        };
        compactor.count_stall_ended(taken.is_some());
        if taken.is_some() {
            return taken;
        }
    }
    None
}

/// What was done, for `/proc/vmstat`.
pub(crate) fn counters() -> CompactionCounters {
    (0..allocator().zones())
        .map(|zone| COMPACTORS[zone].lock().counters())
        .fold(CompactionCounters::default(), CompactionCounters::and)
}

/// So long work lasts that is not to last long.
fn is_over(start: Nanos, most: Duration) -> bool {
    u128::from(clock::now().saturating_sub(start).0) >= most.as_nanos()
}
