//! `signalfd(2)`.

use super::Args;
use crate::fs::{FileKind, OpenFlags, anonymous};
use crate::process::caller;
use crate::process::signal::{self, SignalFile};
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};

fn make(a: &Args, flags: u32) -> SysResult {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NONBLOCK;
    let flags = OpenFlags::from_bits(flags)
        .filter(|flags| known.contains(*flags))
        .ok_or(Errno::EINVAL)?;
    let wanted = signal::read_set(a.addr(1), a.size(2))?;
    if a.int(0) != -1 {
        let file = caller::file(a.int(0))?;
        file.file()
            .downcast::<SignalFile>()
            .ok_or(Errno::EINVAL)?
            .set(wanted);
        return usize::try_from(a.int(0)).map_err(|_| Errno::EBADF);
    }
    let open = (flags & OpenFlags::NONBLOCK) | OpenFlags::READ_WRITE;
    let file = Arc::new(SignalFile::new(wanted));
    let file = anonymous::open(file, FileKind::Anonymous, "signalfd", open);
    caller::install(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// `signalfd(2)`, without flags.
pub fn signalfd(a: &Args) -> SysResult {
    make(a, 0)
}

/// `signalfd4(2)`.
pub fn signalfd4(a: &Args) -> SysResult {
    make(a, a.uint(3))
}
