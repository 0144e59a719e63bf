//! The node behind files that have no place in the tree: eventfd, epoll, timerfd, sockets.

use super::file::{File, OpenFile};
use super::flags::{FileKind, OpenFlags};
use super::node::{FsStats, Metadata, Node, NodeId, NodeRef, Timestamp};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::Errno;

/// Linux's magic number of the file system of anonymous inodes.
const ANON_INODE_MAGIC: u64 = 0x0904_1934;

#[derive(Debug)]
struct AnonymousNode {
    inode: u64,
    kind: FileKind,
    label: &'static str,
    made: Timestamp,
}

impl Node for AnonymousNode {
    fn id(&self) -> NodeId {
        NodeId {
            device: super::devices::ANONYMOUS,
            inode: self.inode,
        }
    }
    fn kind(&self) -> FileKind {
        self.kind
    }
    fn metadata(&self) -> Metadata {
        Metadata {
            id: self.id(),
            kind: self.kind,
            permissions: if self.kind == FileKind::Socket {
                0o777
            } else {
                0o600
            },
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            accessed: self.made,
            modified: self.made,
            changed: self.made,
        }
    }
    fn fs_stats(&self) -> FsStats {
        FsStats {
            magic: ANON_INODE_MAGIC,
            blocks: 0,
            free_blocks: 0,
            files: 0,
            free_files: 0,
        }
    }
    fn open(self: Arc<Self>, _: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        Err(Errno::ENXIO)
    }
    fn label(&self) -> Option<Vec<u8>> {
        Some(match self.kind {
            FileKind::Socket => format!("socket:[{}]", self.inode).into_bytes(),
            _ => format!("anon_inode:[{}]", self.label).into_bytes(),
        })
    }
}

/// Wraps `file` in an open file with a node of its own.
pub fn open(
    file: Arc<dyn File>,
    kind: FileKind,
    label: &'static str,
    flags: OpenFlags,
) -> Arc<OpenFile> {
    let inode = super::node::next_anonymous_inode();
    let node: NodeRef = Arc::new(AnonymousNode {
        inode,
        kind,
        label,
        made: Timestamp::now(),
    });
    OpenFile::new(node, file, None, flags)
}
