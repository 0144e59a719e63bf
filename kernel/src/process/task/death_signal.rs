//! `PR_SET_PDEATHSIG`: the signal that a process gets when the thread that made it ends.
//!
//! If a thread ends without its process, its children become those of another thread of that
//! process. They get the signal again when that thread ends.

use super::Process;
use super::table::{self, Table};
use crate::process;
use crate::process::signal::{self, SigInfo, Signal};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

/// Makes `signal` the signal that `process` gets when the thread that made it ends
/// (`PR_SET_PDEATHSIG`). 0 means no signal.
pub(crate) fn set(process: &Process, signal: u32) {
    let guard = table::lock();
    // Relaxed (all here): the table's lock guards them.
    process.death_signal.store(signal, Ordering::Relaxed);
    let parent = process.relations.lock().parent.clone();
    if let Some(parent) = parent.filter(|_| signal != 0) {
        parent.has_mourners.store(true, Ordering::Relaxed);
        let maker = process.maker.load(Ordering::Relaxed);
        if parent.thread(maker).is_none() {
            pass_on(&parent, process);
        }
    }
    drop(guard);
}

/// Makes `child` the child of a live thread of `parent`, if there is one.
fn pass_on(parent: &Process, child: &Process) {
    let heir = parent.group.lock().tasks.first().map(|task| task.tid());
    if let Some(heir) = heir {
        child.maker.store(heir, Ordering::Relaxed);
    }
}

/// Sends the children of the thread `tid` their death signals, and makes them children of another
/// thread. The thread has left the group of `parent`, which has other threads.
pub(super) fn end_of_thread(parent: &Process, tid: u32) {
    if !parent.has_mourners.load(Ordering::Relaxed) {
        return;
    }
    let guard = table::lock();
    let mut next = parent.relations.lock().first_child.clone();
    // Ends: visits each child once.
    while let Some(child) = next {
        if child.maker.load(Ordering::Relaxed) == tid {
            pass_on(parent, &child);
            tell(&guard, &child, parent.pid());
        }
        next = child.relations.lock().next_sibling.clone();
    }
    drop(guard);
}

/// Sends `child` its death signal, if one is set, because the current thread ends, which made
/// `child` and belongs to the process with the number `parent`. Does nothing if that thread may not
/// send `child` a signal. `table` is the locked process table.
pub(super) fn tell(table: &Table, child: &Arc<Process>, parent: u32) {
    let asked = child.death_signal.load(Ordering::Relaxed);
    if let Some(signal) = Signal::new(asked) {
        let own = process::current();
        let user = own.users().real;
        let goes_on = signal == Signal::SIGCONT && child.session() == own.process().session();
        if goes_on || own.with_credentials(|own| own.may_signal(&child.credentials())) {
            let info = SigInfo::user(signal, 0, parent, user);
            let _ = signal::send_to_process_in(table, child, info);
        }
    }
}
