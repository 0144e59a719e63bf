//! Threads with a real-time priority (`SCHED_FIFO`, `SCHED_RR`).
//!
//! Such a thread runs before all that share by weight, and before those of lower priority. So that they
//! cannot starve the others, those of one CPU have [`Share::runtime_ns`] of each period together while
//! a thread waits that shares by weight; time that no other thread wants they have, too.
//!
//! While no thread has a priority, the scheduler looks at [`present`] and at nothing else here.

use super::queue::{QUEUES, RunQueue};
use super::switch::{Why, is_idle_thread};
use super::thread::{Owned, Thread, current};
use super::{balance, pressure, tick};
use crate::arch::clock::{self, Nanos};
use crate::arch::spin::SpinLock;
use crate::arch::{self, cpu_id, ipi};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use logic::sched::policy;
use logic::sched::realtime::{HIGHEST, RR_SLICE_NS, Share, Spent};
use logic::sched::state::State;

/// Threads that have a priority.
static PRESENT: AtomicUsize = AtomicUsize::new(0);
/// Held while a thread's priority changes.
static CHANGE: SpinLock<()> = SpinLock::new(());
/// For how long a thread of the kernel's own waits may run before one with a priority gets the CPU back
/// that has given way to it.
const GIVEN_NS: u64 = 1_000_000;

/// What a CPU gives real-time threads, and a thread of `SCHED_RR` before its equals, in nanoseconds.
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

/// What real-time threads may have of a CPU.
pub fn share() -> Share {
    Share {
        period_ns: KNOBS.period_ns.load(Relaxed),
        runtime_ns: KNOBS.runtime_ns.load(Relaxed),
    }
}

/// Sets what real-time threads may have of a CPU. The period must not be 0.
pub fn set_share(share: Share) {
    KNOBS.period_ns.store(share.period_ns, Relaxed);
    KNOBS.runtime_ns.store(share.runtime_ns, Relaxed);
}

/// Nanoseconds that a thread of `SCHED_RR` runs before its equals.
pub fn rr_slice_ns() -> u64 {
    KNOBS.rr_slice_ns.load(Relaxed)
}

/// Sets the nanoseconds that a thread of `SCHED_RR` runs before its equals.
pub fn set_rr_slice_ns(nanos: u64) {
    KNOBS.rr_slice_ns.store(nanos, Relaxed);
}

/// A thread's part in real-time policies, besides its priority.
#[derive(Debug)]
pub(super) struct Realtime {
    /// Its policy is `SCHED_RR`.
    round_robin: AtomicBool,
    /// What is left of its slice then. Its CPU's own.
    left_ns: AtomicU64,
    /// It enters a queue before its equals next time.
    at_front: AtomicBool,
}

impl Realtime {
    pub(super) const fn new() -> Self {
        Self {
            round_robin: AtomicBool::new(false),
            left_ns: AtomicU64::new(0),
            at_front: AtomicBool::new(false),
        }
    }

    /// Whether it enters a queue before its equals, this time.
    pub(super) fn take_at_front(&self) -> bool {
        let at_front = self.at_front.load(Relaxed);
        self.at_front.store(false, Relaxed);
        at_front
    }

    /// Whether its slice of `SCHED_RR` is over.
    fn has_expired(&self) -> bool {
        self.round_robin.load(Relaxed) && self.left_ns.load(Relaxed) == 0
    }

    /// Begins a slice of `SCHED_RR`.
    fn refill(&self) {
        self.left_ns.store(rr_slice_ns(), Relaxed);
    }
}

/// What real-time threads have had of a CPU, which alone changes it.
pub(super) struct Budget {
    period_end_ns: AtomicU64,
    ran_ns: AtomicU64,
}

impl Budget {
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
        // As on Linux, who gives them nothing does not stop those that run all the same.
        let share = share();
        share.runtime_ns != 0 && self.at(now).left_ns(share) == Some(0)
    }
}

/// Whether a thread has a priority.
#[inline]
pub(super) fn present() -> bool {
    // Relaxed: who gives the first thread a priority makes the CPUs look after that.
    PRESENT.load(Relaxed) != 0
}

/// Books time of a thread without weight, up to `now`: one with a priority, or an idle one.
#[cold]
pub(super) fn charge(queue: &RunQueue, thread: &Thread, now: Nanos, ran_ns: u64) {
    if thread.priority() == 0 {
        return;
    }
    queue.budget.charge(now, ran_ns);
    let left = &thread.realtime.left_ns;
    left.store(left.load(Relaxed).saturating_sub(ran_ns), Relaxed);
}

/// What becomes of the running thread as others wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Another thread is to run.
    Switch,
    /// It goes on.
    Stay,
    /// Weights decide.
    ByWeight,
}

/// Says whether `running`, charged up to `now`, has to give its CPU to a thread that waits in `queue`.
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

/// Notes the priority of `running`, and shortens its slice to what is left of its turn, or of its turn before threads that have
/// to wait as real-time threads have had their share.
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
    // Only where others wait, to see whether it still has its priority.
    let mut length = policy::SLICE_NS;
    if realtime.round_robin.load(Relaxed) {
        if realtime.has_expired() && queue.best_priority() != running.priority() {
            realtime.refill();
        }
        length = length.min(realtime.left_ns.load(Relaxed));
    }
    // As in `is_spent`: a runtime of 0 stops none.
    if let Some(left) = spent.left_ns(share)
        && share.runtime_ns != 0
        && queue.has_fair()
    {
        length = length.min(left);
    }
    queue.set_slice(now, length);
}

/// Gives `running`, whose slice is over, another one, as no other thread is to have the CPU.
pub(super) fn renew(queue: &RunQueue, running: &Thread, now: Nanos) {
    if running.realtime.has_expired() {
        running.realtime.refill();
    }
    limit_slice(queue, running, now);
}

/// Takes the thread that CPU `cpu` runs next. `stays`: `previous` can go on; `None` says that it does.
pub(super) fn pick(
    queue: &RunQueue,
    cpu: usize,
    previous: &Thread,
    stays: bool,
    why: Why,
) -> Option<Owned> {
    let now = clock::now();
    let own = if stays { previous.priority() } else { 0 };
    // The time that the thread has had since it was charged last counts, too.
    super::switch::charge(queue, previous, now);
    let spent = queue.budget.is_spent(now);
    let at_front = previous.realtime.at_front.load(Relaxed);
    // At most as many turns as threads wait: each takes one away for good.
    loop {
        let next = if own != 0 {
            after(queue, previous, spent, why)
        } else if spent && (stays || queue.has_fair()) {
            queue.take_fair()
        } else {
            pull(cpu, queue.best_priority() + 1).or_else(|| queue.take())
        };
        let Some(next) = next else {
            // It goes on: what a thread that had to go elsewhere said of its place does not count.
            previous.realtime.at_front.store(at_front, Relaxed);
            return None;
        };
        if next.affinity().contains(cpu) {
            return Some(next);
        }
        balance::enqueue_elsewhere(next);
    }
}

/// Takes the thread that runs instead of `previous`, which has a priority and could go on.
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

/// Takes a thread with the priority `least` or more, the highest there is, that waits on another CPU.
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

/// Gives `thread` the real-time priority `priority`, 1 to 99, or 0 to have it share by weight.
/// `round_robin`: it gives way to its equals after a slice.
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
            // Its virtual time stood still meanwhile, which it is not to make up for.
            let level = QUEUES[thread.last_cpu()].min_vruntime();
            thread.vruntime.store(level, Relaxed);
        }
        // As POSIX has it: behind its new equals if it rises, before them if it sinks.
        realtime.at_front.store(priority < before, Relaxed);
        thread.store_priority(priority);
        // A queue that is entered after this look at it sees the new priority, by the queue's lock.
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

/// Makes each CPU compare what it runs with what waits.
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

/// The thread is dropped.
pub(super) fn forget(thread: &Thread) {
    if thread.priority() != 0 {
        PRESENT.fetch_sub(1, Relaxed);
    }
}
