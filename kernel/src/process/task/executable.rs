//! Which files may be run.

use crate::fs::volume::MountFlags;
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
pub(crate) fn check(who: &Credentials, node: &NodeRef) -> Result<(), Errno> {
    let mount = node.fs_stats().flags;
    let forbidden = mount & MountFlags::NO_EXECUTION.bits() != 0;
    if node.kind() != FileKind::Regular || forbidden {
        return Err(Errno::EACCES);
    }
    permission::check(who, &**node, Wanted::EXECUTE)
}
