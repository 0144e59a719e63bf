//! CPU time of a thread.
//!
//! The clock is read on context switches and on entry to and exit from system calls; page faults
//! and interrupts are not timed on their own and count as user time of the thread that they hit.

use crate::arch::clock::Nanos;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// CPU time, switches and page faults. Written by the thread's own CPU alone, read by all: so Relaxed throughout,
/// and plain loads and stores instead of read-modify-writes.
#[derive(Debug)]
pub struct Account {
    /// Time on a CPU up to `since`.
    total_ns: AtomicU64,
    /// Of it, in system calls up to `call_since`.
    system_ns: AtomicU64,
    /// When it got its CPU; while it has none, the last time it lost it.
    since_ns: AtomicU64,
    running: AtomicBool,
    /// When the present system call began or got the CPU back; 0: it is in none.
    call_since_ns: AtomicU64,
    voluntary: AtomicU64,
    involuntary: AtomicU64,
    minor_faults: AtomicU64,
    major_faults: AtomicU64,
}

impl Account {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            total_ns: AtomicU64::new(0),
            system_ns: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            running: AtomicBool::new(false),
            call_since_ns: AtomicU64::new(0),
            voluntary: AtomicU64::new(0),
            involuntary: AtomicU64::new(0),
            minor_faults: AtomicU64::new(0),
            major_faults: AtomicU64::new(0),
        }
    }

    /// The thread gets a CPU.
    pub(super) fn switched_in(&self, now: Nanos) {
        self.since_ns.store(now.0, Relaxed);
        self.running.store(true, Relaxed);
        if self.call_since_ns.load(Relaxed) != 0 {
            self.call_since_ns.store(now.0, Relaxed);
        }
    }

    /// The thread loses its CPU; gives how long it had it.
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

    /// Books the time up to now; gives how much that was.
    pub(super) fn settle(&self, now: Nanos) -> u64 {
        let ran = now.0.saturating_sub(self.since_ns.load(Relaxed));
        self.total_ns
            .store(self.total_ns.load(Relaxed) + ran, Relaxed);
        self.since_ns.store(now.0, Relaxed);
        let call = self.call_since_ns.load(Relaxed);
        if call != 0 {
            let ran = now.0.saturating_sub(call);
            self.system_ns
                .store(self.system_ns.load(Relaxed) + ran, Relaxed);
            self.call_since_ns.store(now.0, Relaxed);
        }
        ran
    }

    /// System time up to the last settling.
    pub(super) fn system_ns(&self) -> u64 {
        self.system_ns.load(Relaxed)
    }

    /// A system call begins.
    #[inline]
    pub fn enter_call(&self, now: Nanos) {
        self.call_since_ns.store(now.0, Relaxed);
    }

    /// Whether the thread is in a system call.
    #[inline]
    pub fn is_in_call(&self) -> bool {
        self.call_since_ns.load(Relaxed) != 0
    }

    /// The system call ends.
    #[inline]
    pub fn leave_call(&self, now: Nanos) {
        let ran = now.0.saturating_sub(self.call_since_ns.load(Relaxed));
        self.system_ns
            .store(self.system_ns.load(Relaxed) + ran, Relaxed);
        self.call_since_ns.store(0, Relaxed);
    }

    /// Counts a page fault, as a minor one.
    #[inline]
    pub fn count_fault(&self) {
        self.minor_faults
            .store(self.minor_faults.load(Relaxed) + 1, Relaxed);
    }

    /// The fault that is being served turns out to be a major one.
    pub fn fault_is_major(&self) {
        let minor = self.minor_faults.load(Relaxed);
        self.minor_faults.store(minor.saturating_sub(1), Relaxed);
        self.major_faults
            .store(self.major_faults.load(Relaxed) + 1, Relaxed);
    }

    /// Minor and major page faults.
    pub fn faults(&self) -> (u64, u64) {
        let minor = self.minor_faults.load(Relaxed);
        (minor, self.major_faults.load(Relaxed))
    }

    /// User and system time, up to now.
    pub fn times(&self) -> (Nanos, Nanos) {
        let now = crate::arch::clock::now();
        let mut total = self.total_ns.load(Relaxed);
        let mut system = self.system_ns.load(Relaxed);
        if self.running.load(Relaxed) {
            total += now.0.saturating_sub(self.since_ns.load(Relaxed));
            let call = self.call_since_ns.load(Relaxed);
            if call != 0 {
                system += now.0.saturating_sub(call);
            }
        }
        let system = system.min(total);
        (Nanos(total - system), Nanos(system))
    }

    /// Voluntary and involuntary switches.
    pub fn switches(&self) -> (u64, u64) {
        (self.voluntary.load(Relaxed), self.involuntary.load(Relaxed))
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}
