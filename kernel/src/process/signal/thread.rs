//! A thread's signal state.

use super::frame::{SS_AUTODISARM, SS_DISABLE};
use super::repeats::FaultRepeats;
use super::{DefaultAction, Pending, SigSet, Signal};
use crate::process::args::Args;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::errno::SysResult;
use logic::repeats::Fault;
use machine::sync::{SpinGuard, SpinLock};

/// A system call that `restart_syscall` continues after a signal.
#[derive(Copy, Clone)]
pub struct Restart {
    /// The function that continues the call.
    pub call: fn(&Args) -> SysResult,
    /// The arguments of that function.
    pub args: Args,
}

impl fmt::Debug for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restart").finish_non_exhaustive()
    }
}

/// The alternate signal stack of a thread (`sigaltstack(2)`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AltStack {
    /// The lowest address of the stack.
    pub(super) base: u64,
    /// The length in bytes; 0 if there is no alternate stack.
    pub(super) size: u64,
    /// `ss_flags` as the program has set them.
    pub(super) flags: i32,
}

impl AltStack {
    /// The alternate stack of a thread that has none.
    pub(super) const NONE: Self = Self {
        base: 0,
        size: 0,
        flags: SS_DISABLE,
    };

    /// Returns whether `SS_AUTODISARM` was requested.
    pub(super) fn disarms_itself(&self) -> bool {
        self.flags.cast_unsigned() & SS_AUTODISARM != 0
    }

    /// Returns whether a thread with the stack pointer `stack_pointer` runs on this stack. With
    /// `SS_AUTODISARM` no thread counts as running on it.
    pub(super) fn is_in_use(&self, stack_pointer: u64) -> bool {
        !self.disarms_itself()
            && self.size != 0
            && stack_pointer > self.base
            && stack_pointer - self.base <= self.size
    }
}

/// The last exception that became a signal. The frames of handlers of any signal show it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Trap {
    /// The exception's number.
    pub(super) vector: u64,
    /// The CPU's error code.
    pub(super) error: u64,
    /// The address of the last page fault.
    pub(super) address: u64,
}

impl Trap {
    const NONE: Self = Self {
        vector: 0,
        error: 0,
        address: 0,
    };
}

/// A thread's signal state: its masks, its own pending signals, its alternate stack.
#[derive(Debug)]
pub(crate) struct ThreadSignals {
    /// Blocked signals. Only the thread itself changes them, or its tracer during a ptrace-stop.
    blocked: AtomicU64,
    /// The mask to restore, while `work::RESTORE_MASK` is set.
    saved_mask: AtomicU64,
    /// Signals that `rt_sigtimedwait` waits for.
    awaited: AtomicU64,
    /// Signals that were sent to several processes at once, this one among them, since the thread
    /// last began to make a child; under the group's lock.
    for_child: AtomicU64,
    pending: SpinLock<Pending>,
    alt_stack: SpinLock<AltStack>,
    restart: SpinLock<Option<Restart>>,
    /// Whether no SIGCONT came since the thread took its last signal; under the group's lock.
    may_stop: AtomicBool,
    /// Whether the thread is counted among its process's stopped threads; under the group's lock.
    stopped: AtomicBool,
    trap: SpinLock<Trap>,
    faults: FaultRepeats,
}

impl ThreadSignals {
    /// Notes the page fault `fault` of the current thread, which owns this. Returns whether the
    /// fault repeats for ever.
    #[inline]
    pub(super) fn note_fault(&self, fault: Fault) -> bool {
        self.faults.note(fault)
    }

    /// Returns the state of a thread without blocked or pending signals.
    pub(crate) fn new() -> Self {
        Self {
            blocked: AtomicU64::new(0),
            saved_mask: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            for_child: AtomicU64::new(0),
            pending: SpinLock::new(Pending::new()),
            alt_stack: SpinLock::new(AltStack::default()),
            restart: SpinLock::new(None),
            may_stop: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            trap: SpinLock::new(Trap::NONE),
            faults: FaultRepeats::default(),
        }
    }

    /// Returns the last exception of the thread that became a signal.
    pub(super) fn trap(&self) -> Trap {
        *self.trap.lock()
    }

    /// Notes the exception `vector` with the error code `error`, which becomes a signal. If
    /// `address` is `None`, the address of the last page fault stays, as on Linux.
    pub(super) fn note_trap(&self, vector: u8, error: u64, address: Option<u64>) {
        let mut trap = self.trap.lock();
        trap.vector = vector.into();
        trap.error = error;
        trap.address = address.unwrap_or(trap.address);
    }

    /// Copies the blocked signals of `parent` and, if `with_alt_stack` is `true`, its alternate
    /// stack. A thread in the same memory gets no alternate stack.
    pub(crate) fn inherit(&self, parent: &Self, with_alt_stack: bool) {
        self.set_blocked(parent.blocked());
        self.set_alt_stack(if with_alt_stack {
            parent.alt_stack()
        } else {
            AltStack::NONE
        });
    }

    /// Removes the alternate stack and the function that continues a call, because a new program
    /// does not inherit them. As on Linux the stack's flags stay.
    pub(crate) fn reset_for_exec(&self) {
        self.set_alt_stack(AltStack {
            base: 0,
            size: 0,
            ..self.alt_stack()
        });
        *self.restart.lock() = None;
    }

    /// Returns the signals that the thread blocks.
    pub(crate) fn blocked(&self) -> SigSet {
        SigSet(self.blocked.load(Ordering::Relaxed))
    }

    /// Stores `mask` as the signals that the thread blocks, and nothing else. Only the thread
    /// itself calls this, or its tracer during a ptrace-stop.
    pub(crate) fn set_blocked(&self, mask: SigSet) {
        self.blocked.store(mask.0, Ordering::Relaxed);
    }

    /// Returns the blocked signals that [`Self::save_mask`] saved.
    pub(crate) fn saved_mask(&self) -> SigSet {
        SigSet(self.saved_mask.load(Ordering::Relaxed))
    }

    /// Saves the signals that the thread blocks, so [`Self::saved_mask`] returns them.
    pub(super) fn save_mask(&self) {
        let mask = self.blocked.load(Ordering::Relaxed);
        self.saved_mask.store(mask, Ordering::Relaxed);
    }

    /// Returns the signals that the thread waits for in `rt_sigtimedwait`, even if it blocks them.
    pub(super) fn awaited(&self) -> SigSet {
        SigSet(self.awaited.load(Ordering::SeqCst))
    }

    /// Stores `wanted` as the signals that the current thread waits for. Senders wake the thread
    /// for these even if it blocks them.
    pub(crate) fn set_awaited(&self, wanted: SigSet) {
        self.awaited.store(wanted.0, Ordering::SeqCst);
    }

    /// Returns the signals for the child that the thread is making: those that were sent to several
    /// processes at once since [`Self::begin_child`].
    pub(crate) fn for_child(&self) -> SigSet {
        SigSet(self.for_child.load(Ordering::Relaxed))
    }

    /// Begins to collect signals for a child that the thread makes. The caller holds the lock of
    /// the process's group.
    pub(crate) fn begin_child(&self) {
        self.for_child.store(0, Ordering::Relaxed);
    }

    /// Adds `signal`, which was sent to several processes at once, to those for a child that the
    /// thread may be making. The caller holds the lock of the process's group.
    pub(super) fn add_for_child(&self, signal: Signal) {
        let against = if signal == Signal::SIGCONT {
            SigSet::STOP
        } else if signal.default_action() == DefaultAction::Stop {
            SigSet::of(&[Signal::SIGCONT])
        } else {
            SigSet::EMPTY
        };
        let mut signals = self.for_child().without(against);
        signals.insert(signal);
        self.for_child.store(signals.0, Ordering::Relaxed);
    }

    /// Locks the pending signals of this thread alone, without those of its process.
    pub(crate) fn pending(&self) -> SpinGuard<'_, Pending> {
        self.pending.lock()
    }

    /// Returns the thread's alternate signal stack.
    pub(super) fn alt_stack(&self) -> AltStack {
        *self.alt_stack.lock()
    }

    /// Makes `stack` the thread's alternate signal stack.
    pub(super) fn set_alt_stack(&self, stack: AltStack) {
        *self.alt_stack.lock() = stack;
    }

    /// Makes `restart` the function that continues the present call after a signal without a
    /// handler.
    pub(crate) fn set_restart(&self, restart: Restart) {
        *self.restart.lock() = Some(restart);
    }

    /// Removes and returns the function that continues the interrupted call. Returns `None` if none
    /// is set.
    pub(crate) fn take_restart(&self) -> Option<Restart> {
        self.restart.lock().take()
    }

    /// Returns whether a stop signal that the thread has taken may still stop it: no SIGCONT came
    /// since it took its last signal. The caller holds the lock of the process's group.
    pub(super) fn may_stop(&self) -> bool {
        self.may_stop.load(Ordering::Relaxed)
    }

    /// Stores whether a stop signal that the thread has taken may stop it. The caller holds the
    /// lock of the process's group.
    pub(super) fn set_may_stop(&self, may_stop: bool) {
        self.may_stop.store(may_stop, Ordering::Relaxed);
    }

    /// Returns whether the thread has stopped with its process.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Stores whether the thread has stopped with its process. The caller holds the lock of the
    /// process's group.
    pub(super) fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }
}
