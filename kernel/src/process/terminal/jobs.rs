//! Sessions and jobs: the controlling terminal of a session, access from the background, and
//! signals at the terminal's end.
//!
//! A process's terminal, and a terminal's session and group, change under the process table's lock.
//! Signals are sent after its release, because sending takes it.

use super::device::Terminal;
use crate::process;
use crate::process::caller;
use crate::process::signal::{self, SIG_IGN, SigInfo, Signal};
use crate::process::task::{Process, next_process, table};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};

/// Sends `signal` to the members of the process group `group` that are in the session `session`.
pub(super) fn signal_group(session: u32, group: u32, signal: Signal) {
    let table = table::lock();
    for process in table.members(group) {
        if process.session() == session {
            // An error means that the details of a realtime signal found no room.
            let _ = signal::send_to_one_of_many(&table, process, SigInfo::kernel(signal));
        }
    }
}

/// Returns the calling process's controlling terminal, or `None` if it has none.
pub(super) fn own() -> Option<Arc<Terminal>> {
    terminal_of(process::current().process())
}

fn terminal_of(process: &Process) -> Option<Arc<Terminal>> {
    process.relations.lock().terminal.clone()
}

/// Returns whether `terminal` is the calling process's controlling terminal.
pub(super) fn is_own(terminal: &Terminal) -> bool {
    own().is_some_and(|own| core::ptr::eq(Arc::as_ptr(&own), terminal))
}

/// Returns the device number of the controlling terminal of `process`, and the terminal's
/// foreground process group, for `/proc/PID/stat`. Returns 0 and -1 if the process has no terminal.
pub fn numbers(process: &Process) -> (u64, i32) {
    match terminal_of(process) {
        Some(terminal) => (terminal.device(), terminal.foreground().cast_signed()),
        None => (0, -1),
    }
}

/// Checks that the calling process may read `terminal` (`signal` is `SIGTTIN`) or change it
/// (`SIGTTOU`). If it may not, because it is in the background, its process group gets `signal`.
///
/// # Errors
/// Fails with `ERESTARTSYS` if `signal` was sent. Fails with `EIO` if no process could continue the
/// group after a stop, or if the process reads and ignores or blocks `signal`.
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

/// Makes `terminal` the controlling terminal of the calling process, if the process leads a session
/// without a terminal and `terminal` controls no session. Does nothing if the terminal has been
/// hung up since its generation was `generation`.
pub(super) fn offer(terminal: &Arc<Terminal>, generation: u32) {
    let process = process::current().process().clone();
    let _table = table::lock();
    // A hang-up counts the generation first. Then it takes the terminal from its session, under
    // this lock.
    if terminal.generation() != generation {
        return;
    }
    // Relaxed (all of `session` and `foreground` here): changed under the table's lock.
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

/// Makes `terminal` the controlling terminal of the calling process's session (`TIOCSCTTY`). With
/// `steal`, another session that has the terminal loses it. Returns 0.
///
/// # Errors
/// Fails with `EIO` if the terminal has been hung up since its generation was `generation`. Fails
/// with `EPERM` if the caller leads no session or has another terminal. Also fails with `EPERM` if
/// another session has the terminal, unless `steal` is set and the caller has `CAP_SYS_ADMIN`.
pub(super) fn acquire(terminal: &Arc<Terminal>, generation: u32, steal: bool) -> SysResult {
    let process = process::current().process().clone();
    let table = table::lock();
    // A hang-up counts the generation first, as in `offer`.
    if terminal.generation() != generation {
        return Err(Errno::EIO);
    }
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
        if !steal || !caller::can(Capabilities::SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        forget(&table, controls);
    }
    process.relations.lock().terminal = Some(terminal.clone());
    terminal.session.store(session, Ordering::Relaxed);
    terminal.foreground.store(group, Ordering::Relaxed);
    Ok(0)
}

/// Clears the terminal of all processes of a session.
fn forget(table: &table::Table, session: u32) {
    for process in table.processes() {
        let mut relations = process.relations.lock();
        if relations.session == session {
            // Other references exist, so the terminal is not dropped here.
            relations.terminal = None;
        }
    }
}

/// Takes the terminal from `session` and returns its foreground group, which must be notified.
/// Returns 0 if the terminal is another session's.
fn release(table: &table::Table, terminal: &Terminal, session: u32) -> u32 {
    if terminal.session.load(Ordering::Relaxed) != session {
        return 0;
    }
    terminal.session.store(0, Ordering::Relaxed);
    forget(table, session);
    terminal.foreground.swap(0, Ordering::Relaxed)
}

/// Takes `terminal` from the calling process (`TIOCNOTTY`). If the process leads a session, the
/// whole session loses the terminal, and the foreground group gets SIGHUP and SIGCONT. Returns 0.
///
/// # Errors
/// Fails with `ENOTTY` if `terminal` is not the caller's controlling terminal.
pub(super) fn give_up(terminal: &Arc<Terminal>) -> SysResult {
    let process = process::current().process().clone();
    let (session, group) = {
        let table = table::lock();
        if !is_own(terminal) {
            return Err(Errno::ENOTTY);
        }
        let session = process.session();
        if session == process.pid() {
            (session, release(&table, terminal, session))
        } else {
            // The caller has a reference, so the terminal is not dropped here.
            process.relations.lock().terminal = None;
            return Ok(0);
        }
    };
    if group != 0 {
        signal_group(session, group, Signal::SIGHUP);
        signal_group(session, group, Signal::SIGCONT);
    }
    Ok(0)
}

/// Makes `group` the foreground process group of `terminal` (`TIOCSPGRP`). Returns 0.
///
/// # Errors
/// Fails with `ENOTTY` if `terminal` is not the controlling terminal of the caller's session. Fails
/// with `EINVAL` if `group` is negative, with `ESRCH` if no group, process or thread has the
/// number, and with `EPERM` if it is in another session or is a thread's.
pub(super) fn set_foreground(terminal: &Terminal, group: i32) -> SysResult {
    let session = process::current().process().session();
    let table = table::lock();
    if !is_own(terminal) || terminal.session.load(Ordering::Relaxed) != session {
        return Err(Errno::ENOTTY);
    }
    let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
    let named = if table.group_exists(group) {
        table.members(group).next()
    } else {
        // A process that may lead a group later.
        table.process(group)
    };
    match named {
        Some(process) if process.session() == session => {}
        None if table.task(group).is_none() => return Err(Errno::ESRCH),
        _ => return Err(Errno::EPERM),
    }
    terminal.foreground.store(group, Ordering::Relaxed);
    Ok(0)
}

/// Takes `terminal`, which is hung up, from its session. The leader of the session gets SIGHUP and
/// SIGCONT now, and the foreground group gets them when the leader ends.
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

/// Hangs up the calling process's controlling terminal (`vhangup(2)`). Does nothing if it has none.
pub fn hang_up_own() {
    if let Some(terminal) = own() {
        terminal.hang_up();
    }
}

/// Handles the end of `process` if it leads a session. The session loses its terminal, and the
/// foreground group gets SIGHUP. If the terminal was hung up before, the group that was then in the
/// foreground gets SIGHUP and SIGCONT. Does nothing for other processes.
pub(crate) fn end_of_leader(process: &Process) {
    if process.session() != process.pid() {
        return;
    }
    let (session, terminal, hung_group, group) = {
        let table = table::lock();
        let (session, terminal, hung_group) = {
            let relations = process.relations.lock();
            let terminal = relations.terminal.clone();
            (relations.session, terminal, relations.hung_group)
        };
        let released = terminal.as_ref().map(|own| release(&table, own, session));
        // The terminal is dropped without the lock.
        (session, terminal, hung_group, released.unwrap_or(0))
    };
    if terminal.is_none() && hung_group != 0 {
        signal_group(session, hung_group, Signal::SIGHUP);
        signal_group(session, hung_group, Signal::SIGCONT);
    }
    if group != 0 {
        signal_group(session, group, Signal::SIGHUP);
    }
}

/// An orphaned process group: its number, and the number of its session.
pub(crate) type Orphans = (u32, u32);

/// Returns whether the group has a stopped member that no process could continue.
fn is_stuck(table: &table::Table, (group, session): Orphans) -> bool {
    let mut members = table.members(group);
    members.any(|member| member.is_stopped()) && signal::is_orphaned(table, group, session)
}

/// Returns the group of `process`, which has just ended, if its end has orphaned the group and a
/// member is stopped. Otherwise returns `None`. The caller holds the table's lock.
pub(crate) fn own_orphans(table: &table::Table, process: &Process) -> Option<Orphans> {
    if !signal::any_stopped() {
        return None;
    }
    let (group, session, parent) = {
        let relations = process.relations.lock();
        (relations.group, relations.session, relations.parent.clone())
    };
    let counted = {
        let parent = parent.as_ref()?.relations.lock();
        parent.group != group && parent.session == session
    };
    (counted && is_stuck(table, (group, session))).then_some((group, session))
}

/// Sends SIGHUP and SIGCONT to process groups with stopped members that the end of a process has
/// orphaned. `own` is the process's own group, if orphaned. With `children`, also searches the
/// groups of its children. The caller does not hold the process table's lock.
pub(crate) fn tell_orphans(own: Option<Orphans>, children: bool) {
    if let Some(orphans) = own {
        hang_up_orphans(orphans);
    }
    let mut next = if children { next_process(1) } else { None };
    // Ends: visits each process of the table once.
    while let Some(process) = next {
        let orphans = {
            let table = table::lock();
            let orphans = {
                let mut relations = process.relations.lock();
                let lost = core::mem::take(&mut relations.lost_parent);
                lost.then_some((relations.group, relations.session))
            };
            orphans.filter(|&orphans| is_stuck(&table, orphans))
        };
        if let Some(orphans) = orphans {
            hang_up_orphans(orphans);
        }
        machine::sched::cond_resched();
        next = next_process(process.pid() + 1);
    }
}

fn hang_up_orphans((group, session): Orphans) {
    signal_group(session, group, Signal::SIGHUP);
    signal_group(session, group, Signal::SIGCONT);
}
