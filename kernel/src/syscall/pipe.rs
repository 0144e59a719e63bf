//! Pipes, and calls that return two descriptors.

use super::Args;
use crate::fs::pipe::quota::Maker;
use crate::fs::{OpenFile, OpenFlags, pipe as pipes};
use crate::process::caller;
use alloc::sync::Arc;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::uaccess;

/// Gives two files descriptors, and writes the two numbers to `address`. Returns 0.
///
/// # Errors
/// Fails with `EMFILE`, `ENOMEM` or `EFAULT`. No descriptor stays open then.
pub(super) fn install_pair(
    files: [Arc<OpenFile>; 2],
    close_on_exec: bool,
    address: u64,
) -> SysResult {
    let table = caller::files();
    let [first, second] = files;
    let first = caller::install(first, close_on_exec)?;
    let numbers = caller::install(second, close_on_exec).and_then(|second| {
        let numbers = [first, second].map(|fd| i32::try_from(fd).unwrap_or(-1));
        let [a, b] = numbers.map(i32::to_le_bytes);
        let written = uaccess::copy_out(address, &[a, b].concat());
        if written.is_err() {
            let _ = table.close(numbers[1]);
        }
        written
    });
    if let Err(error) = numbers {
        let _ = table.close(i32::try_from(first).unwrap_or(-1));
        return Err(error);
    }
    Ok(0)
}

/// Returns the user for whom the calling task creates pipes, and whether the limits of pipes apply
/// to the task.
pub(super) fn maker() -> Maker {
    caller::with_credentials(|who| Maker {
        user: who.users.real,
        size_limited: !who.can(Capabilities::SYS_RESOURCE),
        pages_limited: !who
            .effective
            .meets(Capabilities::SYS_RESOURCE | Capabilities::SYS_ADMIN),
    })
}

fn make_pipe(address: u64, flags: u32) -> SysResult {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NONBLOCK | OpenFlags::DIRECT;
    let flags = OpenFlags::from_bits(flags).filter(|flags| known.contains(*flags));
    let flags = flags.ok_or(Errno::EINVAL)?;
    let (reader, writer) = pipes::pair(flags, caller::file_owner(), maker())?;
    install_pair(
        [reader, writer],
        flags.contains(OpenFlags::CLOSE_ON_EXEC),
        address,
    )
}

/// `pipe(2)`.
pub fn pipe(a: &Args) -> SysResult {
    make_pipe(a.addr(0), 0)
}

/// `pipe2(2)`.
pub fn pipe2(a: &Args) -> SysResult {
    make_pipe(a.addr(0), a.uint(1))
}
