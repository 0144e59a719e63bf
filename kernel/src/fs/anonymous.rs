//! Nodes that are in no directory: pipes, sockets, eventfd, epoll, timerfd and the program's
//! streams.

use super::file::{File, OpenFile};
use super::flags::{FileKind, OpenFlags};
use super::node::{
    AttributeChange, FsStats, Metadata, Node, NodeId, NodeRef, Timestamp, next_anonymous_inode,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use logic::errno::Errno;
use machine::sync::SpinLock;

/// Linux's magic number of the file system of anonymous inodes.
const ANON_INODE_MAGIC: u64 = 0x0904_1934;
/// Linux's magic number of the file system of pipes.
const PIPEFS_MAGIC: u64 = 0x5049_5045;

/// The label of inotify's descriptors, which Linux shows without brackets.
pub const INOTIFY: &str = "inotify";

/// Opens the object behind a node once more, through `/proc/PID/fd`.
type Reopen = Box<dyn Fn(OpenFlags) -> Result<Arc<dyn File>, Errno> + Send + Sync>;

/// Permission bits, user and group.
#[derive(Copy, Clone)]
struct Access {
    permissions: u32,
    uid: u32,
    gid: u32,
}

impl Access {
    const fn of([uid, gid]: [u32; 2], permissions: u32) -> Self {
        Self {
            permissions,
            uid,
            gid,
        }
    }
}

struct Nameless {
    inode: u64,
    kind: FileKind,
    magic: u64,
    /// The name that Linux shows: with the inode number for sockets and pipes, alone for anonymous
    /// inodes.
    label: &'static str,
    made: Timestamp,
    access: SpinLock<Access>,
    /// Linux's name of the protocol, if the node is a socket.
    protocol_name: Option<&'static str>,
    /// Opens the object again. `None` if it cannot be opened again.
    reopen: Option<Reopen>,
}

impl Node for Nameless {
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
        let access = *self.access.lock();
        Metadata {
            id: self.id(),
            kind: self.kind,
            permissions: access.permissions,
            links: 1,
            uid: access.uid,
            gid: access.gid,
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
            magic: self.magic,
            blocks: 0,
            free_blocks: 0,
            files: 0,
            free_files: 0,
            flags: 0,
        }
    }
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        self.reopen.as_ref().ok_or(Errno::ENXIO)?(flags)
    }
    fn change(&self, change: &AttributeChange) -> Result<(), Errno> {
        if self.magic == ANON_INODE_MAGIC {
            return Err(Errno::EPERM);
        }
        let mut access = self.access.lock();
        change.check(access.permissions, access.uid, access.gid)?;
        access.permissions = change.permissions.unwrap_or(access.permissions) & 0o7777;
        access.uid = change.uid.unwrap_or(access.uid);
        access.gid = change.gid.unwrap_or(access.gid);
        Ok(())
    }
    fn protocol_name(&self) -> Option<&'static str> {
        self.protocol_name
    }
    fn label(&self) -> Option<Vec<u8>> {
        Some(match self.kind {
            FileKind::Socket | FileKind::Fifo => {
                format!("{}:[{}]", self.label, self.inode).into_bytes()
            }
            _ if self.label == INOTIFY => b"anon_inode:inotify".to_vec(),
            _ => format!("anon_inode:[{}]", self.label).into_bytes(),
        })
    }
}

impl fmt::Debug for Nameless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nameless")
            .field("inode", &self.inode)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Nameless {
    fn new(
        kind: FileKind,
        magic: u64,
        label: &'static str,
        access: Access,
        reopen: Option<Reopen>,
    ) -> Self {
        Self {
            inode: next_anonymous_inode(),
            kind,
            magic,
            label,
            made: Timestamp::now(),
            access: SpinLock::new(access),
            protocol_name: None,
            reopen,
        }
    }
}

/// Opens `file` with a new node that is in no directory. `label` is the name that `/proc/PID/fd`
/// shows for the node. Returns the open file.
pub fn open(
    file: Arc<dyn File>,
    kind: FileKind,
    label: &'static str,
    flags: OpenFlags,
) -> Arc<OpenFile> {
    let access = Access::of([0; 2], 0o600);
    let node = Nameless::new(kind, ANON_INODE_MAGIC, label, access, None);
    OpenFile::new(Arc::new(node), file, None, flags)
}

/// Opens the socket `file` with a new node that belongs to the user and group `owner`.
/// `protocol_name` is Linux's name of the socket's protocol. Returns the open file.
pub(super) fn open_socket(
    file: Arc<dyn File>,
    flags: OpenFlags,
    owner: [u32; 2],
    protocol_name: &'static str,
) -> Arc<OpenFile> {
    let access = Access::of(owner, 0o777);
    let node = Nameless {
        protocol_name: Some(protocol_name),
        ..Nameless::new(FileKind::Socket, ANON_INODE_MAGIC, "socket", access, None)
    };
    OpenFile::new(Arc::new(node), file, None, flags)
}

/// Returns a new node for a pipe. The node belongs to the user and group `owner`. `reopen` opens
/// the pipe again with given flags, for an open of `/proc/PID/fd/N`.
pub(super) fn pipe_node(
    owner: [u32; 2],
    reopen: impl Fn(OpenFlags) -> Result<Arc<dyn File>, Errno> + Send + Sync + 'static,
) -> NodeRef {
    let access = Access::of(owner, 0o600);
    let reopen: Reopen = Box::new(reopen);
    Arc::new(Nameless::new(
        FileKind::Fifo,
        PIPEFS_MAGIC,
        "pipe",
        access,
        Some(reopen),
    ))
}
