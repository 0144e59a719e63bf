//! What a call needs of the process that made it.

use super::{Context, FileTable, OpenFile};
use crate::errno::Errno;
use alloc::sync::Arc;

/// The calling process's descriptors.
pub fn files() -> Result<Arc<FileTable>, Errno> {
    Err(Errno::EBADF)
}

/// Where the calling process stands in the tree.
pub fn context() -> Result<Arc<Context>, Errno> {
    Err(Errno::ENOENT)
}

/// The open file behind a descriptor of the calling process.
pub fn file(fd: i32) -> Result<Arc<OpenFile>, Errno> {
    files()?.get(fd)
}

/// One more than the highest descriptor that the calling process may have (`RLIMIT_NOFILE`).
pub fn descriptor_limit() -> usize {
    1024
}

/// Gives `file` the lowest free descriptor of the calling process.
pub fn install(file: Arc<OpenFile>, close_on_exec: bool) -> Result<usize, Errno> {
    files()?.insert(file, close_on_exec, 0, descriptor_limit())
}

/// The calling process's `RLIMIT_FSIZE`, if it has one.
pub(super) fn file_size_limit() -> Option<u64> {
    None
}

/// Tells the calling task that its file grew too large (`SIGXFSZ`).
pub(super) fn file_too_large() {}

/// Tells the calling task that nobody reads what it writes (`SIGPIPE`).
pub(super) fn broken_pipe() {}

/// Blocks the signals in the set at `address` until the call ends.
pub fn block_signals_for_call(address: u64, size: usize) -> Result<(), Errno> {
    let _ = (address, size);
    Ok(())
}
