//! Sessions and jobs: whom a terminal controls, who may use it, who hears of its end.
//!
//! A process's terminal, and a terminal's session and group, change under the process table's lock.
//! Signals are sent without it: `SIGCONT` takes it itself.

use super::device::Terminal;
use crate::process;
use crate::process::signal::{self, SIG_IGN, SigInfo, Signal};
use crate::process::task::{Process, next_process, table};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};

/// Stopped groups at most that are looked at when a process ends.
const STOPPED_GROUPS: usize = 32;

/// Sends a signal to the members of a process group in this session.
pub(super) fn signal_group(session: u32, group: u32, signal: Signal) {
    let mut next = next_process(1);
    // Once through the table.
    while let Some(process) = next {
        if process.pgid() == group && process.session() == session {
            // One that ends meanwhile needs none.
            let _ = signal::send_to_process(&process, SigInfo::kernel(signal));
        }
        next = next_process(process.pid() + 1);
    }
}

/// The calling process's terminal.
pub(super) fn own() -> Option<Arc<Terminal>> {
    terminal_of(process::current().process())
}

fn terminal_of(process: &Process) -> Option<Arc<Terminal>> {
    process.relations.lock().terminal.clone()
}

/// Whether this is the calling process's terminal.
pub(super) fn is_own(terminal: &Terminal) -> bool {
    own().is_some_and(|own| core::ptr::eq(Arc::as_ptr(&own), terminal))
}

/// What `/proc/PID/stat` says: the terminal's device number, and its process group in the foreground.
pub fn numbers(process: &Process) -> (u64, i32) {
    match terminal_of(process) {
        Some(terminal) => (terminal.device(), terminal.foreground().cast_signed()),
        None => (0, -1),
    }
}

/// Looks whether the calling process may read its terminal (`SIGTTIN`) or change it (`SIGTTOU`).
///
/// # Errors
/// `ERESTARTSYS`: it is in the background, and its job gets the signal. `EIO`: nobody could let the job go
/// on, or it reads and does not want to be stopped.
pub(super) fn check(terminal: &Terminal, signal: Signal) -> Result<(), Errno> {
    if !is_own(terminal) {
        return Ok(());
    }
    let task = process::current();
    let process = task.process();
    let (group, foreground) = (process.pgid(), terminal.foreground());
    if foreground == 0 || group == foreground {
        return Ok(());
    }
    let ignored =
        task.blocked().contains(signal) || process.actions().get(signal).handler == SIG_IGN;
    if ignored {
        return if signal == Signal::SIGTTIN {
            Err(Errno::EIO)
        } else {
            Ok(())
        };
    }
    if signal::is_orphaned(&table::lock(), group, process.session()) {
        return Err(Errno::EIO);
    }
    signal_group(process.session(), group, signal);
    Err(Errno::ERESTARTSYS)
}

/// A terminal is opened by whoever may want it as its own: the leader of a session without one.
pub(super) fn offer(terminal: &Arc<Terminal>) {
    let process = process::current().process().clone();
    let _table = table::lock();
    // Relaxed (all of `session`, `foreground` here): changed under the table's lock.
    if terminal.session.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut relations = process.relations.lock();
    if relations.session != process.pid() || relations.terminal.is_some() {
        return;
    }
    relations.terminal = Some(terminal.clone());
    terminal.session.store(relations.session, Ordering::Relaxed);
    terminal
        .foreground
        .store(relations.group, Ordering::Relaxed);
}

/// `TIOCSCTTY`: the terminal becomes the session's, with `steal` another session loses it.
pub(super) fn acquire(terminal: &Arc<Terminal>, steal: bool) -> SysResult {
    let process = process::current().process().clone();
    let table = table::lock();
    let (session, group, has_one) = {
        let relations = process.relations.lock();
        let has_one = relations.terminal.is_some();
        (relations.session, relations.group, has_one)
    };
    let leads = session == process.pid();
    let controls = terminal.session.load(Ordering::Relaxed);
    if leads && controls == session {
        return Ok(0);
    }
    if !leads || has_one {
        return Err(Errno::EPERM);
    }
    if controls != 0 {
        if !steal {
            return Err(Errno::EPERM);
        }
        forget(&table, controls);
    }
    process.relations.lock().terminal = Some(terminal.clone());
    terminal.session.store(session, Ordering::Relaxed);
    terminal.foreground.store(group, Ordering::Relaxed);
    Ok(0)
}

/// Takes their terminal from all processes of a session.
fn forget(table: &table::Table, session: u32) {
    for process in table.processes() {
        let mut relations = process.relations.lock();
        if relations.session == session {
            // Others have it, so nothing ends here.
            relations.terminal = None;
        }
    }
}

/// A session loses its terminal; says which groups hear of it: that in the foreground.
fn release(terminal: &Terminal) -> u32 {
    let table = table::lock();
    let session = terminal.session.swap(0, Ordering::Relaxed);
    let group = terminal.foreground.swap(0, Ordering::Relaxed);
    if session != 0 {
        forget(&table, session);
    }
    group
}

/// `TIOCNOTTY`: the calling process gives its terminal up; a leader for its session.
pub(super) fn give_up(terminal: &Arc<Terminal>) -> SysResult {
    if !is_own(terminal) {
        return Err(Errno::ENOTTY);
    }
    let process = process::current().process().clone();
    let session = process.session();
    if session == process.pid() {
        let group = release(terminal);
        if group != 0 {
            signal_group(session, group, Signal::SIGHUP);
            signal_group(session, group, Signal::SIGCONT);
        }
    } else {
        let _table = table::lock();
        process.relations.lock().terminal = None;
    }
    Ok(0)
}

/// `TIOCSPGRP`: another job comes to the foreground.
pub(super) fn set_foreground(terminal: &Terminal, group: i32) -> SysResult {
    let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
    let own = is_own(terminal);
    let session = process::current().process().session();
    let table = table::lock();
    if !own || terminal.session.load(Ordering::Relaxed) != session {
        return Err(Errno::ENOTTY);
    }
    let mut exists = false;
    let mut in_session = false;
    for process in table.processes() {
        let relations = process.relations.lock();
        if relations.group == group {
            exists = true;
            in_session |= relations.session == session;
        }
    }
    if !exists {
        return Err(Errno::ESRCH);
    }
    if !in_session {
        return Err(Errno::EPERM);
    }
    terminal.foreground.store(group, Ordering::Relaxed);
    Ok(0)
}

/// The terminal is gone for its session: the leader hears of it now, and the group in the foreground when
/// the leader ends.
pub(super) fn hang_up(terminal: &Terminal) {
    let leader = {
        let table = table::lock();
        let session = terminal.session.swap(0, Ordering::Relaxed);
        let group = terminal.foreground.swap(0, Ordering::Relaxed);
        if session == 0 {
            return;
        }
        forget(&table, session);
        let leader = table.process(session).cloned();
        if let Some(leader) = &leader {
            leader.relations.lock().hung_group = group;
        }
        leader
    };
    if let Some(leader) = leader {
        for signal in [Signal::SIGHUP, Signal::SIGCONT] {
            let _ = signal::send_to_process(&leader, SigInfo::kernel(signal));
        }
    }
}

/// The calling process's terminal is hung up (`vhangup`).
pub fn hang_up_own() {
    if let Some(terminal) = own() {
        terminal.hang_up();
    }
}

/// A process has ended: if it led a session, that has no terminal any more, and the jobs in the foreground
/// hear of it.
pub(crate) fn end_of_leader(process: &Process) {
    let (session, terminal, hung_group) = {
        let relations = process.relations.lock();
        let terminal = relations.terminal.clone();
        (relations.session, terminal, relations.hung_group)
    };
    if session != process.pid() {
        return;
    }
    let Some(terminal) = terminal else {
        if hung_group != 0 {
            signal_group(session, hung_group, Signal::SIGHUP);
            signal_group(session, hung_group, Signal::SIGCONT);
        }
        return;
    };
    let group = release(&terminal);
    if group != 0 {
        signal_group(session, group, Signal::SIGHUP);
    }
}

/// Process groups of a session that have stopped members, and whom somebody could let go on.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct StoppedGroups {
    session: u32,
    groups: [u32; STOPPED_GROUPS],
    count: usize,
}

/// The stopped jobs of a session, before one of its processes ends.
pub(crate) fn stopped_groups(table: &table::Table, session: u32) -> StoppedGroups {
    let mut found = StoppedGroups {
        session,
        ..StoppedGroups::default()
    };
    if !signal::any_stopped() {
        return found;
    }
    for process in table.processes() {
        if process.session() != session || !process.is_stopped() {
            continue;
        }
        let group = process.pgid();
        let known = found.groups[..found.count].contains(&group);
        if !known && found.count < STOPPED_GROUPS && !signal::is_orphaned(table, group, session) {
            found.groups[found.count] = group;
            found.count += 1;
        }
    }
    found
}

/// Those of them that nobody could let go on any more, now that the process has ended: they are told, and go
/// on. What comes back is called without the table's lock.
pub(crate) fn newly_orphaned(table: &table::Table, before: StoppedGroups) -> impl FnOnce() + use<> {
    let mut orphaned = before;
    orphaned.count = 0;
    for &group in &before.groups[..before.count] {
        if signal::is_orphaned(table, group, before.session) {
            orphaned.groups[orphaned.count] = group;
            orphaned.count += 1;
        }
    }
    move || {
        for &group in &orphaned.groups[..orphaned.count] {
            signal_group(orphaned.session, group, Signal::SIGHUP);
            signal_group(orphaned.session, group, Signal::SIGCONT);
        }
    }
}
