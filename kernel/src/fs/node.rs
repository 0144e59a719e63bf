//! The nodes of the tree: files, directories, links and devices.

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

/// A use of a mounted file system. The file system stays mounted and whole while there is one.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// The identity of a node. Two references to nodes have equal identities exactly if they refer to
/// the same file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    /// Device number of the file system.
    pub device: u64,
    /// The number of the node in the file system.
    pub inode: u64,
}

/// The attributes that `stat` reports.
#[derive(Copy, Clone, Debug)]
pub struct Metadata {
    /// Identity.
    pub id: NodeId,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky, below 0o10000.
    pub permissions: u32,
    /// The number of names of the file; 0 once it is deleted.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u64,
    /// Length in bytes.
    pub size: u64,
    /// The memory behind the file, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the data.
    pub modified: Timestamp,
    /// Last change of the data or the attributes.
    pub changed: Timestamp,
}

impl Metadata {
    /// Returns the owner and the permissions.
    pub fn owned(&self) -> Owned {
        Owned {
            directory: self.kind == FileKind::Directory,
            regular: self.kind == FileKind::Regular,
            permissions: self.permissions,
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// Returns `st_mode`: kind and permissions.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }
}

/// Attributes to change. `None` leaves an attribute as it is.
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
    /// The attributes that the change is based on. If the file has other ones by now, the change
    /// fails with `EAGAIN`, and the caller decides again. For a file of a volume, those that the
    /// host last reported count. `None` if the change depends on no attributes.
    pub decided_by: Option<Owned>,
}

impl AttributeChange {
    /// Checks that the attributes are still those that the change was decided by.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if they are not.
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

/// Changes attributes of `node` depending on the present ones. `decide` gets the owner and the
/// permissions and returns the change. Runs `decide` again if another task changed them in between.
///
/// # Errors
/// Fails with the errors of `decide` and of [`Node::change`].
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

/// The kind of a new node in a directory.
#[derive(Copy, Clone, Debug)]
pub enum NewNode<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A character device of this number.
    Character(u64),
    /// A block device of this number.
    Block(u64),
    /// The name of a socket.
    Socket,
}

/// The target of a symbolic link.
#[derive(Debug)]
pub enum LinkTarget {
    /// A path, relative to the link's directory.
    Path(Vec<u8>),
    /// A node, reached without a path (`/proc/PID/{exe,cwd,fd/N}`).
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
    /// The offset at which a listing continues after this entry (`d_off`).
    pub next: u64,
}

/// The numbers that `statfs` reports for a file system.
#[derive(Copy, Clone, Debug)]
pub struct FsStats {
    /// Linux's magic number of the type.
    pub magic: u64,
    /// The size of the file system, in units of [`Node::block_size`].
    pub blocks: u64,
    /// The free part of `blocks`.
    pub free_blocks: u64,
    /// The most files that it can hold; 0 if there is no such limit.
    pub files: u64,
    /// The number of further files that it can hold.
    pub free_files: u64,
    /// The flags of the mount: bits of `MountFlags`.
    pub flags: u32,
}

/// The usual block size in bytes.
pub const BLOCK_SIZE: u32 = 4096;

/// A node of the tree. A method that is added here is also added to `Bound` in `bind.rs`, a node
/// that is seen through a bind mount: most of its methods call those of the node that it shows.
pub trait Node: Any + Send + Sync {
    /// Returns the identity.
    fn id(&self) -> NodeId;
    /// Returns the kind, which never changes.
    fn kind(&self) -> FileKind;
    /// Returns the attributes that `stat` reports.
    fn metadata(&self) -> Metadata;
    /// Returns the owner and the permissions.
    fn owned(&self) -> Owned {
        self.metadata().owned()
    }
    /// Returns the block size that `stat` and `statfs` report, in bytes.
    fn block_size(&self) -> u32 {
        BLOCK_SIZE
    }
    /// Returns the numbers that `statfs` reports for the file system.
    fn fs_stats(&self) -> FsStats;
    /// Opens the node and returns the object that reads and writes. May block (a FIFO waits for its
    /// peer) and may create a new object.
    ///
    /// # Errors
    /// Fails as `open(2)` of a node of this kind.
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno>;

    /// Checks that the permission bits or the access list of the node grant `who` the access
    /// `wanted`.
    ///
    /// # Errors
    /// Fails with `EACCES` if they do not.
    fn may(&self, who: &Credentials, wanted: Wanted) -> Result<(), Errno> {
        who.may(wanted, &self.owned())
    }
    /// Sets the access list `list` and the permission bits of `change`. If `list` is `None`,
    /// removes the access list. With `default` the list is the one for files that are created in
    /// this directory.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if nodes of this kind have no lists, and as [`Self::change`] and
    /// `Extended::set`.
    fn set_list(
        &self,
        _default: bool,
        _list: Option<Box<[u8]>>,
        _change: &AttributeChange,
    ) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Returns whether the node may have access lists.
    fn has_lists(&self) -> bool {
        false
    }
    /// Checks that the file system can be changed.
    ///
    /// # Errors
    /// Fails with `EROFS` if it is mounted read-only.
    fn check_writable(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Changes the attributes that `change` names. Fails with `EPERM` if attributes of this node
    /// cannot change, and as `chmod(2)` and `chown(2)`.
    fn change(&self, _change: &AttributeChange) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
    /// Calls `look` with the extended attributes.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if nodes of this kind have none.
    fn extended(&self, _look: &mut dyn FnMut(&xattr::Slot)) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Calls `change` to change the extended attributes. `change` is quick and drops nothing large.
    ///
    /// # Errors
    /// Fails as [`Self::extended`] does, and with `EROFS` if the file system is mounted read-only.
    fn change_extended(&self, _change: &mut dyn FnMut(&mut xattr::Slot)) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Returns Linux's name of a socket's protocol, or `None` for a node of another kind.
    fn protocol_name(&self) -> Option<&'static str> {
        None
    }
    /// Removes the capabilities that the file grants a task that runs it (`security.capability`),
    /// because they were granted to other content.
    fn forget_capabilities(&self) {}
    /// Returns whether the file system has handles for its files.
    fn has_handles(&self) -> bool {
        false
    }
    /// Makes the inode number a handle, by which [`Self::by_handle`] finds the node from now on.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if the file system has no handles.
    fn note_handle(&self) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Returns the node with this inode number in the same file system.
    ///
    /// # Errors
    /// Fails with `ESTALE` if there is no such node, or if the number is no handle.
    fn by_handle(&self, _number: u64) -> Result<NodeRef, Errno> {
        Err(Errno::ESTALE)
    }
    /// Truncates or extends a regular file to this size in bytes. Fails with `EINVAL` if this is no
    /// regular file, and as `truncate(2)`.
    fn set_size(&self, _size: u64) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// Returns the target of a symbolic link. Fails with `EINVAL` if this is none.
    fn link_target(&self) -> Result<LinkTarget, Errno> {
        Err(Errno::EINVAL)
    }

    /// Returns the node of the entry with this name of a directory. Fails with `ENOENT` if there is
    /// no such entry, and with `ENOTDIR` if this is no directory.
    fn lookup(&self, _name: &[u8]) -> Result<NodeRef, Errno> {
        Err(Errno::ENOTDIR)
    }
    /// Creates a node as `new` says, under the name `name` in this directory, with the attributes
    /// `beginning`. Returns the node.
    ///
    /// # Errors
    /// Fails with `EEXIST` if the directory has an entry of this name, with `ENOTDIR` if this is no
    /// directory, and with `EPERM` if the directory cannot change.
    fn create(
        &self,
        _name: &[u8],
        _new: NewNode<'_>,
        _beginning: Beginning,
    ) -> Result<NodeRef, Errno> {
        Err(self.no_changes())
    }
    /// Creates a regular file without a name, in this directory's file system (`O_TMPFILE`).
    /// `linkable` says whether it may get a name later. Fails with `EOPNOTSUPP` if the file system
    /// cannot do so.
    fn create_nameless(&self, _beginning: Beginning, _linkable: bool) -> Result<NodeRef, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Adds an entry `name` to this directory that leads to the file `node` (a hard link).
    ///
    /// # Errors
    /// Fails with `EEXIST` if the name is in use, with `EPERM` if the directory cannot change, and
    /// with `ENOTDIR` if this is no directory. Fails with `ENOENT` if the file has lost its last
    /// name.
    fn link(&self, _name: &[u8], _node: &NodeRef) -> Result<(), Errno> {
        Err(self.no_changes())
    }
    /// Removes the entry `name`, which leads to a file, and returns the node. The caller drops its
    /// other references to the node and then calls [`Self::release_if_last`] on it.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the name belongs to another node than `meant` now.
    fn unlink(&self, _name: &[u8], _meant: NodeId) -> Result<NodeRef, Errno> {
        Err(self.no_changes())
    }
    /// Removes the entry `name`, which leads to an empty directory, and returns the directory.
    ///
    /// # Errors
    /// Fails as [`Self::unlink`] does.
    fn remove_directory(&self, _name: &[u8], _meant: NodeId) -> Result<NodeRef, Errno> {
        Err(self.no_changes())
    }
    /// Moves the entry `name` to the name `new_name` in the directory `to`, as `how` says. Returns
    /// the nodes that have moved, or `None` if both names belong to the same node. The caller must
    /// release a replaced node as in [`Self::unlink`].
    ///
    /// # Errors
    /// Fails with `ESTALE` if the names do not belong to the nodes `meant` now. The second of these
    /// is `None` if the new name must be free.
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
    /// Returns the directory that this directory is in, or was in when it was removed. `None` for a
    /// root, and once that directory is gone for good.
    fn parent(&self) -> Option<NodeRef> {
        None
    }
    /// Returns whether this directory was removed from the tree.
    fn is_removed(&self) -> bool {
        false
    }
    /// Returns the name of this directory in its parent. Empty for a root.
    fn name(&self) -> Box<[u8]> {
        Box::default()
    }
    /// Returns the root of the file system that is mounted on this directory, or `None` if none is.
    fn covered_by(&self) -> Option<NodeRef> {
        None
    }
    /// Mounts the file system with root `top` over this directory, or with `None` removes that
    /// mount.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the directory was removed, and with `EINVAL` if nothing can be
    /// mounted on it.
    fn cover(&self, _top: Option<NodeRef>) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// Sets the place of the root directory of a mounted file system, which is the name `name` in
    /// the directory `above`. `None` removes the place.
    fn set_place(&self, _above: Option<&NodeRef>, _name: &[u8]) {}
    /// Returns the node that this one shows through a bind mount. `None` if this node is seen in
    /// the tree of its own file system.
    fn inner(&self) -> Option<&NodeRef> {
        None
    }
    /// Returns the device number of the mount through which this node is seen: that of its file
    /// system, or that of the bind mount. It is equal for two nodes exactly if they are seen
    /// through the same mount.
    fn mount(&self) -> u64 {
        self.id().device
    }
    /// Returns whether the way up from this directory leads to the root of the mount through which
    /// it is seen. It does not once the directory was moved out of the part that a bind mount
    /// shows.
    fn is_within_mount(&self) -> bool {
        true
    }
    /// Returns whether this directory and its entries keep their identity, so that something can be
    /// mounted on them.
    fn keeps_entries(&self) -> bool {
        false
    }
    /// Returns a use of the mount, which keeps it from being unmounted. Returns `None` if uses are
    /// not counted.
    fn hold(&self) -> Option<Hold> {
        None
    }
    /// Returns a use of the mount by an open file with these flags.
    ///
    /// # Errors
    /// Fails with `EROFS` if the flags allow writing and the mount is a read-only bind mount.
    fn hold_open(&self, _flags: OpenFlags) -> Result<Option<Hold>, Errno> {
        Ok(self.hold())
    }
    /// Returns whether the file system was mounted and has no use any more.
    fn is_unmounted(&self) -> bool {
        false
    }
    /// Frees the tree below this node, the root of an unmounted file system, in small steps. The
    /// last drop would free it all at once.
    fn dismantle(self: Arc<Self>) {}
    /// Refuses opens for writing from now on, while the file is a running program. Fails with
    /// `ETXTBSY` if the file is open for writing.
    fn forbid_writing(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Undoes one [`Self::forbid_writing`].
    fn permit_writing(&self) {}
    /// Frees the content of a file in small steps, after the last close of an open file. Does
    /// nothing if the file has a name, or more references than `holders`, the number that the
    /// caller knows of.
    fn release_if_last(self: Arc<Self>, _holders: usize) {}
    /// Returns the text that is shown where the node has no path, such as `pipe:[7]`. Returns
    /// `None` if nodes of this kind have no such text.
    fn label(&self) -> Option<Vec<u8>> {
        None
    }
    /// Returns the error for a change to a directory that cannot change, or to a node that is no
    /// directory.
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

/// The nodes that a rename moved.
#[derive(Debug)]
pub struct Renamed {
    /// The node that has the new name now.
    pub moved: NodeRef,
    /// The node that had the new name before, or `None` if no node had it. After an exchange it has
    /// the old name.
    pub other: Option<NodeRef>,
}

/// What `rename` does if the new name is taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The node that has the new name is replaced.
    Replace,
    /// The call fails with `EEXIST`.
    KeepExisting,
    /// The two nodes exchange their names.
    Exchange,
}

/// Returns the node in the tree of its own file system: the one that `node` shows through a bind
/// mount, or `node`.
pub fn unbound(node: NodeRef) -> NodeRef {
    match node.inner() {
        Some(inner) => inner.clone(),
        None => node,
    }
}

/// Returns `node` as a `T`, or `None` if it has another type. If `node` is seen through a bind
/// mount, the node that it shows is returned.
pub fn downcast<T: Node>(node: NodeRef) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = unbound(node);
    any.downcast().ok()
}

/// Returns the number of the mount through which `node` is seen, as programs see the number.
pub fn mount_number(node: &NodeRef) -> u64 {
    devices::parts(node.mount()).1
}

/// Returns whether `a` and `b` are the same node, seen through the same mount.
pub fn same_place(a: &NodeRef, b: &NodeRef) -> bool {
    a.id() == b.id() && a.mount() == b.mount()
}

/// Returns whether `a` and `b` are seen through the same mount.
pub fn same_mount(a: &NodeRef, b: &NodeRef) -> bool {
    a.mount() == b.mount()
}

/// Returns whether `above`, the directory above `node`, is in another file system, so that `node`
/// is the root directory of its own.
pub(super) fn leaves_volume(node: &NodeRef, above: &NodeRef) -> bool {
    above.inner().is_some() || above.id().device != node.id().device
}

/// Lists `.` and `..` of `node`, unless `offset` is behind them. Returns `false` once `emit`
/// returned `false`.
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

/// Returns an inode number for a node that is in no directory.
pub fn next_anonymous_inode() -> u64 {
    /// netstat does not recognize a socket whose inode number has one digit.
    const FIRST: u64 = 1000;
    static NEXT_ANONYMOUS: AtomicU64 = AtomicU64::new(FIRST);
    // Relaxed: the number orders no other access.
    NEXT_ANONYMOUS.fetch_add(1, Ordering::Relaxed)
}

impl Timestamp {
    /// Returns the time of the wall clock.
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
