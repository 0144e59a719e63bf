//! What a thread has of signals.

use super::repeats::FaultRepeats;
use super::{Pending, SigSet};
use crate::process::args::Args;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::errno::SysResult;
use logic::repeats::Fault;
use machine::sync::{SpinGuard, SpinLock};

/// What `restart_syscall` goes on with.
#[derive(Copy, Clone)]
pub struct Restart {
    /// The handler.
    pub call: fn(&Args) -> SysResult,
    /// Its arguments.
    pub args: Args,
}

impl fmt::Debug for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restart").finish_non_exhaustive()
    }
}

/// The alternate signal stack.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AltStack {
    /// Its lowest address.
    pub base: u64,
    /// Its length in bytes; 0: there is none.
    pub size: u64,
    /// `SS_AUTODISARM` was asked for.
    pub autodisarm: bool,
}

impl AltStack {
    /// Whether a stack pointer is on it.
    pub fn contains(&self, stack_pointer: u64) -> bool {
        self.size != 0 && stack_pointer > self.base && stack_pointer - self.base <= self.size
    }
}

/// An exception that became a signal: what handlers find in their frames, of whatever signal.
#[derive(Copy, Clone, Debug)]
pub(super) struct Trap {
    /// The exception's number.
    pub(super) vector: u64,
    /// The CPU's error code.
    pub(super) error: u64,
    /// Of the last page fault: where.
    pub(super) address: u64,
}

impl Trap {
    const NONE: Self = Self {
        vector: 0,
        error: 0,
        address: 0,
    };
}

/// A thread's signals: its masks, what waits for it alone, its alternate stack.
#[derive(Debug)]
pub(crate) struct ThreadSignals {
    /// Blocked signals; changed by the thread itself alone, or by its tracer while it stands.
    blocked: AtomicU64,
    /// The mask to go back to, while `work::RESTORE_MASK` is set.
    saved_mask: AtomicU64,
    /// Signals that `rt_sigtimedwait` waits for.
    awaited: AtomicU64,
    pending: SpinLock<Pending>,
    alt_stack: SpinLock<AltStack>,
    restart: SpinLock<Option<Restart>>,
    /// Counted among the process's stopped threads; under the group's lock.
    stopped: AtomicBool,
    trap: SpinLock<Trap>,
    faults: FaultRepeats,
}

impl ThreadSignals {
    /// Notes a page fault of the thread, the current one. Returns whether it repeats for ever.
    #[inline]
    pub(super) fn note_fault(&self, fault: Fault) -> bool {
        self.faults.note(fault)
    }

    /// Nothing blocked, nothing waiting.
    pub(crate) fn new() -> Self {
        Self {
            blocked: AtomicU64::new(0),
            saved_mask: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            pending: SpinLock::new(Pending::new()),
            alt_stack: SpinLock::new(AltStack {
                base: 0,
                size: 0,
                autodisarm: false,
            }),
            restart: SpinLock::new(None),
            stopped: AtomicBool::new(false),
            trap: SpinLock::new(Trap::NONE),
            faults: FaultRepeats::default(),
        }
    }

    /// The last exception of its own that became a signal.
    pub(super) fn trap(&self) -> Trap {
        *self.trap.lock()
    }

    /// An exception becomes a signal; one that has an address leaves it to those that have none, as on Linux.
    pub(super) fn note_trap(&self, vector: u8, error: u64, address: Option<u64>) {
        let mut trap = self.trap.lock();
        trap.vector = vector.into();
        trap.error = error;
        trap.address = address.unwrap_or(trap.address);
    }

    /// What the child of a thread begins with; a thread on the same memory needs a stack of its own.
    pub(crate) fn inherit(&self, parent: &Self, with_alt_stack: bool) {
        self.set_blocked(parent.blocked());
        if with_alt_stack {
            self.set_alt_stack(parent.alt_stack());
        }
    }

    /// Forgets what a new program does not have.
    pub(crate) fn reset_for_exec(&self) {
        self.set_alt_stack(AltStack::default());
        *self.restart.lock() = None;
    }

    /// Blocked signals.
    pub(crate) fn blocked(&self) -> SigSet {
        SigSet(self.blocked.load(Ordering::Relaxed))
    }

    /// Sets the mask of the current thread, and nothing else.
    pub(crate) fn set_blocked(&self, mask: SigSet) {
        self.blocked.store(mask.0, Ordering::Relaxed);
    }

    /// The mask to go back to.
    pub(crate) fn saved_mask(&self) -> SigSet {
        SigSet(self.saved_mask.load(Ordering::Relaxed))
    }

    /// Keeps the present mask to go back to.
    pub(super) fn save_mask(&self) {
        let mask = self.blocked.load(Ordering::Relaxed);
        self.saved_mask.store(mask, Ordering::Relaxed);
    }

    /// Signals that the thread waits for though it may block them.
    pub(super) fn awaited(&self) -> SigSet {
        SigSet(self.awaited.load(Ordering::SeqCst))
    }

    /// Sets what the current thread waits for: senders wake it for these though it blocks them.
    pub(crate) fn set_awaited(&self, wanted: SigSet) {
        self.awaited.store(wanted.0, Ordering::SeqCst);
    }

    /// Signals that wait for this thread alone.
    pub(crate) fn pending(&self) -> SpinGuard<'_, Pending> {
        self.pending.lock()
    }

    /// The alternate stack.
    pub(crate) fn alt_stack(&self) -> AltStack {
        *self.alt_stack.lock()
    }

    /// Sets the alternate stack.
    pub(crate) fn set_alt_stack(&self, stack: AltStack) {
        *self.alt_stack.lock() = stack;
    }

    /// Says how the present call goes on after a signal without a handler.
    pub(crate) fn set_restart(&self, restart: Restart) {
        *self.restart.lock() = Some(restart);
    }

    /// How the broken-off call goes on, once.
    pub(crate) fn take_restart(&self) -> Option<Restart> {
        self.restart.lock().take()
    }

    /// Whether the thread stands still.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Notes whether the thread stands still; under the group's lock.
    pub(super) fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }
}
