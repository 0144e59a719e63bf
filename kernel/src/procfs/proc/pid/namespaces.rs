//! `/proc/PID/ns`: the namespaces of a process. There is one namespace of each kind, to which all
//! processes belong.

use super::super::subject::Subject;
use crate::fs::devices;
use crate::fs::file::File;
use crate::fs::flags::{FileKind, OpenFlags};
use crate::fs::node::{FsStats, LinkTarget, Metadata, Node, NodeId, NodeRef, Timestamp};
use crate::fs::synthetic::{LinkNode, Synthetic, Target};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::Errno;

/// A link in `/proc/PID/ns`: its name, the type of the namespace, and the inode number of the only
/// namespace of that type. Linux's initial namespace has the same number.
type Kind = (&'static str, &'static str, u64);

/// The links in `/proc/PID/ns`, in Linux's order. Each has its name, the type in the name of its
/// target, such as `net` in `net:[4026531840]`, and the inode number of the target.
pub(super) const KINDS: [Kind; 9] = [
    ("net", "net", 4_026_531_840),
    ("uts", "uts", 4_026_531_838),
    ("ipc", "ipc", 4_026_531_839),
    ("pid", "pid", 4_026_531_836),
    ("pid_for_children", "pid", 4_026_531_836),
    ("user", "user", 4_026_531_837),
    ("mnt", "mnt", 4_026_531_841),
    ("time", "time", 4_026_531_834),
    ("time_for_children", "time", 4_026_531_834),
];

/// Linux's magic number of the file system of namespaces.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// A namespace as a file, which can be opened and compared, and nothing else.
struct Namespace {
    name: &'static str,
    inode: u64,
}

struct Opened;

impl File for Opened {}

impl Node for Namespace {
    fn id(&self) -> NodeId {
        NodeId {
            device: devices::NAMESPACES,
            inode: self.inode,
        }
    }
    fn kind(&self) -> FileKind {
        FileKind::Regular
    }
    fn metadata(&self) -> Metadata {
        Metadata {
            id: self.id(),
            kind: FileKind::Regular,
            permissions: 0o444,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
        }
    }
    fn fs_stats(&self) -> FsStats {
        FsStats {
            magic: NSFS_MAGIC,
            blocks: 0,
            free_blocks: 0,
            files: 0,
            free_files: 0,
            flags: 0,
        }
    }
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        if flags.writable() {
            return Err(Errno::EPERM);
        }
        Ok(Arc::new(Opened))
    }
    fn label(&self) -> Option<Vec<u8>> {
        Some(format!("{}:[{}]", self.name, self.inode).into_bytes())
    }
}

/// The link to one of a process's namespaces.
struct LinkOf {
    subject: Subject,
    kind: &'static Kind,
}

impl Target for LinkOf {
    fn target(&self) -> Result<LinkTarget, Errno> {
        let process = self.subject.process()?;
        self.subject.check_look()?;
        let &(link, name, inode) = self.kind;
        // A thread that has ended keeps its number and its credentials, and so only these two.
        if !matches!(link, "pid" | "user") && self.subject.has_ended(&process) {
            return Err(Errno::ENOENT);
        }
        Ok(LinkTarget::Node(Arc::new(Namespace { name, inode }), None))
    }
    fn owner(&self) -> [u32; 2] {
        self.subject.owner(false)
    }
}

/// Returns the inode number of the link to the namespace `KINDS[at]`.
pub(super) fn inode(subject: &Subject, at: u64) -> u64 {
    /// Behind the files, links and directories of a process.
    const FIRST: u64 = 0xc1;
    subject.inode(FIRST + at)
}

/// Returns the link `name` in the directory `ns` of `subject`.
///
/// # Errors
/// Fails with `ENOENT` if there is no kind of namespace with this name.
pub(super) fn lookup(
    fs: &Arc<Synthetic>,
    subject: &Subject,
    name: &[u8],
) -> Result<NodeRef, Errno> {
    let mut kinds = (0..).zip(&KINDS);
    let (at, kind) = kinds
        .find(|(_, kind)| kind.0.as_bytes() == name)
        .ok_or(Errno::ENOENT)?;
    let subject = subject.clone();
    let inode = inode(&subject, at);
    Ok(LinkNode::new(fs, inode, LinkOf { subject, kind }))
}
