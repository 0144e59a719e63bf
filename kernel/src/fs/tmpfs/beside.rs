//! Listings that come along with another.
//!
//! Who walks through a tree has the entries of one folder after the other, and a question about one takes as long as hundreds of
//! entries do. So a question about a folder names some beside it, and their entries come along as far as there is room.

use super::TmpNode;
use super::below::Below;
use crate::drivers::root::{NAME_MAX, SIBLINGS_MAX, push_name};
use crate::fs::node::{Node, downcast};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The most folders that one question names besides its own.
const MOST: usize = 64;

/// How many more come along for each that was asked for before.
const GROWTH: usize = 4;

/// Folders beside one that is listed.
#[derive(Debug, Default)]
pub(super) struct Beside {
    names: Vec<u8>,
    folders: Vec<(Arc<TmpNode>, Arc<[u8]>)>,
    /// Those before this one had their turn.
    next: usize,
    /// The one whose entries are coming.
    current: Option<usize>,
    /// The directory that they all are in.
    above: Option<Arc<TmpNode>>,
}

/// The last name of a path.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

impl Beside {
    /// Those whose entries may come along with those of `node`, which has the host's `folder` below it: the more, the more folders
    /// were listed beside it and beside the one above. Who looks at one folder of many asks for no more.
    pub(super) fn of(node: &TmpNode, folder: &[u8]) -> Self {
        Self::gathered(node, folder).unwrap_or_default()
    }

    fn gathered(node: &TmpNode, folder: &[u8]) -> Option<Self> {
        let above = Node::parent(node).and_then(downcast::<TmpNode>)?;
        if !Arc::ptr_eq(&above.fs, &node.fs) {
            return None;
        }
        let directory = above.directory().ok()?;
        // The one above was listed itself, on the way here.
        let further_up = Node::parent(&*above)
            .and_then(downcast::<TmpNode>)
            .and_then(|node| Some(node.directory().ok()?.listings()))
            .map_or(0, |listings| listings.saturating_sub(1));
        let wanted = (GROWTH * (directory.count_listing() + further_up)).min(MOST);
        let mut beside = Self::default();
        // Without memory nothing comes along.
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
            // One that came here from elsewhere is not beside it on the host.
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

    /// Their names, to ask for.
    pub(super) fn take_names(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.names)
    }

    /// All entries of the one before are here, and those of `name` come. Others than were asked for go nowhere.
    pub(super) fn turn_to(&mut self, name: &[u8]) {
        self.finish();
        let left = self.folders.get(self.next..).unwrap_or_default();
        let found = left.iter().position(|(_, path)| last_name(path) == name);
        self.current = found.map(|ahead| self.next + ahead);
        if let Some(current) = self.current {
            self.next = current + 1;
        }
    }

    /// Where entries go that come now, and the path of that on the host.
    pub(super) fn current(&self) -> Option<&(Arc<TmpNode>, Arc<[u8]>)> {
        self.folders.get(self.current?)
    }

    /// Some of the entries that come now could not be entered: whoever wants them asks.
    pub(super) fn give_up(&mut self) {
        self.current = None;
    }

    /// All entries that came are here.
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
