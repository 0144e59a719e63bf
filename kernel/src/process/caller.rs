//! What a call needs of the task that made it.

use super::task::limits;
use crate::fs::{Context, FileTable, OpenFile, OpenFlags};
use crate::process;
use alloc::sync::Arc;
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
    let process = current.process();
    let credentials = process.credentials();
    Credentials {
        pid: process.pid(),
        uid: credentials.uid[0],
        gid: credentials.gid[0],
    }
}
