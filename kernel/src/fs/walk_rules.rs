//! Restrictions of a walk along a path.

use super::node::{NodeRef, same_mount};
use logic::errno::Errno;

/// The restrictions of a walk (`openat2`).
#[derive(Copy, Clone, Debug, Default)]
pub struct Rules {
    /// Fails with `EXDEV` if the walk leaves the tree below its start.
    pub beneath: bool,
    /// The start is the root of the walk, and no link may lead straight out of the tree below it.
    pub in_root: bool,
    /// Fails with `ELOOP` at a symbolic link.
    pub no_links: bool,
    /// Fails with `ELOOP` at a link that leads straight to a node.
    pub no_jumps: bool,
    /// Fails with `EXDEV` if the walk enters another mount.
    pub no_crossing: bool,
}

impl Rules {
    /// The rules of a walk without restrictions.
    pub const NONE: Self = Self {
        beneath: false,
        in_root: false,
        no_links: false,
        no_jumps: false,
        no_crossing: false,
    };

    /// Returns whether the walk must stay below its start.
    pub(super) fn scoped(&self) -> bool {
        self.beneath || self.in_root
    }

    /// Checks that the walk may go from node `from` to node `to`.
    ///
    /// # Errors
    /// Fails with `EXDEV` if the rules forbid it, because the nodes are in different mounts.
    pub(super) fn crossing(&self, from: &NodeRef, to: &NodeRef) -> Result<(), Errno> {
        if self.no_crossing && !same_mount(from, to) {
            return Err(Errno::EXDEV);
        }
        Ok(())
    }

    /// Checks that a link at `here` that leads straight to the node `to` may be followed.
    ///
    /// # Errors
    /// Fails with `ELOOP` if the rules forbid such links, and with `EXDEV` if they confine the
    /// walk.
    pub(super) fn jump(&self, here: &NodeRef, to: &NodeRef) -> Result<(), Errno> {
        if self.no_jumps {
            return Err(Errno::ELOOP);
        }
        if self.scoped() {
            return Err(Errno::EXDEV);
        }
        self.crossing(here, to)
    }

    /// Checks that the walk may continue at `root`, because of an absolute link at `here`. As on
    /// Linux, with `no_crossing` the root counts as another mount until the walk has reached it
    /// (`root_known`).
    ///
    /// # Errors
    /// Fails with `EXDEV` if the walk may not continue there.
    pub(super) fn absolute(
        &self,
        here: &NodeRef,
        root: &NodeRef,
        root_known: bool,
    ) -> Result<(), Errno> {
        if self.beneath || self.no_crossing && !root_known {
            return Err(Errno::EXDEV);
        }
        self.crossing(here, root)
    }
}
