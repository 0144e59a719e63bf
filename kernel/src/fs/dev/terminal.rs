//! `/dev/console`, `/dev/tty` and `/dev/kmsg`.
//!
//! There is no terminal: the program's streams are pipes to the host. The console is the program's
//! standard output and input; the kernel log is written to, not read.

use super::super::file::File;
use super::super::flags::OpenFlags;
use super::super::io::{ByteSink, ByteSource};
use super::super::{poll::PollMask, stdio};
use alloc::string::String;
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};

/// The longest record that is taken at once.
const RECORD: usize = 256;

/// Opens the console.
pub(super) fn open() -> Result<Arc<dyn File>, Errno> {
    Ok(stdio::stream(stdio::Stream::InputOutput))
}

/// Writes to the kernel log.
pub(super) struct KernelLog;

impl File for KernelLog {
    fn read(&self, _: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if flags.nonblocking() {
            return Err(Errno::EAGAIN);
        }
        Ok(0)
    }
    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, _: OpenFlags) -> SysResult {
        let mut record = [0; RECORD];
        let taken = from.take(&mut record)?;
        let text = String::from_utf8_lossy(&record[..taken]);
        machine::console!("{}", text.trim_end());
        Ok(taken + from.skip(from.left()))
    }
    fn poll(&self) -> PollMask {
        PollMask::WRITABLE
    }
}
