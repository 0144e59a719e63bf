//! Paths as seen by a process whose root directory is not the root of the tree.

use super::lookup;
use super::node::NodeRef;
use alloc::vec::Vec;

/// The path of a process's root directory, or `None` for the root of the tree.
#[derive(Debug)]
pub struct Viewpoint(Option<Vec<u8>>);

impl Viewpoint {
    /// Returns the viewpoint of a process whose root directory is `root`.
    pub fn of(root: &NodeRef) -> Self {
        let whole = root.parent().is_none() && root.name().is_empty();
        Self((!whole).then(|| lookup::describe(root, None)))
    }

    /// Returns `path`, which begins at the root of the tree, as seen from the root directory.
    /// Returns `None` if `path` is not below that directory.
    pub fn see<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let Some(root) = &self.0 else {
            return Some(path);
        };
        match path.strip_prefix(root.as_slice())? {
            [] => Some(b"/"),
            below @ [b'/', ..] => Some(below),
            _ => None,
        }
    }

    /// Returns `path` as [`Self::see`] does, or all of `path` if it is not below the root
    /// directory. Linux shows files in this way.
    pub fn show<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        self.see(path).unwrap_or(path)
    }
}
