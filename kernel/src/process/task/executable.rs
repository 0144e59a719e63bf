//! Opens files for execution.

use crate::fs::volume::MountFlags;
use crate::fs::watch::Events;
use crate::fs::{self, FileKind, NodeRef, OpenFile, OpenFlags, lookup, permission};
use alloc::sync::Arc;
use logic::credentials::{Credentials, Wanted};
use logic::errno::Errno;

/// Opens the file at `path` for execution as `who`. A relative path starts at the working directory
/// of `context`.
///
/// # Errors
/// Fails with the errors of [`open_at`].
pub(super) fn open(
    context: &fs::Context,
    who: &Credentials,
    path: &[u8],
) -> Result<Arc<OpenFile>, Errno> {
    open_at(context, who, context.cwd(), path, OpenFlags::empty())
}

/// Opens the file at `path` for execution as `who`. A relative path starts at the directory
/// `start`. Of `flags` only `NO_FOLLOW` has a meaning.
///
/// # Errors
/// Fails with the errors of walking the path, with `ENOENT` if there is no file, with `ELOOP` for a
/// symbolic link, and with `EACCES` if the file may not be executed.
pub(crate) fn open_at(
    context: &fs::Context,
    who: &Credentials,
    start: NodeRef,
    path: &[u8],
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    lookup::open_to_execute(context, who, start, path, flags, |node| check(who, node))
}

/// Checks that `who` may execute the file `node`.
///
/// # Errors
/// Fails with `EACCES` if the file is no regular file, if its mount forbids execution, or if its
/// permissions do.
pub(super) fn check(who: &Credentials, node: &NodeRef) -> Result<(), Errno> {
    let mount = node.fs_stats().flags;
    let forbidden = mount & MountFlags::NO_EXECUTION.bits() != 0;
    if node.kind() != FileKind::Regular || forbidden {
        return Err(Errno::EACCES);
    }
    permission::check(who, &**node, Wanted::EXECUTE)
}

/// Opens the file behind `file` again, for execution as `who`. `file` may be an open file that only
/// names its file (`O_PATH`).
///
/// # Errors
/// Fails with `ELOOP` for a symbolic link, with `EACCES` if the file may not be executed, and with
/// the errors of opening it.
pub(crate) fn open_again(who: &Credentials, file: &OpenFile) -> Result<Arc<OpenFile>, Errno> {
    let node = file.node();
    if node.kind() == FileKind::Symlink {
        return Err(Errno::ELOOP);
    }
    check(who, node)?;
    let again = OpenFile::open(node.clone(), file.place().cloned(), OpenFlags::empty())?;
    again.tell(Events::OPEN);
    Ok(again)
}
