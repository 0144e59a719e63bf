//! What a call needs of the task that made it.

use super::{Context, FileTable, OpenFile};
use crate::errno::Errno;
use crate::sched;
use crate::signal::{self, SigSet, Signal};
use crate::task::limits;
use alloc::sync::Arc;

/// The calling task's descriptors.
pub fn files() -> Arc<FileTable> {
    sched::current().files().clone()
}

/// Where the calling task stands in the tree.
pub fn context() -> Arc<Context> {
    sched::current().fs().clone()
}

/// The open file behind a descriptor of the calling task.
pub fn file(fd: i32) -> Result<Arc<OpenFile>, Errno> {
    sched::current().files().get(fd)
}

/// One more than the highest descriptor that the calling process may have (`RLIMIT_NOFILE`).
pub fn descriptor_limit() -> usize {
    let limit = sched::current().process().limit(limits::index::NOFILE);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Gives `file` the lowest free descriptor of the calling task.
pub fn install(file: Arc<OpenFile>, close_on_exec: bool) -> Result<usize, Errno> {
    files().insert(file, close_on_exec, 0, descriptor_limit())
}

/// The calling process's `RLIMIT_FSIZE`, if it has one.
pub(super) fn file_size_limit() -> Option<u64> {
    if !sched::started() {
        return None;
    }
    let limit = sched::current().process().limit(limits::index::FSIZE);
    (limit != limits::INFINITY).then_some(limit)
}

/// Tells the calling task that its file grew too large (`SIGXFSZ`).
pub(super) fn file_too_large() {
    signal::raise(Signal::SIGXFSZ);
}

/// Tells the calling task that nobody reads what it writes (`SIGPIPE`).
pub(super) fn broken_pipe() {
    signal::raise(Signal::SIGPIPE);
}

/// Blocks the signals in the set of `size` bytes at `address` until the call ends.
pub fn block_signals_for_call(address: u64, size: usize) -> Result<(), Errno> {
    signal::set_temporary_mask(SigSet::from_user(address, size)?);
    Ok(())
}
