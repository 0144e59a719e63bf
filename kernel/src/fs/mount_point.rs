//! Where something is mounted: on a directory, or on the name of a file.

use super::bind::Bind;
use super::covers;
use super::file::Place;
use super::flags::FileKind;
use super::lookup;
use super::node::{NodeRef, unbound};
use alloc::boxed::Box;
use alloc::sync::Arc;
use logic::errno::Errno;

/// Where something is mounted.
pub(super) struct Point {
    /// What it covers.
    pub(super) node: NodeRef,
    /// The directory above `node`.
    pub(super) above: NodeRef,
    /// Its name there.
    pub(super) name: Box<[u8]>,
    /// It covers the name of a file in `above`.
    pub(super) is_named: bool,
}

impl Point {
    /// The place of the directory `node`, or of the file with the name `place`, for something to be
    /// mounted there. `is_mounted` says whether there is a mount with a device number.
    ///
    /// # Errors
    /// Fails with `EINVAL` if it is in no mount or nothing can be mounted there, with `EBUSY` for
    /// the root of the tree, and with `ENOENT` if it is gone.
    pub(super) fn find(
        node: NodeRef,
        place: Option<Place>,
        is_mounted: impl Fn(u64) -> bool,
    ) -> Result<Self, Errno> {
        let check = |node: &NodeRef| match is_mounted(node.mount()) {
            true => Ok(()),
            // It is in a tree that is unmounted.
            false => Err(Errno::EINVAL),
        };
        // Something may have been mounted since the path was walked.
        if node.kind() == FileKind::Directory {
            let node = lookup::through_mounts(node);
            check(&node)?;
            // Nothing would lead through a mount on the root of the tree.
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

    /// Has the walks of paths go through to `top`, or no more.
    ///
    /// # Errors
    /// As `Node::cover`.
    pub(super) fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        if self.is_named {
            covers::set(&*self.above, &self.name, top);
            return Ok(());
        }
        self.node.cover(top)
    }

    /// The same place in `parent`, a new bind mount of what the mount with this place shows.
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
