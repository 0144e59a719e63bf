//! One thread.

use super::process::Process;
use crate::arch::CpuSet;
use crate::arch::clock::{self, Nanos};
use crate::arch::context::Context;
use crate::arch::fpu::FpuState;
use crate::errno::SysResult;
use crate::fs;
use crate::memory::KernelStack;
use crate::sched::account::Account;
use crate::sched::heap::{Linked, Links};
use crate::sched::state::{State, TaskState};
use crate::signal::{Pending, SigSet};
use crate::sync::SpinLock;
use crate::syscall::Args;
use crate::vm::AddressSpace;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bits of a task's work word: what it must look at before it returns to user mode.
pub mod work {
    /// Another task should run here.
    pub const RESCHED: u32 = 1;
    /// A signal may have to be delivered.
    pub const SIGNAL: u32 = 1 << 1;
    /// The process stops.
    pub const STOP: u32 = 1 << 2;
    /// The task ends: SIGKILL, `exit_group`, or another thread's exec.
    pub const KILL: u32 = 1 << 3;
    /// The signal mask is a temporary one.
    pub const RESTORE_MASK: u32 = 1 << 4;
    /// A CPU time timer or limit may have run out.
    pub const CPU_TIMER: u32 = 1 << 5;
    /// The call was broken off and may have to start again.
    pub const RESTART: u32 = 1 << 6;
    /// What breaks off an interruptible wait.
    pub const INTERRUPTS: u32 = SIGNAL | STOP | KILL;
}

/// Bytes of a task's name with its NUL.
pub(crate) const NAME_BYTES: usize = 16;

/// A cell of a task that only the task itself uses, while it runs (or its maker, before).
pub(crate) struct Own<T>(UnsafeCell<T>);

// SAFETY: see the type: one CPU at a time uses it, and tasks change CPUs by way of the scheduler's
// locks.
unsafe impl<T: Send> Sync for Own<T> {}

impl<T> Own<T> {
    const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The value, to look at.
    ///
    /// # Safety
    /// The caller is the task itself (or the CPU that switches it), and no reference from
    /// [`Self::get`] is in use.
    pub(crate) unsafe fn look(&self) -> &T {
        // SAFETY: by the contract.
        unsafe { &*self.0.get() }
    }

    /// The value, to change.
    ///
    /// # Safety
    /// The caller is the task itself (or its maker), and no reference to the value is in use.
    #[expect(clippy::mut_from_ref, reason = "that is what the contract is about")]
    pub(crate) unsafe fn get(&self) -> &mut T {
        // SAFETY: by the contract.
        unsafe { &mut *self.0.get() }
    }
}

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

/// The state that user code sees besides its frame; kernel threads have none.
pub(crate) struct UserState {
    /// x87, MXCSR, AVX.
    pub(crate) fpu: Own<Box<FpuState>>,
    /// The address space. Processes hold it too; this is the fast way for the task itself.
    pub(crate) vm: Own<Option<Arc<AddressSpace>>>,
    /// Open files.
    pub(crate) files: Own<Option<Arc<fs::FileTable>>>,
    /// Root, working directory, umask.
    pub(crate) fs: Own<Option<Arc<fs::Context>>>,
}

impl UserState {
    pub(crate) fn new(
        fpu: Box<FpuState>,
        vm: Arc<AddressSpace>,
        files: Arc<fs::FileTable>,
        fs: Arc<fs::Context>,
    ) -> Self {
        Self {
            fpu: Own::new(fpu),
            vm: Own::new(Some(vm)),
            files: Own::new(Some(files)),
            fs: Own::new(Some(fs)),
        }
    }
}

/// A thread of a process, or of the kernel.
pub struct Task {
    /// What to look at before user mode; see [`work`]. ARCH's exits read it.
    pub(crate) work: AtomicU32,
    /// What the task is doing.
    pub(crate) state: TaskState,
    /// The CPU that it runs on or ran on last.
    pub(crate) cpu: AtomicUsize,
    /// The CPUs that it may run on.
    pub(crate) affinity: CpuSet,
    /// Its place in a run queue.
    pub(crate) run_links: Links<Task>,
    /// Virtual run time: the run queue's key. Changed by its CPU, or under its queue's lock.
    pub(crate) vruntime: AtomicU64,
    /// -20 to 19.
    pub(crate) nice: AtomicI32,
    /// Scheduling policy as set by the program (all are run alike).
    pub(crate) policy: AtomicU32,
    /// CPU time and switches.
    pub(crate) account: Account,
    /// Saved registers, while it does not run.
    pub(crate) context: UnsafeCell<Context>,
    /// None: an idle task, which runs on its CPU's boot stack.
    pub(crate) stack: Option<KernelStack>,
    /// None: a kernel thread.
    pub(crate) user: Option<UserState>,
    pub(crate) process: Arc<Process>,
    /// Thread number; changes only when a thread takes over its group's in exec.
    pub(crate) tid: AtomicU32,
    /// User FS base (the thread pointer) and GS base.
    pub(crate) fs_base: AtomicU64,
    pub(crate) gs_base: AtomicU64,
    name: SpinLock<[u8; NAME_BYTES]>,
    pub(crate) start_time: Nanos,

    /// Blocked signals; changed by the task itself alone.
    pub(crate) blocked: AtomicU64,
    /// The mask to go back to, while `work::RESTORE_MASK` is set.
    pub(crate) saved_mask: AtomicU64,
    /// Signals that `rt_sigtimedwait` waits for.
    pub(crate) awaited: AtomicU64,
    /// Signals for this thread alone.
    pub(crate) pending: SpinLock<Pending>,
    pub(crate) alt_stack: SpinLock<AltStack>,
    pub(crate) restart: SpinLock<Option<Restart>>,
    /// Counted among the process's stopped threads; under the group's lock.
    pub(crate) stopped: AtomicBool,

    /// Cleared, and its futex woken, when the task ends.
    pub(crate) clear_child_tid: AtomicU64,
    /// Where the new task stores its number before it starts.
    pub(crate) set_child_tid: AtomicU64,
    /// Head of the robust futex list.
    pub(crate) robust_list: AtomicU64,
    /// Body of a kernel thread.
    pub(crate) body: Option<fn()>,
    /// Minor and major faults are VM's to count; it adds here.
    pub minor_faults: AtomicU64,
    /// See `minor_faults`.
    pub major_faults: AtomicU64,
    /// `PR_SET_TIMERSLACK`, kept for `PR_GET_TIMERSLACK`.
    pub(crate) timer_slack: AtomicU64,
}

// SAFETY: `context` is used by the CPU that switches the task alone (the scheduler's hand-off).
unsafe impl Sync for Task {}
// SAFETY: as above.
unsafe impl Send for Task {}

// SAFETY: always the same field, which the scheduler's heap alone uses.
unsafe impl Linked for Task {
    fn links(&self) -> &Links<Self> {
        &self.run_links
    }
}

/// What is needed to make a task.
pub(crate) struct NewTask<'a> {
    pub(crate) process: Arc<Process>,
    pub(crate) tid: u32,
    pub(crate) name: &'a [u8],
    pub(crate) user: Option<UserState>,
    pub(crate) body: Option<fn()>,
}

impl Task {
    /// A task that has never run: blocked, with no context yet.
    pub(crate) fn new(new: NewTask<'_>, stack: Option<KernelStack>) -> Self {
        let task = Self {
            work: AtomicU32::new(0),
            state: TaskState::new(State::Blocked),
            cpu: AtomicUsize::new(crate::arch::cpu_id()),
            affinity: CpuSet::from_mask(u64::MAX),
            run_links: Links::new(),
            vruntime: AtomicU64::new(0),
            nice: AtomicI32::new(0),
            policy: AtomicU32::new(0),
            account: Account::new(),
            context: UnsafeCell::new(Context::empty()),
            stack,
            user: new.user,
            process: new.process,
            tid: AtomicU32::new(new.tid),
            fs_base: AtomicU64::new(0),
            gs_base: AtomicU64::new(0),
            name: SpinLock::new([0; NAME_BYTES]),
            start_time: clock::now(),
            blocked: AtomicU64::new(0),
            saved_mask: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            pending: SpinLock::new(Pending::new()),
            alt_stack: SpinLock::new(AltStack::default()),
            restart: SpinLock::new(None),
            stopped: AtomicBool::new(false),
            clear_child_tid: AtomicU64::new(0),
            set_child_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            body: new.body,
            minor_faults: AtomicU64::new(0),
            major_faults: AtomicU64::new(0),
            timer_slack: AtomicU64::new(50_000),
        };
        task.set_name(new.name);
        task
    }

    /// The idle task of the CPU that calls this.
    pub(crate) fn idle() -> Self {
        let new = NewTask {
            process: super::kthread::kernel_process().clone(),
            tid: 0,
            name: b"idle",
            user: None,
            body: None,
        };
        Self::new(new, None)
    }

    /// Stores the task's number where clone was asked to; it is the task itself that runs.
    pub(crate) fn store_child_tid(&self) {
        let address = self.set_child_tid.load(Ordering::Relaxed);
        if address != 0 {
            // A bad address is nobody's fault but the program's: it gets no number.
            let _ = crate::uaccess::copy_out(address, &self.tid().to_ne_bytes());
        }
    }

    /// Thread number.
    pub fn tid(&self) -> u32 {
        // Relaxed: a number, it orders nothing.
        self.tid.load(Ordering::Relaxed)
    }

    /// The process that the task belongs to.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Whether it is a thread of the kernel, without user memory.
    pub fn is_kernel(&self) -> bool {
        self.user.is_none()
    }

    /// Its name (`comm`), without the NULs.
    pub fn name(&self) -> Name {
        Name(*self.name.lock())
    }

    /// Sets its name, cut to 15 bytes.
    pub fn set_name(&self, name: &[u8]) {
        let mut bytes = [0; NAME_BYTES];
        let len = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        let len = len.min(NAME_BYTES - 1);
        bytes[..len].copy_from_slice(&name[..len]);
        *self.name.lock() = bytes;
    }

    /// Sets the FS base of the current task, a user address.
    pub(crate) fn set_fs_base(&self, address: u64) {
        self.fs_base.store(address, Ordering::Relaxed);
        crate::arch::set_fs_base(address);
    }

    /// Sets the user's GS base of the current task, a user address.
    pub(crate) fn set_gs_base(&self, address: u64) {
        self.gs_base.store(address, Ordering::Relaxed);
        crate::arch::set_gs_base_user(address);
    }

    /// Whether a signal waits that the task may have to act on: what breaks off interruptible
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

    /// Sets work bits. Whoever sets one for another task wakes it or kicks its CPU too.
    pub(crate) fn add_work(&self, bits: u32) {
        // SeqCst: pairs with the task's look at the word between `prepare_to_block` and `block`,
        // in the way of `sched::state`; and Release for `signal_pending`.
        self.work.fetch_or(bits, Ordering::SeqCst);
    }

    /// Clears work bits of the current task.
    pub(crate) fn clear_work(&self, bits: u32) {
        // AcqRel: what made the bit set is seen by what runs after this.
        self.work.fetch_and(!bits, Ordering::AcqRel);
    }

    /// Blocked signals.
    pub fn blocked(&self) -> SigSet {
        SigSet(self.blocked.load(Ordering::Relaxed))
    }

    /// The letter for `/proc/PID/stat`, without regard to zombies.
    pub fn state_letter(&self) -> u8 {
        match self.state.get() {
            State::Blocked if self.stopped.load(Ordering::Relaxed) => b'T',
            State::Blocked | State::Parking => b'S',
            State::Dead => b'X',
            State::Running | State::Runnable | State::Woken => b'R',
        }
    }

    /// User and system time.
    pub fn times(&self) -> (Nanos, Nanos) {
        self.account.times()
    }

    /// When it was made, on the monotonic clock.
    pub fn start_time(&self) -> Nanos {
        self.start_time
    }

    /// Its nice value, -20 to 19.
    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed)
    }

    /// The CPU that it runs on or ran on last.
    pub fn last_cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    /// The CPUs that it may run on, as bits.
    pub fn affinity_mask(&self) -> u64 {
        self.affinity.mask()
    }

    /// Voluntary and involuntary context switches.
    pub fn switches(&self) -> (u64, u64) {
        self.account.switches()
    }

    /// Signals that wait for this thread.
    pub fn pending_set(&self) -> SigSet {
        self.pending.lock().set()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "task {} ({}) of process {}",
            self.tid(),
            self.name(),
            self.process.pid()
        )
    }
}

/// A task's name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Name([u8; NAME_BYTES]);

impl Name {
    /// A name from its bytes with NULs after them.
    pub const fn from_padded(bytes: [u8; NAME_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes, without the NULs.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(NAME_BYTES);
        &self.0[..len]
    }
    /// Its bytes with the NULs after them.
    pub fn padded(&self) -> &[u8; NAME_BYTES] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}
