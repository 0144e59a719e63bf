//! Watches on files and directories.

use super::{Args, at};
use crate::fs::inotify::InotifyFile;
use crate::fs::lookup::LastLink;
use crate::fs::permission;
use crate::fs::watch::Events;
use crate::fs::{FileKind, OpenFlags, anonymous};
use crate::process::caller;
use crate::procfs;
use alloc::sync::Arc;
use linux_raw_sys::general::AT_FDCWD;
use logic::credentials::Wanted;
use logic::errno::{Errno, SysResult};

fn make(flags: u32) -> SysResult {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NONBLOCK;
    let flags = OpenFlags::from_bits(flags)
        .filter(|flags| known.contains(*flags))
        .ok_or(Errno::EINVAL)?;
    let file = Arc::new(InotifyFile::new()?);
    let open = flags & OpenFlags::NONBLOCK;
    let file = anonymous::open(file, FileKind::Anonymous, anonymous::INOTIFY, open);
    caller::install(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// `inotify_init(2)`.
pub fn inotify_init(_a: &Args) -> SysResult {
    make(0)
}

/// `inotify_init1(2)`.
pub fn inotify_init1(a: &Args) -> SysResult {
    make(a.uint(0))
}

/// `inotify_add_watch(2)`.
pub fn inotify_add_watch(a: &Args) -> SysResult {
    let asked = Events::from_bits(a.uint(2))
        .filter(|asked| !asked.is_empty())
        .ok_or(Errno::EINVAL)?;
    let file = caller::file(a.int(0))?;
    let inotify = file.file().downcast::<InotifyFile>();
    if asked.contains(Events::MASK_ADD | Events::MASK_CREATE) {
        return Err(Errno::EINVAL);
    }
    let inotify = inotify.ok_or(Errno::EINVAL)?;
    let last_link = if asked.contains(Events::NO_FOLLOW) {
        LastLink::Keep
    } else {
        LastLink::Follow
    };
    let node = at::find(AT_FDCWD, a.addr(1), last_link)?.existing()?;
    if asked.contains(Events::ONLY_DIRECTORY) && node.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    caller::with_credentials(|who| permission::check(who, &*node, Wanted::READ))?;
    if procfs::is_of_process(node.id()) {
        // The inode number would mean another process once this one is gone.
        return Err(Errno::EOPNOTSUPP);
    }
    let number = inotify.add(&node, asked)?;
    usize::try_from(number).map_err(|_| Errno::ENOSPC)
}

/// `inotify_rm_watch(2)`.
pub fn inotify_rm_watch(a: &Args) -> SysResult {
    let file = caller::file(a.int(0))?;
    let inotify = file.file().downcast::<InotifyFile>();
    inotify.ok_or(Errno::EINVAL)?.remove(a.int(1))?;
    Ok(0)
}
