//! A thread as the scheduler sees it, and what the scheduler asks of whoever owns it.

use super::account::Account;
use super::realtime::Realtime;
use crate::arch::CpuSet;
use crate::arch::clock::Nanos;
use crate::arch::context::Context;
use crate::memory::KernelStack;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use logic::heap::{Linked, Links};
use logic::sched::policy;
use logic::sched::state::{State, ThreadState};

/// Bits of a thread's work word: what it must look at before it returns to user mode.
pub mod work {
    /// Another thread should run here.
    pub const RESCHED: u32 = 1;
    /// A signal may have to be delivered.
    pub const SIGNAL: u32 = 1 << 1;
    /// The process stops.
    pub const STOP: u32 = 1 << 2;
    /// The thread ends: SIGKILL, `exit_group`, or another thread's exec.
    pub const KILL: u32 = 1 << 3;
    /// The signal mask is a temporary one.
    pub const RESTORE_MASK: u32 = 1 << 4;
    /// A CPU time timer or limit may have run out.
    pub const CPU_TIMER: u32 = 1 << 5;
    /// The call was broken off and may have to start again.
    pub const RESTART: u32 = 1 << 6;
    /// The thread has a restartable sequence to look at (`rseq`).
    pub const RSEQ: u32 = 1 << 7;
    /// The thread's tracer has something for it to stop at (`ptrace`).
    pub const TRAP: u32 = 1 << 8;
    /// The thread's tracer is to see the end of the call that it is in.
    pub const CALL_END: u32 = 1 << 9;
    /// A write of the thread ended early, because no reader is left.
    pub const BROKEN_PIPE: u32 = 1 << 10;
    /// What breaks off an interruptible wait.
    pub const INTERRUPTS: u32 = SIGNAL | STOP | KILL | TRAP;
    /// These bits alone take a thread on its way to user mode out of it; the others say what it is.
    pub const DUE: u32 = crate::arch::traps::WORK_DUE;
    /// It is traced.
    pub const TRACED: u32 = 1 << 24;
    /// Its tracer is to see its calls.
    pub const TRACED_CALLS: u32 = 1 << 25;
    /// It has breakpoints of its own in the CPU's registers.
    pub const BREAKPOINTS: u32 = 1 << 26;
    /// It steps for its tracer.
    pub const STEPS: u32 = 1 << 27;
    /// Not all calls are allowed to it (`seccomp`).
    pub const CONFINED: u32 = 1 << 28;
    /// It may not read the time-stamp counter (`PR_SET_TSC`).
    pub const NO_TSC: u32 = 1 << 29;
    /// Any of these: its calls are looked at before they are made.
    pub const LOOKED_AT: u32 = TRACED_CALLS | CONFINED;
}

/// What the scheduler needs of its owner. The owner defines one, `OWNER`, with the kernel: the
/// linker binds the two, so a call costs no more than any other.
#[derive(Debug)]
pub struct Owner {
    /// Makes the thread in which this CPU idles. It has no stack of its own.
    pub idle: fn() -> Owned,
    /// Gives back the count that an [`Owned`] stands for.
    ///
    /// # Safety
    /// The count is the caller's, who uses the thread no more.
    pub release: unsafe fn(NonNull<Thread>),
    /// This CPU leaves one thread for another, which is not running yet: what user code sees
    /// besides its registers changes here. The first is still the current one.
    pub switch: fn(&Thread, &Thread),
    /// The first code of a new thread, on its own stack, as the current one.
    pub begin: fn() -> !,
    /// A thread gets the CPU: when it wants [`Self::tick`] to be called, if at all.
    pub wants_tick: fn(&Thread, Nanos) -> Option<Nanos>,
    /// The timer interrupted the thread. Gives when the next tick is wanted.
    pub tick: fn(&Thread, Nanos) -> Option<Nanos>,
    /// Starts a kernel thread of this name that runs the function.
    pub spawn: fn(&'static str, fn()),
    /// The current thread holds no spin lock, in the middle of long work: what had to wait for that may
    /// be done.
    pub at_ease: fn(),
    /// This CPU has nothing to run and is about to halt.
    pub resting: fn(),
    /// Says which thread it is, for messages.
    pub describe: fn(&Thread, &mut fmt::Formatter<'_>) -> fmt::Result,
}

unsafe extern "Rust" {
    /// See [`Owner`].
    #[link_name = "ebb_thread_owner"]
    pub(super) safe static OWNER: Owner;
}

/// The scheduler's part of a thread. It stands first in what owns the thread.
#[repr(C)]
pub struct Thread {
    /// See [`work`]. The exits to user mode read it.
    pub(super) work: AtomicU32,
    pub(super) state: ThreadState,
    /// The CPU that it runs on, ran on last or waits for; `vruntime` counts there.
    pub(super) cpu: AtomicUsize,
    /// What it stalls for, in the bits of [`super::pressure`].
    pub(super) stalls: AtomicU32,
    /// The CPUs that it may run on.
    affinity: CpuSet,
    /// Its place in a run queue.
    run_links: Links<Thread>,
    /// Virtual run time: the run queue's key. Changed by its CPU, or under its queue's lock.
    pub(super) vruntime: AtomicU64,
    /// -20 to 19.
    nice: AtomicI32,
    /// It wants no more than what is left (`SCHED_IDLE`).
    idle_weight: AtomicBool,
    /// The nice value that its weight is of, [`policy::IDLE_NICE`] or [`policy::NO_WEIGHT`].
    weighed: AtomicI32,
    /// Real-time priority, 1 to 99; 0: it shares the CPU by weight.
    priority: AtomicU32,
    /// The rest of what a real-time policy needs.
    pub(super) realtime: Realtime,
    /// The queue that it waits in: 0 for none, else the CPU's number plus 1, with [`REALTIME`] among
    /// those with a priority. Guarded by that queue's lock.
    queued: AtomicU32,
    /// CPU time, switches, faults.
    pub(super) account: Account,
    /// What it has read and written.
    pub(super) transfers: super::transfers::Transfers,
    /// Its wait for a time of the wall clock.
    pub(super) wall: super::wall::Note,
    /// Saved registers, while it does not run.
    pub(super) context: UnsafeCell<Context>,
    /// None: an idle thread, which runs on its CPU's boot stack.
    pub(super) stack: Option<KernelStack>,
}

// SAFETY: `context` is used by the CPU that switches the thread alone (the scheduler's hand-off).
unsafe impl Sync for Thread {}
// SAFETY: as above.
unsafe impl Send for Thread {}

// SAFETY: always the same field, which the scheduler's heap alone uses.
unsafe impl Linked for Thread {
    fn links(&self) -> &Links<Self> {
        &self.run_links
    }
}

/// The bit of [`Thread::queued`] for threads with a priority.
const REALTIME: u32 = 1 << 31;

/// Where a thread waits for a CPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The CPU.
    pub(super) at: usize,
    /// Among those with a priority.
    pub(super) realtime: bool,
}

impl Thread {
    /// A thread that has never run. It begins in [`Owner::begin`] on `stack`, of which
    /// `reserved` bytes at the top are the owner's (a multiple of 16). Without a stack it is an idle
    /// thread.
    pub fn new(stack: Option<KernelStack>, reserved: usize) -> Self {
        let context = stack.as_ref().map_or(Context::empty(), |stack| {
            let top = stack.top().wrapping_sub(reserved);
            // SAFETY: the stack is new and the thread's own, which does not run yet.
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
            stack,
        }
    }

    /// The end of its stack, below which its owner's bytes are; an idle thread has none.
    pub fn stack_top(&self) -> Option<*mut u8> {
        self.stack.as_ref().map(KernelStack::top)
    }

    /// Whether a signal waits that the thread may have to act on: what breaks off interruptible
    /// waits.
    #[inline]
    pub fn signal_pending(&self) -> bool {
        // Acquire: pairs with the Release in `add_work`, so the signal itself is seen.
        self.work.load(Ordering::Acquire) & work::INTERRUPTS != 0
    }

    /// Whether SIGKILL or the end of the whole process is due: what breaks off killable waits.
    #[inline]
    pub fn killed(&self) -> bool {
        self.work.load(Ordering::Acquire) & work::KILL != 0
    }

    /// Whether it stalls for memory, or waits for reads or writes when it sleeps.
    #[inline]
    pub(super) fn is_stalling(&self) -> bool {
        // Relaxed: its own, or of the CPU that moves it on.
        self.stalls.load(Ordering::Relaxed) != 0
    }

    /// Its work bits. Who acts on a bit sees what was written before it was set.
    #[inline]
    pub fn work(&self) -> u32 {
        // Acquire: pairs with the Release in `add_work`.
        self.work.load(Ordering::Acquire)
    }

    /// Sets work bits. Whoever sets one for another thread wakes it or kicks its CPU too.
    pub fn add_work(&self, bits: u32) {
        // SeqCst: pairs with the thread's look at the word between `prepare_to_block` and `block`,
        // in the way of `sched::state`; and Release for `signal_pending`.
        self.work.fetch_or(bits, Ordering::SeqCst);
    }

    /// Clears work bits of the current thread.
    pub fn clear_work(&self, bits: u32) {
        // AcqRel: what made the bit set is seen by what runs after this.
        self.work.fetch_and(!bits, Ordering::AcqRel);
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// What it has read and written.
    #[inline]
    pub fn transfers(&self) -> &super::transfers::Transfers {
        &self.transfers
    }

    /// CPU time, switches and faults.
    #[inline]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Its nice value, -20 to 19.
    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed)
    }

    /// Sets its nice value, cut to -20 to 19, and whether it has the weight of a thread that wants no
    /// more than what is left (`SCHED_IDLE`).
    pub fn set_weight(&self, nice: i32, idle: bool) {
        self.nice.store(nice.clamp(-20, 19), Ordering::Relaxed);
        self.idle_weight.store(idle, Ordering::Relaxed);
        self.weigh();
    }

    /// Brings `weighed` up to date.
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

    /// The nice value that its weight is of, [`policy::IDLE_NICE`] if it wants no more than what is
    /// left, or [`policy::NO_WEIGHT`] if it has a priority or is an idle thread.
    #[inline]
    pub(super) fn weighed(&self) -> i32 {
        self.weighed.load(Ordering::Relaxed)
    }

    /// Its real-time priority, 1 to 99; 0 if it shares the CPU by weight.
    #[inline]
    pub fn priority(&self) -> u32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sets the real-time priority; [`super::realtime::set`] sees to the rest.
    pub(super) fn store_priority(&self, priority: u32) {
        self.priority.store(priority, Ordering::Relaxed);
        self.weigh();
    }

    /// Notes where it waits.
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

    /// Where it waits.
    pub(super) fn queued(&self) -> Option<Place> {
        let word = self.queued.load(Ordering::Relaxed);
        let at = (word & !REALTIME).checked_sub(1)? as usize;
        let realtime = word & REALTIME != 0;
        Some(Place { at, realtime })
    }

    /// The CPU that it runs on, ran on last or waits for.
    pub fn last_cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    /// The CPUs that it may run on.
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
        (OWNER.describe)(self, f)
    }
}

/// A counted reference to a thread.
pub struct Owned(NonNull<Thread>);

// SAFETY: it is a count, and threads are shared between CPUs.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    /// Makes one of a count of the owner's.
    ///
    /// # Safety
    /// One count of what the thread is the first part of is the caller's, and is handed over:
    /// [`Owner::release`] gives it back.
    pub unsafe fn from_raw(thread: NonNull<Thread>) -> Self {
        Self(thread)
    }

    /// The pointer; the count is the caller's.
    pub(super) fn into_raw(self) -> NonNull<Thread> {
        ManuallyDrop::new(self).0
    }

    /// The pointer.
    pub(super) fn as_ptr(&self) -> *mut Thread {
        self.0.as_ptr()
    }
}

impl Deref for Owned {
    type Target = Thread;
    #[inline]
    fn deref(&self) -> &Thread {
        // SAFETY: the count keeps the thread alive.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the count was ours.
        unsafe { (OWNER.release)(self.0) };
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The thread that runs on this CPU. It stays alive as long as it runs, so the reference is good
/// wherever it can be used: on that thread's own stack.
#[derive(Copy, Clone, Debug)]
pub struct Current {
    thread: NonNull<Thread>,
    _not_send: PhantomData<*mut ()>,
}

impl Current {
    /// The thread's address: for lists of waiters, which end before the thread does, and for its
    /// owner.
    #[inline]
    pub fn as_non_null(self) -> NonNull<Thread> {
        self.thread
    }
}

impl Deref for Current {
    type Target = Thread;
    #[inline]
    fn deref(&self) -> &Thread {
        // SAFETY: see the type.
        unsafe { self.thread.as_ref() }
    }
}

/// The thread that runs on this CPU.
#[inline]
pub fn current() -> Current {
    let thread = crate::arch::current_thread() as *mut Thread;
    debug_assert!(!thread.is_null(), "no thread runs on this CPU yet");
    // SAFETY: set from the first thread on, before anything asks.
    let thread = unsafe { NonNull::new_unchecked(thread) };
    Current {
        thread,
        _not_send: PhantomData,
    }
}

/// Whether this CPU runs a thread already (early boot does not).
#[inline]
pub fn started() -> bool {
    crate::arch::current_thread() != 0
}
