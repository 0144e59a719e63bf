//! What a thread knows of its tracer, and what the tracer reaches while it stands.

#![expect(unsafe_code, reason = "a tracer uses what a standing tracee lends it")]

use super::registers::Registers;
use crate::process;
use crate::process::signal::SigInfo;
use crate::process::task::{Task, WaitStatus};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::errno::Errno;
use logic::ptrace::Options;
use machine::arch::debug::Breakpoints;
use machine::sync::{SpinGuard, SpinLock};

/// A thread's part in tracing.
#[derive(Debug, Default)]
pub(crate) struct Tracee {
    /// None: nobody traces it.
    state: SpinLock<Option<Box<State>>>,
    /// It traces others, or has.
    traces: AtomicBool,
    /// It is at its end and may trace nobody any more; set under the table's lock.
    pub(super) traces_no_more: AtomicBool,
}

impl Tracee {
    /// Whether the thread traces others, or has. Relaxed: it has set it itself, or a child that has held
    /// the table's lock.
    #[inline]
    pub(crate) fn traces(&self) -> bool {
        self.traces.load(Ordering::Relaxed)
    }

    /// It traces others from now on.
    pub(super) fn set_traces(&self) {
        self.traces.store(true, Ordering::Relaxed);
    }

    /// Takes the lock of what it knows of its tracer.
    pub(super) fn lock(&self) -> SpinGuard<'_, Option<Box<State>>> {
        self.state.lock()
    }
}

/// Where a standing tracee has put what its tracer may use: on its own stack.
#[derive(Copy, Clone)]
pub(crate) struct Place(pub(super) NonNull<Registers>);

// SAFETY: whoever uses it holds the state's lock, without which the tracee does not leave its place.
unsafe impl Send for Place {}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

/// What a traced thread knows.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, which requests set and stops look at"
)]
pub(crate) struct State {
    /// None: the tracer is gone, and the tracee is on its way out of its last stop.
    pub(super) tracer: Option<Arc<Task>>,
    /// By `PTRACE_SEIZE`.
    pub(super) seized: bool,
    pub(crate) options: Options,
    /// It is in a stop, or on its way out of one.
    pub(super) inside: bool,
    /// The tracee stands; see the module.
    pub(super) place: Option<Place>,
    /// How its stop is told; 0: it was waited for. Then the signal that it goes on with.
    pub(super) code: u32,
    /// `PTRACE_GETEVENTMSG`.
    pub(crate) message: u64,
    /// What came with the signal that it stands for; none: its process stops.
    pub(crate) info: Option<SigInfo>,
    /// `PTRACE_LISTEN`: it stands, for its process's sake, until something happens.
    pub(super) listening: bool,
    /// It was stopped when its tracer came, which waits until it stands for it.
    pub(super) trapping: bool,
    /// It is to stop, for no reason of its own.
    pub(super) interrupted: bool,
    /// Its process stops or goes on, and its tracer is to see it.
    pub(super) notified: bool,
    /// It stops at calls.
    pub(super) calls: bool,
    /// Its calls are not made.
    pub(super) emulates: bool,
    /// It stops after each instruction.
    pub(super) steps: bool,
    /// The step flag is the tracer's doing, not the program's own.
    pub(super) forced_step: bool,
    /// It stands in the middle of a call.
    pub(super) in_call: bool,
    pub(super) breakpoints: Breakpoints,
    /// What DR6 has told of them.
    pub(super) breakpoint_status: u64,
    /// It has ended so.
    pub(super) ended: Option<WaitStatus>,
}

impl State {
    pub(super) fn new(tracer: Arc<Task>, seized: bool, options: Options) -> Self {
        Self {
            tracer: Some(tracer),
            seized,
            options,
            inside: false,
            place: None,
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

    /// Its tracer is gone, and steps it no more where it stands.
    pub(super) fn end_steps(&mut self, tracee: &Task) {
        if let Some(mut place) = self.place {
            // SAFETY: as in `at_stop`; `&mut self` comes from the lock.
            unsafe { place.0.as_mut() }.run(tracee, self);
        }
    }

    /// One that listens leaves its stop, for another one.
    pub(super) fn stop_listening(&mut self) {
        if core::mem::take(&mut self.listening) {
            self.code = 0;
            self.place = None;
        }
    }

    /// Whether the tracer is this thread.
    pub(super) fn is_of(&self, tracer: &Task) -> bool {
        self.tracer
            .as_ref()
            .is_some_and(|own| core::ptr::eq(Arc::as_ptr(own), tracer))
    }

    /// `PTRACE_LISTEN` of one that stands for its process's sake; where something has happened to that
    /// meanwhile it is to stand anew. Whoever calls this wakes it.
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

/// Uses what a tracee of the current thread has lent, which stands.
///
/// # Errors
/// `ESRCH` where it is no tracee of the current thread, or does not stand; those of `work`.
pub(crate) fn at_stop<R>(
    tracee: &Task,
    work: impl FnOnce(&mut State, &mut Registers) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut state = tracee.tracee().lock();
    let state = state.as_deref_mut().ok_or(Errno::ESRCH)?;
    if !state.is_of(&process::current()) || state.listening {
        return Err(Errno::ESRCH);
    }
    let mut place = state.place.ok_or(Errno::ESRCH)?;
    // SAFETY: the tracee leaves the function that owns them only after it has taken this lock and
    // found its place gone, or taken it away itself; it touches nothing of them before.
    work(state, unsafe { place.0.as_mut() })
}

/// The current thread does not stand for a tracer that has come while it was stopped: it goes on.
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

/// Waits until a thread that was stopped when the current one began to trace it stands, or will not. A killed
/// tracer does not wait.
pub(super) fn wait_for_trap(tracee: &Task) {
    let tracer = process::current();
    let is_over = || {
        let state = tracee.tracee().lock();
        state.as_ref().is_none_or(|state| {
            !state.trapping || state.ended.is_some() || !state.is_of(&tracer) || tracee.killed()
        })
    };
    let _ = tracer.process().child_events.wait_killable(is_over);
}

/// Who traces a thread.
pub(crate) fn tracer_of(task: &Task) -> Option<Arc<Task>> {
    task.tracee().lock().as_ref()?.tracer.clone()
}

/// What a tracer learns by waiting.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The tracee stands so.
    Stopped(u32),
    /// It has ended.
    Ended(WaitStatus),
    /// Nothing.
    None,
    /// It is not this thread's.
    Foreign,
}

/// What there is to be told of a tracee, to one thread alone or to all of a process; a stop is told once
/// unless it is to be kept.
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
    if state.place.is_none() || state.listening || state.code == 0 {
        return Report::None;
    }
    let code = state.code;
    if !keep {
        state.code = 0;
    }
    Report::Stopped(code)
}

/// Whether a thread stands for its tracer.
pub(crate) fn stands(task: &Task) -> bool {
    let state = task.tracee().lock();
    state.as_ref().is_some_and(|state| state.place.is_some())
}
