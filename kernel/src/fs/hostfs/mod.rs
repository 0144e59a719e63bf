//! Folders of the host's that programs read and write: `--volume`. Its name and magic number are those that Linux has for the
//! like (`hostfs` of User-Mode Linux).
//!
//! | file | what |
//! |---|---|
//! | `node` | files, folders and links, as nodes of the tree |
//! | `known` | which of them there are, and what the host said of them last |
//! | `pages` | bytes of files that are here, and which of them the host has not |
//! | `view` | files as mappings see them |
//! | `file`, `directory` | what is open |
//! | `failures` | what could not be written, and who was told |
//! | `writeback` | what was changed through mappings, on its way to the host |
//!
//! What a program writes is the host's when the call returns; pages here are a cache for reading, and for mappings. Each look at a
//! name asks the host, so what it made, removed or changed is seen at the next `open`; an answer that tells of a change that was
//! not made here drops the file's pages.

mod directory;
mod failures;
mod file;
mod known;
mod node;
mod pages;
mod view;
mod writeback;

pub(super) use writeback::each_cold;
pub use writeback::{drop_clean, relieve, start_thread, sync_all};

use super::lookup::{self, LastLink};
use super::mounts;
use super::node::{NewNode, NodeRef};
use super::text::Text;
use super::volume::{FileSystem, MountFlags, Volume};
use crate::drivers::volume;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use logic::credentials::Credentials;
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::sync::SpinLock;
use node::HostNode;

/// Linux's magic number of hostfs.
const MAGIC: u64 = 0x00c0_ffee;

/// A volume.
struct Hostfs {
    volume: Volume,
    /// Files that somebody uses, by their handles.
    nodes: SpinLock<BTreeMap<u64, Weak<HostNode>>>,
}

/// All volumes.
static ALL: SpinLock<Vec<Arc<Hostfs>>> = SpinLock::new(Vec::new());

impl FileSystem for Hostfs {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn reconfigure(&self, options: &[u8]) -> Result<(), Errno> {
        if options.is_empty() {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }

    fn show_options(&self, _: &mut Text) -> fmt::Result {
        Ok(())
    }
}

/// Mounts the volume with this number at an absolute path, whose directories are made where there are none.
///
/// # Errors
/// The host's, and those of making directories.
pub fn mount(number: u64, path: &[u8], source: &[u8], read_only: bool) -> Result<(), Errno> {
    let point = make_way(path)?;
    let above = point.parent().ok_or(Errno::EBUSY)?;
    let mut flags = MountFlags::RELATIVE_TIMES | MountFlags::NO_DEVICES | MountFlags::NO_SET_ID;
    flags.set(MountFlags::READ_ONLY, read_only);
    let fs = Arc::new(Hostfs {
        volume: Volume::new(flags)?,
        nodes: SpinLock::new(BTreeMap::new()),
    });
    let before = clock::now();
    let (top, time) = volume::top(number, |attributes| fs.node_of(attributes, None))?;
    if number == 0 {
        // The clock goes on from the host's, not behind it: what it writes just now is not of the future.
        clock::set_realtime_offset(Nanos(time).saturating_sub(before));
    }
    let top: NodeRef = top;
    top.set_place(Some(&above), &point.name());
    ALL.lock().push(fs.clone());
    mounts::enter_permanent("hostfs", source, top, Some(point), Some(fs))
}

/// The directory at a path.
fn make_way(path: &[u8]) -> Result<NodeRef, Errno> {
    let root = super::root();
    let who = Credentials::root();
    let mut here = root.clone();
    for name in path.split(|&byte| byte == b'/') {
        if name.is_empty() {
            continue;
        }
        let found = lookup::resolve(&who, &root, &here, name, LastLink::Follow)?;
        here = match found.node {
            Some(node) => node,
            None => found
                .parent
                .create(name, NewNode::Directory, Beginning::of_root(0o755))?,
        };
    }
    Ok(here)
}
