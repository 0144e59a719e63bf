//! The CPU time of a thread.
//!
//! The clock is read at context switches and at entry to and exit from system calls. Page faults
//! and interrupts are not measured separately. They count as user time of the thread that they
//! interrupt.

use crate::arch::clock::{Nanos, Ticks};
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The CPU time, context switches and page faults of a thread. Only the CPU that runs the thread
/// writes them, and all CPUs read them. So accesses are Relaxed, and plain loads and stores instead
/// of read-modify-writes.
#[derive(Debug)]
pub struct Account {
    /// The time on a CPU up to `since_ns`.
    total_ns: AtomicU64,
    /// The time in system calls up to `call_since`. In ticks of the time-stamp counter, because
    /// each call is measured.
    system_ticks: AtomicU64,
    /// The time at which the thread got its CPU, was last charged, or last lost its CPU.
    since_ns: AtomicU64,
    running: AtomicBool,
    /// The time-stamp counter when the present system call began, or when the thread then got its
    /// CPU, was last charged or last lost its CPU; 0 outside system calls.
    call_since: AtomicU64,
    /// The highest user time that [`Self::times`] has returned.
    told_user_ns: AtomicU64,
    voluntary: AtomicU64,
    involuntary: AtomicU64,
    minor_faults: AtomicU64,
    major_faults: AtomicU64,
}

impl Account {
    /// Makes an account without any time.
    pub const fn new() -> Self {
        Self {
            total_ns: AtomicU64::new(0),
            system_ticks: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            running: AtomicBool::new(false),
            call_since: AtomicU64::new(0),
            told_user_ns: AtomicU64::new(0),
            voluntary: AtomicU64::new(0),
            involuntary: AtomicU64::new(0),
            minor_faults: AtomicU64::new(0),
            major_faults: AtomicU64::new(0),
        }
    }

    /// Records that the thread starts to run on a CPU at `now`. If it is in a system call, the time
    /// of that call counts again from here on.
    pub(super) fn switched_in(&self, now: Nanos) {
        self.since_ns.store(now.0, Relaxed);
        self.running.store(true, Relaxed);
        if self.is_in_call() {
            self.enter_call(Ticks::now());
        }
    }

    /// Records that the thread stops running at `now`, and charges it as [`Self::settle`] does.
    /// Counts a voluntary context switch if `voluntary`, that is, if the thread waits or yields.
    /// Otherwise counts an involuntary one. Returns the nanoseconds since the thread was last
    /// charged or got its CPU.
    pub(super) fn switched_out(&self, now: Nanos, voluntary: bool) -> u64 {
        let ran = self.settle(now);
        self.running.store(false, Relaxed);
        let count = if voluntary {
            &self.voluntary
        } else {
            &self.involuntary
        };
        count.store(count.load(Relaxed) + 1, Relaxed);
        ran
    }

    /// Adds the time up to `now` to the CPU time of the thread, which is running, and to its time
    /// in system calls if it is in one. Returns the nanoseconds since the thread was last charged
    /// or got its CPU.
    pub(super) fn settle(&self, now: Nanos) -> u64 {
        let ran = now.0.saturating_sub(self.since_ns.load(Relaxed));
        self.total_ns
            .store(self.total_ns.load(Relaxed) + ran, Relaxed);
        self.since_ns.store(now.0, Relaxed);
        if self.is_in_call() {
            let now = Ticks::now();
            self.leave_call(now);
            self.enter_call(now);
        }
        ran
    }

    /// Returns the thread's time in system calls up to its last charge ([`Self::settle`]), in ticks
    /// of the time-stamp counter.
    pub(super) fn system(&self) -> Ticks {
        Ticks(self.system_ticks.load(Relaxed))
    }

    /// Records that the thread begins a system call at `now`.
    #[inline]
    pub fn enter_call(&self, now: Ticks) {
        self.call_since.store(now.0, Relaxed);
    }

    /// Returns whether the thread is in a system call.
    #[inline]
    pub fn is_in_call(&self) -> bool {
        self.call_since.load(Relaxed) != 0
    }

    /// Records that the thread ends its system call at `now`.
    #[inline]
    pub fn leave_call(&self, now: Ticks) {
        let ran = now.since(Ticks(self.call_since.load(Relaxed)));
        // Release (both): `times` reads them twice to check that they are consistent.
        self.system_ticks
            .store(self.system_ticks.load(Relaxed) + ran.0, Release);
        self.call_since.store(0, Release);
    }

    /// Counts a page fault as a minor one.
    #[inline]
    pub fn count_fault(&self) {
        self.minor_faults
            .store(self.minor_faults.load(Relaxed) + 1, Relaxed);
    }

    /// Changes the last counted page fault from a minor one to a major one.
    pub fn fault_is_major(&self) {
        let minor = self.minor_faults.load(Relaxed);
        self.minor_faults.store(minor.saturating_sub(1), Relaxed);
        self.major_faults
            .store(self.major_faults.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the number of minor page faults and the number of major page faults.
    pub fn faults(&self) -> (u64, u64) {
        let minor = self.minor_faults.load(Relaxed);
        (minor, self.major_faults.load(Relaxed))
    }

    /// Returns the thread's user time and its system time, up to now. The system time is its CPU
    /// time in system calls. The user time is the rest of its CPU time, and never decreases.
    pub fn times(&self) -> (Nanos, Nanos) {
        /// The most attempts to read consistent values while the thread runs.
        const READS: u32 = 4;
        let (mut total, mut system, mut settled) = (0, 0, false);
        for _ in 0..READS {
            let now = crate::arch::clock::now();
            // Acquire (all): pair with the Release in `leave_call`.
            let read = || {
                [
                    self.system_ticks.load(Acquire),
                    self.call_since.load(Acquire),
                    self.total_ns.load(Acquire),
                    self.since_ns.load(Acquire),
                ]
            };
            let first @ [ticks, call, ran, since] = read();
            (total, system) = (ran, ticks);
            if self.running.load(Relaxed) {
                total += now.0.saturating_sub(since);
                if call != 0 {
                    system += Ticks::now().since(Ticks(call)).0;
                }
            }
            settled = read() == first;
            if settled {
                break;
            }
        }
        let user = total.saturating_sub(Ticks(system).to_nanos().0);
        // User and total time are measured separately, so the difference may be a nanosecond less
        // than last time. Inconsistent values are not stored.
        let told = if settled {
            self.told_user_ns.fetch_max(user, Relaxed)
        } else {
            self.told_user_ns.load(Relaxed)
        };
        let user = told.max(user);
        (Nanos(user), Nanos(total.saturating_sub(user)))
    }

    /// Returns the number of voluntary context switches and the number of involuntary ones.
    pub fn switches(&self) -> (u64, u64) {
        (self.voluntary.load(Relaxed), self.involuntary.load(Relaxed))
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}
