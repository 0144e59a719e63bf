//! What a thread may call (`seccomp(2)`), and what becomes of calls that it may not make.
//!
//! A thread is free, strict, or has a chain of filters (`logic::seccomp`), which never changes: a new filter stands upon
//! it. A thread that is not free has a bit in its work word, so that one that is pays nothing.
//!
//! Locks: what a thread has changes under the lock of its process's group, so that all threads can get the same at once,
//! and a new thread has what its maker has. The thread itself reads it under a lock of its own, inside that one.

use super::args::Args;
use super::ptrace;
use super::signal::{self, AUDIT_ARCH, SigInfo, Signal};
use super::task::{Task, WaitStatus, core_dump, exit_thread};
use super::{TaskRef, current};
use crate::fs::dev;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use linux_raw_sys::general as nr;
use logic::bpf::{DATA_WORDS, Program};
use logic::credentials::Credentials;
use logic::errno::{Errno, SysResult};
use logic::seccomp::{Action, Actions, Filter, Verdict};
use machine::arch::clock::{self, Nanos};
use machine::arch::{UserFrame, console};
use machine::sched::work;
use machine::sync::SpinLock;

/// What a thread may call.
#[derive(Clone, Debug, Default)]
enum Mode {
    /// Everything.
    #[default]
    Free,
    /// `read`, `write`, `exit` and `rt_sigreturn`.
    Strict,
    /// What these let through.
    Filters(Arc<Filter>),
}

/// A thread's part in it.
#[derive(Debug, Default)]
pub(crate) struct Confinement {
    mode: SpinLock<Mode>,
    /// Another thread has handed on its filters and that it gets no new privileges. The thread takes that over itself, with
    /// its next call.
    bound: AtomicBool,
}

impl Confinement {
    /// Its mode's number: 0 free, 1 strict, 2 filters.
    pub(crate) fn number(&self) -> usize {
        match *self.mode.lock() {
            Mode::Free => 0,
            Mode::Strict => 1,
            Mode::Filters(_) => 2,
        }
    }

    /// Its newest filter, with those that it stands upon.
    pub(crate) fn filters(&self) -> Option<Arc<Filter>> {
        match &*self.mode.lock() {
            Mode::Filters(newest) => Some(newest.clone()),
            Mode::Free | Mode::Strict => None,
        }
    }

    /// Whether it is about to take over that it gets no new privileges.
    pub(crate) fn is_bound(&self) -> bool {
        // Relaxed: who has to act on it sees the work bit first.
        self.bound.load(Ordering::Relaxed)
    }

    /// Whether a filter that stands upon all that the thread has may take their place.
    fn yields_to(&self, filter: &Filter) -> bool {
        match &*self.mode.lock() {
            Mode::Free => true,
            Mode::Strict => false,
            Mode::Filters(own) => filter.stands_upon(own),
        }
    }
}

/// Sets what a thread has; its group is locked. What it had is part of that, so nothing is freed here.
fn set(task: &Task, mode: Mode) {
    *task.confinement().mode.lock() = mode;
    task.add_work(work::CONFINED);
}

/// A new thread or process has what its maker has. The maker's group is locked.
pub(crate) fn inherit(child: &Task, parent: &Task) {
    if parent.work() & work::CONFINED == 0 {
        return;
    }
    let own = parent.confinement();
    child
        .confinement()
        .bound
        .store(own.is_bound(), Ordering::Relaxed);
    let mode = own.mode.lock().clone();
    set(child, mode);
}

/// `SECCOMP_SET_MODE_STRICT`. The time-stamp counter stays readable, which it is not on Linux.
///
/// # Errors
/// `EINVAL`: the thread has filters.
pub(crate) fn become_strict() -> Result<(), Errno> {
    let task = current();
    let _group = task.process().group.lock();
    if task.confinement().number() == 2 {
        return Err(Errno::EINVAL);
    }
    set(&task, Mode::Strict);
    Ok(())
}

/// Whose filter it is to be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The caller's.
    Own,
    /// All threads'. One that has other filters is named.
    All,
    /// The same; such a thread is an error.
    AllOrError,
}

/// Puts a filter upon those of the current thread. Gives 0, or the number of a thread that cannot have it.
///
/// # Errors
/// `EINVAL`: the thread is strict. `ENOMEM`: its filters are too long together. `ESRCH`: a thread cannot have it.
pub(crate) fn install(program: Program, logs: bool, whose: Whose) -> SysResult {
    let task = current();
    let mut filter = Arc::new(Filter::new(program, logs));
    let group = task.process().group.lock();
    let own = match &*task.confinement().mode.lock() {
        Mode::Free => None,
        Mode::Strict => return Err(Errno::EINVAL),
        Mode::Filters(own) => Some(own.clone()),
    };
    // Nobody else has it yet.
    if let Some(filter) = Arc::get_mut(&mut filter) {
        filter.put_upon(own)?;
    }
    if whose != Whose::Own {
        let others = || group.tasks.iter().filter(|other| !task.is(other));
        if let Some(other) = others().find(|other| !other.confinement().yields_to(&filter)) {
            return match whose {
                Whose::AllOrError => Err(Errno::ESRCH),
                _ => Ok(other.tid() as usize),
            };
        }
        let binds = task.credentials().no_new_privileges;
        for other in others() {
            if binds {
                // Release: as the work bit, which comes after it.
                other.confinement().bound.store(true, Ordering::Release);
            }
            set(other, Mode::Filters(filter.clone()));
        }
    }
    set(&task, Mode::Filters(filter));
    Ok(0)
}

/// What is said of a call.
enum Judgment {
    Strict,
    Filtered(Verdict),
}

/// The thread's own look at a call. Nothing of what it has is held afterwards: who is killed does not come back to give
/// up a count.
fn judge(task: TaskRef, frame: &UserFrame) -> Judgment {
    let mode = task.confinement().mode.lock().clone();
    match mode {
        Mode::Free => Judgment::Filtered(Verdict::ALLOW),
        Mode::Strict => Judgment::Strict,
        Mode::Filters(newest) => Judgment::Filtered(newest.judge(&data_of(frame))),
    }
}

/// The lower and the upper half of a word.
#[expect(clippy::cast_possible_truncation, reason = "they are halves")]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// The number of the call: as on Linux the lower half alone.
fn number_of(frame: &UserFrame) -> u32 {
    let [number, _] = halves(frame.orig_rax);
    number
}

/// `struct seccomp_data`, by words.
fn data_of(frame: &UserFrame) -> [u32; DATA_WORDS] {
    let [a, b, c, d, e, f] = Args::of(frame).0;
    let mut data = [0; DATA_WORDS];
    let (front, rest) = data.split_at_mut(2);
    front.copy_from_slice(&[number_of(frame), AUDIT_ARCH]);
    let (pairs, _) = rest.as_chunks_mut::<2>();
    for (pair, word) in pairs.iter_mut().zip([frame.rip, a, b, c, d, e, f]) {
        *pair = halves(word);
    }
    data
}

/// A call of a thread that is not free begins; false: it is not made, and its result is in `frame` already.
#[cold]
pub(crate) fn enter_call(task: TaskRef, frame: &mut UserFrame) -> bool {
    take_promise_over(task);
    if ptrace::suspends_filters(task) {
        return true;
    }
    // The tracer may make it another call, which is looked at again, and once.
    let mut traced = false;
    loop {
        let verdict = match judge(task, frame) {
            Judgment::Strict => {
                enter_strictly(task, frame);
                return true;
            }
            Judgment::Filtered(verdict) => verdict,
        };
        let action = verdict.action();
        match action {
            Action::Allow => return true,
            Action::Log => {
                note(task, frame, action, 0, true);
                return true;
            }
            Action::Trace if traced => return true,
            Action::Trace if ptrace::filter_stop(task, frame, verdict.data()) => {
                let skips = number_of(frame).cast_signed() < 0;
                if task.killed() || skips {
                    note(task, frame, action, 0, verdict.logs);
                    return false;
                }
                traced = true;
                continue;
            }
            Action::Trace | Action::Notify => frame.rax = Errno::ENOSYS.to_return(),
            Action::Errno => {
                /// `MAX_ERRNO`.
                const MOST: u16 = 4095;
                let error = verdict.data().min(MOST);
                frame.rax = u64::from(error).wrapping_neg();
            }
            Action::Trap => {
                let info = refusal(frame, verdict);
                // Its handler finds the registers as they were.
                frame.rax = frame.orig_rax;
                signal::force_info(info);
            }
            Action::KillThread | Action::KillProcess => {
                note(task, frame, action, Signal::SIGSYS.number(), true);
                if action == Action::KillThread && !task.process().is_last_thread(task) {
                    exit_thread(WaitStatus::signalled(Signal::SIGSYS));
                }
                let info = refusal(frame, verdict);
                frame.rax = frame.orig_rax;
                core_dump::end(task, frame, &info);
            }
        }
        note(task, frame, action, 0, verdict.logs);
        return false;
    }
}

/// A call of a strict thread begins; it ends with any other than four.
fn enter_strictly(task: TaskRef, frame: &UserFrame) {
    match number_of(frame) {
        nr::__NR_read | nr::__NR_write | nr::__NR_exit | nr::__NR_rt_sigreturn => {}
        _ => {
            let signal = Signal::SIGKILL;
            note(task, frame, Action::KillThread, signal.number(), true);
            exit_thread(WaitStatus::signalled(signal));
        }
    }
}

fn refusal(frame: &UserFrame, verdict: Verdict) -> SigInfo {
    let number = number_of(frame).cast_signed();
    SigInfo::refused_call(number, frame.rip, verdict.data())
}

/// Another thread's promise to get no new privileges becomes this one's.
fn take_promise_over(task: TaskRef) {
    let bound = &task.confinement().bound;
    // Acquire: pairs with the Release in `install`.
    if bound.load(Ordering::Acquire) && bound.swap(false, Ordering::Acquire) {
        let own = Credentials::clone(task.credentials());
        task.act_as(Credentials {
            no_new_privileges: true,
            ..own
        });
    }
}

/// `kernel.seccomp.actions_logged`. Relaxed: a value of its own.
static NOTED: AtomicU32 = AtomicU32::new(Actions::NOTED_AT_FIRST.0);

/// The actions that are noted in the kernel log.
pub(crate) fn noted() -> Actions {
    Actions(NOTED.load(Ordering::Relaxed))
}

/// Says which actions are noted.
pub(crate) fn set_noted(actions: Actions) {
    NOTED.store(actions.0, Ordering::Relaxed);
}

/// Lines that are noted in one [`SPAN`], at most: who makes calls does not fill the log.
const LINES: u32 = 10;
const SPAN: Nanos = Nanos(5_000_000_000);

/// When the span began, and its lines.
static SPENT: SpinLock<(Nanos, u32)> = SpinLock::new((Nanos(0), 0));

/// Whether there may be one more line.
fn has_room() -> bool {
    let now = clock::now();
    let mut spent = SPENT.lock();
    if now.0 - spent.0.0.min(now.0) >= SPAN.0 {
        *spent = (now, 0);
    }
    spent.1 += 1;
    spent.1 <= LINES
}

/// A name that a program has chosen, in quotes, or in hexadecimal where a reader could take it for more than a name.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'"';
        match core::str::from_utf8(self.0) {
            Ok(name) if self.0.iter().all(plain) => write!(f, "\"{name}\""),
            _ => self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}")),
        }
    }
}

/// Notes in the kernel log what became of a call, if that is `wanted`; with the signal that ends the thread, or 0.
fn note(task: TaskRef, frame: &UserFrame, action: Action, signal: u32, wanted: bool) {
    /// `KERN_NOTICE`.
    const NOTICE: u32 = 5;
    if !wanted || !noted().contains(action) || !has_room() {
        return;
    }
    let [shown, ..] = dev::log_levels();
    let who = task.credentials();
    console::message(
        NOTICE,
        NOTICE < shown,
        format_args!(
            "audit: type=1326 uid={} gid={} pid={} comm={} sig={signal} arch={AUDIT_ARCH:x} syscall={} compat=0 ip={:#x} code={:#x}",
            who.users.real,
            who.groups.real,
            task.process().pid(),
            Shown(task.name().as_bytes()),
            number_of(frame).cast_signed(),
            frame.rip,
            action as u32,
        ),
    );
    dev::LOG_READERS.wake_all();
}
