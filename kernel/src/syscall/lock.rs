//! Locks of files: the lock commands of `fcntl(2)`, and `flock(2)`.

use super::Args;
use super::record::Flock;
use crate::fs::locks::{self, Holder};
use crate::fs::{FileTable, OpenFile};
use crate::process;
use crate::process::caller;
use alloc::sync::Arc;
use linux_raw_sys::general::{
    F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETLKW, F_UNLCK, F_WRLCK, LOCK_EX,
    LOCK_MAND, LOCK_NB, LOCK_SH, LOCK_UN, SEEK_CUR, SEEK_END, SEEK_SET,
};
use logic::errno::{Errno, SysResult};
use logic::locks::ranges::{Kind, LAST_BYTE, Span, SpanError};
use machine::uaccess::UserPtr;

impl Flock {
    /// Returns the kind of the lock, or `None` for an unlock. Fails with `EINVAL` if it is unknown.
    fn kind(&self) -> Result<Option<Kind>, Errno> {
        match u32::from(self.kind) {
            F_RDLCK => Ok(Some(Kind::Shared)),
            F_WRLCK => Ok(Some(Kind::Exclusive)),
            F_UNLCK => Ok(None),
            _ => Err(Errno::EINVAL),
        }
    }

    fn set_kind(&mut self, kind: Option<Kind>) {
        let number = match kind {
            Some(Kind::Shared) => F_RDLCK,
            Some(Kind::Exclusive) => F_WRLCK,
            None => F_UNLCK,
        };
        // The constants are below 3.
        self.kind = u16::try_from(number).unwrap_or_default();
    }

    /// Returns the bytes of `file` that the lock covers.
    ///
    /// # Errors
    /// Fails with `EINVAL` if they start before the file, and with `EOVERFLOW` if they end beyond
    /// the last byte that a file can have.
    fn span(&self, file: &OpenFile) -> Result<Span, Errno> {
        let base = match u32::from(self.whence) {
            SEEK_SET => 0,
            SEEK_CUR => file.offset(),
            SEEK_END => file.metadata().size,
            _ => return Err(Errno::EINVAL),
        };
        Span::relative(base.min(LAST_BYTE), self.start, self.length).map_err(|error| match error {
            SpanError::BeforeStart => Errno::EINVAL,
            SpanError::BeyondEnd => Errno::EOVERFLOW,
        })
    }

    /// Checks that the number of the process is 0 for a lock of an open file, which has no process.
    /// Fails with `EINVAL` otherwise.
    fn check_pid(&self, holder: Holder<'_>) -> Result<(), Errno> {
        if holder.files.is_none() && self.pid != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}

fn holder(files: &FileTable, command: u32) -> Holder<'_> {
    let of_file = matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
    Holder {
        pid: process::current().process().pid(),
        files: (!of_file).then_some(files),
    }
}

/// Finds a lock that conflicts with the `struct flock` at `address`, and writes it there
/// (`F_GETLK`, `F_OFD_GETLK`). If no lock conflicts, writes only the type `F_UNLCK`. Returns 0.
///
/// # Errors
/// Fails with `EINVAL`, `EOVERFLOW` or `EFAULT` if the structure is invalid.
pub(super) fn get(files: &FileTable, file: &OpenFile, command: u32, address: u64) -> SysResult {
    let mut lock = UserPtr::<Flock>::new(address).read()?;
    let holder = holder(files, command);
    let kind = lock.kind()?.ok_or(Errno::EINVAL)?;
    let span = lock.span(file)?;
    lock.check_pid(holder)?;
    let blocker = locks::blocker(file, holder, span, kind);
    lock.set_kind(blocker.map(|(_, held)| held.kind));
    if let Some((pid, held)) = blocker {
        lock.whence = 0;
        lock.start = held.span.first.cast_signed();
        lock.length = held.span.length().cast_signed();
        // -1 for a lock of an open file.
        lock.pid = pid.map_or(-1, u32::cast_signed);
    }
    UserPtr::new(address).write(&lock)?;
    Ok(0)
}

/// Locks or unlocks the bytes of a file in the `struct flock` at `address` (`F_SETLK`, `F_SETLKW`,
/// `F_OFD_SETLK`, `F_OFD_SETLKW`). `fd` is the descriptor of `file`. Returns 0.
///
/// # Errors
/// Fails with `EINVAL`, `EOVERFLOW` or `EFAULT` if the structure is invalid. Fails with `EBADF` if
/// the file is not open for the access that the lock needs, or if another thread closes `fd`. Fails
/// as [`locks::lock_span`] does.
pub(super) fn set(
    files: &FileTable,
    fd: i32,
    file: &Arc<OpenFile>,
    command: u32,
    address: u64,
) -> SysResult {
    let lock = UserPtr::<Flock>::new(address).read()?;
    let holder = holder(files, command);
    let span = lock.span(file)?;
    let kind = lock.kind()?;
    let allowed = match kind {
        Some(Kind::Shared) => file.flags().readable(),
        Some(Kind::Exclusive) => file.flags().writable(),
        None => true,
    };
    if !allowed {
        return Err(Errno::EBADF);
    }
    lock.check_pid(holder)?;
    let wait = matches!(command, F_SETLKW | F_OFD_SETLKW);
    locks::lock_span(file, holder, span, kind, wait)?;
    if kind.is_some() && holder.files.is_some() {
        // Another thread may have closed the file in between, too early to find the lock.
        let still_open = files.get(fd).is_ok_and(|now| Arc::ptr_eq(&now, file));
        if !still_open {
            locks::lock_span(file, holder, span, None, false)?;
            return Err(Errno::EBADF);
        }
    }
    Ok(0)
}

/// `flock(2)`.
pub fn flock(a: &Args) -> SysResult {
    let operation = a.uint(1);
    if operation & LOCK_MAND != 0 {
        // As on Linux, which has no mandatory locks any more: accepted without further checks.
        return Ok(0);
    }
    let kind = match operation & !LOCK_NB {
        LOCK_SH => Some(Kind::Shared),
        LOCK_EX => Some(Kind::Exclusive),
        LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    let file = caller::file(a.int(0))?;
    let flags = file.flags();
    let opened = flags.readable() || flags.writable();
    if kind.is_some() && !opened {
        return Err(Errno::EBADF);
    }
    let pid = process::current().process().pid();
    locks::lock_whole(&file, pid, kind, operation & LOCK_NB == 0)?;
    Ok(0)
}
