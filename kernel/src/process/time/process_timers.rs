//! A process's timers: `setitimer`, and `timer_create` in [`super::posix`].

use super::cpu_timers::CpuTimers;
use super::posix::PosixTimers;
use crate::process::signal::{SigInfo, Signal, send_to_process};
use crate::process::task::{Process, find};
use alloc::sync::{Arc, Weak};
use machine::arch::clock::{self, Nanos};
use machine::sched::timer::{KernelTimer, TimerTarget};
use machine::sync::SpinLock;

/// A periodic timer does not expire more often than this, whatever it was asked for: each expiry
/// costs an interrupt.
pub(crate) const MIN_INTERVAL_NS: u64 = 20_000;

/// When a timer expires next, and how often then.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Setting {
    /// On the monotonic clock; `None`: not set.
    pub(crate) deadline: Option<Nanos>,
    /// Zero: once.
    pub(crate) interval: Nanos,
}

impl Setting {
    /// Moves the deadline behind `now` after an expiry; gives how many expirations were missed.
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

    /// What is left to the deadline; at least a nanosecond while it is set.
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

/// The timers of one process.
pub(crate) struct ProcessTimers {
    real: SpinLock<Real>,
    pub(crate) posix: PosixTimers,
    pub(crate) cpu: CpuTimers,
}

/// The token of the `ITIMER_REAL` timer; POSIX timers have others.
const REAL_TOKEN: u64 = u64::MAX;

impl ProcessTimers {
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

    /// Sets `ITIMER_REAL`; gives what was left of it before, and its interval.
    pub(crate) fn set_real(&self, process: &Arc<Process>, setting: Setting) -> (Nanos, Nanos) {
        let target: Weak<Process> = Arc::downgrade(process);
        // Made without the lock: it allocates.
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

    /// What is left of `ITIMER_REAL`, and its interval.
    pub(crate) fn real(&self) -> (Nanos, Nanos) {
        let real = self.real.lock();
        (real.setting.left(clock::now()), real.setting.interval)
    }

    /// Ends all of them, with the process.
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
        // It may have been set anew since it ran out.
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
            // The table has the counted reference that sending wants; a process that is not in it
            // any more takes no signals.
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
