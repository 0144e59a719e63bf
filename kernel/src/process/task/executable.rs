//! Which files may be run.

use crate::fs::volume::MountFlags;
use crate::fs::watch::Events;
use crate::fs::{self, FileKind, NodeRef, OpenFile, OpenFlags, lookup, permission};
use alloc::sync::Arc;
use logic::credentials::{Credentials, Wanted};
use logic::errno::Errno;

/// Opens a file to run it.
pub(super) fn open(
    context: &fs::Context,
    who: &Credentials,
    path: &[u8],
) -> Result<Arc<OpenFile>, Errno> {
    open_at(context, who, context.cwd(), path, OpenFlags::empty())
}

/// Opens it from a directory.
pub(crate) fn open_at(
    context: &fs::Context,
    who: &Credentials,
    start: NodeRef,
    path: &[u8],
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    lookup::open_to_execute(context, who, start, path, flags, |node| check(who, node))
}

/// Whether a file may be run.
pub(super) fn check(who: &Credentials, node: &NodeRef) -> Result<(), Errno> {
    let mount = node.fs_stats().flags;
    let forbidden = mount & MountFlags::NO_EXECUTION.bits() != 0;
    if node.kind() != FileKind::Regular || forbidden {
        return Err(Errno::EACCES);
    }
    permission::check(who, &**node, Wanted::EXECUTE)
}

/// Opens the file behind a descriptor once more, to run it; the descriptor's may only name it.
///
/// # Errors
/// `ELOOP` for a symbolic link, `EACCES` where it may not be run; what opening it gives.
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
