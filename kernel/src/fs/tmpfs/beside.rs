//! Listings of further folders that are fetched together with one.
//!
//! A program that walks through a tree lists one folder after the other. One request to the host
//! takes as long as hundreds of entries. So a request for one folder names some beside it, and
//! their entries are sent as well, as far as there is room.

use super::TmpNode;
use super::below::Below;
use crate::drivers::root::{NAME_MAX, SIBLINGS_MAX, push_name};
use crate::fs::node::{Node, downcast};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The most folders that one request names besides its own.
const MOST: usize = 64;

/// The number of further folders in a request, for each listing before.
const GROWTH: usize = 4;

/// The sibling folders whose entries one request to the host fetches together with those of the
/// listed folder.
#[derive(Debug, Default)]
pub(super) struct Beside {
    names: Vec<u8>,
    folders: Vec<(Arc<TmpNode>, Arc<[u8]>)>,
    /// The index of the first of `folders` that the rest of the answer may name. The answer has
    /// named or left out those before.
    next: usize,
    /// The index of the folder whose entries are being received. `None` if received entries are
    /// ignored.
    current: Option<usize>,
    /// The directory that contains all of `folders`.
    above: Option<Arc<TmpNode>>,
}

/// Returns the last name of a path.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

impl Beside {
    /// Returns the folders whose entries are fetched in one request with those of `node`. `folder`
    /// is the path of the host's folder that `node` shows. The number of further folders grows with
    /// the number of folders that were listed in the parent directory of `node` and in the parent's
    /// parent. So a program that lists one folder of many fetches no others.
    pub(super) fn of(node: &TmpNode, folder: &[u8]) -> Self {
        Self::gathered(node, folder).unwrap_or_default()
    }

    fn gathered(node: &TmpNode, folder: &[u8]) -> Option<Self> {
        let above = Node::parent(node).and_then(downcast::<TmpNode>)?;
        if !Arc::ptr_eq(&above.fs, &node.fs) {
            return None;
        }
        let directory = above.directory().ok()?;
        // The directory above was listed itself on the way here, which does not count.
        let further_up = Node::parent(&*above)
            .and_then(downcast::<TmpNode>)
            .and_then(|node| Some(node.directory().ok()?.listings()))
            .map_or(0, |listings| listings.saturating_sub(1));
        let wanted = (GROWTH * (directory.count_listing() + further_up)).min(MOST);
        let mut beside = Self::default();
        // Without memory no other folder is fetched.
        beside.folders.try_reserve_exact(wanted).ok()?;
        let bytes = SIBLINGS_MAX.min(wanted * (1 + NAME_MAX));
        beside.names.try_reserve_exact(bytes).ok()?;
        beside.names.resize(bytes, 0);
        let mut found: Vec<Arc<TmpNode>> = Vec::new();
        found.try_reserve_exact(wanted).ok()?;
        directory.directories_behind(&node.name(), wanted, &mut found);
        let parent = &folder[..folder.len() - last_name(folder).len()];
        let mut len = 0;
        for other in found {
            let Ok(Below::Folder(path)) = other.directory().map(|inner| inner.below()) else {
                continue;
            };
            // A directory that was moved here is not beside `folder` on the host.
            let name = last_name(&path);
            if path[..path.len() - name.len()] != *parent {
                continue;
            }
            let Some(longer) = push_name(&mut beside.names, len, name) else {
                break;
            };
            len = longer;
            beside.folders.push((other, path));
        }
        beside.names.truncate(len);
        beside.above = Some(above);
        Some(beside)
    }

    /// Takes out the names of the sibling folders, in the form in which the request names them.
    pub(super) fn take_names(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.names)
    }

    /// Handles a heading in the answer: finishes the current folder, and makes the one with the
    /// name `name` current. If no remaining folder has this name, the entries that follow are
    /// ignored.
    pub(super) fn turn_to(&mut self, name: &[u8]) {
        self.finish();
        let left = self.folders.get(self.next..).unwrap_or_default();
        let found = left.iter().position(|(_, path)| last_name(path) == name);
        self.current = found.map(|ahead| self.next + ahead);
        if let Some(current) = self.current {
            self.next = current + 1;
        }
    }

    /// Returns the directory to which the received entries belong, and its path on the host.
    /// Returns `None` if received entries are ignored.
    pub(super) fn current(&self) -> Option<&(Arc<TmpNode>, Arc<[u8]>)> {
        self.folders.get(self.current?)
    }

    /// Stops receiving entries of the current folder, because one could not be entered. The folder
    /// is fetched again when a program needs it.
    pub(super) fn give_up(&mut self) {
        self.current = None;
    }

    /// Records that all entries of the current folder were fetched, and makes no folder current.
    /// Does nothing if none is.
    pub(super) fn finish(&mut self) {
        if let Some((node, path)) = self.current.take().and_then(|at| self.folders.get(at))
            && let Ok(directory) = node.directory()
        {
            directory.set_below(Below::Whole(path.clone()));
            if let Some(above) = self.above.as_ref().and_then(|above| above.directory().ok()) {
                above.count_listing();
            }
        }
    }
}
