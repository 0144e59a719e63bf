//! Files that show a process's address space (`mem`, `pagemap`). Only their owner may open them. An
//! open file keeps showing the address space that the process had at the time of `open`.

use super::super::subject::Subject;
use crate::fs::file::File;
use crate::fs::flags::{FileKind, OpenFlags};
use crate::fs::node::{FsStats, Metadata, Node, NodeId, NodeRef};
use crate::fs::synthetic::Synthetic;
use crate::vm::AddressSpace;
use alloc::sync::{Arc, Weak};
use logic::errno::Errno;

/// Opens a file on an address space. The reference is empty if the process has no address space any
/// more.
type Open = fn(Weak<AddressSpace>, OpenFlags) -> Result<Arc<dyn File>, Errno>;

/// The description of a file that shows an address space, the same for all processes.
pub(super) struct Kind {
    /// The name of the file in the directory of a process or thread.
    pub(super) name: &'static str,
    /// The number of the file among the files of a process.
    pub(super) file: u64,
    pub(super) permissions: u32,
    pub(super) open: Open,
}

struct SpaceFile {
    fs: Arc<Synthetic>,
    subject: Subject,
    kind: &'static Kind,
}

/// Returns the node of the file `kind` in the directory of `subject`. Opening the file fails with
/// the errors of [`Subject::open_space`] and of the open function of `kind`.
pub(super) fn node(fs: &Arc<Synthetic>, subject: Subject, kind: &'static Kind) -> NodeRef {
    Arc::new(SpaceFile {
        fs: fs.clone(),
        subject,
        kind,
    })
}

impl Node for SpaceFile {
    fn id(&self) -> NodeId {
        self.fs.id(self.subject.inode(self.kind.file))
    }
    fn kind(&self) -> FileKind {
        FileKind::Regular
    }
    fn metadata(&self) -> Metadata {
        let owner = self.subject.owner(false);
        let inode = self.id().inode;
        self.fs
            .metadata_of(inode, FileKind::Regular, self.kind.permissions, owner)
    }
    fn fs_stats(&self) -> FsStats {
        self.fs.stats()
    }
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        (self.kind.open)(self.subject.open_space()?, flags)
    }
}
