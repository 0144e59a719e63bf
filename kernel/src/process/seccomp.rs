//! Restrictions on a thread's system calls (`seccomp(2)`), and what happens at calls that it may
//! not make.
//!
//! A thread is free, strict, or has a chain of filters (`logic::seccomp`). A chain never changes: a
//! new filter refers to the chain before it. A thread that is not free has a bit in its work word,
//! so that a free thread pays nothing.
//!
//! Locks: a thread's mode changes under the lock of its process's group. So all threads can get the
//! same mode at once, and a new thread has its creator's mode. The thread itself reads the mode
//! under the mode's own lock, which is taken inside the group's.

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
use logic::own::Token;
use logic::seccomp::{Action, Actions, Filter, Verdict};
use machine::arch::clock::{self, Nanos};
use machine::arch::{UserFrame, console};
use machine::sched::work;
use machine::sync::SpinLock;

/// The calls that a thread may make.
#[derive(Clone, Debug, Default)]
enum Mode {
    /// All calls.
    #[default]
    Free,
    /// `read`, `write`, `exit` and `rt_sigreturn`.
    Strict,
    /// The calls that these filters allow.
    Filters(Arc<Filter>),
}

/// A thread's seccomp state.
#[derive(Debug, Default)]
pub(crate) struct Confinement {
    mode: SpinLock<Mode>,
    /// Whether another thread has passed on its filters together with `no_new_privileges`. This
    /// thread then takes the flag over itself, at its next call.
    bound: AtomicBool,
}

impl Confinement {
    /// Returns the number of the thread's seccomp mode: 0 free, 1 strict, 2 filters.
    pub(crate) fn number(&self) -> usize {
        match *self.mode.lock() {
            Mode::Free => 0,
            Mode::Strict => 1,
            Mode::Filters(_) => 2,
        }
    }

    /// Returns the thread's newest seccomp filter, which refers to the older ones. Returns `None`
    /// if the thread has no filters.
    pub(crate) fn filters(&self) -> Option<Arc<Filter>> {
        match &*self.mode.lock() {
            Mode::Filters(newest) => Some(newest.clone()),
            Mode::Free | Mode::Strict => None,
        }
    }

    /// Returns whether the thread takes over `no_new_privileges` at its next system call, because
    /// another thread passed on its filters with this flag.
    pub(crate) fn is_bound(&self) -> bool {
        // Relaxed: a thread that must act on the flag sees its work bit first.
        self.bound.load(Ordering::Relaxed)
    }

    /// Returns whether `filter` may replace the thread's mode: the thread is free, or `filter`
    /// stands upon all its filters.
    fn yields_to(&self, filter: &Filter) -> bool {
        match &*self.mode.lock() {
            Mode::Free => true,
            Mode::Strict => false,
            Mode::Filters(own) => filter.stands_upon(own),
        }
    }
}

/// Sets a thread's mode. The caller holds the lock of its group. The new mode refers to the filters
/// of the old one, so nothing is freed here.
fn set(task: &Task, mode: Mode) {
    *task.confinement().mode.lock() = mode;
    task.add_work(work::CONFINED);
}

/// Gives the new thread `child` the seccomp mode of `parent`, which created it. The caller holds
/// the lock of the parent's group.
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

/// Confines the current thread to `read`, `write`, `exit` and `rt_sigreturn`
/// (`SECCOMP_SET_MODE_STRICT`). Unlike on Linux, the time-stamp counter stays readable.
///
/// # Errors
/// Fails with `EINVAL` if the thread has filters.
pub(crate) fn become_strict() -> Result<(), Errno> {
    let task = current();
    let _group = task.process().group.lock();
    if task.confinement().number() == 2 {
        return Err(Errno::EINVAL);
    }
    set(&task, Mode::Strict);
    Ok(())
}

/// The threads that get a new seccomp filter.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Only the calling thread.
    Own,
    /// All threads of the process. If a thread has other filters, the call returns its number and
    /// changes nothing.
    All,
    /// All threads of the process. If a thread has other filters, the call fails and changes
    /// nothing.
    AllOrError,
}

/// Adds a seccomp filter with the program `program` to those of the threads in `whose`. `logs` says
/// that the filter's actions are noted in the kernel log. Returns 0, or the number of a thread that
/// cannot have the filter, for [`Whose::All`].
///
/// # Errors
/// Fails with `EINVAL` if the current thread is strict, and with `ENOMEM` if its filters are too
/// long together. Fails with `ESRCH` if a thread cannot have the filter, for [`Whose::AllOrError`].
pub(crate) fn install(program: Program, logs: bool, whose: Whose) -> SysResult {
    let task = current();
    let mut filter = Arc::new(Filter::new(program, logs));
    let group = task.process().group.lock();
    let own = match &*task.confinement().mode.lock() {
        Mode::Free => None,
        Mode::Strict => return Err(Errno::EINVAL),
        Mode::Filters(own) => Some(own.clone()),
    };
    // No other reference exists yet.
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
                // Release: pairs with the Acquire in `take_promise_over`. `set` adds the work bit
                // afterwards.
                other.confinement().bound.store(true, Ordering::Release);
            }
            set(other, Mode::Filters(filter.clone()));
        }
    }
    set(&task, Mode::Filters(filter));
    Ok(0)
}

/// The result of the check of a call.
enum Judgment {
    Strict,
    Filtered(Verdict),
}

/// Checks a call of the current thread. No reference to the filters is held afterwards: a thread
/// that is killed does not return to drop it.
fn judge(task: TaskRef, frame: &UserFrame) -> Judgment {
    let mode = task.confinement().mode.lock().clone();
    match mode {
        Mode::Free => Judgment::Filtered(Verdict::ALLOW),
        Mode::Strict => Judgment::Strict,
        Mode::Filters(newest) => Judgment::Filtered(newest.judge(&data_of(frame))),
    }
}

/// Returns the lower and the upper half of a word.
#[expect(clippy::cast_possible_truncation, reason = "they are halves")]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Returns the number of the call: as on Linux only the lower half.
fn number_of(frame: &UserFrame) -> u32 {
    let [number, _] = halves(frame.orig_rax);
    number
}

/// Returns `struct seccomp_data` as words.
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

/// Checks a system call of the thread `task`, whose seccomp mode is not free. Returns `true` if the
/// call may be made. Returns `false` if it may not; the result is then in `frame`. Does not return
/// if the thread is killed.
#[cold]
pub(crate) fn enter_call(task: TaskRef, frame: &mut UserFrame, token: &mut Token) -> bool {
    take_promise_over(task, token);
    if ptrace::suspends_filters(task) {
        return true;
    }
    // The tracer may change the call. The new call is checked again, but stops only once.
    let mut traced = false;
    loop {
        let verdict = match judge(task, frame) {
            Judgment::Strict => {
                enter_strictly(task, frame, token);
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
                // The handler gets the registers as they were.
                frame.rax = frame.orig_rax;
                signal::force_info(info);
            }
            Action::KillThread | Action::KillProcess => {
                note(task, frame, action, Signal::SIGSYS.number(), true);
                if action == Action::KillThread && !task.process().is_last_thread(task) {
                    exit_thread(WaitStatus::signalled(Signal::SIGSYS), frame, token);
                }
                let info = refusal(frame, verdict);
                frame.rax = frame.orig_rax;
                core_dump::end(task, frame, &info, token);
            }
        }
        note(task, frame, action, 0, verdict.logs);
        return false;
    }
}

/// Checks a call of a strict thread. Kills the thread unless it is one of the four allowed calls.
fn enter_strictly(task: TaskRef, frame: &mut UserFrame, token: &mut Token) {
    match number_of(frame) {
        nr::__NR_read | nr::__NR_write | nr::__NR_exit | nr::__NR_rt_sigreturn => {}
        _ => {
            let signal = Signal::SIGKILL;
            note(task, frame, Action::KillThread, signal.number(), true);
            exit_thread(WaitStatus::signalled(signal), frame, token);
        }
    }
}

fn refusal(frame: &UserFrame, verdict: Verdict) -> SigInfo {
    let number = number_of(frame).cast_signed();
    SigInfo::refused_call(number, frame.rip, verdict.data())
}

/// Takes over `no_new_privileges` from another thread that passed its filters on.
fn take_promise_over(task: TaskRef, token: &mut Token) {
    let bound = &task.confinement().bound;
    // Acquire: pairs with the Release in `install`.
    if bound.load(Ordering::Acquire) && bound.swap(false, Ordering::Acquire) {
        let own = Credentials::clone(&task.credentials());
        let bound = Credentials {
            no_new_privileges: true,
            ..own
        };
        task.act_as(bound, token);
    }
}

/// `kernel.seccomp.actions_logged`. Relaxed: no other data depends on it.
static NOTED: AtomicU32 = AtomicU32::new(Actions::NOTED_AT_FIRST.0);

/// Returns the actions of seccomp filters that are noted in the kernel log
/// (`kernel.seccomp.actions_logged`).
pub(crate) fn noted() -> Actions {
    Actions(NOTED.load(Ordering::Relaxed))
}

/// Sets the actions of seccomp filters that are noted in the kernel log
/// (`kernel.seccomp.actions_logged`).
pub(crate) fn set_noted(actions: Actions) {
    NOTED.store(actions.0, Ordering::Relaxed);
}

/// The most lines that are noted in one [`SPAN`], so that a program cannot flood the log.
const LINES: u32 = 10;
const SPAN: Nanos = Nanos(5_000_000_000);

/// The start of the current span and the number of its lines.
static SPENT: SpinLock<(Nanos, u32)> = SpinLock::new((Nanos(0), 0));

/// Counts a line, and returns whether it may be noted.
fn has_room() -> bool {
    let now = clock::now();
    let mut spent = SPENT.lock();
    if now.0 - spent.0.0.min(now.0) >= SPAN.0 {
        *spent = (now, 0);
    }
    spent.1 += 1;
    spent.1 <= LINES
}

/// Shows a name that a program has chosen in quotes. Shows it in hexadecimal if a reader could take
/// it for more than a name.
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

/// Notes in the kernel log what happened to a call, if `wanted`. `signal` is the signal that ends
/// the thread, or 0.
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
