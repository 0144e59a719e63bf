//! Where a walk by a path may not go.

use super::node::{NodeRef, same_mount};
use logic::errno::Errno;

/// Where a walk may not go (`openat2`).
#[derive(Copy, Clone, Debug, Default)]
pub struct Rules {
    /// Nowhere but below its start: `EXDEV`.
    pub beneath: bool,
    /// Its start is the root for it, and no link leads straight out of there.
    pub in_root: bool,
    /// Through no symbolic link: `ELOOP`.
    pub no_links: bool,
    /// Through no link that leads straight to a node: `ELOOP`.
    pub no_jumps: bool,
    /// Into no other mount: `EXDEV`.
    pub no_crossing: bool,
}

impl Rules {
    /// Everywhere.
    pub const NONE: Self = Self {
        beneath: false,
        in_root: false,
        no_links: false,
        no_jumps: false,
        no_crossing: false,
    };

    /// Whether it stays where it began.
    pub(super) fn scoped(&self) -> bool {
        self.beneath || self.in_root
    }

    /// Whether it may go from one node to the next.
    pub(super) fn crossing(&self, from: &NodeRef, to: &NodeRef) -> Result<(), Errno> {
        if self.no_crossing && !same_mount(from, to) {
            return Err(Errno::EXDEV);
        }
        Ok(())
    }

    /// Whether a link that leads straight from `here` to a node may be followed.
    pub(super) fn jump(&self, here: &NodeRef, to: &NodeRef) -> Result<(), Errno> {
        if self.no_jumps {
            return Err(Errno::ELOOP);
        }
        if self.scoped() {
            return Err(Errno::EXDEV);
        }
        self.crossing(here, to)
    }

    /// Whether the walk may go on from the root, by an absolute link. As on Linux the root counts as
    /// elsewhere where the walk had nothing to do with it before.
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
