//! A process's timers: `setitimer`, and `timer_create` in [`super::posix`].

use super::cpu_timers::CpuTimers;
use super::posix::PosixTimers;
use crate::process::signal::{SigInfo, Signal, send_to_process};
use crate::process::task::{Process, find};
use alloc::sync::{Arc, Weak};
use machine::arch::clock::{self, Nanos};
use machine::sched::timer::{KernelTimer, TimerTarget};
use machine::sync::SpinLock;

/// The shortest interval of a periodic timer, even if a shorter one was requested, because each
/// expiry costs an interrupt.
pub(crate) const MIN_INTERVAL_NS: u64 = 20_000;

/// The next deadline of a timer, and its interval.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Setting {
    /// The deadline on the monotonic clock or in CPU time; `None` if the timer is not set.
    pub(crate) deadline: Option<Nanos>,
    /// The time between two expiries; 0 if the timer expires once.
    pub(crate) interval: Nanos,
}

impl Setting {
    /// Moves the deadline behind `now` after an expiry, or clears it if there is no interval.
    /// Returns the number of expirations that were missed besides this one.
    pub(crate) fn advance(&mut self, now: Nanos) -> u64 {
        let Some(deadline) = self.deadline else {
            return 0;
        };
        if self.interval.0 == 0 {
            self.deadline = None;
            return 0;
        }
        let late = now.saturating_sub(deadline).0;
        let missed = late / self.interval.0;
        let next = Nanos(
            deadline
                .0
                .saturating_add((missed + 1).saturating_mul(self.interval.0)),
        );
        self.deadline = Some(next.max(Nanos(now.0 + MIN_INTERVAL_NS)));
        missed
    }

    /// Returns the time from `now` to the deadline. It is at least a nanosecond while the timer is
    /// set, else zero.
    pub(crate) fn left(&self, now: Nanos) -> Nanos {
        match self.deadline {
            Some(deadline) => deadline.saturating_sub(now).max(Nanos(1)),
            None => Nanos::ZERO,
        }
    }
}

#[derive(Default)]
struct Real {
    setting: Setting,
    timer: Option<KernelTimer>,
}

/// The timers of one process: `ITIMER_REAL`, POSIX timers, and those on CPU time.
pub(crate) struct ProcessTimers {
    real: SpinLock<Real>,
    pub(crate) posix: PosixTimers,
    pub(crate) cpu: CpuTimers,
}

/// The token of the `ITIMER_REAL` timer. POSIX timers have other tokens.
const REAL_TOKEN: u64 = u64::MAX;

impl ProcessTimers {
    /// Returns the timers of a new process. No timer is set.
    pub(crate) const fn new() -> Self {
        Self {
            real: SpinLock::new(Real {
                setting: Setting {
                    deadline: None,
                    interval: Nanos::ZERO,
                },
                timer: None,
            }),
            posix: PosixTimers::new(),
            cpu: CpuTimers::new(),
        }
    }

    /// Sets `ITIMER_REAL` of `process` to `setting`. Returns the earlier state of the timer: the
    /// time left, which is 0 if it was not set, and the interval.
    pub(crate) fn set_real(&self, process: &Arc<Process>, setting: Setting) -> (Nanos, Nanos) {
        let target: Weak<Process> = Arc::downgrade(process);
        // Made without the lock, because this allocates.
        let spare = KernelTimer::new(target, REAL_TOKEN);
        let mut real = self.real.lock();
        let before = (real.setting.left(clock::now()), real.setting.interval);
        real.setting = setting;
        let unused = if real.timer.is_none() {
            real.timer.replace(spare)
        } else {
            Some(spare)
        };
        if let Some(timer) = &real.timer {
            timer.set(setting.deadline);
        }
        drop(real);
        drop(unused);
        before
    }

    /// Returns the time left of `ITIMER_REAL`, and its interval. The time left is 0 if the timer is
    /// not set.
    pub(crate) fn real(&self) -> (Nanos, Nanos) {
        let real = self.real.lock();
        (real.setting.left(clock::now()), real.setting.interval)
    }

    /// Stops or deletes all timers, at the end of the process.
    pub(crate) fn clear(&self) {
        let timer = {
            let mut real = self.real.lock();
            real.setting = Setting::default();
            real.timer.take()
        };
        drop(timer);
        self.posix.clear();
        self.cpu.clear();
    }

    fn real_expired(&self, now: Nanos) -> bool {
        let mut real = self.real.lock();
        // The timer may have been set again since it expired.
        if real.setting.deadline.is_none_or(|deadline| deadline > now) {
            return false;
        }
        real.setting.advance(now);
        let deadline = real.setting.deadline;
        if let Some(timer) = &real.timer {
            timer.set(deadline);
        }
        true
    }
}

impl TimerTarget for Process {
    fn expired(&self, token: u64, now: Nanos) {
        if token == REAL_TOKEN {
            // Sending needs a counted reference, which the table has. A process that is not in the
            // table takes no signals.
            if self.timers.real_expired(now)
                && let Some(process) = find(self.pid())
            {
                let _ = send_to_process(&process, SigInfo::kernel(Signal::SIGALRM));
            }
        } else if let Some(process) = find(self.pid()) {
            self.timers.posix.expired(&process, token, now);
        }
    }
}
