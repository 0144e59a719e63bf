//! What stands in the tree: files, directories, links, devices.

use super::devices;
use super::file::{File, Place};
use super::flags::{FileKind, OpenFlags};
use super::xattr;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::attributes::Beginning;
use logic::credentials::{Credentials, Owned, Wanted};
use logic::errno::Errno;
use machine::arch::clock;

/// A counted reference to a node.
pub type NodeRef = Arc<dyn Node>;

/// A point in wall-clock time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

/// A use of a mounted file system: while there is one, it stays mounted and whole.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// What tells a node from every other: equal in two handles exactly if they mean the same file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    /// Device number of the file system.
    pub device: u64,
    /// The number in it.
    pub inode: u64,
}

/// What `stat` tells.
#[derive(Copy, Clone, Debug)]
pub struct Metadata {
    /// Identity.
    pub id: NodeId,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky, below 0o10000.
    pub permissions: u32,
    /// Names that lead here; 0 once the file is deleted.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u64,
    /// Length in bytes.
    pub size: u64,
    /// 512-byte units of memory behind it.
    pub blocks: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the data.
    pub modified: Timestamp,
    /// Last change of the data or the attributes.
    pub changed: Timestamp,
}

impl Metadata {
    /// Whose it is, and who may do what with it.
    pub fn owned(&self) -> Owned {
        Owned {
            directory: self.kind == FileKind::Directory,
            regular: self.kind == FileKind::Regular,
            permissions: self.permissions,
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// `st_mode`: kind and permissions.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Copy, Clone, Debug, Default)]
pub struct AttributeChange {
    /// New permission bits.
    pub permissions: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New access time.
    pub accessed: Option<Timestamp>,
    /// New modification time.
    pub modified: Option<Timestamp>,
    /// What the change was decided by: where that is no longer so, it gets `EAGAIN` and is to be decided again.
    pub decided_by: Option<Owned>,
}

impl AttributeChange {
    /// Whether what it was decided by is still so.
    ///
    /// # Errors
    /// `EAGAIN`.
    pub fn check(&self, permissions: u32, uid: u32, gid: u32) -> Result<(), Errno> {
        let is_so = |seen: Owned| {
            (seen.permissions, seen.uid, seen.gid) == (permissions & 0o7777, uid, gid)
        };
        if self.decided_by.is_none_or(is_so) {
            Ok(())
        } else {
            Err(Errno::EAGAIN)
        }
    }
}

/// Changes attributes by what they are; `decide` is asked again where another was faster.
///
/// # Errors
/// Those of `decide` and of [`Node::change`].
pub fn change_by(
    node: &dyn Node,
    mut decide: impl FnMut(&Owned) -> Result<AttributeChange, Errno>,
) -> Result<(), Errno> {
    loop {
        let owned = node.owned();
        let change = AttributeChange {
            decided_by: Some(owned),
            ..decide(&owned)?
        };
        match node.change(&change) {
            Err(Errno::EAGAIN) => {}
            result => return result,
        }
    }
}

/// What to make in a directory.
#[derive(Copy, Clone, Debug)]
pub enum NewNode<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to this text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A character device of this number.
    Character(u64),
    /// A block device of this number.
    Block(u64),
    /// A socket's name.
    Socket,
}

/// Where a symbolic link leads.
#[derive(Debug)]
pub enum LinkTarget {
    /// A path, relative to the link's directory.
    Path(Vec<u8>),
    /// Straight to a node, whatever its name (`/proc/PID/{exe,cwd,fd/N}`).
    Node(NodeRef, Option<Place>),
}

/// One entry of a directory listing.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode number.
    pub inode: u64,
    /// Kind.
    pub kind: FileKind,
    /// Where a listing goes on after this entry (`d_off`).
    pub next: u64,
}

/// What `statfs` tells of a file system, in units of 4 KiB.
#[derive(Copy, Clone, Debug)]
pub struct FsStats {
    /// Linux's magic number of the type.
    pub magic: u64,
    /// Its size.
    pub blocks: u64,
    /// What is free of it.
    pub free_blocks: u64,
    /// Most files it can hold; 0 when there is no such number.
    pub files: u64,
    /// How many more it can hold.
    pub free_files: u64,
    /// How it is mounted: bits of `MountFlags`.
    pub flags: u32,
}

/// The usual block, in bytes.
pub const BLOCK_SIZE: u32 = 4096;

/// A node of the tree. `Bound` in `bind.rs` passes every method on to the node that a bind mount
/// shows.
pub trait Node: Any + Send + Sync {
    /// Identity.
    fn id(&self) -> NodeId;
    /// Kind; never changes.
    fn kind(&self) -> FileKind;
    /// What `stat` tells.
    fn metadata(&self) -> Metadata;
    /// Whose it is, and who may do what with it.
    fn owned(&self) -> Owned {
        self.metadata().owned()
    }
    /// What `stat` and `statfs` call a block, in bytes.
    fn block_size(&self) -> u32 {
        BLOCK_SIZE
    }
    /// What `statfs` tells of its file system.
    fn fs_stats(&self) -> FsStats;
    /// Opens it. May block (a FIFO waits for its peer), may make a new object.
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno>;

    /// Whether `who` may use it so, by its permission bits or its access list.
    ///
    /// # Errors
    /// Fails with `EACCES` if not.
    fn may(&self, who: &Credentials, wanted: Wanted) -> Result<(), Errno> {
        who.may(wanted, &self.owned())
    }
    /// Gives it an access list and permission bits, or takes the list away. With `default` the list is that for files that are made in
    /// this directory.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if files of its kind have no lists, and as [`Self::change`] and `Extended::set`.
    fn set_list(
        &self,
        _default: bool,
        _list: Option<Box<[u8]>>,
        _change: &AttributeChange,
    ) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Whether it may have access lists.
    fn has_lists(&self) -> bool {
        false
    }
    /// Whether its file system takes changes.
    ///
    /// # Errors
    /// Fails with `EROFS` if it is mounted for reading only.
    fn check_writable(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Changes attributes.
    fn change(&self, _change: &AttributeChange) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    /// Looks at the extended attributes.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: nodes of its kind have none.
    fn extended(&self, _look: &mut dyn FnMut(&xattr::Slot)) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Changes the extended attributes; `change` is quick and drops nothing large.
    ///
    /// # Errors
    /// As for [`Self::extended`]; `EROFS`.
    fn change_extended(&self, _change: &mut dyn FnMut(&mut xattr::Slot)) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Returns Linux's name of a socket's protocol, `None` for a node of another kind.
    fn protocol_name(&self) -> Option<&'static str> {
        None
    }
    /// Takes away what the file says of the capabilities of who runs it (`security.capability`): it is no more the file of which that
    /// was said.
    fn forget_capabilities(&self) {}
    /// Whether its file system has handles for its files.
    fn has_handles(&self) -> bool {
        false
    }
    /// Notes that its number is a handle from now on, by which [`Self::by_handle`] finds it.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if its file system has no handles.
    fn note_handle(&self) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Returns the node of its file system with this number.
    ///
    /// # Errors
    /// Fails with `ESTALE` if there is none, or if its number is no handle.
    fn by_handle(&self, _number: u64) -> Result<NodeRef, Errno> {
        Err(Errno::ESTALE)
    }
    /// Cuts or extends a regular file.
    fn set_size(&self, _size: u64) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// Where a symbolic link leads.
    fn link_target(&self) -> Result<LinkTarget, Errno> {
        Err(Errno::EINVAL)
    }

    /// The entry `name` of a directory.
    fn lookup(&self, _name: &[u8]) -> Result<NodeRef, Errno> {
        Err(Errno::ENOTDIR)
    }
    /// Makes an entry; `EEXIST` if there is one.
    fn create(
        &self,
        _name: &[u8],
        _new: NewNode<'_>,
        _beginning: Beginning,
    ) -> Result<NodeRef, Errno> {
        Err(self.no_changes())
    }
    /// A regular file without a name, in this directory's file system (`O_TMPFILE`).
    fn create_nameless(&self, _beginning: Beginning) -> Result<NodeRef, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Gives `node` a further name.
    fn link(&self, _name: &[u8], _node: &NodeRef) -> Result<(), Errno> {
        Err(self.no_changes())
    }
    /// Takes the name of a file away, which it gives back: the caller lets go of what else it has of it and then calls
    /// [`Self::release_if_last`] on it.
    ///
    /// # Errors
    /// `ESTALE`: another node than `meant` has the name now.
    fn unlink(&self, _name: &[u8], _meant: NodeId) -> Result<NodeRef, Errno> {
        Err(self.no_changes())
    }
    /// Removes an empty directory, which it gives back.
    ///
    /// # Errors
    /// As [`Self::unlink`].
    fn remove_directory(&self, _name: &[u8], _meant: NodeId) -> Result<NodeRef, Errno> {
        Err(self.no_changes())
    }
    /// Moves an entry to `to`/`new_name`, per `how`; what it replaces is the caller's, as in [`Self::unlink`].
    /// `None`: both are names of the same.
    ///
    /// # Errors
    /// `ESTALE`: the names are not of the nodes that are `meant`, the second of which may be none.
    fn rename(
        &self,
        _name: &[u8],
        _to: &NodeRef,
        _new_name: &[u8],
        _how: RenameMode,
        _meant: (NodeId, Option<NodeId>),
    ) -> Result<Option<Renamed>, Errno> {
        Err(self.no_changes())
    }
    /// The directory that this directory is in, or was in when it was removed; `None` for a root,
    /// and once that directory is gone for good.
    fn parent(&self) -> Option<NodeRef> {
        None
    }
    /// Whether this directory was removed from the tree.
    fn is_removed(&self) -> bool {
        false
    }
    /// A directory's own name in its parent; empty for a root.
    fn name(&self) -> Box<[u8]> {
        Box::default()
    }
    /// The root of the file system that is mounted here.
    fn covered_by(&self) -> Option<NodeRef> {
        None
    }
    /// Mounts the file system with root `top` over this directory, or none.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed, `EINVAL` where nothing can be mounted.
    fn cover(&self, _top: Option<NodeRef>) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// Puts the root directory of a file system that can be mounted to its place: as this name in
    /// `above`, or nowhere.
    fn set_place(&self, _above: Option<&NodeRef>, _name: &[u8]) {}
    /// Returns the node that this one shows through a bind mount; `None` if it is seen in the tree
    /// of its own file system.
    fn inner(&self) -> Option<&NodeRef> {
        None
    }
    /// Returns the device number of the mount through which this node is seen: that of its file
    /// system, or one of the bind mount alone. Two nodes have the same one exactly if they are seen
    /// through the same mount.
    fn mount(&self) -> u64 {
        self.id().device
    }
    /// Whether the way up from this directory leads to the root of the mount through which it is
    /// seen. It does not once the directory was moved out of what a bind mount shows.
    fn is_within_mount(&self) -> bool {
        true
    }
    /// Whether entries of this directory, and the directory itself, keep their identity, so that a
    /// bind mount can be on them.
    fn keeps_entries(&self) -> bool {
        false
    }
    /// A use of its mount, where these are counted.
    fn hold(&self) -> Option<Hold> {
        None
    }
    /// A use of its mount by an open file with these flags.
    ///
    /// # Errors
    /// Fails with `EROFS` if the file is to be written and the mount is a bind mount for reading
    /// only.
    fn hold_open(&self, _flags: OpenFlags) -> Result<Option<Hold>, Errno> {
        Ok(self.hold())
    }
    /// Whether its file system was mounted, and nobody uses it any more.
    fn is_unmounted(&self) -> bool {
        false
    }
    /// The file system is unmounted and this was its root: frees what is below it, a little at a
    /// time, where the last drop would do it at once.
    fn dismantle(self: Arc<Self>) {}
    /// Refuses to be opened for writing from now on, as long as it is a running program; `ETXTBSY`
    /// if somebody has it open so.
    fn forbid_writing(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Takes one [`Self::forbid_writing`] back.
    fn permit_writing(&self) {}
    /// An open file of the node is closed for the last time; so many references are those of who calls
    /// and of who knows it anyway. Content that nobody can reach goes in small steps then.
    fn release_if_last(self: Arc<Self>, _holders: usize) {}
    /// How the node is called where it has no path, as `pipe:[7]`.
    fn label(&self) -> Option<Vec<u8>> {
        None
    }
    /// The error for a change to a directory that cannot change, or to what is none.
    #[doc(hidden)]
    fn no_changes(&self) -> Errno {
        if self.kind() == FileKind::Directory {
            Errno::EPERM
        } else {
            Errno::ENOTDIR
        }
    }
}

impl core::fmt::Debug for dyn Node {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id())
            .field("kind", &self.kind())
            .finish()
    }
}

/// What a rename moved.
#[derive(Debug)]
pub struct Renamed {
    /// What has the new name now.
    pub moved: NodeRef,
    /// What had it before; in an exchange it has the old name now.
    pub other: Option<NodeRef>,
}

/// How `rename` treats a name that is taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// `EEXIST`.
    KeepExisting,
    /// The two change places.
    Exchange,
}

/// Returns the node in the tree of its own file system, also where `node` shows it through a bind
/// mount.
pub fn unbound(node: NodeRef) -> NodeRef {
    match node.inner() {
        Some(inner) => inner.clone(),
        None => node,
    }
}

/// The node as the kind that it is, for what only nodes of that kind can do with each other. A node
/// that is seen through a bind mount is the one that it shows.
pub fn downcast<T: Node>(node: NodeRef) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = unbound(node);
    any.downcast().ok()
}

/// Returns the number of the mount through which a node is seen, as programs are told it.
pub fn mount_number(node: &NodeRef) -> u64 {
    devices::parts(node.mount()).1
}

/// Whether two nodes are the same, seen through the same mount.
pub fn same_place(a: &NodeRef, b: &NodeRef) -> bool {
    a.id() == b.id() && a.mount() == b.mount()
}

/// Whether two nodes are seen through the same mount.
pub fn same_mount(a: &NodeRef, b: &NodeRef) -> bool {
    a.mount() == b.mount()
}

/// Whether `above`, the directory above `node`, is in another file system: `node` is the root
/// directory of its own.
pub(super) fn leaves_volume(node: &NodeRef, above: &NodeRef) -> bool {
    above.inner().is_some() || above.id().device != node.id().device
}

/// Lists `.` and `..` of `node`, if `offset` has not passed them; false when `emit` had enough.
pub fn list_dots(
    node: &dyn Node,
    offset: &mut u64,
    emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
) -> bool {
    let own = node.id().inode;
    let above = node.parent().map_or(own, |parent| parent.id().inode);
    for (at, name, inode) in [(0, &b"."[..], own), (1, b"..", above)] {
        if *offset > at {
            continue;
        }
        let entry = DirEntry {
            name,
            inode,
            kind: FileKind::Directory,
            next: at + 1,
        };
        if !emit(&entry) {
            return false;
        }
        *offset = at + 1;
    }
    true
}

/// A number for a node that is in no directory.
pub fn next_anonymous_inode() -> u64 {
    /// netstat does not take what has one digit for a socket.
    const FIRST: u64 = 1000;
    static NEXT_ANONYMOUS: AtomicU64 = AtomicU64::new(FIRST);
    // Relaxed: only the number itself matters.
    NEXT_ANONYMOUS.fetch_add(1, Ordering::Relaxed)
}

impl Timestamp {
    /// The wall clock's time.
    pub fn now() -> Self {
        const SECOND: u64 = 1_000_000_000;
        let nanos = clock::wall_now().0;
        Self {
            seconds: (nanos / SECOND).cast_signed(),
            // A remainder below a billion fits.
            nanos: u32::try_from(nanos % SECOND).unwrap_or(0),
        }
    }
}
