//! Folders of the host that programs read and write (`--volume`). The file system has the name and
//! the magic number of Linux's counterpart (`hostfs` of User-Mode Linux).
//!
//! | file | what |
//! |---|---|
//! | `node` | files, folders and links, as nodes of the tree |
//! | `known` | nodes in use, and their attributes as the host last reported them |
//! | `pages` | pages of files in memory, and which of them the host does not have yet |
//! | `view` | files as mappings see them |
//! | `file`, `directory` | open files and folders |
//! | `failures` | write errors, and which open files have reported them |
//! | `writeback` | writing pages to the host that mappings have changed |
//!
//! The host has the bytes of a `write` when the call returns. Pages in memory are a cache for
//! reads, and for mappings. Each lookup of a name asks the host. So a file that the host made,
//! removed or changed is seen at the next `open`. If an answer reports a change that the guest did
//! not make, the file's pages are dropped.

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

/// A mounted folder of the host.
struct Hostfs {
    volume: Volume,
    /// Nodes in use, by their handles.
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

/// Mounts the volume `number`, a folder of the host, at the absolute path `path`. Creates the
/// directories of the path that do not exist. `source` is the device that lists of mounts show.
///
/// # Errors
/// Fails with the errors of the host, and with those of creating directories.
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
        // The clock goes on from the host's time. Otherwise files that the host writes now would
        // have times in the future.
        clock::set_realtime_offset(Nanos(time).saturating_sub(before));
    }
    let top: NodeRef = top;
    top.set_place(Some(&above), &point.name());
    ALL.lock().push(fs.clone());
    mounts::enter_permanent("hostfs", source, top, Some(point), Some(fs))
}

/// Returns the directory at `path`. Creates the directories that do not exist. Fails as a walk to
/// `path` or the creation of a directory does.
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
