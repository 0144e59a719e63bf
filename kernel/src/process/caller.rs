//! What a call needs of the task that made it.

use super::task::{Process, limits};
use crate::fs::{Context, FileTable, OpenFile, OpenFlags};
use crate::process;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use logic::credentials::Capabilities;
use logic::credentials::others::LooksAs;
use logic::errno::Errno;
use logic::socket::control::Credentials;

/// The calling task's descriptors.
pub fn files() -> Arc<FileTable> {
    process::current().files().clone()
}

/// Does something with the calling task's descriptors, without a count that its other threads would
/// share. The task does not change to another table meanwhile.
#[inline]
pub fn with_files<R>(call: impl FnOnce(&FileTable) -> R) -> R {
    call(process::current().files())
}

/// Where the calling task stands in the tree.
pub fn context() -> Arc<Context> {
    process::current().fs().clone()
}

/// The open file behind a descriptor of the calling task, for what it holds: one that only names a
/// place (`O_PATH`) gives `EBADF`.
#[inline]
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

/// The same for where it is in the tree, which one with `O_PATH` tells, too.
#[inline]
pub fn place(fd: i32) -> Result<Arc<OpenFile>, Errno> {
    process::current().files().get(fd)
}

/// One more than the highest descriptor that the calling process may have (`RLIMIT_NOFILE`).
pub fn descriptor_limit() -> usize {
    let limit = process::current().process().limit(limits::index::NOFILE);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Gives `file` the lowest free descriptor of the calling task.
pub fn install(file: Arc<OpenFile>, close_on_exec: bool) -> Result<usize, Errno> {
    with_files(|files| files.insert(file, close_on_exec, 0, descriptor_limit()))
}

/// The calling process's `RLIMIT_FSIZE`, if it has one.
pub fn file_size_limit() -> Option<u64> {
    let limit = process::current().process().limit(limits::index::FSIZE);
    (limit != limits::INFINITY).then_some(limit)
}

/// Who the calling process is, for whom it sends something to.
pub fn credentials() -> Credentials {
    let current = process::current();
    let who = current.credentials();
    Credentials {
        pid: current.process().pid(),
        uid: who.users.real,
        gid: who.groups.real,
    }
}

/// The same by as whom it acts.
pub fn acting_credentials() -> Credentials {
    let current = process::current();
    let who = current.credentials();
    Credentials {
        pid: current.process().pid(),
        uid: who.users.effective,
        gid: who.groups.effective,
    }
}

/// To whom what the calling task makes belongs: user and group.
pub fn file_owner() -> [u32; 2] {
    let current = process::current();
    let who = current.credentials();
    [who.users.file, who.groups.file]
}

/// Whether the calling task may look into another process.
///
/// # Errors
/// `EPERM`.
pub fn look_into(process: &Process, how: LooksAs) -> Result<(), Errno> {
    let current = process::current();
    if core::ptr::eq(Arc::as_ptr(current.process()), process) {
        return Ok(());
    }
    let (own, other) = (current.credentials(), process.credentials());
    if own.may_look_into(&other, process.is_dumpable(), how) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// The memory of a process that the calling task may look into.
///
/// # Errors
/// `EPERM`; `ESRCH`: it has none.
pub fn space_of(process: &Process, how: LooksAs) -> Result<Arc<AddressSpace>, Errno> {
    loop {
        let space = process.vm().ok_or(Errno::ESRCH)?;
        look_into(process, how)?;
        // Another program, which it may not look into, may have come in between.
        let now = process.vm().ok_or(Errno::ESRCH)?;
        if Arc::ptr_eq(&space, &now) {
            return Ok(space);
        }
    }
}

/// `EPERM` unless the calling task has a capability in force.
///
/// # Errors
/// That.
pub fn need(capability: Capabilities) -> Result<(), Errno> {
    process::current().credentials().need(capability)
}

/// Whether the calling task has a capability in force.
pub fn can(capability: Capabilities) -> bool {
    process::current().credentials().can(capability)
}
