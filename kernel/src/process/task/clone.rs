//! New threads and processes: fork, vfork, clone.

use super::process::Resources;
use super::task::{NewTask, UserState};
use super::{Process, Task, WaitStatus, limits, table};
use crate::fs::OpenFile;
use crate::fs::table::FilesOfTask;
use crate::process::{self, TaskRef, caller, pidfd, ptrace, seccomp};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use logic::credentials::{Capabilities, Credentials};
use logic::errno::Errno;
use logic::own::Token;
use machine::arch;
use machine::arch::UserFrame;
use machine::memory::KernelStack;
use machine::sched::{self, work};
use machine::uaccess;

/// The arguments of `clone(2)` or of a related call.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct CloneRequest {
    /// `CLONE_*`, without the signal number in the low byte.
    pub(crate) flags: u64,
    /// The signal for the parent when the child ends; 0 if none.
    pub(crate) exit_signal: u32,
    /// The child's stack pointer; 0 for the parent's.
    pub(crate) stack: u64,
    /// The address in the parent's memory where the child's number is stored.
    pub(crate) parent_tid: u64,
    /// The address in the parent's memory where a descriptor of the child is stored
    /// (`CLONE_PIDFD`).
    pub(crate) pidfd: u64,
    /// The address in the child's memory where the child's number is stored and cleared.
    pub(crate) child_tid: u64,
    /// The child's FS base.
    pub(crate) tls: u64,
}

const VM: u64 = raw::CLONE_VM as u64;
const FS: u64 = raw::CLONE_FS as u64;
const FILES: u64 = raw::CLONE_FILES as u64;
const SIGHAND: u64 = raw::CLONE_SIGHAND as u64;
const VFORK: u64 = raw::CLONE_VFORK as u64;
const PARENT: u64 = raw::CLONE_PARENT as u64;
const THREAD: u64 = raw::CLONE_THREAD as u64;
const SYSVSEM: u64 = raw::CLONE_SYSVSEM as u64;
const SETTLS: u64 = raw::CLONE_SETTLS as u64;
const PARENT_SETTID: u64 = raw::CLONE_PARENT_SETTID as u64;
const CHILD_CLEARTID: u64 = raw::CLONE_CHILD_CLEARTID as u64;
const CHILD_SETTID: u64 = raw::CLONE_CHILD_SETTID as u64;
const DETACHED: u64 = raw::CLONE_DETACHED as u64;
const UNTRACED: u64 = raw::CLONE_UNTRACED as u64;
const PTRACE: u64 = raw::CLONE_PTRACE as u64;
const IO: u64 = raw::CLONE_IO as u64;
const PIDFD: u64 = raw::CLONE_PIDFD as u64;
const CLEAR_SIGHAND: u64 = 1 << 32;

/// Flags that are implemented or make no difference here.
const KNOWN: u64 = VM
    | FS
    | FILES
    | SIGHAND
    | VFORK
    | PARENT
    | THREAD
    | SYSVSEM
    | SETTLS
    | PARENT_SETTID
    | CHILD_CLEARTID
    | CHILD_SETTID
    | DETACHED
    | UNTRACED
    | PTRACE
    | IO
    | PIDFD
    | CLEAR_SIGHAND;

impl CloneRequest {
    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Checks the flags by Linux's rules on combinations.
    ///
    /// # Errors
    /// Fails with `EINVAL` if a rule is broken or the exit signal is invalid, and with `EPERM` if
    /// the thread pointer is no user address.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        let thread = self.has(THREAD);
        if self.flags & !KNOWN != 0
            || self.has(SIGHAND) && !self.has(VM)
            || thread && !self.has(SIGHAND)
            || self.has(SIGHAND) && self.has(CLEAR_SIGHAND)
            || self.has(PIDFD) && (thread || self.has(DETACHED))
            || self.has(PIDFD) && self.has(PARENT_SETTID) && self.pidfd == self.parent_tid
            || self.exit_signal > process::signal::MAX_SIGNAL
        {
            return Err(Errno::EINVAL);
        }
        if self.has(SETTLS) && self.tls >= arch::USER_END {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}

/// Creates and starts a thread or process that continues like the current task, whose registers are
/// in `frame`, but with 0 as the result of the call. Returns the child's number. With
/// `CLONE_VFORK`, first waits until the child has released the memory.
///
/// # Errors
/// Fails with the errors of [`CloneRequest::check`]. Fails with `ERESTARTNOINTR` if a signal is
/// pending. Fails with `EAGAIN` at the limit on tasks, or if the process is ending or executes a
/// program. Fails with `EMFILE` or `EFAULT` if the pidfd cannot be installed, and with `ENOMEM`.
pub(crate) fn clone(
    request: &CloneRequest,
    frame: &mut UserFrame,
    token: &mut Token,
) -> Result<u32, Errno> {
    request.check()?;
    let parent = process::current();
    let process = parent.process();
    {
        let group = process.group.lock();
        // The parent takes earlier signals before the child exists, also one that another thread
        // was told of. Later signals to several processes at once go to both.
        let pending = group.pending.set().union(parent.signals().pending().set());
        let due = !pending.without(parent.signals().blocked()).is_empty();
        if due {
            parent.add_work(work::SIGNAL);
        }
        if due || parent.signal_pending() {
            return Err(Errno::ERESTARTNOINTR);
        }
        parent.signals().begin_child();
    }
    let stack = KernelStack::new()?;
    let who = parent.credentials();
    let uid = who.users.real;
    let exempt = Capabilities::SYS_RESOURCE | Capabilities::SYS_ADMIN;
    let limit = if who.effective.meets(exempt) {
        u64::MAX
    } else {
        process.limit(limits::index::NPROC)
    };
    let tid = table::lock().reserve(uid, limit)?;
    let made = make(request, frame, parent, tid, stack, token);
    let task = match made {
        Ok(task) => task,
        Err(error) => {
            table::lock().unreserve(uid, tid);
            return Err(error);
        }
    };
    let pidfd = if request.has(PIDFD) {
        install_pidfd(request.pidfd, &task).map(Some)
    } else {
        Ok(None)
    };
    let pidfd = match pidfd {
        Ok(pidfd) => pidfd,
        Err(error) => {
            table::lock().unreserve(uid, tid);
            discard(&task);
            return Err(error);
        }
    };
    // As on Linux a bad address is no error, because the child exists.
    if request.has(PARENT_SETTID) {
        let _ = uaccess::copy_out(request.parent_tid, &tid.to_ne_bytes());
    }
    let (event, traced) = ptrace::clone_event(
        parent,
        request.has(VFORK),
        request.exit_signal,
        request.has(UNTRACED),
        request.has(PTRACE),
    );
    if let Err(error) = enter(request, parent, &task, traced) {
        table::lock().unreserve(uid, tid);
        discard(&task);
        if let Some((fd, file)) = pidfd {
            parent.files().close_same(fd, &file);
        }
        return Err(error);
    }
    let vfork = request.has(VFORK).then(|| task.clone());
    sched::start_new(sched::Owned::new(task));
    if let Some(event) = event {
        ptrace::event(parent, frame, event, u64::from(tid));
    }
    if let Some(child) = vfork {
        wait_for_vfork(&child, request.has(THREAD));
        drop(child);
        if parent.is_traced() {
            ptrace::vfork_done(parent, frame, tid);
        }
    }
    Ok(tid)
}

/// Waits until a vfork's child has released the parent's memory. Only SIGKILL ends the wait early.
/// If the child is a thread and executes a program, the parent is killed.
fn wait_for_vfork(child: &Task, is_thread: bool) {
    let process = child.process();
    let _ = if is_thread {
        // SeqCst: as all other accesses. Set before `thread_events` is woken for the thread's end.
        let is_gone = || child.marks().is_gone.load(Ordering::SeqCst) != 0;
        process.thread_events.wait_killable(is_gone)
    } else {
        let is_done = || !process.vfork_pending.load(Ordering::Acquire);
        process.vfork_done.wait_killable(is_done)
    };
}

/// Gives the parent a descriptor of the child, and writes the descriptor's number to `address`.
/// Returns the number and the open file. Fails with `EMFILE` or `ENOMEM` if there is no room for a
/// descriptor, and with `EFAULT` for a bad address. The parent has no new descriptor then.
fn install_pidfd(address: u64, task: &Task) -> Result<(i32, Arc<OpenFile>), Errno> {
    let file = pidfd::open(task.process().clone(), false);
    let fd = caller::install(file.clone(), true)?;
    let fd = i32::try_from(fd).unwrap_or(-1);
    uaccess::copy_out(address, &fd.to_ne_bytes()).inspect_err(|_| {
        caller::files().close_same(fd, &file);
    })?;
    Ok((fd, file))
}

/// Makes the task, and its process if new, with copies or shares of the parent's resources. They
/// are not in the table yet. Fails with `ENOMEM`, with `EINTR` if the parent is being killed, and
/// with `EINVAL` if the parent has no user memory.
fn make(
    request: &CloneRequest,
    frame: &UserFrame,
    parent: TaskRef,
    tid: u32,
    stack: KernelStack,
    token: &mut Token,
) -> Result<Arc<Task>, Errno> {
    let vm = parent.vm().ok_or(Errno::EINVAL)?;
    let vm = if request.has(VM) { vm } else { vm.fork()? };
    let files = parent.files();
    let files = if request.has(FILES) {
        files
    } else {
        files.fork_copy()?
    };
    let fs = parent.fs();
    let fs = if request.has(FS) { fs } else { fs.fork_copy() };
    let process = if request.has(THREAD) {
        parent.process().clone()
    } else {
        let resources = Resources {
            vm: Some(vm.clone()),
            files: Some(files.clone()),
            fs: Some(fs.clone()),
            exe: parent.process().exe(),
        };
        let credentials = parent.credentials();
        new_process(request, parent.process(), tid, resources, credentials)
    };
    let parent_user = parent.user_state().expect("a user task clones");
    let tls = if request.has(SETTLS) {
        request.tls
    } else {
        parent_user.fs_base()
    };
    let bases = [tls, parent_user.gs_base()];
    let undo = request.has(SYSVSEM).then(|| parent.undo_list(token));
    let files = FilesOfTask::new(files);
    let user = UserState::new(vm, files, fs, undo, bases);
    let name = parent.name();
    let new = NewTask {
        process,
        tid,
        name: name.as_bytes(),
        credentials: parent.credentials(),
    };
    let fpu = sched::current().fpu_copy();
    let mut child_frame = frame.clone();
    child_frame.rax = 0;
    ptrace::registers::leave_step(parent, &mut child_frame);
    if request.stack != 0 {
        child_frame.rsp = request.stack;
    }
    let task = Task::user(new, user, stack, child_frame, fpu);
    inherit(request, parent, &task);
    Ok(Arc::new(task))
}

fn new_process(
    request: &CloneRequest,
    parent: &Arc<Process>,
    pid: u32,
    resources: Resources,
    credentials: Arc<Credentials>,
) -> Arc<Process> {
    let actions = parent.actions();
    let actions = if request.has(SIGHAND) {
        actions
    } else if request.has(CLEAR_SIGHAND) {
        Arc::new(actions.after_exec())
    } else {
        Arc::new(actions.duplicate())
    };
    let limits = parent.limits();
    let process = Process::new(pid, actions, resources, limits, credentials);
    process.timers.cpu.begin(&limits);
    process
        .oom_score_adj
        .store(parent.oom_score_adj(), Ordering::Relaxed);
    process.least_oom_score_adj.store(
        parent.least_oom_score_adj.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    process
        .dumpable
        .store(parent.dumpable.load(Ordering::Relaxed), Ordering::Relaxed);
    process.core_filter.store(
        parent.core_filter.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    process.personality.store(
        parent.personality.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    process
        .randomized
        .store(parent.randomized.load(Ordering::Relaxed), Ordering::Relaxed);
    process
        .vfork_pending
        .store(request.has(VFORK), Ordering::Relaxed);
    Arc::new(process)
}

/// Copies the small parts of a task's state that are inherited.
fn inherit(request: &CloneRequest, parent: TaskRef, task: &Task) {
    task.inherit(&parent);
    if !request.has(VM) {
        task.rseq().inherit(parent.rseq());
    }
    let own_stack = !request.has(VM) || request.has(VFORK);
    task.signals().inherit(parent.signals(), own_stack);
    let marks = task.marks();
    if request.has(CHILD_CLEARTID) {
        let address = request.child_tid;
        marks.clear_child_tid.store(address, Ordering::Relaxed);
    }
    if request.has(CHILD_SETTID) {
        let address = request.child_tid;
        marks.set_child_tid.store(address, Ordering::Relaxed);
    }
}

/// Enters the task into its process, the table and its parent's children. If `traced`, the tracer
/// of `parent` traces the task from its start. Fails with `EAGAIN` if the process ends or one of
/// its threads executes a program, and with `ENOMEM`.
fn enter(
    request: &CloneRequest,
    parent: TaskRef,
    task: &Arc<Task>,
    traced: bool,
) -> Result<(), Errno> {
    let process = &task.process;
    let mut table = table::lock();
    if traced {
        ptrace::reserve_tracee(&parent)?;
    }
    if request.has(THREAD) {
        let mut group = process.group.lock();
        // No new threads while the process ends or another thread executes a program.
        if group.exit.is_some() || group.exec.is_some() {
            return Err(Errno::EAGAIN);
        }
        group.enter(task)?;
        seccomp::inherit(task, &parent);
        if group.stop != super::Stop::No {
            task.add_work(work::STOP);
        }
        drop(group);
        table.enter(task, false);
        if traced {
            ptrace::adopt(&parent, task);
        }
        return Ok(());
    }
    let own = parent.process();
    {
        let group = own.group.lock();
        if group.exit.is_some() {
            return Err(Errno::EAGAIN);
        }
        seccomp::inherit(task, &parent);
    }
    let elder = if request.has(PARENT) {
        own.relations.lock().parent.clone()
    } else {
        None
    };
    let elder = elder.unwrap_or_else(|| own.clone());
    let (pgid, session, terminal, own_exit_signal) = {
        let relations = own.relations.lock();
        let terminal = relations.terminal.clone();
        (
            relations.group,
            relations.session,
            terminal,
            relations.exit_signal,
        )
    };
    {
        let mut group = process.group.lock();
        group.enter(task)?;
        // Senders to several processes hold the table's lock, so no such signal is missed.
        let signals = parent.signals().for_child();
        if !signals.is_empty() {
            group.pending.add_bare(signals);
            task.add_work(work::SIGNAL);
        }
    }
    table.append_children(&elder, process, process.pid());
    {
        let mut relations = process.relations.lock();
        relations.parent = Some(elder);
        relations.group = pgid;
        relations.session = session;
        relations.terminal = terminal;
        relations.exit_signal = if request.has(PARENT) {
            own_exit_signal
        } else {
            request.exit_signal
        };
    }
    table.count_group(pgid, true);
    table.count_session(session, true);
    table.enter(task, true);
    process.maker.store(parent.tid(), Ordering::Relaxed);
    if traced {
        ptrace::adopt(&parent, task);
    }
    Ok(())
}

/// Takes apart a task that was made but not entered.
fn discard(task: &Arc<Task>) {
    if task.process().pid() == task.tid() {
        // Breaks the reference cycle between a process and its tasks.
        let tasks = core::mem::take(&mut task.process().group.lock().tasks);
        drop(tasks);
        let resources = core::mem::take(&mut *task.process().resources.lock());
        drop(resources);
        // Other tasks may already have a descriptor of the process and wait.
        task.process().relations.lock().zombie = Some(WaitStatus(0));
        task.process().tell_end_readers();
    }
}
