//! pidfd: a process that is named by a descriptor, so that no other can take its place.

use super::task::{Process, table};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{File, FileKind, OpenFile, OpenFlags, anonymous};
use alloc::sync::Arc;
use core::fmt::{self, Write};
use logic::errno::Errno;

/// A pidfd's file.
#[derive(Debug)]
pub struct PidFile {
    process: Arc<Process>,
}

/// Whether the process has its number still: nobody has waited for it.
pub fn is_known(process: &Arc<Process>) -> bool {
    let table = table::lock();
    table
        .process(process.pid())
        .is_some_and(|known| Arc::ptr_eq(known, process))
}

/// A descriptor's file for `process`.
pub fn open(process: Arc<Process>, nonblocking: bool) -> Arc<OpenFile> {
    let mut flags = OpenFlags::READ_WRITE;
    flags.set(OpenFlags::NONBLOCK, nonblocking);
    let file = Arc::new(PidFile { process });
    anonymous::open(file, FileKind::Anonymous, "pidfd", flags)
}

/// The process that a pidfd is about.
///
/// # Errors
/// `EBADF` if it is none.
pub fn process_of(file: &OpenFile) -> Result<Arc<Process>, Errno> {
    let file = file.file().downcast::<PidFile>().ok_or(Errno::EBADF)?;
    Ok(file.process.clone())
}

impl File for PidFile {
    /// It can be read when all threads have ended, whether somebody has waited for that or not.
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
