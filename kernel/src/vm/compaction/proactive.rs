//! Compaction before memory is asked for. The allocator's policy says when (`ebb_mm::Proactive`).
//! This file does the work of a slice. It also notes the events that the policy needs: faults that
//! find few blocks, and memory that is being reclaimed.

use super::{End, compactor, daemon, empty_next, gib, now};
use crate::vm::moving::Mover;
use core::iter;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use ebb_mm::{
    Compacts, PROACTIVE_INTERVAL, PROACTIVE_SLICE, Proactive, ProactiveSlice, ZoneFragmentation,
    ZoneId,
};
use machine::arch::clock;
use machine::memory::allocator;
use machine::sched;

/// A fault compares the score with the high threshold each time that this number of huge pages were
/// taken.
const TAKEN_A_LOOK: u32 = 8;
/// The shortest time between two looks that huge faults cause.
const HURRY_APART: Duration = Duration::from_millis(10);

// Relaxed (all): each is a value of its own. If a thread sees one late, a look comes late.
/// Whether faults need more free blocks than there are.
static HURRY: AtomicBool = AtomicBool::new(false);
/// The time in nanoseconds before which faults do not ask for a look.
static HURRY_FROM: AtomicU64 = AtomicU64::new(0);
/// Huge pages that faults have taken.
static TAKEN: AtomicU32 = AtomicU32::new(0);
/// Threads that reclaim memory in the background.
static RECLAIMERS: AtomicU32 = AtomicU32::new(0);

/// Wakes `kcompactd` for a check, because a task had to wait for the copies of a block, or few free
/// blocks are left. So the next fault finds a block. Does nothing if the last such check was a
/// moment ago, or if it would have no effect.
pub(super) fn note_stall() {
    if clock::now().0 >= HURRY_FROM.load(Ordering::Relaxed) {
        HURRY.store(true, Ordering::Relaxed);
        daemon::wake_now();
    }
}

/// Counts a free block that a fault has taken. Now and then compares the score with the high
/// threshold, and wakes `kcompactd` if the score says that few blocks are left.
#[inline]
pub(in crate::vm) fn note_block_taken() {
    let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
    if taken.is_multiple_of(TAKEN_A_LOOK) {
        look_ahead();
    }
}

#[cold]
fn look_ahead() {
    let wanted = clock::now().0 >= HURRY_FROM.load(Ordering::Relaxed);
    if wanted && score() > daemon::high_threshold() {
        note_stall();
    }
}

/// Returns `true` if [`note_stall`] has requested a check since the last [`poll`].
pub(super) fn is_hurried() -> bool {
    HURRY.load(Ordering::Relaxed)
}

/// Marks a thread that reclaims memory in the background, until this value is dropped. In this time
/// proactive compaction begins no run, and a run ends after its current slice. Other compaction is
/// not affected.
#[derive(Debug)]
pub(crate) struct Reclaiming(());

impl Reclaiming {
    /// Returns a mark on the current thread, which lasts until it is dropped.
    pub(crate) fn begin() -> Self {
        RECLAIMERS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        RECLAIMERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns `true` while memory is reclaimed in the background: a thread gives pages of files up
/// ([`Reclaiming`]), or all zones are low on memory, when allocations soon have to take memory from
/// others. Linux's kswapd runs at the same times.
fn is_reclaiming() -> bool {
    RECLAIMERS.load(Ordering::Relaxed) != 0 || allocator().is_low_on_memory()
}

/// Returns the fragmentation score of the node, 0 to 100.
fn score() -> u64 {
    let zones = allocator().zone_ids();
    ZoneFragmentation::node_score(zones.map(|zone| allocator().fragmentation(zone)))
}

/// The result of [`poll`].
pub(super) struct Poll {
    /// The time of the next call, or `None` if `kcompactd` need not wake up for one.
    pub(super) next: Option<Duration>,
    /// The time before which a call does nothing, where this call did nothing for that reason. The
    /// next call is due then if memory comes or goes meanwhile.
    pub(super) deferred_until: Option<Duration>,
    /// The CPU time that the slice took.
    pub(super) spent: Duration,
}

/// Runs one slice of proactive compaction if `vm.compaction_proactiveness` and the fragmentation
/// ask for it. Runs none while a GiB is being made.
///
/// A slice begins with `zone`, and sets `zone` to the one that the next slice begins with. It ends
/// early when `is_called` returns `true`.
///
/// Returns what it has done.
pub(super) fn poll(
    proactive: &mut Proactive,
    zone: &mut ZoneId,
    mover: &mut Mover,
    is_called: impl Fn() -> bool,
) -> Poll {
    if HURRY.swap(false, Ordering::Relaxed) {
        proactive.hurry();
    }
    // No block would be emptied, and the policy would take the run for one that gains nothing.
    let is_called = || is_called() || gib::is_being_made();
    let (mut next, mut spent) = (Some(now() + PROACTIVE_INTERVAL), Duration::ZERO);
    let (mut compact, mut begins, mut deferred_until) = (false, false, None);
    if !gib::is_being_made() {
        let poll = proactive.poll(now(), score(), is_reclaiming());
        (next, compact, begins) = (poll.next, poll.compact, poll.begins);
        let is_deferred = poll.next.is_none() && poll.look_after < Duration::MAX;
        deferred_until = is_deferred.then_some(poll.look_after);
    }
    if compact {
        if begins {
            compactor(ZoneId::FIRST).count_run();
        }
        let begin = cpu_time();
        let slice = work(proactive.thresholds().low, zone, mover, is_called);
        spent = cpu_time().saturating_sub(begin);
        proactive.worked(now(), slice);
        next = proactive.poll(now(), slice.score, is_reclaiming()).next;
    }
    let from = proactive.heeds_hurry_from().max(now() + HURRY_APART);
    let from = u64::try_from(from.as_nanos()).unwrap_or(u64::MAX);
    HURRY_FROM.store(from, Ordering::Relaxed);
    Poll {
        next,
        deferred_until,
        spent,
    }
}

/// Returns the CPU time of the current thread. Other threads may run while it moves a block.
fn cpu_time() -> Duration {
    let (user, system) = sched::current().account().times();
    Duration::from_nanos(user.0 + system.0)
}

/// Empties blocks for the time of a slice, or one block if other tasks wait for the CPU. `low` is
/// the low threshold. Begins with the zone `first`, which becomes the one after the last tried, so
/// that each has its turn if a slice is short.
fn work(
    low: u64,
    first: &mut ZoneId,
    mover: &mut Mover,
    is_called: impl Fn() -> bool,
) -> ProactiveSlice {
    let begin = now();
    let mut slice = ProactiveSlice {
        blocks: 0,
        tried: 0,
        score: 0,
        more: false,
        kept_waiting: None,
    };
    let count = allocator().zone_ids().len();
    let after = |zone: ZoneId| ZoneId::new((zone.index() + 1) % count);
    let zones = iter::successors(Some(*first), |&zone| Some(after(zone)));
    'zones: for zone in zones.take(count) {
        loop {
            let dearest = allocator().fragmentation(zone).dearest(low);
            if dearest == 0 {
                break;
            }
            if is_called() || now().saturating_sub(begin) >= PROACTIVE_SLICE {
                slice.more = true;
                break 'zones;
            }
            *first = after(zone);
            let block_begin = cpu_time();
            match empty_next(zone, Compacts::Daemon, mover, dearest) {
                End::Whole => slice.blocks += 1,
                End::Stuck => {}
                End::Nothing => break,
            }
            slice.tried += 1;
            if sched::others_wait() {
                slice.kept_waiting = Some(cpu_time().saturating_sub(block_begin));
                slice.more = true;
                break 'zones;
            }
        }
    }
    slice.score = score();
    slice
}
