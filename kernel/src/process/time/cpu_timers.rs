//! Timers and limits on CPU time: `ITIMER_VIRTUAL`, `ITIMER_PROF`, `RLIMIT_CPU`, POSIX timers on
//! CPU clocks.
//!
//! A tick checks them, and runs only while one of them is set. So they are exact to [`TICK`].

use crate::process::TaskRef;
use crate::process::signal::{SigInfo, Signal, send_to_process, send_to_process_of};
use crate::process::task::limits::{self, Limits};
use crate::process::task::{Process, Task};
use logic::armed::Armed;
use machine::arch::clock::Nanos;
use machine::sched;
use machine::sched::work;
use machine::sync::SpinLock;

/// The time between two checks.
const TICK: Nanos = Nanos::from_millis(10);

/// An interval timer that runs in CPU time of a process.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct CpuTimer {
    /// The CPU time at which the timer expires; `None` if it is not set.
    pub(crate) at: Option<Nanos>,
    /// Zero if the timer expires once.
    pub(crate) interval: Nanos,
}

struct Inner {
    /// A timer on user time, and one on user and system time.
    timers: [CpuTimer; 2],
}

/// The interval timers of a process that run in its CPU time.
pub(crate) struct CpuTimers {
    inner: SpinLock<Inner>,
    /// Whether any timer or limit is set.
    armed: Armed,
}

/// The kind of an interval timer that runs in CPU time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// `ITIMER_VIRTUAL`: user time.
    Virtual = 0,
    /// `ITIMER_PROF`: user and system time.
    Prof = 1,
}

fn used(process: &Process, which: Which) -> Nanos {
    let usage = process.usage_of_tasks();
    match which {
        Which::Virtual => usage.user,
        Which::Prof => usage.user.saturating_add(usage.system),
    }
}

impl CpuTimers {
    /// Returns the timers of a new process. No timer is set.
    pub(crate) const fn new() -> Self {
        const OFF: CpuTimer = CpuTimer {
            at: None,
            interval: Nanos::ZERO,
        };
        Self {
            inner: SpinLock::new(Inner { timers: [OFF; 2] }),
            armed: Armed::new(),
        }
    }

    /// Starts the checks of the limit on CPU time of a new process, if it has one in `limits`.
    pub(crate) fn begin(&self, limits: &Limits) {
        if limits.current(limits::index::CPU) != limits::INFINITY {
            self.armed.arm();
        }
    }

    /// Stops all interval timers on CPU time. The next check finds none.
    pub(crate) fn clear(&self) {
        self.inner.lock().timers = [CpuTimer::default(); 2];
    }

    /// Returns the CPU time left until the timer `which` of `process` expires, and the interval of
    /// the timer. The time left is 0 if the timer is not set.
    pub(crate) fn get(&self, process: &Process, which: Which) -> (Nanos, Nanos) {
        let now = used(process, which);
        let timer = self.inner.lock().timers[which as usize];
        let left = timer
            .at
            .map_or(Nanos::ZERO, |at| at.saturating_sub(now).max(Nanos(1)));
        (left, timer.interval)
    }

    /// Sets the timer `which` of `process`, the current process, to expire after `value` of CPU
    /// time from now, and then after each `interval`. A `value` of 0 stops the timer, and an
    /// `interval` of 0 makes it expire once.
    pub(crate) fn set(&self, process: &Process, which: Which, value: Nanos, interval: Nanos) {
        let at = (value.0 != 0).then(|| used(process, which).saturating_add(value));
        self.inner.lock().timers[which as usize] = CpuTimer { at, interval };
        arm(process);
    }
}

/// Starts the tick on all CPUs that run `process`, because a timer or limit on its CPU time was
/// set.
pub(crate) fn arm(process: &Process) {
    process.timers.cpu.armed.arm();
    for task in &process.group.lock().tasks {
        sched::notify(task, work::CPU_TIMER);
    }
}

/// Makes the running task `task` check the timers on CPU time of its process on its way to user
/// mode. Returns the time of the next tick, or `None` if the process needs no tick. Called in the
/// timer interrupt.
pub(crate) fn on_tick(task: &Task, now: Nanos) -> Option<Nanos> {
    if !task.process().timers.cpu.armed.is_armed() {
        return None;
    }
    task.add_work(work::CPU_TIMER);
    Some(now.saturating_add(TICK))
}

/// Returns the time of the first tick of `task`, which gets a CPU at the time `now`. Returns `None`
/// if its process needs no tick.
#[inline]
pub(crate) fn tick_for(task: &Task, now: Nanos) -> Option<Nanos> {
    let armed = task.process().timers.cpu.armed.is_armed();
    armed.then(|| now.saturating_add(TICK))
}

/// Checks the timers and the limit on CPU time of the process of `task`, the current task. Sends
/// the signals that are due.
pub(crate) fn check(task: TaskRef) {
    let process = task.process();
    let cpu = &process.timers.cpu;
    // Before the checks: a timer that is set from here on leaves it armed.
    let look = cpu.armed.look();
    let times = [used(process, Which::Virtual), used(process, Which::Prof)];
    let signals = [Signal::SIGVTALRM, Signal::SIGPROF];
    let mut due = [false; 2];
    let mut any = false;
    {
        let mut inner = cpu.inner.lock();
        for ((timer, now), due) in inner.timers.iter_mut().zip(times).zip(&mut due) {
            if timer.at.is_some_and(|at| at <= now) {
                *due = true;
                // Counted from now: expirations that are closer than the tick are lost.
                timer.at = (timer.interval.0 != 0).then(|| now.saturating_add(timer.interval));
            }
            any |= timer.at.is_some();
        }
    }
    for (signal, due) in signals.into_iter().zip(due) {
        if due {
            // Goes to the running thread, so that profilers see which thread uses the CPU.
            let _ = send_to_process_of(&task, SigInfo::kernel(signal));
        }
    }
    any |= check_limit(task, times[1]);
    any |= process.timers.posix.check_cpu_time(process);
    if any || !cpu.armed.disarm(look) {
        let now = machine::arch::clock::now();
        sched::timer::ensure_armed(now.saturating_add(TICK));
    }
}

/// `RLIMIT_CPU`: sends SIGXCPU each second from the soft limit on, and SIGKILL at the hard limit.
/// Returns whether there is a limit to check.
fn check_limit(task: TaskRef, used: Nanos) -> bool {
    let process = task.process();
    let limit = process.limits().0[limits::index::CPU];
    if limit.current == limits::INFINITY {
        return false;
    }
    let seconds = used.0 / 1_000_000_000;
    if seconds >= limit.maximum {
        let _ = send_to_process(process, SigInfo::kernel(Signal::SIGKILL));
        return false;
    }
    // As on Linux the soft limit rises by a second each time.
    if seconds >= limit.current && process.limits.raise(limits::index::CPU, limit.current) {
        let _ = send_to_process_of(&task, SigInfo::kernel(Signal::SIGXCPU));
    }
    true
}
