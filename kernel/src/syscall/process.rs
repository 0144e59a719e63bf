//! Processes, their relations and their end.

use super::Args;
use crate::fs::OpenFlags;
use crate::process::signal::{self, SIGINFO_BYTES, Signal};
use crate::process::task::{
    self, Process, Usage, UserStrings, WaitFor, WaitOptions, WaitStatus, Waited, table,
};
use crate::process::time::values::Timeval;
use crate::process::{self, pidfd};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use logic::errno::{Errno, SysResult};
use logic::own::Token;
use machine::arch::UserFrame;
use machine::uaccess::{self, UserPtr};

/// `waitid`: the child that a pidfd is about.
const P_PIDFD: u32 = 3;
/// Longest path that a program may pass.
const MAX_PATH: usize = 4096;

/// `execve(2)`.
pub fn execve(a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    execute(None, a.addr(0), a.addr(1), a.addr(2), 0, frame, token)
}

/// `execveat(2)`.
pub fn execveat(a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    execute(
        Some(a.int(0)),
        a.addr(1),
        a.addr(2),
        a.addr(3),
        a.uint(4),
        frame,
        token,
    )
}

fn execute(
    directory: Option<i32>,
    path: u64,
    args: u64,
    env: u64,
    flags: u32,
    frame: &mut UserFrame,
    token: &mut Token,
) -> SysResult {
    if flags & !(raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = uaccess::read_cstr(path, MAX_PATH)?;
    let current = process::current();
    let directory = directory.filter(|&fd| fd != raw::AT_FDCWD && !path.starts_with(b"/"));
    let (context, who) = (current.fs(), current.credentials());
    let file = match directory {
        Some(fd) if path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 => {
            task::open_executable_again(&who, &*current.files().get(fd)?)?
        }
        // The path names the working directory, which cannot be executed.
        _ if path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 => return Err(Errno::EACCES),
        _ if path.is_empty() => return Err(Errno::ENOENT),
        _ => {
            let start = match directory {
                Some(fd) => current.files().get(fd)?.node().clone(),
                None => context.cwd(),
            };
            let mut open = OpenFlags::empty();
            open.set(OpenFlags::NO_FOLLOW, flags & raw::AT_SYMLINK_NOFOLLOW != 0);
            task::open_executable(&context, &who, start, &path, open)?
        }
    };
    let strings = match directory {
        None => UserStrings {
            path,
            args,
            env,
            closes: false,
            by_file: false,
        },
        Some(fd) => UserStrings {
            args,
            env,
            closes: current.files().close_on_exec(fd)?,
            by_file: path.is_empty(),
            path: beneath_descriptor(fd, &path)?,
        },
    };
    task::execve(file, &strings, frame, token)
}

/// Returns the name of a program that was found from the descriptor `fd`: as on Linux, a path in
/// `/dev/fd`. Fails with `ENOMEM`.
fn beneath_descriptor(fd: i32, path: &[u8]) -> Result<Vec<u8>, Errno> {
    let fd = format!("{fd}");
    let parts: [&[u8]; 4] = [b"/dev/fd/", fd.as_bytes(), b"/", path];
    let used = if path.is_empty() { 2 } else { 4 };
    let mut name = Vec::new();
    for part in &parts[..used] {
        name.try_reserve(part.len()).map_err(|_| Errno::ENOMEM)?;
        name.extend_from_slice(part);
    }
    Ok(name)
}

/// `exit(2)`. Ends the calling thread and does not return.
pub fn exit(a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    task::exit_thread(WaitStatus::exited(a.int(0)), frame, token)
}

/// `exit_group(2)`. Ends all threads of the process and does not return.
pub fn exit_group(a: &Args, frame: &mut UserFrame, token: &mut Token) -> SysResult {
    task::exit_group(WaitStatus::exited(a.int(0)), frame, token)
}

/// Returns `usage` as the words of a `struct rusage`.
pub(super) fn rusage_words(usage: &Usage) -> [u64; 18] {
    let mut words = [0; 18];
    for (at, time) in [(0, usage.user), (2, usage.system)] {
        let time = Timeval::from(time);
        words[at] = time.sec.cast_unsigned();
        words[at + 1] = time.usec.cast_unsigned();
    }
    words[4] = usage.peak_rss >> 10;
    words[8] = usage.minor_faults;
    words[9] = usage.major_faults;
    words[16] = usage.voluntary;
    words[17] = usage.involuntary;
    words
}

fn write_rusage(address: u64, usage: &Usage) -> Result<(), Errno> {
    if address == 0 {
        return Ok(());
    }
    UserPtr::<[u64; 18]>::new(address).write(&rusage_words(usage))
}

/// `wait4(2)`.
pub fn wait4(a: &Args) -> SysResult {
    const ALLOWED: u32 = raw::WNOHANG
        | raw::WUNTRACED
        | raw::WCONTINUED
        | WaitOptions::NOTHREAD.bits()
        | WaitOptions::ALL.bits()
        | WaitOptions::CLONE.bits();
    if a.uint(2) & !ALLOWED != 0 {
        return Err(Errno::EINVAL);
    }
    let process = process::current().process().clone();
    let which = match a.int(0) {
        i32::MIN => return Err(Errno::ESRCH),
        -1 => WaitFor::Any,
        0 => WaitFor::Group(process.pgid()),
        pid if pid < 0 => WaitFor::Group(pid.unsigned_abs()),
        pid => WaitFor::Pid(pid.unsigned_abs()),
    };
    let options = WaitOptions::from_bits_truncate(a.uint(2)) | WaitOptions::EXITED;
    let Some(waited) = task::wait_for_child(&process, which, options)? else {
        return Ok(0);
    };
    if a.addr(1) != 0 {
        UserPtr::<u32>::new(a.addr(1)).write(&waited.status.0)?;
    }
    write_rusage(a.addr(3), &waited.usage)?;
    Ok(waited.pid as usize)
}

/// `waitid(2)`.
pub fn waitid(a: &Args) -> SysResult {
    let waited = wait_for(a);
    if let Ok(Some(waited)) = &waited {
        write_rusage(a.addr(4), &waited.usage)?;
    }
    let info = a.addr(2);
    if info != 0 {
        let child = waited.as_ref().ok().and_then(Option::as_ref);
        // As on Linux, zeros are written after an error, too, and only the fields are written.
        let bytes = child.map_or([0; SIGINFO_BYTES], child_bytes);
        for field in [0..12, 16..28] {
            uaccess::copy_out(info + field.start as u64, &bytes[field])?;
        }
    }
    waited.map(|_| 0)
}

/// Waits for a child as `waitid` does. Returns `None` if `WNOHANG` is set and no child has changed.
/// Fails as `waitid(2)` does.
fn wait_for(a: &Args) -> Result<Option<Waited>, Errno> {
    const ALLOWED: u32 = raw::WNOHANG
        | raw::WNOWAIT
        | raw::WSTOPPED
        | raw::WEXITED
        | raw::WCONTINUED
        | WaitOptions::NOTHREAD.bits()
        | WaitOptions::ALL.bits()
        | WaitOptions::CLONE.bits();
    let bits = a.uint(3);
    if bits & !ALLOWED != 0 || bits & (raw::WSTOPPED | raw::WEXITED | raw::WCONTINUED) == 0 {
        return Err(Errno::EINVAL);
    }
    let process = process::current().process().clone();
    let child;
    let mut nonblocking = false;
    let which = match (a.uint(0), a.int(1)) {
        (raw::P_ALL, _) => WaitFor::Any,
        (raw::P_PID, pid) if pid > 0 => WaitFor::Pid(pid.unsigned_abs()),
        (raw::P_PGID, 0) => WaitFor::Group(process.pgid()),
        (raw::P_PGID, group) if group > 0 => WaitFor::Group(group.unsigned_abs()),
        (P_PIDFD, fd) if fd >= 0 => {
            let file = process::caller::file(fd)?;
            child = pidfd::process_of(&file)?;
            nonblocking = file.flags().nonblocking();
            WaitFor::Process(&child)
        }
        _ => return Err(Errno::EINVAL),
    };
    let mut options = WaitOptions::from_bits_truncate(bits);
    let would_wait = nonblocking && !options.contains(WaitOptions::NOHANG);
    if would_wait {
        options |= WaitOptions::NOHANG;
    }
    let waited = task::wait_for_child(&process, which, options)?;
    if waited.is_none() && would_wait {
        return Err(Errno::EAGAIN);
    }
    Ok(waited)
}

fn child_bytes(waited: &Waited) -> [u8; SIGINFO_BYTES] {
    /// `CLD_TRAPPED`.
    const TRAPPED: i32 = 4;
    let (code, status) = match waited.trapped {
        Some(code) => (TRAPPED, code.cast_signed()),
        None => signal::describe(waited.status),
    };
    let info = signal::SigInfo {
        signal: Signal::SIGCHLD,
        errno: 0,
        code,
        detail: signal::Detail::Child {
            pid: waited.pid,
            uid: waited.uid,
            status,
            utime: 0,
            stime: 0,
        },
    };
    info.to_bytes()
}

/// `getpid(2)`.
pub fn getpid(_a: &Args) -> SysResult {
    Ok(process::current().process().pid() as usize)
}

/// `getppid(2)`.
pub fn getppid(_a: &Args) -> SysResult {
    Ok(process::current().process().ppid() as usize)
}

/// `gettid(2)`.
pub fn gettid(_a: &Args) -> SysResult {
    Ok(process::current().tid() as usize)
}

/// `getpgrp(2)`.
pub fn getpgrp(_a: &Args) -> SysResult {
    Ok(process::current().process().pgid() as usize)
}

/// Returns the process with the number `pid`, or with a thread of this number; 0 is the current
/// process.
///
/// # Errors
/// Fails with `ESRCH` if there is none.
pub(super) fn process_or_current(pid: i32) -> Result<Arc<Process>, Errno> {
    if pid == 0 {
        return Ok(process::current().process().clone());
    }
    let pid = u32::try_from(pid).map_err(|_| Errno::ESRCH)?;
    of_number(pid)
}

/// Returns the process with the number `number`, or with a thread of this number.
///
/// # Errors
/// Fails with `ESRCH` if there is none.
pub(super) fn of_number(number: u32) -> Result<Arc<Process>, Errno> {
    let of_thread = || task::find_task(number).map(|task| task.process().clone());
    task::find(number).or_else(of_thread).ok_or(Errno::ESRCH)
}

/// `getpgid(2)`.
pub fn getpgid(a: &Args) -> SysResult {
    Ok(process_or_current(a.int(0))?.pgid() as usize)
}

/// `getsid(2)`.
pub fn getsid(a: &Args) -> SysResult {
    Ok(process_or_current(a.int(0))?.session() as usize)
}

/// `setpgid(2)`.
pub fn setpgid(a: &Args) -> SysResult {
    let current = process::current().process().clone();
    let pid = a.int(0);
    // As on Linux, the group is checked first. If it is 0, it is the number of the process. So a
    // negative number of a process gives EINVAL without a group, and ESRCH with one.
    let group = match (a.int(1), pid) {
        (0, 0) => current.pid(),
        (0, number) | (number, _) => u32::try_from(number).map_err(|_| Errno::EINVAL)?,
    };
    let target = process_or_current(pid)?;
    if pid != 0 && target.pid().cast_signed() != pid {
        // A thread's number.
        return Err(Errno::EINVAL);
    }
    let mut table = table::lock();
    let own = Arc::ptr_eq(&target, &current);
    let session = current.session();
    let old = {
        let relations = target.relations.lock();
        let is_child = relations
            .parent
            .as_ref()
            .is_some_and(|parent| Arc::ptr_eq(parent, &current));
        if !own && !is_child {
            return Err(Errno::ESRCH);
        }
        if relations.session != session {
            return Err(Errno::EPERM);
        }
        if !own && relations.has_execed {
            return Err(Errno::EACCES);
        }
        if relations.session == target.pid() {
            return Err(Errno::EPERM);
        }
        relations.group
    };
    if group != target.pid() {
        let in_session = table
            .members(group)
            .any(|process| process.session() == session);
        if !in_session {
            return Err(Errno::EPERM);
        }
    }
    if group != old {
        table.count_group(group, true);
        target.relations.lock().group = group;
        table.count_group(old, false);
    }
    Ok(0)
}

/// `setsid(2)`.
pub fn setsid(_a: &Args) -> SysResult {
    let process = process::current().process().clone();
    let pid = process.pid();
    let mut table = table::lock();
    if table.group_exists(pid) {
        return Err(Errno::EPERM);
    }
    table.count_group(pid, true);
    table.count_session(pid, true);
    let (group, session, terminal) = {
        let mut relations = process.relations.lock();
        (
            core::mem::replace(&mut relations.group, pid),
            core::mem::replace(&mut relations.session, pid),
            relations.terminal.take(),
        )
    };
    table.count_group(group, false);
    table.count_session(session, false);
    drop(table);
    drop(terminal);
    Ok(pid as usize)
}

/// `set_tid_address(2)`.
pub fn set_tid_address(a: &Args) -> SysResult {
    let current = process::current();
    current
        .marks()
        .clear_child_tid
        .store(a.addr(0), Ordering::Relaxed);
    Ok(current.tid() as usize)
}

/// `unshare(2)`. There are no namespaces to create, so flags for them give `EPERM`.
pub fn unshare(a: &Args, token: &mut Token) -> SysResult {
    /// The resources that the threads of a process always share.
    const OF_PROCESS: u32 = raw::CLONE_THREAD | raw::CLONE_SIGHAND | raw::CLONE_VM;
    const HARMLESS: u32 = raw::CLONE_FS | raw::CLONE_FILES | raw::CLONE_SYSVSEM | OF_PROCESS;
    const NAMESPACES: u32 = raw::CLONE_NEWNS
        | raw::CLONE_NEWCGROUP
        | raw::CLONE_NEWUTS
        | raw::CLONE_NEWIPC
        | raw::CLONE_NEWUSER
        | raw::CLONE_NEWPID
        | raw::CLONE_NEWNET;
    if a.addr(0) & !u64::from(HARMLESS | NAMESPACES) != 0 {
        return Err(Errno::EINVAL);
    }
    if a.uint(0) & NAMESPACES != 0 {
        return Err(Errno::EPERM);
    }
    let current = process::current();
    if current.process().thread_count() > 1 && a.uint(0) & OF_PROCESS != 0 {
        return Err(Errno::EINVAL);
    }
    if a.uint(0) & raw::CLONE_FILES != 0 {
        unshare_files(token)?;
    }
    if a.uint(0) & raw::CLONE_SYSVSEM != 0 {
        current.leave_undo_list(token);
    }
    if a.uint(0) & raw::CLONE_FS != 0 {
        let context = current.fs().fork_copy();
        current.change_fs(context, token);
    }
    Ok(0)
}

/// Gives the current thread a separate table of descriptors, if other threads or processes share
/// its table.
///
/// # Errors
/// Fails with `ENOMEM`.
pub(super) fn unshare_files(token: &mut Token) -> Result<(), Errno> {
    let current = process::current();
    let files = current.files();
    if files.is_shared() {
        current.change_files(files.fork_copy()?, token);
    }
    Ok(())
}

/// `setns(2)`. There are no namespaces to join, so each open descriptor gives `EINVAL`.
pub fn setns(a: &Args) -> SysResult {
    process::caller::file(a.int(0))?;
    Err(Errno::EINVAL)
}
