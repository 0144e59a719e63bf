//! Mount points: a directory, or the name of a file.

use super::bind::Bind;
use super::covers;
use super::file::Place;
use super::flags::FileKind;
use super::lookup;
use super::node::{NodeRef, unbound};
use alloc::boxed::Box;
use alloc::sync::Arc;
use logic::errno::Errno;

/// The place of a mount.
pub(super) struct Point {
    /// The node on which the mount lies.
    pub(super) node: NodeRef,
    /// The directory above `node`.
    pub(super) above: NodeRef,
    /// The name of `node` in `above`.
    pub(super) name: Box<[u8]>,
    /// Whether the mount covers the name of a file in `above`.
    pub(super) is_named: bool,
}

impl Point {
    /// Returns the point at the directory `node`, or at the file with the name `place`.
    /// `is_mounted` returns whether a mount with a device number exists.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the point is in no mount or nothing can be mounted there. Fails with
    /// `EBUSY` for the root of the tree, and with `ENOENT` if the file is gone.
    pub(super) fn find(
        node: NodeRef,
        place: Option<Place>,
        is_mounted: impl Fn(u64) -> bool,
    ) -> Result<Self, Errno> {
        let check = |node: &NodeRef| match is_mounted(node.mount()) {
            true => Ok(()),
            // The node is in a tree that is unmounted.
            false => Err(Errno::EINVAL),
        };
        // Something may have been mounted since the path was walked.
        if node.kind() == FileKind::Directory {
            let node = lookup::through_mounts(node);
            check(&node)?;
            // No path would lead through a mount on the root of the tree.
            let above = node.parent().ok_or(Errno::EBUSY)?;
            let name = node.name();
            return Ok(Self {
                node,
                above,
                name,
                is_named: false,
            });
        }
        let Place { parent, name } = place.ok_or(Errno::EINVAL)?;
        let found = parent.lookup(&name)?;
        if matches!(found.kind(), FileKind::Directory | FileKind::Symlink) {
            return Err(Errno::ENOENT);
        }
        let node = lookup::mounted_at(&parent, &name, found);
        check(&node)?;
        let is_named = node.mount() == parent.mount();
        if is_named && !parent.keeps_entries() {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            node,
            above: parent,
            name,
            is_named,
        })
    }

    /// Makes path walks that reach this point continue at `top`, the root of a mount. If `top` is
    /// `None`, they end at the covered node again.
    ///
    /// # Errors
    /// Fails as `Node::cover` does.
    pub(super) fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        if self.is_named {
            covers::set(&*self.above, &self.name, top);
            return Ok(());
        }
        self.node.cover(top)
    }

    /// Returns the same mount point, as seen through `parent`, a new bind mount of the mount that
    /// contains the point. `parent_top` is the root of `parent`.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the point has no directory above it.
    pub(super) fn in_bind(&self, parent: &Arc<Bind>, parent_top: &NodeRef) -> Result<Self, Errno> {
        let node = parent.show(unbound(self.node.clone()));
        let (above, name) = if self.is_named {
            let above = parent.show(unbound(self.above.clone()));
            (Some(above), self.name.clone())
        } else if node.kind() == FileKind::Directory {
            (node.parent(), node.name())
        } else {
            (parent_top.parent(), parent_top.name())
        };
        Ok(Self {
            node,
            above: above.ok_or(Errno::EINVAL)?,
            name,
            is_named: self.is_named,
        })
    }
}
