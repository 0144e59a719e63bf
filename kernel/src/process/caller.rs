//! What the code of system calls reads of the calling task.

use super::task::{Process, limits};
use crate::fs::{Context, FileTable, OpenFile, OpenFlags};
use crate::process;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use logic::credentials::Capabilities;
use logic::credentials::others::LooksAs;
use logic::errno::Errno;
use logic::socket::control::Credentials;

/// Returns the calling task's table of descriptors.
pub fn files() -> Arc<FileTable> {
    process::current().files()
}

/// Calls `call` with the calling task's table of descriptors. This takes no reference, whose count
/// other threads would share. The task does not change to another table during `call`, which cannot
/// have the token for that.
#[inline]
pub fn with_files<R>(call: impl FnOnce(&FileTable) -> R + Send) -> R {
    process::current().with_files(|files| call(files))
}

/// Returns the calling task's root, working directory and umask. Not inlined: the paths' walk needs
/// the registers.
#[inline(never)]
pub fn context() -> Arc<Context> {
    process::current().fs()
}

/// Calls `call` with the calling task's root, working directory and umask. This takes no reference.
#[inline]
pub fn with_context<R>(call: impl FnOnce(&Context) -> R + Send) -> R {
    process::current().with_fs(|context| call(context))
}

/// Calls `call` with the calling task's credentials. This takes no reference.
#[inline]
pub fn with_credentials<R>(call: impl FnOnce(&logic::credentials::Credentials) -> R + Send) -> R {
    process::current().with_credentials(|who| call(who))
}

/// Returns the open file behind the descriptor `fd` of the calling task.
///
/// # Errors
/// Fails with `EBADF` if `fd` is unused, or if it only names a file (`O_PATH`).
#[inline(always)]
pub fn file(fd: i32) -> Result<Arc<OpenFile>, Errno> {
    let file = place(fd)?;
    if file.flags().contains(OpenFlags::PATH) {
        return refused(file);
    }
    Ok(file)
}

#[cold]
fn refused(file: Arc<OpenFile>) -> Result<Arc<OpenFile>, Errno> {
    drop(file);
    Err(Errno::EBADF)
}

/// Returns the open file behind the descriptor `fd` of the calling task, also if it only names a
/// file (`O_PATH`).
///
/// # Errors
/// Fails with `EBADF` if `fd` is unused.
#[inline]
pub fn place(fd: i32) -> Result<Arc<OpenFile>, Errno> {
    with_files(|files| files.get(fd))
}

/// Returns the calling process's `RLIMIT_NOFILE`. All descriptors that it opens are below this
/// number.
pub fn descriptor_limit() -> usize {
    let limit = process::current().process().limit(limits::index::NOFILE);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Gives `file` the lowest free descriptor of the calling task and returns the descriptor.
/// `close_on_exec` says whether exec closes the descriptor.
///
/// # Errors
/// Fails with `EMFILE` if no descriptor is left, and with `ENOMEM`.
pub fn install(file: Arc<OpenFile>, close_on_exec: bool) -> Result<usize, Errno> {
    with_files(|files| files.insert(file, close_on_exec, 0, descriptor_limit()))
}

/// Returns the calling process's `RLIMIT_FSIZE` in bytes, or `None` if there is no limit.
pub fn file_size_limit() -> Option<u64> {
    let limit = process::current().process().limit(limits::index::FSIZE);
    (limit != limits::INFINITY).then_some(limit)
}

/// Returns the number and the real user and group of the calling process. The receiver of a message
/// from the process sees them.
pub fn credentials() -> Credentials {
    let current = process::current();
    Credentials {
        pid: current.process().pid(),
        uid: current.users().real,
        gid: current.groups().real,
    }
}

/// Returns the number and the effective user and group of the calling process.
pub fn acting_credentials() -> Credentials {
    let current = process::current();
    Credentials {
        pid: current.process().pid(),
        uid: current.users().effective,
        gid: current.groups().effective,
    }
}

/// Returns the IDs of the user and of the group that own the files that the calling task creates.
pub fn file_owner() -> [u32; 2] {
    with_credentials(|who| [who.users.file, who.groups.file])
}

/// Checks that the calling task may inspect `process`. A task may always inspect its own process.
/// It may inspect another one if it has `CAP_SYS_PTRACE`, or if `process` is dumpable and has the
/// IDs of the task and no capability that the task lacks. `how` selects the IDs and capabilities of
/// the task that count.
///
/// # Errors
/// Fails with `EPERM` if the task may not inspect `process`.
pub fn look_into(process: &Process, how: LooksAs) -> Result<(), Errno> {
    let current = process::current();
    if core::ptr::eq(Arc::as_ptr(current.process()), process) {
        return Ok(());
    }
    let other = process.credentials();
    if with_credentials(|own| own.may_look_into(&other, process.is_dumpable(), how)) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Returns the address space of `process` if the calling task may inspect the process. `how` is
/// that of [`look_into`].
///
/// # Errors
/// Fails with `EPERM` if the task may not inspect `process`, and with `ESRCH` if the process has no
/// user memory.
pub fn space_of(process: &Process, how: LooksAs) -> Result<Arc<AddressSpace>, Errno> {
    loop {
        let space = process.vm().ok_or(Errno::ESRCH)?;
        look_into(process, how)?;
        // An exec in between may have given the process other credentials, so check again.
        let now = process.vm().ok_or(Errno::ESRCH)?;
        if Arc::ptr_eq(&space, &now) {
            return Ok(space);
        }
    }
}

/// Checks that the calling task has the effective capability `capability`.
///
/// # Errors
/// Fails with `EPERM` if the task does not have it.
pub fn need(capability: Capabilities) -> Result<(), Errno> {
    with_credentials(|who| who.need(capability))
}

/// Returns whether the calling task has the effective capability `capability`.
pub fn can(capability: Capabilities) -> bool {
    with_credentials(|who| who.can(capability))
}
