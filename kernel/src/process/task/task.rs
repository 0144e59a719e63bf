//! One thread of a process, or of the kernel.

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
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use logic::credentials::Credentials;
use logic::mempolicy::Policy;
use logic::own::Own;
use logic::sched::state::State;
use machine::arch::clock::{self, Nanos};
use machine::arch::fpu::FpuState;
use machine::arch::{self, UserFrame};
use machine::memory::KernelStack;
use machine::sched::{Thread, work};
use machine::sync::SpinLock;
use machine::uaccess;

/// The size in bytes of a task's name with its NUL.
pub(crate) const NAME_BYTES: usize = 16;

/// The state of a task that user code sees, except for its registers. Kernel threads have none.
pub(crate) struct UserState {
    /// The address space. The process has a reference as well, but this one needs no lock. `None`
    /// at the task's end.
    pub(super) vm: Own<Option<UsedSpace>>,
    /// The table of descriptors. `None` at the task's end.
    pub(super) files: Own<Option<FilesOfTask>>,
    /// The root, the working directory and the umask. `None` at the task's end.
    pub(super) fs: Own<Option<Arc<fs::Context>>>,
    /// The list of `SEM_UNDO` adjustments. `None` until the task makes one.
    pub(super) undo: Own<Option<Arc<UndoList>>>,
    /// A number that identifies the list in `undo`, for other tasks to compare; 0 if there is none.
    undo_mark: AtomicU64,
    /// FS base (the thread pointer) and GS base.
    bases: [AtomicU64; 2],
}

/// Returns a mark that identifies a list; 0 for none.
fn mark_of(list: Option<&Arc<UndoList>>) -> u64 {
    list.map_or(0, |list| Arc::as_ptr(list).addr() as u64)
}

/// The number of words in `struct user_regs_struct`.
pub(crate) const REGISTERS: usize = 27;

impl UserState {
    /// Returns the state of a new task. `bases` are the FS base and the GS base.
    pub(crate) fn new(
        vm: Arc<AddressSpace>,
        files: FilesOfTask,
        fs: Arc<fs::Context>,
        undo: Option<Arc<UndoList>>,
        bases: [u64; 2],
    ) -> Self {
        let undo_mark = AtomicU64::new(mark_of(undo.as_ref()));
        Self {
            undo_mark,
            vm: Own::new(Some(UsedSpace::new(vm))),
            files: Own::new(Some(files)),
            fs: Own::new(Some(fs)),
            undo: Own::new(undo),
            bases: bases.map(AtomicU64::new),
        }
    }

    /// Stores the mark of `list`, which is now the task's `SEM_UNDO` list.
    pub(super) fn mark_undo_list(&self, list: Option<&Arc<UndoList>>) {
        // Relaxed: other tasks only compare the mark.
        self.undo_mark.store(mark_of(list), Ordering::Relaxed);
    }

    /// Returns the FS base of user code, which is the thread pointer.
    #[inline]
    pub(crate) fn fs_base(&self) -> u64 {
        self.bases[0].load(Ordering::Relaxed)
    }

    /// Returns the GS base of user code.
    #[inline]
    pub(crate) fn gs_base(&self) -> u64 {
        self.bases[1].load(Ordering::Relaxed)
    }

    /// Returns the registers of user code as `struct user_regs_struct`. `frame` is the frame of the
    /// entry from user mode.
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

    /// Sets the FS base (`which` 0) or the GS base (`which` 1) of a task in a ptrace-stop to
    /// `address`.
    pub(crate) fn lend_base(&self, which: usize, address: u64) {
        self.bases[which].store(address, Ordering::Relaxed);
    }

    /// Sets the FS base of the current task to the user address `address`.
    pub(crate) fn set_fs_base(&self, address: u64) {
        self.bases[0].store(address, Ordering::Relaxed);
        arch::set_fs_base(address);
    }

    /// Sets the GS base of the current task to the user address `address`.
    pub(crate) fn set_gs_base(&self, address: u64) {
        self.bases[1].store(address, Ordering::Relaxed);
        arch::set_gs_base_user(address);
    }
}

/// Addresses of user words that announce a task's start and end, and the state of its locks. An
/// address is 0 if it is unset.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The address where the new task stores its number before it starts.
    pub(crate) set_child_tid: AtomicU64,
    /// The address of a word that is cleared, and whose futex is woken, when the task ends.
    pub(crate) clear_child_tid: AtomicU64,
    /// The address of the head of the robust futex list (`set_robust_list(2)`).
    pub(crate) robust_list: AtomicU64,
    /// The thread number of the owner of the PI lock that the task waits for (`futex_pi`); 0 if it
    /// waits for none.
    pub(crate) waits_for: AtomicU32,
    /// The buckets of `futex_pi` in which tasks may wait for this one to unlock, as a set of bits.
    pub(crate) waited_in: AtomicU64,
    /// Whether the task has ended (1) or not (0), so that it unlocks no PI lock any more.
    pub(crate) is_gone: AtomicU32,
}

/// A thread of a process or of the kernel.
#[repr(C)]
pub struct Task {
    /// The scheduler's part. It is first, see [`own_threads!`](machine::own_threads).
    thread: Thread,
    /// The state that user code sees. `None` for a kernel thread.
    pub(super) user: Option<UserState>,
    /// The process that the task belongs to.
    pub(super) process: Arc<Process>,
    /// Thread number. It changes only when a thread takes over its group's number in exec.
    pub(super) tid: AtomicU32,
    /// The index of the task in `tasks` of its process's group; guarded by the lock of the group.
    pub(super) place: AtomicUsize,
    name: SpinLock<Name>,
    start_time: Nanos,
    signals: ThreadSignals,
    marks: Marks,
    rseq: Registration,
    tracee: Tracee,
    confinement: Confinement,
    /// The scheduling parameters.
    pub(super) scheduling: OwnScheduling,
    /// Whether the thread is ending and makes no more system calls.
    ends: AtomicBool,
    /// The memory policy of `set_mempolicy(2)`.
    memory_policy: AtomicU8,
    /// The timer slack in nanoseconds (`PR_SET_TIMERSLACK`). It is only stored; timers are exact.
    timer_slack: AtomicU64,
    /// The timer slack in nanoseconds that the task started with, that of its creator.
    usual_timer_slack: AtomicU64,
    /// The credentials, for access by the task itself without a lock.
    pub(super) own_credentials: Own<Arc<Credentials>>,
    /// The credentials, for access by other tasks.
    pub(super) credentials: SpinLock<Arc<Credentials>>,
    /// The function that a kernel thread runs. `None` for a user task.
    pub(super) body: Option<fn()>,
}

/// The arguments for creating a task.
pub(crate) struct NewTask<'a> {
    pub(crate) process: Arc<Process>,
    pub(crate) tid: u32,
    pub(crate) name: &'a [u8],
    pub(crate) credentials: Arc<Credentials>,
}

impl Task {
    /// Returns a number that identifies the task's `SEM_UNDO` list among all lists, or 0 if the
    /// task has none.
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
            name: SpinLock::new(Name::NONE),
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

    /// Returns a new user task that has never run. It starts in user mode with the registers in
    /// `frame` and the floating-point state `fpu`, and has the kernel stack `stack`.
    pub(crate) fn user(
        new: NewTask<'_>,
        user: UserState,
        stack: KernelStack,
        frame: UserFrame,
        fpu: Box<FpuState>,
    ) -> Self {
        let thread = Thread::user(stack, frame, fpu);
        Self::new(new, thread, Some(user), None)
    }

    /// Returns a new kernel thread that has never run. It runs `body` on the kernel stack `stack`.
    pub(super) fn kernel(new: NewTask<'_>, stack: KernelStack, body: fn()) -> Self {
        Self::new(new, Thread::kernel(stack), None, Some(body))
    }

    /// Returns a new idle task for the calling CPU.
    pub(super) fn idle() -> Self {
        let new = NewTask {
            process: super::kthread::kernel_process().clone(),
            tid: 0,
            name: b"idle",
            credentials: super::kthread::root_credentials(),
        };
        Self::new(new, Thread::idle(), None, None)
    }

    /// Stores the task's number at the address that clone was given for it (`CLONE_CHILD_SETTID`).
    /// Does nothing without an address. The caller is the task itself.
    pub(super) fn store_child_tid(&self) {
        let address = self.marks.set_child_tid.load(Ordering::Relaxed);
        if address != 0 {
            // With a bad address the program gets no number, and no error.
            let _ = uaccess::copy_out(address, &self.tid().to_ne_bytes());
        }
    }

    /// Returns the number of the thread.
    pub fn tid(&self) -> u32 {
        // Relaxed: no other data depends on the number.
        self.tid.load(Ordering::Relaxed)
    }

    /// Returns the process that the task belongs to.
    #[inline]
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Returns the state that user code sees besides its frame, or `None` for a kernel thread.
    #[inline]
    pub(crate) fn user_state(&self) -> Option<&UserState> {
        self.user.as_ref()
    }

    /// Returns whether the task is a thread of the kernel, without user memory.
    pub fn is_kernel(&self) -> bool {
        self.user.is_none()
    }

    /// Returns the name of the task (`comm`).
    pub fn name(&self) -> Name {
        *self.name.lock()
    }

    /// Sets the name of the task to `name`, which is cut to 15 bytes and at the first NUL.
    pub fn set_name(&self, name: &[u8]) {
        *self.name.lock() = Name::cut(name);
    }

    /// Returns the credentials of the task. Any task may call this.
    pub fn credentials_for_others(&self) -> Arc<Credentials> {
        self.credentials.lock().clone()
    }

    /// Returns the signal state of the task.
    #[inline]
    pub(crate) fn signals(&self) -> &ThreadSignals {
        &self.signals
    }

    /// Returns the signals that the task blocks.
    pub fn blocked(&self) -> SigSet {
        self.signals.blocked()
    }

    /// Returns the addresses of user words that announce the start and the end of the task, and the
    /// state of its locks.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Returns the task's registration for restartable sequences.
    #[inline]
    pub(crate) fn rseq(&self) -> &Registration {
        &self.rseq
    }

    /// Returns the data by which the task is traced and traces others.
    #[inline]
    pub(crate) fn tracee(&self) -> &Tracee {
        &self.tracee
    }

    /// Returns the seccomp state of the task.
    #[inline]
    pub(crate) fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Returns whether the thread has begun to end.
    pub(super) fn ends(&self) -> bool {
        // Relaxed: a task that learned of the end by a futex has taken a lock after the store.
        self.ends.load(Ordering::Relaxed)
    }

    /// Marks the thread as one that has begun to end.
    pub(super) fn note_end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Returns whether another thread traces the task.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.thread.work() & work::TRACED != 0
    }

    /// Copies the small parts of the state that a new task inherits from `parent`: scheduling,
    /// memory policy, timer slack, and access to the time-stamp counter.
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

    /// Returns the letter of the task's state for `/proc/PID/stat`. It is never `Z`.
    pub fn state_letter(&self) -> u8 {
        match self.thread.state() {
            State::Blocked if self.is_traced() && ptrace::stands(self) => b't',
            State::Blocked if self.signals.is_stopped() => b'T',
            State::Blocked | State::Parking => b'S',
            State::Dead => b'X',
            State::Running | State::Runnable | State::Woken | State::New => b'R',
        }
    }

    /// Returns when the task was created, on the monotonic clock.
    pub fn start_time(&self) -> Nanos {
        self.start_time
    }

    /// Returns the memory policy of the task (`set_mempolicy(2)`).
    pub fn memory_policy(&self) -> Policy {
        // Relaxed (both): no other data depends on the policy.
        Policy::from_bits(self.memory_policy.load(Ordering::Relaxed))
    }

    /// Sets the memory policy of the task.
    pub fn set_memory_policy(&self, policy: Policy) {
        self.memory_policy.store(policy.bits(), Ordering::Relaxed);
    }

    /// Returns the timer slack of the task in nanoseconds.
    pub fn timer_slack(&self) -> u64 {
        self.timer_slack.load(Ordering::Relaxed)
    }

    /// Sets the timer slack of the task to `slack` nanoseconds. 0 restores the slack that the task
    /// started with. Timers are exact with any slack.
    pub fn set_timer_slack(&self, slack: u64) {
        let slack = match slack {
            0 => self.usual_timer_slack.load(Ordering::Relaxed),
            slack => slack,
        };
        self.timer_slack.store(slack, Ordering::Relaxed);
    }
}

machine::own_threads!(Task, thread);

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

/// The name of a task, padded with NULs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Name([u8; NAME_BYTES]);

impl Name {
    /// The empty name.
    pub(crate) const NONE: Self = Self([0; NAME_BYTES]);

    /// Returns the name `name`, which is cut to 15 bytes and at the first NUL.
    pub(crate) fn cut(name: &[u8]) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let len = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        let len = len.min(NAME_BYTES - 1);
        bytes[..len].copy_from_slice(&name[..len]);
        Self(bytes)
    }

    /// Returns the bytes of the name without the NULs.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(NAME_BYTES);
        &self.0[..len]
    }
    /// Returns the bytes of the name, padded with NULs.
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
