//! A tracee's tracing state, and what the tracer may access during a ptrace-stop.

use super::registers::Registers;
use crate::process;
use crate::process::signal::SigInfo;
use crate::process::task::{Task, WaitStatus};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::credentials::Credentials;
use logic::errno::Errno;
use logic::ptrace::Options;
use machine::arch::UserFrame;
use machine::arch::debug::Breakpoints;
use machine::sync::{SpinGuard, SpinLock};

/// The state of a thread as a tracee, and as a tracer of other threads.
#[derive(Debug, Default)]
pub(crate) struct Tracee {
    /// The state of the tracing. `None` if no thread traces this one.
    state: SpinLock<Option<Box<State>>>,
    /// Whether the thread traces other threads, or has done so.
    traces: AtomicBool,
    /// Whether the thread is ending, so that it cannot become a tracer. Changed under the process
    /// table's lock.
    pub(super) traces_no_more: AtomicBool,
    /// Whether the thread executes a program that gives it further rights
    /// ([`Gain`](super::attach::Gain)). A tracer that may not use these rights cannot begin to
    /// trace the thread. Changed under the process table's lock.
    pub(super) gains: AtomicBool,
}

impl Tracee {
    /// Returns whether the thread traces others, or has done so. Relaxed: the thread itself has set
    /// the flag, or a child that has held the process table's lock.
    #[inline]
    pub(crate) fn traces(&self) -> bool {
        self.traces.load(Ordering::Relaxed)
    }

    /// Notes that the thread traces others from now on.
    pub(super) fn set_traces(&self) {
        self.traces.store(true, Ordering::Relaxed);
    }

    /// Locks the state of the thread as a tracee. The state is `None` if no thread traces it.
    pub(super) fn lock(&self) -> SpinGuard<'_, Option<Box<State>>> {
        self.state.lock()
    }
}

/// The tracing state of a traced thread.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, which requests set and stops look at"
)]
pub(crate) struct State {
    /// The tracer. `None` if it is gone and the tracee is leaving its last stop.
    pub(super) tracer: Option<Arc<Task>>,
    /// The credentials with which the tracing began: those of the thread that asked for it.
    pub(super) credentials: Arc<Credentials>,
    /// Whether `PTRACE_SEIZE` began the tracing.
    pub(super) seized: bool,
    /// The `PTRACE_O_*` options.
    pub(crate) options: Options,
    /// Whether the tracee is in a ptrace-stop, or is leaving one.
    pub(super) inside: bool,
    /// Whether the tracee is in a ptrace-stop and has not been told to leave it.
    pub(super) stands: bool,
    /// The tracee's registers while it is in a ptrace-stop or is leaving one, else `None`. The
    /// tracee loads them when it leaves.
    pub(super) registers: Option<Registers>,
    /// During a stop, the status that the tracer sees; 0 once the tracer has waited for it.
    /// Afterwards the signal with which the tracee continues.
    pub(super) code: u32,
    /// The value that `PTRACE_GETEVENTMSG` returns.
    pub(crate) message: u64,
    /// The `siginfo_t` of the stop (`PTRACE_GETSIGINFO`). `None` in a group-stop of a tracee that
    /// was not seized.
    pub(crate) info: Option<SigInfo>,
    /// `PTRACE_LISTEN`: the tracee stays stopped with its process until something happens.
    pub(super) listening: bool,
    /// The tracee's process was stopped when the tracer attached. The tracer waits until the tracee
    /// is in a ptrace-stop.
    pub(super) trapping: bool,
    /// Whether the tracee must enter a ptrace-stop at its next return to user mode, without a
    /// signal or event of its own: by `PTRACE_INTERRUPT`, because its process was stopped when the
    /// tracer attached, or because it is a new thread whose creator was seized.
    pub(super) interrupted: bool,
    /// Whether the process of a seized tracee has stopped or continued, and the tracer must still
    /// see that by a stop of the tracee.
    pub(super) notified: bool,
    /// Whether the tracee stops at the entry and the exit of system calls (`PTRACE_SYSCALL`).
    pub(super) calls: bool,
    /// Whether the tracee stops at the entry of system calls, which are not executed
    /// (`PTRACE_SYSEMU`).
    pub(super) emulates: bool,
    /// Whether the tracee stops after each instruction (`PTRACE_SINGLESTEP`).
    pub(super) steps: bool,
    /// Whether the tracer has set the tracee's step flag (TF), not the program.
    pub(super) forced_step: bool,
    /// Whether the tracee has stopped inside a system call: at its entry, or for an event of the
    /// call, such as `fork` or exec.
    pub(super) in_call: bool,
    /// The hardware breakpoints that the tracer has set.
    pub(super) breakpoints: Breakpoints,
    /// The status of the breakpoints and steps that occurred last, or that the tracer has set: DR6
    /// with the bits of [`DR6_QUIET`](machine::arch::debug::DR6_QUIET) inverted.
    pub(super) breakpoint_status: u64,
    /// The exit status of the tracee. `None` while it lives.
    pub(super) ended: Option<WaitStatus>,
}

impl State {
    /// Returns the state of a thread that `tracer` starts to trace with `options`. `credentials`
    /// are those of the thread that asked for it. `seized` says that this is by `PTRACE_SEIZE`.
    pub(super) fn new(
        tracer: Arc<Task>,
        credentials: Arc<Credentials>,
        seized: bool,
        options: Options,
    ) -> Self {
        Self {
            tracer: Some(tracer),
            credentials,
            seized,
            options,
            inside: false,
            stands: false,
            registers: None,
            code: 0,
            message: 0,
            info: None,
            listening: false,
            trapping: false,
            interrupted: false,
            notified: false,
            calls: false,
            emulates: false,
            steps: false,
            forced_step: false,
            in_call: false,
            breakpoints: Breakpoints::default(),
            breakpoint_status: 0,
            ended: None,
        }
    }

    /// Ends the single steps of `tracee`, because its tracer is gone. Does nothing if `tracee` is
    /// not in a ptrace-stop.
    pub(super) fn end_steps(&mut self, tracee: &Task) {
        let _ = self.with_registers(|state, registers| registers.run(tracee, state));
    }

    /// Calls `work` with this state and the registers of the tracee, and returns its result.
    /// Returns `None` if the tracee is not in a ptrace-stop.
    fn with_registers<R>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut Registers) -> R,
    ) -> Option<R> {
        if !self.stands {
            return None;
        }
        let mut registers = self.registers.take()?;
        let result = work(self, &mut registers);
        self.registers = Some(registers);
        Some(result)
    }

    /// Makes the tracee leave its stop if it listens (`PTRACE_LISTEN`), so that it stops again.
    pub(super) fn stop_listening(&mut self) {
        if core::mem::take(&mut self.listening) {
            self.code = 0;
            self.stands = false;
        }
    }

    /// Returns whether the thread `tracer` is the tracer of this tracee.
    pub(super) fn is_of(&self, tracer: &Task) -> bool {
        self.tracer
            .as_ref()
            .is_some_and(|own| core::ptr::eq(Arc::as_ptr(own), tracer))
    }

    /// Keeps the tracee, which has stopped with its process, stopped until something happens to the
    /// process (`PTRACE_LISTEN`). If something has happened since the stop, the tracee leaves the
    /// stop and stops again. The caller wakes the tracee.
    ///
    /// # Errors
    /// Fails with `EIO` if the tracee was not seized or has not stopped with its process.
    pub(crate) fn listen(&mut self) -> Result<(), Errno> {
        let stands = self.info.is_some_and(|info| info.code >> 8 == 128);
        if !self.seized || !stands {
            return Err(Errno::EIO);
        }
        self.listening = true;
        if self.notified {
            self.stop_listening();
        }
        Ok(())
    }
}

/// Calls `work` with the tracing state and the registers of `tracee`, which must be in a
/// ptrace-stop. Returns the result of `work`.
///
/// # Errors
/// Fails with `ESRCH` if `tracee` is no tracee of the current thread, is not in a ptrace-stop, or
/// listens (`PTRACE_LISTEN`). Fails with the errors of `work`.
pub(crate) fn at_stop<R>(
    tracee: &Task,
    work: impl FnOnce(&mut State, &mut Registers) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut state = tracee.tracee().lock();
    let state = state.as_deref_mut().ok_or(Errno::ESRCH)?;
    if !state.is_of(&process::current()) || state.listening {
        return Err(Errno::ESRCH);
    }
    state.with_registers(work).ok_or(Errno::ESRCH)?
}

/// Returns the frame of the thread `task` as its tracer has left it so far. Returns `None` if
/// `task` is not in a ptrace-stop.
pub(super) fn stopped_frame(task: &Task) -> Option<UserFrame> {
    let mut state = task.tracee().lock();
    let state = state.as_deref_mut()?;
    state.with_registers(|_, registers| registers.frame().clone())
}

/// Wakes a tracer that waits for the first ptrace-stop of the current thread `task`, because `task`
/// continues without one.
pub(crate) fn trapping_ends(task: &Task) {
    let tracer = {
        let mut state = task.tracee().lock();
        state.as_deref_mut().and_then(|state| {
            let was = core::mem::take(&mut state.trapping);
            state.tracer.clone().filter(|_| was)
        })
    };
    if let Some(tracer) = tracer {
        tracer.process().child_events.wake_all();
    }
}

/// Waits until `tracee`, which was stopped when the current thread attached to it, is in a
/// ptrace-stop or will not enter one. A killed tracer does not wait.
pub(super) fn wait_for_trap(tracee: &Task) {
    let current = process::current();
    let tracer: &Task = &current;
    let is_over = || {
        let state = tracee.tracee().lock();
        state.as_ref().is_none_or(|state| {
            !state.trapping || state.ended.is_some() || !state.is_of(tracer) || tracee.killed()
        })
    };
    let _ = tracer.process().child_events.wait_killable(is_over);
}

/// Returns the tracer of the thread `task`, or `None` if no thread traces it.
pub(crate) fn tracer_of(task: &Task) -> Option<Arc<Task>> {
    task.tracee().lock().as_ref()?.tracer.clone()
}

/// Returns the credentials with which the tracing of the thread `task` began, or `None` if no
/// thread traces it.
pub(super) fn tracer_credentials(task: &Task) -> Option<Arc<Credentials>> {
    let state = task.tracee().lock();
    let state = state.as_ref().filter(|state| state.tracer.is_some())?;
    Some(state.credentials.clone())
}

/// The answer of a tracee to a wait of its tracer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The tracee is in a ptrace-stop that was not reported before. The value is the status of the
    /// stop.
    Stopped(u32),
    /// The tracee has ended with this status.
    Ended(WaitStatus),
    /// The tracee runs, or its stop was reported before.
    None,
    /// The thread is not a tracee of the caller.
    Foreign,
}

/// Returns the state of `tracee` for a wait of its tracer. If `only_to` is given, the wait sees
/// only tracees of the thread `only_to`. If it is `None`, the wait sees tracees of any thread of
/// the tracer's process; the caller has found `tracee` among them. A stop is reported once; with
/// `keep`, it can be reported again.
pub(crate) fn report(tracee: &Task, only_to: Option<&Task>, keep: bool) -> Report {
    let mut state = tracee.tracee().lock();
    let Some(state) = state.as_deref_mut() else {
        return Report::Foreign;
    };
    if only_to.is_some_and(|tracer| !state.is_of(tracer)) {
        return Report::Foreign;
    }
    if let Some(status) = state.ended {
        return Report::Ended(status);
    }
    if !state.stands || state.listening || state.code == 0 {
        return Report::None;
    }
    let code = state.code;
    if !keep {
        state.code = 0;
    }
    Report::Stopped(code)
}

/// Returns whether the thread `task` is in a ptrace-stop.
pub(crate) fn stands(task: &Task) -> bool {
    let state = task.tracee().lock();
    state.as_ref().is_some_and(|state| state.stands)
}
