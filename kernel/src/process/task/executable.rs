//! Which files may be run.

use crate::fs::volume::MountFlags;
use crate::fs::{self, FileKind, OpenFile, OpenFlags};
use alloc::sync::Arc;
use logic::errno::Errno;

/// Opens a file to run it.
pub(super) fn open(context: &fs::Context, path: &[u8]) -> Result<Arc<OpenFile>, Errno> {
    let file = fs::open_path(context, path, OpenFlags::empty(), 0)?;
    check(&file)?;
    Ok(file)
}

/// Whether a file may be run.
pub(crate) fn check(file: &OpenFile) -> Result<(), Errno> {
    let metadata = file.metadata();
    let mount = file.node().fs_stats().flags;
    let forbidden = mount & MountFlags::NO_EXECUTION.bits() != 0;
    if metadata.kind != FileKind::Regular || metadata.mode() & 0o111 == 0 || forbidden {
        return Err(Errno::EACCES);
    }
    Ok(())
}
