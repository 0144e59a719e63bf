//! One thread of a process, or of the kernel.

#![expect(
    unsafe_code,
    reason = "a task's own cells, and the frame on its new stack"
)]

use super::process::Process;
use super::scheduling::{OwnScheduling, Scheduling};
use super::used_space::UsedSpace;
use crate::fs::{self, table::FilesOfTask};
use crate::process::ipc::sem::UndoList;
use crate::process::ptrace::{self, Tracee};
use crate::process::rseq::Registration;
use crate::process::seccomp::Confinement;
use crate::process::signal::{SigSet, ThreadSignals};
use crate::vm::AddressSpace;
use crate::vm::uaccess;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use logic::credentials::Credentials;
use logic::mempolicy::Policy;
use logic::sched::state::State;
use machine::arch::clock::{self, Nanos};
use machine::arch::fpu::FpuState;
use machine::arch::{self, UserFrame};
use machine::memory::KernelStack;
use machine::sched::{Thread, work};
use machine::sync::SpinLock;

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

/// The state that user code sees besides its frame; kernel threads have none.
pub(crate) struct UserState {
    /// x87, MXCSR, AVX.
    pub(crate) fpu: Own<Box<FpuState>>,
    /// The address space. Processes hold it too; this is the fast way for the task itself.
    pub(crate) vm: Own<Option<UsedSpace>>,
    /// Open files.
    pub(crate) files: Own<Option<FilesOfTask>>,
    /// Root, working directory, umask.
    pub(crate) fs: Own<Option<Arc<fs::Context>>>,
    /// What `SEM_UNDO` has noted; none yet, mostly.
    pub(crate) undo: Own<Option<Arc<UndoList>>>,
    /// The address of that list, for others to compare; 0: none.
    undo_mark: AtomicU64,
    /// FS base (the thread pointer) and GS base.
    bases: [AtomicU64; 2],
}

/// Returns what tells a list from others; 0 for none.
fn mark_of(list: Option<&Arc<UndoList>>) -> u64 {
    list.map_or(0, |list| Arc::as_ptr(list).addr() as u64)
}

/// Words of `struct user_regs_struct`.
pub(crate) const REGISTERS: usize = 27;

impl UserState {
    pub(crate) fn new(
        fpu: Box<FpuState>,
        vm: Arc<AddressSpace>,
        files: FilesOfTask,
        fs: Arc<fs::Context>,
        undo: Option<Arc<UndoList>>,
        bases: [u64; 2],
    ) -> Self {
        let undo_mark = AtomicU64::new(mark_of(undo.as_ref()));
        Self {
            undo_mark,
            fpu: Own::new(fpu),
            vm: Own::new(Some(UsedSpace::new(vm))),
            files: Own::new(Some(files)),
            fs: Own::new(Some(fs)),
            undo: Own::new(undo),
            bases: bases.map(AtomicU64::new),
        }
    }

    /// Notes which list the task, the current one, has for `SEM_UNDO` now.
    pub(super) fn mark_undo_list(&self) {
        // SAFETY: the task itself asks.
        let list = unsafe { self.undo.look() };
        // Relaxed: others compare the mark, no more.
        self.undo_mark
            .store(mark_of(list.as_ref()), Ordering::Relaxed);
    }

    /// The FS base: the thread pointer.
    #[inline]
    pub(crate) fn fs_base(&self) -> u64 {
        self.bases[0].load(Ordering::Relaxed)
    }

    /// The GS base.
    #[inline]
    pub(crate) fn gs_base(&self) -> u64 {
        self.bases[1].load(Ordering::Relaxed)
    }

    /// `struct user_regs_struct`: what user code holds, with the frame of its entry.
    pub(crate) fn registers(&self, frame: &UserFrame) -> [u64; REGISTERS] {
        [
            frame.r15,
            frame.r14,
            frame.r13,
            frame.r12,
            frame.rbp,
            frame.rbx,
            frame.r11,
            frame.r10,
            frame.r9,
            frame.r8,
            frame.rax,
            frame.rcx,
            frame.rdx,
            frame.rsi,
            frame.rdi,
            frame.orig_rax,
            frame.rip,
            frame.cs,
            frame.rflags,
            frame.rsp,
            frame.ss,
            self.fs_base(),
            self.gs_base(),
            0,
            0,
            0,
            0,
        ]
    }

    /// Sets the FS base (0) or GS base (1) of a task that stands for its tracer.
    pub(crate) fn lend_base(&self, which: usize, address: u64) {
        self.bases[which].store(address, Ordering::Relaxed);
    }

    /// Sets the FS base of the current task, a user address.
    pub(crate) fn set_fs_base(&self, address: u64) {
        self.bases[0].store(address, Ordering::Relaxed);
        arch::set_fs_base(address);
    }

    /// Sets the GS base of the current task, a user address.
    pub(crate) fn set_gs_base(&self, address: u64) {
        self.bases[1].store(address, Ordering::Relaxed);
        arch::set_gs_base_user(address);
    }
}

/// User words that say where a task began and that it has ended: addresses, 0 for none.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Where the new task stores its number before it starts.
    pub(crate) set_child_tid: AtomicU64,
    /// Cleared, and its futex woken, when the task ends.
    pub(crate) clear_child_tid: AtomicU64,
    /// Head of the robust futex list.
    pub(crate) robust_list: AtomicU64,
    /// The owner of the lock that the task waits for (`futex_pi`); 0: none.
    pub(crate) waits_for: AtomicU32,
    /// Whether anybody has waited for the task to unlock.
    pub(crate) is_waited_for: AtomicU32,
    /// Whether it has ended, and unlocks nothing any more.
    pub(crate) is_gone: AtomicU32,
}

/// A thread of a process, or of the kernel.
#[repr(C)]
pub struct Task {
    /// The scheduler's part. First: the scheduler knows a task by it alone.
    thread: Thread,
    /// None: a kernel thread.
    pub(super) user: Option<UserState>,
    pub(super) process: Arc<Process>,
    /// Thread number; changes only when a thread takes over its group's in exec.
    pub(super) tid: AtomicU32,
    /// Where it stands among the threads of its process; guarded by their lock.
    pub(super) place: AtomicUsize,
    name: SpinLock<[u8; NAME_BYTES]>,
    start_time: Nanos,
    signals: ThreadSignals,
    marks: Marks,
    rseq: Registration,
    tracee: Tracee,
    confinement: Confinement,
    /// How it is scheduled.
    pub(super) scheduling: OwnScheduling,
    /// It ends, and makes no more calls.
    ends: AtomicBool,
    /// `set_mempolicy`.
    memory_policy: AtomicU8,
    /// `PR_SET_TIMERSLACK`, kept for `PR_GET_TIMERSLACK`.
    timer_slack: AtomicU64,
    /// The timer slack that it began with, its maker's.
    usual_timer_slack: AtomicU64,
    /// Who it acts as, for itself.
    own_credentials: Own<Arc<Credentials>>,
    /// The same for others.
    credentials: SpinLock<Arc<Credentials>>,
    /// Body of a kernel thread.
    pub(super) body: Option<fn()>,
}

/// What is needed to make a task.
pub(crate) struct NewTask<'a> {
    pub(crate) process: Arc<Process>,
    pub(crate) tid: u32,
    pub(crate) name: &'a [u8],
    pub(crate) credentials: Arc<Credentials>,
}

impl Task {
    /// Returns what tells its list for `SEM_UNDO` from those of others; 0: it has none.
    pub(crate) fn undo_mark(&self) -> u64 {
        self.user
            .as_ref()
            .map_or(0, |user| user.undo_mark.load(Ordering::Relaxed))
    }

    fn new(new: NewTask<'_>, thread: Thread, user: Option<UserState>, body: Option<fn()>) -> Self {
        let task = Self {
            thread,
            user,
            process: new.process,
            tid: AtomicU32::new(new.tid),
            place: AtomicUsize::new(usize::MAX),
            name: SpinLock::new([0; NAME_BYTES]),
            start_time: clock::now(),
            signals: ThreadSignals::new(),
            marks: Marks::default(),
            rseq: Registration::default(),
            tracee: Tracee::default(),
            confinement: Confinement::default(),
            scheduling: OwnScheduling::new(),
            ends: AtomicBool::new(false),
            memory_policy: AtomicU8::new(0),
            timer_slack: AtomicU64::new(50_000),
            usual_timer_slack: AtomicU64::new(50_000),
            own_credentials: Own::new(new.credentials.clone()),
            credentials: SpinLock::new(new.credentials),
            body,
        };
        task.set_name(new.name);
        task
    }

    /// A task that has never run; it begins in user mode with `frame`.
    pub(crate) fn user(
        new: NewTask<'_>,
        user: UserState,
        stack: KernelStack,
        frame: UserFrame,
    ) -> Self {
        let place = stack.top().cast::<UserFrame>().wrapping_sub(1);
        // SAFETY: the stack is new, the task's own, and larger than a frame; its top is aligned as
        // the frame is.
        unsafe { place.write(frame) };
        let thread = Thread::new(Some(stack), size_of::<UserFrame>());
        Self::new(new, thread, Some(user), None)
    }

    /// A kernel thread that has never run.
    pub(super) fn kernel(new: NewTask<'_>, stack: KernelStack, body: fn()) -> Self {
        Self::new(new, Thread::new(Some(stack), 0), None, Some(body))
    }

    /// The idle task of the CPU that calls this.
    pub(super) fn idle() -> Self {
        let new = NewTask {
            process: super::kthread::kernel_process().clone(),
            tid: 0,
            name: b"idle",
            credentials: super::kthread::root_credentials(),
        };
        Self::new(new, Thread::new(None, 0), None, None)
    }

    /// Stores the task's number where clone was asked to; it is the task itself that runs.
    pub(super) fn store_child_tid(&self) {
        let address = self.marks.set_child_tid.load(Ordering::Relaxed);
        if address != 0 {
            // A bad address is nobody's fault but the program's: it gets no number.
            let _ = uaccess::copy_out(address, &self.tid().to_ne_bytes());
        }
    }

    /// Thread number.
    pub fn tid(&self) -> u32 {
        // Relaxed: a number, it orders nothing.
        self.tid.load(Ordering::Relaxed)
    }

    /// The process that the task belongs to.
    #[inline]
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// What user code sees; `None` for a kernel thread.
    #[inline]
    pub(crate) fn user_state(&self) -> Option<&UserState> {
        self.user.as_ref()
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

    /// Who it acts as, whoever asks.
    pub fn credentials_for_others(&self) -> Arc<Credentials> {
        self.credentials.lock().clone()
    }

    /// It acts as somebody else from now on.
    ///
    /// # Safety
    /// The caller is the task itself, and no reference to the present ones is in use.
    pub(super) unsafe fn set_credentials(&self, new: Arc<Credentials>) {
        // SAFETY: by the contract.
        let own = unsafe { self.own_credentials.get() };
        let old = core::mem::replace(own, new.clone());
        if self.tid() == self.process.pid() {
            self.process.set_credentials(new.clone());
        }
        let shown = core::mem::replace(&mut *self.credentials.lock(), new);
        drop((old, shown));
    }

    /// Who it acts as.
    ///
    /// # Safety
    /// The caller is the task itself.
    #[inline]
    pub(super) unsafe fn own_credentials(&self) -> &Arc<Credentials> {
        // SAFETY: by the contract.
        unsafe { self.own_credentials.look() }
    }

    /// What it has of signals.
    #[inline]
    pub(crate) fn signals(&self) -> &ThreadSignals {
        &self.signals
    }

    /// Blocked signals.
    pub fn blocked(&self) -> SigSet {
        self.signals.blocked()
    }

    /// The user words that tell of its beginning and its end.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Its restartable sequence.
    #[inline]
    pub(crate) fn rseq(&self) -> &Registration {
        &self.rseq
    }

    /// Its part in tracing.
    #[inline]
    pub(crate) fn tracee(&self) -> &Tracee {
        &self.tracee
    }

    /// What it may call.
    #[inline]
    pub(crate) fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Whether it has begun to end.
    pub(super) fn ends(&self) -> bool {
        // Relaxed: who was told of its end by a futex has taken a lock after it.
        self.ends.load(Ordering::Relaxed)
    }

    /// It begins to end.
    pub(super) fn note_end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Whether somebody traces it.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.thread.work() & work::TRACED != 0
    }

    /// Takes over what a thread or a process inherits besides the big things.
    pub(super) fn inherit(&self, parent: &Self) {
        let inherited = parent.scheduling().of_child();
        if inherited != Scheduling::USUAL {
            self.change_scheduling(|own| *own = inherited);
        }
        self.set_memory_policy(parent.memory_policy());
        let slack = parent.timer_slack();
        self.usual_timer_slack.store(slack, Ordering::Relaxed);
        self.timer_slack.store(slack, Ordering::Relaxed);
        if parent.work() & work::NO_TSC != 0 {
            self.add_work(work::NO_TSC);
        }
    }

    /// The letter for `/proc/PID/stat`, without regard to zombies.
    pub fn state_letter(&self) -> u8 {
        match self.thread.state() {
            State::Blocked if self.is_traced() && ptrace::stands(self) => b't',
            State::Blocked if self.signals.is_stopped() => b'T',
            State::Blocked | State::Parking => b'S',
            State::Dead => b'X',
            State::Running | State::Runnable | State::Woken | State::New => b'R',
        }
    }

    /// When it was made, on the monotonic clock.
    pub fn start_time(&self) -> Nanos {
        self.start_time
    }

    /// Its memory policy, as `set_mempolicy(2)` has it.
    pub fn memory_policy(&self) -> Policy {
        // Relaxed (both): a value of its own.
        Policy::from_bits(self.memory_policy.load(Ordering::Relaxed))
    }

    /// Gives it another memory policy.
    pub fn set_memory_policy(&self, policy: Policy) {
        self.memory_policy.store(policy.bits(), Ordering::Relaxed);
    }

    /// Its timer slack, in nanoseconds.
    pub fn timer_slack(&self) -> u64 {
        self.timer_slack.load(Ordering::Relaxed)
    }

    /// Sets the timer slack, 0 for the one that it began with; timers are exact whatever it says.
    pub fn set_timer_slack(&self, slack: u64) {
        let slack = match slack {
            0 => self.usual_timer_slack.load(Ordering::Relaxed),
            slack => slack,
        };
        self.timer_slack.store(slack, Ordering::Relaxed);
    }
}

impl Deref for Task {
    type Target = Thread;
    #[inline]
    fn deref(&self) -> &Thread {
        &self.thread
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
