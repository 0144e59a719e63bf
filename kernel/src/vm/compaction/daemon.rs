//! `kcompactd`: compacts in the background by the rules of the allocator's policy, and sleeps in a
//! guest in which programs free no memory.

use super::carriers::{self, Carriers};
use super::{End, compactor, empty_for_host, empty_next, now, proactive};
use crate::vm::moving::Mover;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use core::time::Duration;
use ebb_mm::{
    Compacts, Consolidation, PAGEBLOCK_FRAMES, PROACTIVE_INTERVAL, PROACTIVE_SHARED_SLICE,
    PROACTIVE_SLICE, PROACTIVENESS, Proactive, Thresholds, ZoneId,
};
use logic::errno::Errno;
use machine::arch;
use machine::arch::clock::{self, Nanos};
use machine::memory::percpu::{self, Count};
use machine::memory::{allocator, pressure};
use machine::sched;
use machine::sync::WaitQueue;

static QUEUE: WaitQueue = WaitQueue::new();
/// Whether the thread sleeps until memory is freed.
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// The number of blocks that faults requested without waiting.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// `vm.compaction_proactiveness`.
static PROACTIVE: AtomicU8 = AtomicU8::new(PROACTIVENESS);
/// The number of times that `vm.compaction_proactiveness` was set, or the pauses were ended.
static KNOB_SET: AtomicU64 = AtomicU64::new(0);

/// Wakes `kcompactd` if it sleeps until memory is freed. Called after programs have freed memory,
/// and after a pool of huge pages has changed. The caller holds no spin lock.
#[inline]
pub(crate) fn memory_freed() {
    // SeqCst: the free is counted before this look at the flag; the thread sets the flag before it
    // looks at the counts.
    fence(Ordering::SeqCst);
    if ASLEEP.load(Ordering::Relaxed) {
        wake();
    }
}

#[cold]
fn wake() {
    if pressure::may_block() && ASLEEP.swap(false, Ordering::Relaxed) {
        QUEUE.wake_one();
    }
}

/// Wakes `kcompactd`, which then checks whether to compact.
pub(super) fn wake_now() {
    QUEUE.wake_one();
}

/// Requests that `kcompactd` empties one block, and does not wait for it.
pub(crate) fn want_block() {
    // Relaxed: a number of its own.
    WANTED.fetch_add(1, Ordering::Relaxed);
    QUEUE.wake_one();
}

/// Requests that `kcompactd` empties the blocks that have left the pool of huge pages and carry
/// their part of the memmap. Does not wait for it. May be called from any context.
pub(crate) fn relieve_soon() {
    carriers::note();
    if pressure::may_block() {
        QUEUE.wake_one();
    }
}

/// Returns `vm.compaction_proactiveness`.
pub(crate) fn proactiveness() -> u64 {
    u64::from(PROACTIVE.load(Ordering::Relaxed))
}

/// Returns the fragmentation score of the node above which compaction starts, as
/// `vm.compaction_proactiveness` implies.
pub(super) fn high_threshold() -> u64 {
    Thresholds::of(PROACTIVE.load(Ordering::Relaxed)).high
}

/// Ends the pauses after failures and wakes `kcompactd`, because frames that could not move may
/// move now.
pub(super) fn retry() {
    for zone in allocator().zone_ids() {
        compactor(zone).insist();
    }
    KNOB_SET.fetch_add(1, Ordering::Relaxed);
    QUEUE.wake_one();
}

/// Sets `vm.compaction_proactiveness` to `value`, and wakes `kcompactd`, which then checks whether
/// to compact.
///
/// # Errors
/// Fails with `EINVAL` if `value` is above 100.
pub(crate) fn set_proactiveness(value: u64) -> Result<(), Errno> {
    Proactive::new()
        .set_proactiveness(value)
        .map_err(|_| Errno::EINVAL)?;
    PROACTIVE.store(u8::try_from(value).unwrap_or(0), Ordering::Relaxed);
    KNOB_SET.fetch_add(1, Ordering::Relaxed);
    QUEUE.wake_one();
    Ok(())
}

/// Starts `kcompactd`. Called once, at boot.
pub(crate) fn start() {
    sched::spawn_kernel("kcompactd", run);
}

/// The least time in nanoseconds between two looks at the idle times of the CPUs.
const IDLE_SPAN: u64 = 10_000_000;

/// The idle times of the CPUs at the last measurement, and its result.
struct IdleTimes {
    at: Nanos,
    /// The CPU time that this thread has used since the last measurement. It counts as idle.
    own: Nanos,
    idle: [u64; arch::MAX_CPUS],
    /// The idle time of the idlest CPU in percent, as measured last.
    most: u32,
}

impl IdleTimes {
    /// Returns the idle time of the idlest CPU since the last measurement, in percent of that time.
    /// The time in which this thread ran counts as idle. Returns the last result again if less than
    /// [`IDLE_SPAN`] has passed.
    fn most(&mut self) -> u32 {
        let now = clock::now();
        let span = now.saturating_sub(self.at).0;
        if span < IDLE_SPAN {
            return self.most;
        }
        let own = core::mem::replace(&mut self.own, Nanos(0)).0;
        let mut most = 0;
        for cpu in arch::online_cpus().iter() {
            let idle = sched::cpu_times(cpu).idle.0;
            most = most.max(idle.saturating_sub(self.idle[cpu]));
            self.idle[cpu] = idle;
        }
        self.at = now;
        self.most = u32::try_from((most + own).min(span) * 100 / span).unwrap_or(100);
        self.most
    }
}

/// Returns the number of frames allocated since boot plus the number of frames freed. While the sum
/// does not change, no check of memory is necessary.
pub(in crate::vm) fn traffic() -> u64 {
    [Count::Freed, Count::AllocatedDma32, Count::AllocatedNormal]
        .into_iter()
        .fold(0, |sum, count| sum.wrapping_add(percpu::sum(count)))
}

/// What a look has found to be done later.
struct Look {
    /// The time of the next look, or `None` if none is necessary.
    next: Option<Duration>,
    /// The end of a pause after failures, before which this look did nothing. `None` if there was
    /// no pause.
    paused_until: Option<Duration>,
}

struct Daemon {
    proactive: Proactive,
    /// The zone with which the next slice of proactive compaction begins.
    zone: ZoneId,
    knob: u64,
    consolidation: [Consolidation; ebb_mm::MAX_ZONES],
    carriers: Carriers,
    idle: IdleTimes,
    mover: Mover,
}

fn run() {
    let mover = loop {
        match Mover::new() {
            Ok(mover) => break mover,
            Err(_) => sched::sleep_until(clock::now().saturating_add(Nanos(1_000_000_000))),
        }
    };
    let mut daemon = Daemon {
        proactive: Proactive::new(),
        zone: ZoneId::FIRST,
        knob: 0,
        consolidation: [const { Consolidation::new() }; ebb_mm::MAX_ZONES],
        carriers: Carriers::new(),
        idle: IdleTimes {
            at: clock::now(),
            own: Nanos(0),
            idle: [0; arch::MAX_CPUS],
            most: 0,
        },
        mover,
    };
    let mut seen = 0;
    // When to look again because memory has come or gone in a pause after failures.
    let mut after_pause: Option<Duration> = None;
    loop {
        let by_others = traffic().wrapping_sub(seen) >= PAGEBLOCK_FRAMES;
        let look = daemon.look();
        let traffic = traffic();
        let quiet = traffic.wrapping_sub(seen) < PAGEBLOCK_FRAMES;
        seen = traffic;
        if !quiet {
            daemon.carriers.memory_freed();
        }
        if by_others && look.paused_until.is_some() {
            after_pause = look.paused_until;
        }
        after_pause = after_pause.filter(|&until| until > now());
        // While memory comes and goes it looks now and then.
        let watch = (!quiet).then(|| now() + PROACTIVE_INTERVAL);
        match look.next.into_iter().chain(watch).min() {
            Some(next) => daemon.wait_until(next),
            None => {
                ASLEEP.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let freed = self::traffic().wrapping_sub(seen) >= PAGEBLOCK_FRAMES;
                if !freed {
                    let called = || !ASLEEP.load(Ordering::Relaxed) || daemon.is_woken();
                    match after_pause {
                        Some(until) => {
                            QUEUE.wait_uninterruptible_deadline(called, nanos(until));
                        }
                        None => QUEUE.wait_uninterruptible(called),
                    }
                    // `wait_until` counts the wake-up of a request.
                    if !ASLEEP.load(Ordering::Relaxed) && !daemon.is_woken() {
                        count_wake();
                    }
                }
                ASLEEP.store(false, Ordering::Relaxed);
                // The memory being freed is free by then.
                daemon.wait_until(now() + PROACTIVE_INTERVAL);
            }
        }
    }
}

impl Daemon {
    /// Returns whether a request must be served without delay.
    fn is_called(&self) -> bool {
        is_called_since(self.knob)
    }

    /// Returns `true` if a task has requested work, or a fault has requested a check.
    fn is_woken(&self) -> bool {
        self.is_called() || proactive::is_hurried()
    }

    /// Sleeps until the time `then`, or until the thread is woken.
    fn wait_until(&self, then: Duration) {
        QUEUE.wait_uninterruptible_deadline(|| self.is_woken(), nanos(then));
        if self.is_woken() {
            count_wake();
        }
    }

    /// Does the work that is due. Returns when to call this again.
    fn look(&mut self) -> Look {
        let knob = KNOB_SET.load(Ordering::Relaxed);
        if knob != self.knob {
            self.knob = knob;
            // Checked when it was set.
            let _ = self
                .proactive
                .set_proactiveness(u64::from(PROACTIVE.load(Ordering::Relaxed)));
        }
        self.make_wanted();
        let (proactive, deferred_until) = self.compact_proactively();
        let (consolidation, rests_until) = self.consolidation();
        let moves = self.proactive.proactiveness() != 0;
        let carriers = self.carriers.poll(&mut self.mover, moves);
        let next = proactive.into_iter().chain(consolidation).chain(carriers);
        Look {
            next: next.min(),
            paused_until: deferred_until.into_iter().chain(rests_until).min(),
        }
    }

    /// Makes the blocks that faults requested, while blocks can be emptied.
    fn make_wanted(&mut self) {
        let mut wanted = WANTED.swap(0, Ordering::Relaxed);
        if wanted == 0 {
            return;
        }
        // As on Linux, compaction for faults counts as a stall, and compaction on its own account
        // does not.
        let _stalls = sched::pressure::memory_stall();
        for zone in allocator().zone_ids().rev() {
            while wanted != 0 {
                match empty_next(zone, Compacts::Daemon, &mut self.mover, PAGEBLOCK_FRAMES) {
                    End::Whole => wanted -= 1,
                    End::Stuck => {}
                    End::Nothing => break,
                }
            }
        }
    }

    /// Runs a slice of proactive compaction if one is due. Returns the time of the next call and
    /// the end of a pause after failures, each `None` if there is none.
    fn compact_proactively(&mut self) -> (Option<Duration>, Option<Duration>) {
        let knob = self.knob;
        let is_called = || is_called_since(knob);
        let poll = proactive::poll(
            &mut self.proactive,
            &mut self.zone,
            &mut self.mover,
            is_called,
        );
        self.idle.own.0 += u64::try_from(poll.spent.as_nanos()).unwrap_or(0);
        (poll.next, poll.deferred_until)
    }

    /// Empties blocks for the host's sake. Returns the time of the next call and the end of a pause
    /// after failures, each `None` if there is none.
    fn consolidation(&mut self) -> (Option<Duration>, Option<Duration>) {
        let Some(order) = allocator().host_order() else {
            return (None, None);
        };
        // A user who sets the knob to 0 wants no frame to move unless a task asks for it.
        if self.proactive.proactiveness() == 0 {
            return (None, None);
        }
        let idle = self.idle.most();
        let (mut next, mut rests_until) = (None::<Duration>, None::<Duration>);
        for zone in allocator().zone_ids() {
            let cheapest = || compactor(zone).plan_for_host(now(), allocator(), order);
            let rule = &mut self.consolidation[zone.index()];
            let scattered = allocator().scattered_frames(zone, order);
            let poll = rule.poll(now(), scattered, idle, cheapest);
            if poll.blocks == 0 {
                next = next.into_iter().chain(poll.next).min();
                let until = compactor(zone).daemon_rests_until();
                let rests = poll.next.is_none() && until > now();
                rests_until = rests_until.into_iter().chain(rests.then_some(until)).min();
                continue;
            }
            let (start, mut done) = (clock::now(), 0);
            while done < poll.blocks && !is_over(start) {
                let pays = |plan| rule.pays(now(), plan);
                match empty_for_host(zone, order, pays, &mut self.mover) {
                    End::Whole => done += 1,
                    End::Stuck => {}
                    End::Nothing => break,
                }
            }
            let spent = clock::now().saturating_sub(start);
            self.idle.own.0 += spent.0;
            let spent = Duration::from_nanos(spent.0);
            rule.worked(now(), spent, done);
            let again = now() + spent.max(Duration::from_millis(1));
            next = Some(next.map_or(again, |next| next.min(again)));
        }
        (next, rests_until)
    }
}

/// Returns the time `then` as the clock counts it.
fn nanos(then: Duration) -> Nanos {
    Nanos(u64::try_from(then.as_nanos()).unwrap_or(u64::MAX))
}

/// Counts a wake-up of the thread that its own schedule did not cause.
fn count_wake() {
    compactor(ZoneId::FIRST).count_wake();
}

/// Returns `true` if a task has asked for a block or the relief of one, or if the knob was set more
/// often than `knob` times.
fn is_called_since(knob: u64) -> bool {
    KNOB_SET.load(Ordering::Relaxed) != knob
        || WANTED.load(Ordering::Relaxed) != 0
        || carriers::is_noted()
}

/// Returns `true` if work that began at `start` has used up its slice of time.
fn is_over(start: Nanos) -> bool {
    let most = if sched::others_wait() {
        PROACTIVE_SHARED_SLICE
    } else {
        PROACTIVE_SLICE
    };
    u128::from(clock::now().saturating_sub(start).0) >= most.as_nanos()
}
