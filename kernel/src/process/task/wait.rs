//! Waiting for children.

use super::{Process, Usage, WaitStatus, exit, table};
use crate::process;
use crate::process::signal::Signal;
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use logic::errno::Errno;

/// Which children.
#[derive(Copy, Clone, Debug)]
pub(crate) enum WaitFor<'a> {
    /// All.
    Any,
    /// The one with a number.
    Pid(u32),
    /// This one.
    Process(&'a Arc<Process>),
    /// A process group.
    Group(u32),
}

bitflags::bitflags! {
    /// Which of their changes, and how.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub(crate) struct WaitOptions: u32 {
        /// Do not wait.
        const NOHANG = raw::WNOHANG;
        /// Stops.
        const STOPPED = raw::WUNTRACED;
        /// Ends.
        const EXITED = raw::WEXITED;
        /// Continuations.
        const CONTINUED = raw::WCONTINUED;
        /// Leave the change to be reported again.
        const NOWAIT = raw::WNOWAIT;
        /// Not the children of other threads; there is no difference here.
        const NOTHREAD = 0x2000_0000;
        /// All children, whatever their signal.
        const ALL = 0x4000_0000;
        /// Only children with another signal than SIGCHLD.
        const CLONE = 0x8000_0000;
    }
}

/// A child's change.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Waited {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) status: WaitStatus,
    pub(crate) usage: Usage,
}

/// What a look at the children finds.
enum Look {
    Found(Waited),
    Nothing,
    NoChild,
}

/// Waits for a change of one of `process`'s children; `None`: none yet, with `NOHANG`.
///
/// # Errors
/// `ECHILD` when there is no such child; `ERESTARTSYS`.
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
    // One turn for each child, or for the one; the table's lock keeps them together.
    while let Some(candidate) = child {
        // A zombie has no other change to report than its end.
        let reportable =
            options.contains(WaitOptions::EXITED) || candidate.relations.lock().zombie.is_none();
        if reportable && matches(&candidate, which, options) {
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
    result
}

fn matches(child: &Process, which: WaitFor<'_>, options: WaitOptions) -> bool {
    let relations = child.relations.lock();
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

/// The child's change that `options` ask for, taken unless they say to leave it.
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
        usage,
    })
}

/// Adds what a child used, and its children, to its parent's account of children.
fn count_usage(parent: &Process, child: &Process) {
    let mut usage = child.usage_of_tasks();
    usage.add(&child.children_usage());
    parent.relations.lock().children_usage.add(&usage);
}
