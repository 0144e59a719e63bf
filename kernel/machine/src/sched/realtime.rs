//! Threads with a real-time priority (`SCHED_FIFO`, `SCHED_RR`).
//!
//! Such a thread runs before all threads that share by weight, and before those of lower priority.
//! To keep the others from starving, the real-time threads of one CPU get only
//! [`Share::runtime_ns`] of each period together. This holds while a thread waits that shares by
//! weight. They also get time that no other thread wants.
//!
//! While no thread has a priority, the scheduler only checks [`present`] here.

use super::owner::Owned;
use super::queue::{QUEUES, RunQueue};
use super::running::current;
use super::switch::{Why, is_idle_thread};
use super::thread::Thread;
use super::{balance, pressure, tick};
use crate::arch::clock::{self, Nanos};
use crate::arch::spin::SpinLock;
use crate::arch::{self, cpu_id, ipi};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use logic::sched::policy;
use logic::sched::realtime::{HIGHEST, RR_SLICE_NS, Share, Spent};
use logic::sched::state::State;

/// The number of threads that have a priority.
static PRESENT: AtomicUsize = AtomicUsize::new(0);
/// Held while a thread's priority changes.
static CHANGE: SpinLock<()> = SpinLock::new(());
/// The time for which a real-time thread that gives way in a wait of the kernel
/// ([`super::yield_now`]) leaves its CPU to a thread that shares by weight.
const GIVEN_NS: u64 = 1_000_000;

/// The share of real-time threads in a CPU, and the slice of a `SCHED_RR` thread among its equals,
/// in nanoseconds.
struct Knobs {
    period_ns: AtomicU64,
    runtime_ns: AtomicU64,
    rr_slice_ns: AtomicU64,
}

static KNOBS: Knobs = Knobs {
    period_ns: AtomicU64::new(1_000_000_000),
    runtime_ns: AtomicU64::new(950_000_000),
    rr_slice_ns: AtomicU64::new(RR_SLICE_NS),
};

/// Returns the share of each CPU's time that real-time threads may use.
pub fn share() -> Share {
    Share {
        period_ns: KNOBS.period_ns.load(Relaxed),
        runtime_ns: KNOBS.runtime_ns.load(Relaxed),
    }
}

/// Sets the share of each CPU's time that real-time threads may use. `share.period_ns` must not be
/// 0.
pub fn set_share(share: Share) {
    KNOBS.period_ns.store(share.period_ns, Relaxed);
    KNOBS.runtime_ns.store(share.runtime_ns, Relaxed);
}

/// Returns the slice of a `SCHED_RR` thread among threads of the same priority, in nanoseconds.
pub fn rr_slice_ns() -> u64 {
    KNOBS.rr_slice_ns.load(Relaxed)
}

/// Sets the slice of a `SCHED_RR` thread among threads of the same priority to `nanos` nanoseconds.
pub fn set_rr_slice_ns(nanos: u64) {
    KNOBS.rr_slice_ns.store(nanos, Relaxed);
}

/// A thread's real-time state besides its priority.
#[derive(Debug)]
pub(super) struct Realtime {
    /// Its policy is `SCHED_RR`.
    round_robin: AtomicBool,
    /// The rest of its `SCHED_RR` slice. Only its CPU changes it.
    left_ns: AtomicU64,
    /// It enters its next queue before its equals.
    at_front: AtomicBool,
}

impl Realtime {
    /// Makes the state of a thread without a priority.
    pub(super) const fn new() -> Self {
        Self {
            round_robin: AtomicBool::new(false),
            left_ns: AtomicU64::new(0),
            at_front: AtomicBool::new(false),
        }
    }

    /// Returns whether the thread enters its next queue before the other threads of its priority.
    /// Resets this to `false`.
    pub(super) fn take_at_front(&self) -> bool {
        let at_front = self.at_front.load(Relaxed);
        self.at_front.store(false, Relaxed);
        at_front
    }

    /// Returns whether the thread has used up its slice of `SCHED_RR`. Always returns `false` for
    /// `SCHED_FIFO`.
    fn has_expired(&self) -> bool {
        self.round_robin.load(Relaxed) && self.left_ns.load(Relaxed) == 0
    }

    /// Gives the thread a full slice of `SCHED_RR` ([`rr_slice_ns`]).
    fn refill(&self) {
        self.left_ns.store(rr_slice_ns(), Relaxed);
    }
}

/// The time that real-time threads have run on a CPU in the present period ([`Share`]). Only that
/// CPU changes it.
pub(super) struct Budget {
    period_end_ns: AtomicU64,
    ran_ns: AtomicU64,
}

impl Budget {
    /// Makes the unused budget of a CPU.
    pub(super) const fn new() -> Self {
        Self {
            period_end_ns: AtomicU64::new(0),
            ran_ns: AtomicU64::new(0),
        }
    }

    fn spent(&self) -> Spent {
        Spent {
            period_end_ns: self.period_end_ns.load(Relaxed),
            ran_ns: self.ran_ns.load(Relaxed),
        }
    }

    fn at(&self, now: Nanos) -> Spent {
        self.spent().at(now.0, share())
    }

    fn charge(&self, now: Nanos, ran_ns: u64) {
        let spent = self.spent().charged(now.0, ran_ns, share());
        self.period_end_ns.store(spent.period_end_ns, Relaxed);
        self.ran_ns.store(spent.ran_ns, Relaxed);
    }

    fn is_spent(&self, now: Nanos) -> bool {
        // As on Linux, a share of 0 does not stop real-time threads that run anyway.
        let share = share();
        share.runtime_ns != 0 && self.at(now).left_ns(share) == Some(0)
    }
}

/// Returns whether any thread has a real-time priority.
#[inline]
pub(super) fn present() -> bool {
    // Relaxed: a task that gives the first thread a priority makes the CPUs check afterwards.
    PRESENT.load(Relaxed) != 0
}

/// Charges `thread` for the `ran_ns` nanoseconds that it ran until `now`: adds them to the time of
/// real-time threads in `queue`, and subtracts them from the thread's `SCHED_RR` slice. Does
/// nothing for an idle thread. The thread does not share by weight.
#[cold]
pub(super) fn charge(queue: &RunQueue, thread: &Thread, now: Nanos, ran_ns: u64) {
    if thread.priority() == 0 {
        return;
    }
    queue.budget.charge(now, ran_ns);
    let left = &thread.realtime.left_ns;
    left.store(left.load(Relaxed).saturating_sub(ran_ns), Relaxed);
}

/// The decision of [`due`] about the running thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Another thread must run.
    Switch,
    /// The running thread continues.
    Stay,
    /// Weights decide.
    ByWeight,
}

/// Decides whether `running` must give its CPU to a thread in `queue`. The thread was charged up to
/// `now`.
pub(super) fn due(queue: &RunQueue, running: &Thread, now: Nanos) -> Due {
    let (own, best) = (running.priority(), queue.best_priority());
    let spent = queue.budget.is_spent(now);
    if own == 0 {
        return if best != 0 && !spent {
            Due::Switch
        } else {
            Due::ByWeight
        };
    }
    let expired = best == own && running.realtime.has_expired();
    if best > own || expired || spent && queue.has_fair() {
        Due::Switch
    } else {
        Due::Stay
    }
}

/// Records the priority of `running` in `queue`, and limits its slice. A real-time thread gets a
/// new slice from `now` on. With `SCHED_RR`, the slice is at most the rest of the thread's
/// [`rr_slice_ns`]. If a thread waits that shares by weight, it is also at most the rest of
/// [`Share::runtime_ns`] in this period. The slice of a thread that shares by weight ends early if
/// real-time threads wait.
#[cold]
pub(super) fn limit_slice(queue: &RunQueue, running: &Thread, now: Nanos) {
    queue.note_priority(running.priority());
    let share = share();
    let spent = queue.budget.at(now);
    let realtime = &running.realtime;
    if running.priority() == 0 {
        if queue.best_priority() == 0 {
            return;
        }
        let length = if queue.budget.is_spent(now) {
            spent.period_end_ns.saturating_sub(now.0)
        } else {
            GIVEN_NS
        };
        queue.limit_slice_end(now.saturating_add(Nanos(length)));
        return;
    }
    // The end of this slice matters only while others wait: the priorities are then compared again.
    let mut length = policy::SLICE_NS;
    if realtime.round_robin.load(Relaxed) {
        if realtime.has_expired() && queue.best_priority() != running.priority() {
            realtime.refill();
        }
        length = length.min(realtime.left_ns.load(Relaxed));
    }
    // As in `is_spent`, a runtime of 0 stops no thread.
    if let Some(left) = spent.left_ns(share)
        && share.runtime_ns != 0
        && queue.has_fair()
    {
        length = length.min(left);
    }
    queue.set_slice(now, length);
}

/// Gives another slice to `running`, the current thread of the CPU that owns `queue`, at `now`. It
/// is a real-time thread whose slice has ended, and no other thread may have the CPU.
pub(super) fn renew(queue: &RunQueue, running: &Thread, now: Nanos) {
    if running.realtime.has_expired() {
        running.realtime.refill();
    }
    limit_slice(queue, running, now);
}

/// Takes the thread that CPU `cpu` must run next out of `queue`, the CPU's run queue, or out of the
/// queue of another CPU. `previous` is the current thread, `stays` says whether it can continue,
/// and `why` says why it leaves the CPU. Returns `None` if no thread was taken. Then `previous`
/// continues if it can.
pub(super) fn pick(
    queue: &RunQueue,
    cpu: usize,
    previous: &Thread,
    stays: bool,
    why: Why,
) -> Option<Owned> {
    let now = clock::now();
    let own = if stays { previous.priority() } else { 0 };
    // The time since the thread was last charged counts, too.
    super::switch::charge(queue, previous, now);
    let spent = queue.budget.is_spent(now);
    let at_front = previous.realtime.at_front.load(Relaxed);
    // Ends: each turn removes one waiting thread for good.
    loop {
        let next = if own != 0 {
            after(queue, previous, spent, why)
        } else if spent && (stays || queue.has_fair()) {
            queue.take_fair()
        } else {
            pull(cpu, queue.best_priority() + 1).or_else(|| queue.take())
        };
        let Some(next) = next else {
            // `previous` continues. The place that was chosen for it in favour of a thread that
            // moved elsewhere does not count.
            previous.realtime.at_front.store(at_front, Relaxed);
            return None;
        };
        if next.affinity().contains(cpu) {
            return Some(next);
        }
        balance::enqueue_elsewhere(next);
    }
}

/// Takes the thread that replaces `previous` out of `queue`, the run queue of this CPU. `previous`
/// has a real-time priority and could continue. `spent` says whether the real-time threads have
/// used up their time in this period, and `why` says why `previous` leaves the CPU. Returns `None`
/// if no thread is due before `previous`. Otherwise records whether `previous` goes before or
/// behind the threads of its priority.
fn after(queue: &RunQueue, previous: &Thread, spent: bool, why: Why) -> Option<Owned> {
    let own = previous.priority();
    let realtime = &previous.realtime;
    if (spent || why == Why::GivesWay)
        && let Some(next) = queue.take_fair()
    {
        realtime.at_front.store(spent, Relaxed);
        return Some(next);
    }
    let expired = realtime.has_expired();
    let equals_too = expired || matches!(why, Why::Yields | Why::GivesWay);
    let next = queue.take_realtime(if equals_too { own } else { own + 1 })?;
    realtime.at_front.store(!equals_too, Relaxed);
    if expired {
        realtime.refill();
    }
    Some(next)
}

/// Takes the thread with the highest real-time priority that waits on another CPU, for CPU `cpu`.
/// Returns `None` if that priority is below `least`, if the thread may not run on `cpu`, or if
/// another CPU holds the lock of its queue.
fn pull(cpu: usize, least: u32) -> Option<Owned> {
    let (best, other) = arch::online_cpus()
        .iter()
        .filter(|&other| other != cpu)
        .map(|other| (QUEUES[other].best_priority(), other))
        .max()?;
    if best < least {
        return None;
    }
    let thread = QUEUES[other].steal_realtime(cpu, least)?;
    pressure::taken(&QUEUES[other]);
    if thread.is_stalling() {
        pressure::moves(&thread, other, cpu);
    }
    thread.cpu.store(cpu, Relaxed);
    Some(thread)
}

/// Sets the real-time priority of `thread` to `priority`, 1 to 99, or makes the thread share the
/// CPU by weight if `priority` is 0. With `round_robin` the thread lets threads of the same
/// priority run after each slice (`SCHED_RR`).
///
/// If the priority changes, a thread that waits in a run queue moves to its new place in one. If
/// the thread was started and does not wait there, all CPUs check whether their current thread must
/// be replaced.
pub fn set(thread: &Thread, priority: u32, round_robin: bool) {
    debug_assert!(priority <= HIGHEST);
    let waited = {
        let _change = CHANGE.lock();
        let realtime = &thread.realtime;
        if round_robin && !realtime.round_robin.load(Relaxed) {
            realtime.refill();
        }
        realtime.round_robin.store(round_robin, Relaxed);
        let before = thread.priority();
        if before == priority {
            return;
        }
        if before == 0 {
            PRESENT.fetch_add(1, Relaxed);
        }
        if priority == 0 {
            // Its virtual time stood still while it had a priority. It must not make up for that
            // time.
            let level = QUEUES[thread.last_cpu()].min_vruntime();
            thread.vruntime.store(level, Relaxed);
        }
        // As POSIX requires: behind its new equals if its priority rises, before them if it falls.
        realtime.at_front.store(priority < before, Relaxed);
        thread.store_priority(priority);
        // A thread that enters a queue after this check has the new priority, by the queue's lock.
        let waited = arch::online_cpus()
            .iter()
            .find_map(|cpu| Some((QUEUES[cpu].remove(cpu, thread)?, cpu)));
        let waited = waited.map(|(thread, cpu)| {
            pressure::taken(&QUEUES[cpu]);
            thread
        });
        if priority == 0 {
            PRESENT.fetch_sub(1, Relaxed);
        }
        waited
    };
    if let Some(waited) = waited {
        balance::enqueue_anew(waited);
    } else if thread.state() != State::New {
        look_everywhere();
    }
}

/// Makes each CPU compare its running thread with the waiting ones.
fn look_everywhere() {
    let here = cpu_id();
    for cpu in arch::online_cpus().iter().filter(|&cpu| cpu != here) {
        ipi::resched(cpu);
    }
    let (queue, thread) = (&QUEUES[here], current());
    if !is_idle_thread(queue, thread.as_non_null().as_ptr()) {
        let now = clock::now();
        balance::preempt_if_due(queue, &thread, now);
        super::switch::note_weight(queue, &thread, now);
        if queue.waiting() != 0 {
            tick::ensure(queue);
        }
    }
}

/// Subtracts `thread` from the number of threads with a real-time priority, if it has one. Called
/// when the thread is dropped.
pub(super) fn forget(thread: &Thread) {
    if thread.priority() != 0 {
        PRESENT.fetch_sub(1, Relaxed);
    }
}
