//! Waits for children.

use super::table::Table;
use super::{Process, Task, Usage, WaitStatus, exit, table};
use crate::process;
use crate::process::ptrace::{self, LeaderGone, Report};
use crate::process::signal::Signal;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use logic::errno::Errno;
use machine::sync::SpinGuard;

/// The children and tracees that a wait is for.
#[derive(Copy, Clone, Debug)]
pub(crate) enum WaitFor<'a> {
    /// All children and tracees.
    Any,
    /// The child with this number.
    Pid(u32),
    /// This child.
    Process(&'a Arc<Process>),
    /// The children in this process group.
    Group(u32),
}

bitflags::bitflags! {
    /// Which changes to wait for, and how.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub(crate) struct WaitOptions: u32 {
        /// `WNOHANG`: the call does not wait if there is no change yet.
        const NOHANG = raw::WNOHANG;
        /// `WUNTRACED`: the stop of a child is a change.
        const STOPPED = raw::WUNTRACED;
        /// `WEXITED`: the end of a child is a change.
        const EXITED = raw::WEXITED;
        /// `WCONTINUED`: the continuation of a stopped child is a change.
        const CONTINUED = raw::WCONTINUED;
        /// `WNOWAIT`: the change stays, and later waits report it again.
        const NOWAIT = raw::WNOWAIT;
        /// `__WNOTHREAD`: children and tracees of other threads of the process do not count.
        const NOTHREAD = 0x2000_0000;
        /// `__WALL`: children count whatever exit signal they have.
        const ALL = 0x4000_0000;
        /// `__WCLONE`: only children whose exit signal is not SIGCHLD count.
        const CLONE = 0x8000_0000;
    }
}

/// A change of a child or tracee that a wait reports.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Waited {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) status: WaitStatus,
    /// The code of the tracee's ptrace-stop, if that is the change. `status` contains it, too.
    pub(crate) trapped: Option<u32>,
    pub(crate) usage: Usage,
}

/// The result of a search among the children.
enum Look {
    Found(Waited),
    Nothing,
    NoChild,
}

/// Waits for a change of one of the children and tracees of `process`. `which` selects them, and
/// `options` select the changes. Returns the change. Returns `None` if there is no such change yet
/// and `NOHANG` is set. An ended child is reaped, unless `NOWAIT` is set.
///
/// # Errors
/// Fails with `ECHILD` if there is no such child or tracee, and with `ERESTARTSYS` at a signal.
pub(crate) fn wait_for_child(
    process: &Arc<Process>,
    which: WaitFor<'_>,
    options: WaitOptions,
) -> Result<Option<Waited>, Errno> {
    let mut result = Ok(None);
    let mut ready = || match look(process, which, options) {
        Look::Found(waited) => {
            result = Ok(Some(waited));
            true
        }
        Look::NoChild => {
            result = Err(Errno::ECHILD);
            true
        }
        Look::Nothing => options.contains(WaitOptions::NOHANG),
    };
    if process::current().is_kernel() {
        process.child_events.wait_uninterruptible(ready);
    } else {
        process.child_events.wait(&mut ready)?;
    }
    result
}

fn look(process: &Arc<Process>, which: WaitFor<'_>, options: WaitOptions) -> Look {
    let mut table = table::lock();
    let is_child = |candidate: &&Arc<Process>| {
        let relations = candidate.relations.lock();
        relations
            .parent
            .as_ref()
            .is_some_and(|parent| Arc::ptr_eq(parent, process))
    };
    let mut child = match which {
        WaitFor::Pid(pid) => table.process(pid).filter(is_child).cloned(),
        WaitFor::Process(process) => Some(process).filter(is_child).cloned(),
        WaitFor::Any | WaitFor::Group(_) => process.relations.lock().first_child.clone(),
    };
    let mut result = Look::NoChild;
    // Ends: visits each child, or the one, once. The table's lock keeps the list unchanged.
    while let Some(candidate) = child {
        // A zombie reports only its end.
        let ended = candidate.relations.lock().zombie.is_some();
        let reportable = options.contains(WaitOptions::EXITED) || !ended;
        let tracing = LeaderGone::of(&candidate);
        if tracing == LeaderGone::ByParent || ended && tracing == LeaderGone::ByOther {
            // The tracer sees its stops, and its end first.
            if matches(&candidate, which, options) {
                result = Look::Nothing;
                if let Some(waited) = take_continued(&candidate, options) {
                    return Look::Found(waited);
                }
            }
        } else if reportable && matches(&candidate, which, options) {
            if let Some(waited) = take(&candidate, options) {
                let mut reaped = None;
                let ended = candidate.relations.lock().zombie.is_some();
                if ended && !options.contains(WaitOptions::NOWAIT) {
                    count_usage(process, &candidate);
                    reaped = exit::reap(&mut table, &candidate);
                }
                drop(table);
                drop(reaped);
                return Look::Found(waited);
            }
            result = Look::Nothing;
        }
        if let WaitFor::Pid(_) | WaitFor::Process(_) = which {
            break;
        }
        child = candidate.relations.lock().next_sibling.clone();
    }
    look_at_tracees(table, process, which, options, result)
}

/// Searches the tracees of the threads of `process`. `result` is that of the search among its
/// children. Returns the result of both searches.
fn look_at_tracees(
    mut table: SpinGuard<'_, Table>,
    process: &Arc<Process>,
    which: WaitFor<'_>,
    options: WaitOptions,
    mut result: Look,
) -> Look {
    let current = process::current();
    let only = options.contains(WaitOptions::NOTHREAD).then_some(&*current);
    let keep = options.contains(WaitOptions::NOWAIT);
    // Ends: visits each tracee once. The table's lock keeps the list unchanged.
    for place in 0.. {
        let Some(tracee) = process.relations.lock().tracees.get(place).cloned() else {
            break;
        };
        if !is_meant(&tracee, which) {
            continue;
        }
        let is_leader = tracee.tid() == tracee.process().pid();
        match ptrace::report(&tracee, only, keep) {
            Report::Foreign => {}
            Report::None => result = Look::Nothing,
            Report::Stopped(code) => {
                let mut waited = waited_of(&tracee, WaitStatus(logic::ptrace::status(code)));
                waited.trapped = Some(code);
                return Look::Found(waited);
            }
            Report::Ended(status) => {
                let status = if is_leader {
                    tracee.process().relations.lock().zombie
                } else {
                    let settled = tracee.process().group.lock().exit;
                    Some(settled.unwrap_or(status))
                };
                // A main thread's end is reported when its whole process has ended.
                let Some(status) = status.filter(|_| options.contains(WaitOptions::EXITED)) else {
                    if is_leader || options.intersects(WaitOptions::EXITED) {
                        result = Look::Nothing;
                    }
                    continue;
                };
                let waited = waited_of(&tracee, status);
                if !keep {
                    if LeaderGone::of(tracee.process()) == LeaderGone::ByParent && is_leader {
                        count_usage(process, tracee.process());
                    }
                    let gone = ptrace::reap(&mut table, &tracee);
                    drop(table);
                    drop(gone);
                }
                return Look::Found(waited);
            }
        }
    }
    result
}

/// Returns whether a tracee is one of `which`.
fn is_meant(tracee: &Task, which: WaitFor<'_>) -> bool {
    match which {
        WaitFor::Any => true,
        WaitFor::Pid(pid) => tracee.tid() == pid,
        WaitFor::Process(process) => {
            Arc::ptr_eq(tracee.process(), process) && tracee.tid() == process.pid()
        }
        WaitFor::Group(group) => tracee.process().pgid() == group,
    }
}

fn waited_of(tracee: &Task, status: WaitStatus) -> Waited {
    let process = tracee.process();
    let mut usage = process.usage_of_tasks();
    usage.add(&process.children_usage());
    Waited {
        pid: tracee.tid(),
        uid: process.credentials().users.real,
        status,
        trapped: None,
        usage,
    }
}

/// Takes the report that a traced child continues, which the parent may see, too. Returns `None` if
/// there is none or `options` do not ask for it.
fn take_continued(child: &Process, options: WaitOptions) -> Option<Waited> {
    if child.relations.lock().zombie.is_some() {
        return None;
    }
    let only = options.intersection(WaitOptions::CONTINUED | WaitOptions::NOWAIT);
    take(child, only)
}

fn matches(child: &Process, which: WaitFor<'_>, options: WaitOptions) -> bool {
    let relations = child.relations.lock();
    let maker = child.maker.load(Ordering::Relaxed);
    if options.contains(WaitOptions::NOTHREAD) && maker != process::current().tid() {
        // A maker that has ended leaves its children to the other threads.
        let parent = relations.parent.as_ref();
        if parent.is_some_and(|parent| parent.thread(maker).is_some()) {
            return false;
        }
    }
    let by_number = match which {
        WaitFor::Any => true,
        WaitFor::Pid(pid) => child.pid() == pid,
        WaitFor::Process(process) => core::ptr::eq(child, &**process),
        WaitFor::Group(group) => relations.group == group,
    };
    let is_clone = relations.exit_signal != Signal::SIGCHLD.number();
    by_number
        && (options.contains(WaitOptions::ALL) || is_clone == options.contains(WaitOptions::CLONE))
}

/// Returns the child's change that `options` ask for, or `None` if there is none. Clears the report
/// of a stop or a continuation unless `NOWAIT` is set.
fn take(child: &Process, options: WaitOptions) -> Option<Waited> {
    let keep = options.contains(WaitOptions::NOWAIT);
    let status = {
        let mut relations = child.relations.lock();
        if let Some(status) = relations.zombie {
            options.contains(WaitOptions::EXITED).then_some(status)?
        } else if let Some(signal) = relations.stop_report
            && options.contains(WaitOptions::STOPPED)
        {
            if !keep {
                relations.stop_report = None;
            }
            WaitStatus::stopped(signal)
        } else if relations.continue_report && options.contains(WaitOptions::CONTINUED) {
            if !keep {
                relations.continue_report = false;
            }
            WaitStatus::CONTINUED
        } else {
            return None;
        }
    };
    let mut usage = child.usage_of_tasks();
    usage.add(&child.children_usage());
    Some(Waited {
        pid: child.pid(),
        uid: child.credentials().users.real,
        status,
        trapped: None,
        usage,
    })
}

/// Adds the usage of a child and its children to its parent's account of children.
fn count_usage(parent: &Process, child: &Process) {
    let mut usage = child.usage_of_tasks();
    usage.add(&child.children_usage());
    parent.relations.lock().children_usage.add(&usage);
}
