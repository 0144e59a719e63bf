//! The scheduler's part of a thread.

use super::account::Account;
use super::fpu::OwnFpu;
use super::realtime::Realtime;
use crate::arch::context::Context;
use crate::arch::fpu::FpuState;
use crate::arch::{CpuSet, UserFrame};
use crate::memory::KernelStack;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use logic::heap::{Linked, Links};
use logic::sched::policy;
use logic::sched::state::{State, ThreadState};

/// The bits of a thread's work word: tasks that the thread must do before it returns to user mode,
/// and marks that describe it.
pub mod work {
    /// The thread must let another thread run on its CPU.
    pub const RESCHED: u32 = 1;
    /// The thread must check for signals that it must deliver.
    pub const SIGNAL: u32 = 1 << 1;
    /// The thread must check whether it must stop with its process.
    pub const STOP: u32 = 1 << 2;
    /// The thread must end, because of SIGKILL, `exit_group` or another thread's exec.
    pub const KILL: u32 = 1 << 3;
    /// The thread has a temporary signal mask and must restore the old one (`sigsuspend`).
    pub const RESTORE_MASK: u32 = 1 << 4;
    /// The thread must check whether a timer or a limit of CPU time has run out.
    pub const CPU_TIMER: u32 = 1 << 5;
    /// The present system call was interrupted, and the thread may have to restart it.
    pub const RESTART: u32 = 1 << 6;
    /// The thread must check its restartable sequence (`rseq`).
    pub const RSEQ: u32 = 1 << 7;
    /// The thread must check whether it must stop for its tracer (`ptrace`).
    pub const TRAP: u32 = 1 << 8;
    /// The thread must report the end of the present system call to its tracer.
    pub const CALL_END: u32 = 1 << 9;
    /// The thread gets SIGPIPE, because a transfer (`sendfile`) wrote some bytes and then found no
    /// reader.
    pub const BROKEN_PIPE: u32 = 1 << 10;
    /// The bits that interrupt an interruptible wait.
    pub const INTERRUPTS: u32 = SIGNAL | STOP | KILL | TRAP;
    /// The bits for which a thread on its way to user mode enters the work loop. The other bits
    /// describe the thread.
    pub const DUE: u32 = crate::arch::traps::WORK_DUE;
    /// The thread is traced.
    pub const TRACED: u32 = 1 << 24;
    /// The thread must check before each system call whether it must stop for its tracer.
    pub const TRACED_CALLS: u32 = 1 << 25;
    /// The thread has hardware breakpoints, for the CPU on which it runs.
    pub const BREAKPOINTS: u32 = 1 << 26;
    /// The tracer single-steps the thread.
    pub const STEPS: u32 = 1 << 27;
    /// Filters check the system calls of the thread (`seccomp`).
    pub const CONFINED: u32 = 1 << 28;
    /// The thread may not read the time-stamp counter (`PR_SET_TSC`).
    pub const NO_TSC: u32 = 1 << 29;
    /// If any of these bits is set, each system call of the thread is checked before it is made.
    pub const LOOKED_AT: u32 = TRACED_CALLS | CONFINED;
}

/// The scheduler's part of a thread. It is the first field of the owner's structure.
#[repr(C)]
pub struct Thread {
    /// The work word; see [`work`]. The exits to user mode read it.
    pub(super) work: AtomicU32,
    /// The thread's state; see [`State`].
    pub(super) state: ThreadState,
    /// The CPU on which it runs, ran last or waits. `vruntime` is relative to that CPU's.
    pub(super) cpu: AtomicUsize,
    /// Its stalls, in the bits of [`super::pressure`].
    pub(super) stalls: AtomicU32,
    /// The CPUs that it may run on.
    affinity: CpuSet,
    /// Its links in a run queue.
    run_links: Links<Thread>,
    /// Virtual run time: the run queue's key. Changed by its CPU, or under its queue's lock.
    pub(super) vruntime: AtomicU64,
    /// Nice value, -20 to 19.
    nice: AtomicI32,
    /// It gets only time that other threads leave (`SCHED_IDLE`).
    idle_weight: AtomicBool,
    /// The nice value that determines its weight, or [`policy::IDLE_NICE`] or
    /// [`policy::NO_WEIGHT`].
    weighed: AtomicI32,
    /// Real-time priority, 1 to 99; 0: it shares the CPU by weight.
    priority: AtomicU32,
    /// Its other real-time state.
    pub(super) realtime: Realtime,
    /// The queue in which it waits: 0 for none, else the CPU's number plus 1. [`REALTIME`] is set
    /// if it waits by priority. Guarded by that queue's lock.
    queued: AtomicU32,
    /// CPU time, switches, faults.
    pub(super) account: Account,
    /// Its reads and writes.
    pub(super) transfers: super::transfers::Transfers,
    /// Its wait for a time of the wall clock.
    pub(super) wall: super::wall::Note,
    /// Saved registers, while it does not run.
    pub(super) context: UnsafeCell<Context>,
    /// `None` for a thread of the kernel.
    pub(super) fpu: Option<OwnFpu>,
    /// `None` for an idle thread, which runs on its CPU's boot stack.
    pub(super) stack: Option<KernelStack>,
}

// SAFETY: only the CPU that switches the thread uses `context` (the scheduler's hand-off).
unsafe impl Sync for Thread {}
// SAFETY: a thread is not bound to a CPU, and only the CPU that switches it uses `context`.
unsafe impl Send for Thread {}

// SAFETY: always returns the same field, which only the scheduler's heap uses.
unsafe impl Linked for Thread {
    fn links(&self) -> &Links<Self> {
        &self.run_links
    }
}

/// The bit of [`Thread::queued`] for threads with a priority.
const REALTIME: u32 = 1 << 31;

/// The queue in which a thread waits for a CPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The CPU.
    pub(super) at: usize,
    /// Whether it waits among the threads with a priority.
    pub(super) realtime: bool,
}

impl Thread {
    /// Makes a user thread that has never run. It starts in [`Task::begin`](super::Task::begin) on
    /// `stack`. Then it enters user mode with the registers in `frame`, confined
    /// ([`UserFrame::confine`]), and the floating-point state `fpu`.
    pub fn user(stack: KernelStack, mut frame: UserFrame, fpu: Box<FpuState>) -> Self {
        frame.confine();
        let place = stack.top().cast::<UserFrame>().wrapping_sub(1);
        // SAFETY: the stack is new, belongs to the thread, and is larger than a frame. Its top is
        // aligned for a frame.
        unsafe { place.write(frame) };
        Self::new(Some(stack), size_of::<UserFrame>(), Some(OwnFpu::new(fpu)))
    }

    /// Makes a kernel thread that has never run. It runs [`Task::begin`](super::Task::begin) on
    /// `stack`, and ends.
    pub fn kernel(stack: KernelStack) -> Self {
        Self::new(Some(stack), 0, None)
    }

    /// Makes an idle thread, which has no stack of its own.
    pub fn idle() -> Self {
        Self::new(None, 0, None)
    }

    /// Makes a thread that has never run. It starts in [`begin`](super::switch::begin) on `stack`,
    /// whose top `reserved` bytes, a multiple of 16, are in use. If `stack` is `None`, makes an
    /// idle thread.
    fn new(stack: Option<KernelStack>, reserved: usize, fpu: Option<OwnFpu>) -> Self {
        let context = stack.as_ref().map_or(Context::empty(), |stack| {
            let top = stack.top().wrapping_sub(reserved);
            // SAFETY: the stack is new and belongs to the thread, which does not run yet.
            unsafe { Context::new(top, super::switch::begin, 0) }
        });
        let weighed = if stack.is_some() {
            0
        } else {
            policy::NO_WEIGHT
        };
        Self {
            work: AtomicU32::new(0),
            state: ThreadState::new(State::New),
            cpu: AtomicUsize::new(crate::arch::cpu_id()),
            stalls: AtomicU32::new(0),
            affinity: CpuSet::from_mask(u64::MAX),
            run_links: Links::new(),
            vruntime: AtomicU64::new(0),
            nice: AtomicI32::new(0),
            idle_weight: AtomicBool::new(false),
            weighed: AtomicI32::new(weighed),
            priority: AtomicU32::new(0),
            realtime: Realtime::new(),
            queued: AtomicU32::new(0),
            account: Account::new(),
            transfers: super::transfers::Transfers::new(),
            wall: super::wall::Note::new(),
            context: UnsafeCell::new(context),
            fpu,
            stack,
        }
    }

    /// Returns the place of the frame with which a user thread has entered the kernel. Returns
    /// `None` for a thread of the kernel.
    pub(super) fn user_frame(&self) -> Option<*mut UserFrame> {
        self.fpu.as_ref()?;
        let top = self.stack.as_ref()?.top();
        Some(top.cast::<UserFrame>().wrapping_sub(1))
    }

    /// Returns the registers with which the blocked user thread has entered the kernel. Returns
    /// `None` if it is a thread of the kernel, is not blocked, or ran during the read.
    pub fn blocked_frame(&self) -> Option<UserFrame> {
        let frame = self.user_frame()?;
        let switches = self.account.switches();
        if self.state() != State::Blocked {
            return None;
        }
        // SAFETY: the frame is at the top of the stack, which lives as long as the thread. The
        // thread may wake and change the frame during the read. Then the values are not used, so
        // the read is volatile.
        let frame = unsafe { frame.read_volatile() };
        let same = self.state() == State::Blocked && self.account.switches() == switches;
        same.then_some(frame)
    }

    /// Returns whether interruptible waits of the thread must end: a signal may have to be
    /// delivered, or the thread must stop, trap or end.
    #[inline]
    pub fn signal_pending(&self) -> bool {
        // Acquire: pairs with the Release in `add_work`, so the signal itself is visible.
        self.work.load(Ordering::Acquire) & work::INTERRUPTS != 0
    }

    /// Returns whether the thread must end, because of SIGKILL, `exit_group` or another thread's
    /// exec. Killable waits of the thread then end.
    #[inline]
    pub fn killed(&self) -> bool {
        self.work.load(Ordering::Acquire) & work::KILL != 0
    }

    /// Returns whether the thread is marked as stalled for memory, or as waiting for reads or
    /// writes when it sleeps.
    #[inline]
    pub(super) fn is_stalling(&self) -> bool {
        // Relaxed: written by the thread itself, or by the CPU that owns it at the time.
        self.stalls.load(Ordering::Relaxed) != 0
    }

    /// Returns the thread's work word; see [`work`]. A reader that acts on a bit sees all that was
    /// written before the bit was set.
    #[inline]
    pub fn work(&self) -> u32 {
        // Acquire: pairs with the Release in `add_work`.
        self.work.load(Ordering::Acquire)
    }

    /// Sets `bits`, which are bits of [`work`], in the thread's work word. The thread reads the
    /// word before it returns to user mode. A caller that sets a bit for another thread must also
    /// wake that thread or interrupt its CPU.
    pub fn add_work(&self, bits: u32) {
        // SeqCst: pairs with the thread's check of the word between `prepare_to_block` and `block`,
        // as described in `sched::state`. Also the Release for `signal_pending`.
        self.work.fetch_or(bits, Ordering::SeqCst);
    }

    /// Clears `bits`, which are bits of [`work`], in the thread's work word. Any thread may call
    /// this. The caller then sees all that was written before the bits were set.
    pub fn clear_work(&self, bits: u32) {
        // AcqRel: the code after this sees what made another thread set the bits.
        self.work.fetch_and(!bits, Ordering::AcqRel);
    }

    /// Returns the thread's state at this moment.
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// Returns the counts of the thread's reads and writes.
    #[inline]
    pub fn transfers(&self) -> &super::transfers::Transfers {
        &self.transfers
    }

    /// Returns the thread's CPU time, context switches and page faults.
    #[inline]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the thread's nice value, -20 to 19.
    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed)
    }

    /// Sets the thread's nice value to `nice`, limited to -20 to 19. With `idle`, the thread gets
    /// only time that other threads leave (`SCHED_IDLE`).
    pub fn set_weight(&self, nice: i32, idle: bool) {
        self.nice.store(nice.clamp(-20, 19), Ordering::Relaxed);
        self.idle_weight.store(idle, Ordering::Relaxed);
        self.weigh();
    }

    /// Updates `weighed`.
    fn weigh(&self) {
        let weighed = if self.priority() != 0 {
            policy::NO_WEIGHT
        } else if self.idle_weight.load(Ordering::Relaxed) {
            policy::IDLE_NICE
        } else {
            self.nice()
        };
        self.weighed.store(weighed, Ordering::Relaxed);
    }

    /// Returns the nice value that determines the thread's weight. Returns [`policy::IDLE_NICE`]
    /// for `SCHED_IDLE`, and [`policy::NO_WEIGHT`] if the thread has a priority or is an idle
    /// thread.
    #[inline]
    pub(super) fn weighed(&self) -> i32 {
        self.weighed.load(Ordering::Relaxed)
    }

    /// Returns the thread's real-time priority, 1 to 99; 0 if it shares the CPU by weight.
    #[inline]
    pub fn priority(&self) -> u32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sets the thread's real-time priority to `priority`, and updates [`Self::weighed`]. The
    /// caller, [`super::realtime::set`], moves the thread to its new place in the queues.
    pub(super) fn store_priority(&self, priority: u32) {
        self.priority.store(priority, Ordering::Relaxed);
        self.weigh();
    }

    /// Records `place`, the queue in which the thread waits, or `None` if it waits in none. The
    /// caller holds the queue's lock.
    #[inline]
    pub(super) fn set_queued(&self, place: Option<Place>) {
        #[expect(clippy::cast_possible_truncation, reason = "at most 64 CPUs")]
        let word = place.map_or(0, |place| {
            let realtime = if place.realtime { REALTIME } else { 0 };
            realtime | (place.at as u32 + 1)
        });
        // Relaxed: guarded by the queue's lock.
        self.queued.store(word, Ordering::Relaxed);
    }

    /// Returns the queue in which the thread waits. Returns `None` if it waits in none.
    pub(super) fn queued(&self) -> Option<Place> {
        let word = self.queued.load(Ordering::Relaxed);
        let at = (word & !REALTIME).checked_sub(1)? as usize;
        let realtime = word & REALTIME != 0;
        Some(Place { at, realtime })
    }

    /// Returns the number of the CPU on which the thread runs, ran last or waits.
    pub fn last_cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    /// Returns the set of CPUs that the thread may run on.
    pub fn affinity(&self) -> &CpuSet {
        &self.affinity
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        super::realtime::forget(self);
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("state", &self.state())
            .field("cpu", &self.last_cpu())
            .finish_non_exhaustive()
    }
}
