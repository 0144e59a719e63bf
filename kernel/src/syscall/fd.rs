//! Calls on file descriptors.

use super::Args;
use super::lock;
use super::owner;
use crate::fs::node::downcast;
use crate::fs::pipe::PipeEnd;
use crate::fs::table::MAX_DESCRIPTORS;
use crate::fs::tmpfs::TmpNode;
use crate::fs::{FileKind, OpenFile, OpenFlags};
use crate::process::caller;
use alloc::sync::Arc;
use linux_raw_sys::general::{
    F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFD, F_GETFL, F_GETLK, F_GETPIPE_SZ,
    F_NOTIFY, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SEAL_FUTURE_WRITE, F_SEAL_GROW,
    F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, F_SETFD, F_SETFL, F_SETLK, F_SETLKW, F_SETPIPE_SZ,
    FD_CLOEXEC,
};
use linux_raw_sys::ioctl::{FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD};
use logic::errno::{Errno, SysResult};
use logic::own::Token;
use machine::uaccess;

/// `CLOSE_RANGE_UNSHARE`: give the task a separate table of descriptors first.
const CLOSE_RANGE_UNSHARE: u32 = 2;
/// `CLOSE_RANGE_CLOEXEC`: mark instead of closing.
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// Adds a descriptor of at least `minimum` for the file behind `fd`. Returns the descriptor. Fails
/// with `EBADF`, `EMFILE` and `ENOMEM` as `dup(2)` does.
fn duplicate(fd: i32, minimum: usize, close_on_exec: bool) -> SysResult {
    caller::with_files(|files| {
        files.duplicate(fd, close_on_exec, minimum, caller::descriptor_limit())
    })
}

/// `dup(2)`.
pub fn dup(a: &Args) -> SysResult {
    duplicate(a.int(0), 0, false)
}

fn duplicate_to(from: i32, to: i32, close_on_exec: bool) -> SysResult {
    let files = caller::files();
    let file = files.get(from)?;
    files.replace(to, file, close_on_exec, caller::descriptor_limit())?;
    usize::try_from(to).map_err(|_| Errno::EBADF)
}

/// `dup2(2)`.
pub fn dup2(a: &Args) -> SysResult {
    let (from, to) = (a.int(0), a.int(1));
    if from == to {
        caller::place(from)?;
        return usize::try_from(to).map_err(|_| Errno::EBADF);
    }
    duplicate_to(from, to, false)
}

/// `dup3(2)`.
pub fn dup3(a: &Args) -> SysResult {
    let flags = a.uint(2);
    if flags & !OpenFlags::CLOSE_ON_EXEC.bits() != 0 || a.int(0) == a.int(1) {
        return Err(Errno::EINVAL);
    }
    duplicate_to(a.int(0), a.int(1), flags != 0)
}

/// `close(2)`.
pub fn close(a: &Args) -> SysResult {
    caller::with_files(|files| files.close(a.int(0)))?;
    Ok(0)
}

/// `close_range(2)`.
pub fn close_range(a: &Args, token: &mut Token) -> SysResult {
    let (first, last, flags) = (a.uint(0), a.uint(1), a.uint(2));
    if first > last || flags & !(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE) != 0 {
        return Err(Errno::EINVAL);
    }
    let highest = |fd: u32| i32::try_from(fd).unwrap_or(i32::MAX);
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        super::process::unshare_files(token)?;
    }
    let files = caller::files();
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        files.mark_range(highest(first), highest(last));
    } else {
        files.close_range(highest(first), highest(last));
    }
    Ok(0)
}

fn sealable(file: &OpenFile) -> Result<Arc<TmpNode>, Errno> {
    downcast::<TmpNode>(file.node().clone()).ok_or(Errno::EINVAL)
}

/// `DN_MULTISHOT` of `F_NOTIFY`: report events until the program removes the request.
const DN_MULTISHOT: u32 = 0x8000_0000;

/// `fcntl(2)`.
pub fn fcntl(a: &Args) -> SysResult {
    let (fd, command) = (a.int(0), a.uint(1));
    let files = caller::files();
    let file = files.get(fd)?;
    if file.flags().contains(OpenFlags::PATH)
        && !matches!(
            command,
            F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL
        )
    {
        return Err(Errno::EBADF);
    }
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            let minimum = usize::try_from(a.int(2)).map_err(|_| Errno::EINVAL)?;
            if minimum >= caller::descriptor_limit().min(MAX_DESCRIPTORS) {
                return Err(Errno::EINVAL);
            }
            duplicate(fd, minimum, command == F_DUPFD_CLOEXEC)
        }
        F_GETFD => Ok(usize::from(files.close_on_exec(fd)?)),
        F_SETFD => {
            files.set_close_on_exec(fd, a.uint(2) & FD_CLOEXEC != 0)?;
            Ok(0)
        }
        F_GETFL => Ok(file.flags().bits() as usize),
        F_SETFL => {
            let new = OpenFlags::from_user(a.0[2]) - file.flags();
            if new.contains(OpenFlags::NO_ATIME)
                && !caller::with_credentials(|who| who.owns(&file.node().owned()))
            {
                return Err(Errno::EPERM);
            }
            let asked = OpenFlags::from_user(a.0[2]);
            // Files without signals ignore the flag.
            file.set_async(fd, asked.contains(OpenFlags::ASYNC), owner::users())?;
            file.set_flags(asked);
            Ok(0)
        }
        F_GETLK | F_OFD_GETLK => lock::get(&files, &file, command, a.addr(2)),
        F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => {
            lock::set(&files, fd, &file, command, a.addr(2))
        }
        // Events of directories are not supported. A call that requests none succeeds.
        F_NOTIFY if a.uint(2) & !DN_MULTISHOT == 0 => Ok(0),
        F_GETPIPE_SZ => Ok(file
            .file()
            .downcast::<PipeEnd>()
            .ok_or(Errno::EBADF)?
            .capacity()),
        F_SETPIPE_SZ => {
            let pipe = file.file().downcast::<PipeEnd>().ok_or(Errno::EBADF)?;
            pipe.pipe()
                .set_capacity(a.uint(2).into(), super::pipe::maker())
        }
        F_GET_SEALS => {
            let seals = sealable(&file)?.seals()?;
            Ok(seals as usize)
        }
        F_ADD_SEALS => {
            let known =
                F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
            if a.uint(2) & !known != 0 {
                return Err(Errno::EINVAL);
            }
            if !file.flags().writable() {
                return Err(Errno::EPERM);
            }
            sealable(&file)?.add_seals(a.uint(2))?;
            Ok(0)
        }
        _ => owner::fcntl(&file, command, a).unwrap_or(Err(Errno::EINVAL)),
    }
}

/// `ioctl(2)`.
pub fn ioctl(a: &Args) -> SysResult {
    let (fd, command, argument) = (a.int(0), a.uint(1), a.addr(2));
    let files = caller::files();
    let file = files.get(fd)?;
    if file.flags().contains(OpenFlags::PATH) {
        return Err(Errno::EBADF);
    }
    match command {
        FIOCLEX | FIONCLEX => {
            files.set_close_on_exec(fd, command == FIOCLEX)?;
            Ok(0)
        }
        FIONBIO => {
            let mut on = [0; 4];
            uaccess::copy_in(&mut on, argument)?;
            let mut flags = file.flags();
            flags.set(OpenFlags::NONBLOCK, on != [0; 4]);
            file.set_flags(flags);
            Ok(0)
        }
        FIOASYNC => {
            let mut on = [0; 4];
            uaccess::copy_in(&mut on, argument)?;
            if file.set_async(fd, on != [0; 4], owner::users())? {
                Ok(0)
            } else {
                Err(Errno::ENOTTY)
            }
        }
        owner::FIOSETOWN | owner::SIOCSPGRP if file.node().kind() == FileKind::Socket => {
            let mut number = [0; 4];
            uaccess::copy_in(&mut number, argument)?;
            owner::set(&file, i32::from_ne_bytes(number))?;
            Ok(0)
        }
        owner::FIOGETOWN | owner::SIOCGPGRP if file.node().kind() == FileKind::Socket => {
            uaccess::copy_out(argument, &owner::get(&file).to_ne_bytes())?;
            Ok(0)
        }
        FIONREAD if file.node().kind() == FileKind::Regular => {
            let left = file.metadata().size.saturating_sub(file.offset());
            let left = i32::try_from(left).unwrap_or(i32::MAX);
            uaccess::copy_out(argument, &left.to_le_bytes())?;
            Ok(0)
        }
        _ => file.file().ioctl(command, argument),
    }
}
