//! Bind mounts: a directory with everything below it, or a file, that is seen in a second place.
//!
//! A node below a bind mount is a [`Bound`]: a node of the source's file system, and the [`Bind`]
//! through which it is seen. It has the same `Node::id` as the node that it shows. The directories
//! above the mount's root are those of the place where it is mounted, and the mount's flags apply.

use super::covers;
use super::file::{File, Place};
use super::flags::{FileKind, OpenFlags};
use super::node::{
    AttributeChange, FsStats, Hold, LinkTarget, Metadata, NewNode, Node, NodeId, NodeRef,
    RenameMode, Renamed, leaves_volume, unbound,
};
use super::volume::{MountFlags, Uses, Volume};
use super::xattr;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use logic::credentials::attributes::Beginning;
use logic::credentials::{Credentials, Owned, Wanted};
use logic::errno::Errno;
use logic::path::PATH_MAX;
use machine::sync::SpinLock;

/// The most steps upwards in a file system. Deeper directories have no path that a call could
/// return.
const MAX_DEPTH: usize = PATH_MAX;

/// Where a bind mount is in the tree.
struct Standing {
    /// The directory above the root of the mount. `None` once the mount is unmounted.
    above: Option<NodeRef>,
    /// The name of the root in `above`.
    name: Box<[u8]>,
}

/// A bind mount.
pub(super) struct Bind {
    /// The mount's number, flags and uses.
    volume: Volume,
    /// The node that is the root of the mount, in the tree of its own file system.
    root: NodeRef,
    /// The name of `root`, if `root` is a file.
    origin: Option<Place>,
    /// Whether `root` is the root directory of its file system. Then nothing can be moved out of
    /// the mount.
    whole: bool,
    standing: SpinLock<Standing>,
}

/// Returns whether the directory `node` is the root of its file system.
fn is_top(node: &NodeRef) -> bool {
    node.parent()
        .is_none_or(|above| leaves_volume(node, &above))
}

impl Bind {
    /// Creates a bind mount of `source`, or of the node that `source` shows if that is seen through
    /// a bind mount. The mount is in no tree yet. `origin` is the place of `source` if `source` is
    /// a file. Returns the mount, and the reference to its uses that belongs to the mount itself.
    ///
    /// # Errors
    /// Fails with `EMFILE` if no mount number is free.
    pub(super) fn new(
        source: &NodeRef,
        origin: Option<Place>,
        flags: MountFlags,
    ) -> Result<(Arc<Self>, Arc<Uses>), Errno> {
        let volume = Volume::new(flags & MountFlags::OF_MOUNT)?;
        let root = unbound(source.clone());
        let uses = Uses::of_bind(root.clone());
        volume.count_uses(&uses);
        let origin = origin.map(|place| Place {
            parent: unbound(place.parent),
            name: place.name,
        });
        let bind = Arc::new(Self {
            volume,
            whole: root.kind() == FileKind::Directory && is_top(&root),
            root,
            origin,
            standing: SpinLock::new(Standing {
                above: None,
                name: Box::default(),
            }),
        });
        Ok((bind, uses))
    }

    /// Returns the bind mount through which `node` is seen, or `None` if `node` is in the tree of
    /// its own file system.
    pub(super) fn of(node: &NodeRef) -> Option<&Arc<Self>> {
        let any: &dyn Any = &**node;
        any.downcast_ref::<Bound>().map(|bound| &bound.mount)
    }

    /// Returns the volume of the mount, which has the flags and counts the files that are open for
    /// writing.
    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Returns the root of the mount, as a node in the tree of its own file system.
    pub(super) fn root(&self) -> &NodeRef {
        &self.root
    }

    /// Returns the place of the mount's root in the tree of its own file system, if the root is a
    /// file. Returns `None` for a directory.
    pub(super) fn origin(&self) -> Option<&Place> {
        self.origin.as_ref()
    }

    /// Returns the node that shows `inner` through this mount. `inner` is a node in the tree of its
    /// own file system.
    pub(super) fn show(self: &Arc<Self>, inner: NodeRef) -> NodeRef {
        debug_assert!(inner.inner().is_none(), "a bind mount of a bind mount");
        Arc::new(Bound {
            inner,
            mount: self.clone(),
        })
    }

    /// Returns whether the directory `node`, in the tree of its own file system, is the root of
    /// this mount or below it. Returns `false` if `node` lies deeper than any path reaches.
    pub(super) fn shows(&self, node: &NodeRef) -> bool {
        let root = self.root.id();
        let mut here = node.clone();
        // The parents of a folder of the host may form a cycle while the host moves directories.
        for _ in 0..MAX_DEPTH {
            if here.id() == root {
                return true;
            }
            machine::sched::cond_resched();
            match here.parent() {
                Some(above) if !leaves_volume(&here, &above) => here = above,
                _ => return false,
            }
        }
        false
    }

    /// Returns the path of the mount's root in its file system, as `mountinfo` shows it.
    pub(super) fn root_path(&self) -> Vec<u8> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut removed = self.root.is_removed();
        let mut here = self.root.clone();
        if let Some(origin) = &self.origin {
            let now = origin.parent.lookup(&origin.name);
            removed = !now.is_ok_and(|node| node.id() == self.root.id());
            names.push(origin.name.clone());
            here = origin.parent.clone();
        }
        // The bound is that of `shows`.
        while let Some(above) = here.parent().filter(|above| !leaves_volume(&here, above)) {
            if names.len() == MAX_DEPTH {
                break;
            }
            names.push(here.name());
            here = above;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        if removed {
            path.extend_from_slice(b"//deleted");
        }
        path
    }

    fn check_writable(&self) -> Result<(), Errno> {
        self.volume.check_writable()
    }
}

/// A use of a bind mount by a file that is open for writing.
struct Writing {
    mount: Arc<Bind>,
    _uses: Option<Hold>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.mount.volume.close_writer();
    }
}

/// A node as it is seen through a bind mount.
struct Bound {
    /// The node in the tree of its own file system.
    inner: NodeRef,
    mount: Arc<Bind>,
}

impl Bound {
    fn is_root(&self) -> bool {
        self.inner.id() == self.mount.root.id()
    }

    /// Returns the node that `other` shows.
    ///
    /// # Errors
    /// Fails with `EXDEV` if `other` is not seen through the same mount.
    fn beside(&self, other: &NodeRef) -> Result<NodeRef, Errno> {
        if other.mount() != self.mount() {
            return Err(Errno::EXDEV);
        }
        Ok(unbound(other.clone()))
    }

    /// Returns the node that shows `node`, a node of the file system, through the same mount.
    /// Returns an error unchanged.
    fn show(&self, node: Result<NodeRef, Errno>) -> Result<NodeRef, Errno> {
        node.map(|node| self.mount.show(node))
    }
}

impl Node for Bound {
    fn id(&self) -> NodeId {
        self.inner.id()
    }
    fn kind(&self) -> FileKind {
        self.inner.kind()
    }
    fn metadata(&self) -> Metadata {
        self.inner.metadata()
    }
    fn owned(&self) -> Owned {
        self.inner.owned()
    }
    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }
    fn fs_stats(&self) -> FsStats {
        let stats = self.inner.fs_stats();
        let own = self.mount.volume.flags().bits();
        FsStats {
            flags: own | stats.flags & MountFlags::OF_FILE_SYSTEM.bits(),
            ..stats
        }
    }
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        let is_device = matches!(self.kind(), FileKind::Character | FileKind::Block);
        if is_device && self.mount.volume.flags().contains(MountFlags::NO_DEVICES) {
            return Err(Errno::EACCES);
        }
        self.inner.clone().open(flags)
    }
    fn may(&self, who: &Credentials, wanted: Wanted) -> Result<(), Errno> {
        self.inner.may(who, wanted)
    }
    fn set_list(
        &self,
        default: bool,
        list: Option<Box<[u8]>>,
        change: &AttributeChange,
    ) -> Result<(), Errno> {
        self.mount.check_writable()?;
        self.inner.set_list(default, list, change)
    }
    fn has_lists(&self) -> bool {
        self.inner.has_lists()
    }
    fn check_writable(&self) -> Result<(), Errno> {
        self.mount.check_writable()?;
        self.inner.check_writable()
    }
    fn change(&self, change: &AttributeChange) -> Result<(), Errno> {
        self.mount.check_writable()?;
        self.inner.change(change)
    }
    fn extended(&self, look: &mut dyn FnMut(&xattr::Slot)) -> Result<(), Errno> {
        self.inner.extended(look)
    }
    fn change_extended(&self, change: &mut dyn FnMut(&mut xattr::Slot)) -> Result<(), Errno> {
        self.mount.check_writable()?;
        self.inner.change_extended(change)
    }
    fn forget_capabilities(&self) {
        self.inner.forget_capabilities();
    }
    fn has_handles(&self) -> bool {
        self.inner.has_handles()
    }
    fn note_handle(&self) -> Result<(), Errno> {
        self.inner.note_handle()
    }
    fn by_handle(&self, number: u64) -> Result<NodeRef, Errno> {
        self.show(self.inner.by_handle(number))
    }
    fn set_size(&self, size: u64) -> Result<(), Errno> {
        self.mount.check_writable()?;
        self.inner.set_size(size)
    }
    fn link_target(&self) -> Result<LinkTarget, Errno> {
        self.inner.link_target()
    }
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        self.show(self.inner.lookup(name))
    }
    fn create(
        &self,
        name: &[u8],
        new: NewNode<'_>,
        beginning: Beginning,
    ) -> Result<NodeRef, Errno> {
        self.mount.check_writable()?;
        self.show(self.inner.create(name, new, beginning))
    }
    fn create_nameless(&self, beginning: Beginning, linkable: bool) -> Result<NodeRef, Errno> {
        self.mount.check_writable()?;
        self.show(self.inner.create_nameless(beginning, linkable))
    }
    fn link(&self, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
        let node = self.beside(node)?;
        self.mount.check_writable()?;
        self.inner.link(name, &node)
    }
    fn unlink(&self, name: &[u8], meant: NodeId) -> Result<NodeRef, Errno> {
        self.mount.check_writable()?;
        self.inner.unlink(name, meant)
    }
    fn remove_directory(&self, name: &[u8], meant: NodeId) -> Result<NodeRef, Errno> {
        self.mount.check_writable()?;
        self.inner.remove_directory(name, meant)
    }
    fn rename(
        &self,
        name: &[u8],
        to: &NodeRef,
        new_name: &[u8],
        how: RenameMode,
        meant: (NodeId, Option<NodeId>),
    ) -> Result<Option<Renamed>, Errno> {
        let to = self.beside(to)?;
        self.mount.check_writable()?;
        self.inner.rename(name, &to, new_name, how, meant)
    }
    fn parent(&self) -> Option<NodeRef> {
        if self.is_root() {
            return self.mount.standing.lock().above.clone();
        }
        let above = self.inner.parent()?;
        (!leaves_volume(&self.inner, &above)).then(|| self.mount.show(above))
    }
    fn is_removed(&self) -> bool {
        self.inner.is_removed()
    }
    fn name(&self) -> Box<[u8]> {
        if self.is_root() {
            return self.mount.standing.lock().name.clone();
        }
        self.inner.name()
    }
    fn covered_by(&self) -> Option<NodeRef> {
        covers::on(self)
    }
    fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        if top.is_none() {
            covers::set(self, b"", None);
            return Ok(());
        }
        // `keeps_entries` concerns directories only. A root that is a file can be covered.
        if self.kind() == FileKind::Directory && !self.inner.keeps_entries() {
            return Err(Errno::EINVAL);
        }
        covers::set(self, b"", top);
        // The directory may have been removed before the cover was visible.
        if self.is_removed() {
            covers::set(self, b"", None);
            return Err(Errno::ENOENT);
        }
        Ok(())
    }
    fn set_place(&self, above: Option<&NodeRef>, name: &[u8]) {
        let new = Standing {
            above: above.cloned(),
            name: name.into(),
        };
        // The guard is a temporary of the statement; the old place outlives it.
        let old = core::mem::replace(&mut *self.mount.standing.lock(), new);
        drop(old);
    }
    fn inner(&self) -> Option<&NodeRef> {
        Some(&self.inner)
    }
    fn mount(&self) -> u64 {
        self.mount.volume.device()
    }
    fn is_within_mount(&self) -> bool {
        self.mount.whole || self.mount.shows(&self.inner)
    }
    fn keeps_entries(&self) -> bool {
        self.inner.keeps_entries()
    }
    fn hold(&self) -> Option<Hold> {
        self.mount.volume.hold()
    }
    fn hold_open(&self, flags: OpenFlags) -> Result<Option<Hold>, Errno> {
        let uses = self.hold();
        // Devices and pipes can be written even in a read-only file system.
        let is_stored = matches!(self.kind(), FileKind::Regular | FileKind::Directory);
        if !flags.writable() || !is_stored {
            return Ok(uses);
        }
        self.mount.volume.open_writer()?;
        Ok(Some(Arc::new(Writing {
            mount: self.mount.clone(),
            _uses: uses,
        })))
    }
    fn is_unmounted(&self) -> bool {
        self.inner.is_unmounted()
    }
    fn forbid_writing(&self) -> Result<(), Errno> {
        self.inner.forbid_writing()
    }
    fn permit_writing(&self) {
        self.inner.permit_writing();
    }
    fn release_if_last(self: Arc<Self>, holders: usize) {
        let inner = self.inner.clone();
        drop(self);
        inner.release_if_last(holders);
    }
    fn label(&self) -> Option<Vec<u8>> {
        self.inner.label()
    }
    fn no_changes(&self) -> Errno {
        self.inner.no_changes()
    }
}
