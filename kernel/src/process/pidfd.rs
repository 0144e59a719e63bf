//! pidfd: a descriptor that refers to one process, even if the process's number is used again.

use super::task::{Process, table};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{File, FileKind, OpenFile, OpenFlags, anonymous};
use alloc::sync::Arc;
use core::fmt::{self, Write};
use logic::errno::Errno;

/// The file behind a pidfd.
#[derive(Debug)]
pub struct PidFile {
    process: Arc<Process>,
}

/// Returns whether `process` still has its number. It loses the number when a parent waits for its
/// end.
pub fn is_known(process: &Arc<Process>) -> bool {
    let table = table::lock();
    table
        .process(process.pid())
        .is_some_and(|known| Arc::ptr_eq(known, process))
}

/// Returns a new open file of a pidfd that refers to `process`. The caller installs it as a
/// descriptor.
pub fn open(process: Arc<Process>, nonblocking: bool) -> Arc<OpenFile> {
    let mut flags = OpenFlags::READ_WRITE;
    flags.set(OpenFlags::NONBLOCK, nonblocking);
    let file = Arc::new(PidFile { process });
    anonymous::open(file, FileKind::Anonymous, "pidfd", flags)
}

/// Returns the process that the pidfd `file` refers to.
///
/// # Errors
/// Fails with `EBADF` if `file` is no pidfd.
pub fn process_of(file: &OpenFile) -> Result<Arc<Process>, Errno> {
    let file = file.file().downcast::<PidFile>().ok_or(Errno::EBADF)?;
    Ok(file.process.clone())
}

impl File for PidFile {
    /// Returns the readiness: a pidfd is readable once all threads have ended, whether the process
    /// has been waited for or not.
    fn poll(&self) -> PollMask {
        if self.process.is_zombie() {
            PollMask::READABLE
        } else {
            PollMask::empty()
        }
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.process.end_readers())
    }

    fn describe(&self, text: &mut dyn Write) -> fmt::Result {
        let number = if is_known(&self.process) {
            i64::from(self.process.pid())
        } else {
            -1
        };
        writeln!(text, "Pid:\t{number}\nNSpid:\t{number}")
    }
}
