//! Mounts that no directory stores: those on files, and those on nodes that are seen through a bind
//! mount.
//!
//! A directory that is seen in its own file system stores the mount on it (`Node::cover`). Two
//! cases need the table here. A file has several names and only one of them is covered. A directory
//! may be covered in one bind mount and not in another.

use super::flags::FileKind;
use super::node::{Node, NodeId, NodeRef, same_mount};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicUsize, Ordering};
use logic::errno::Errno;
use machine::sync::SpinLock;

/// A node, and the number of the mount through which it is seen.
type Seen = (NodeId, u64);
/// The roots of the mounts on one node, by name. The empty name stands for the node itself, the
/// others for entries of it that are files.
type Tops = BTreeMap<Box<[u8]>, NodeRef>;

static TABLE: SpinLock<BTreeMap<Seen, Tops>> = SpinLock::new(BTreeMap::new());
/// The number of entries in the table, and of those on names of files. Changed with the table
/// locked.
static ALL: AtomicUsize = AtomicUsize::new(0);
static NAMED: AtomicUsize = AtomicUsize::new(0);

/// Returns whether anything is mounted on a name of a file.
#[inline]
pub(super) fn any_named() -> bool {
    // Relaxed: a walk at the time of a mount may see the tree before it or after it.
    NAMED.load(Ordering::Relaxed) != 0
}

fn seen(node: &dyn Node) -> Seen {
    (node.id(), node.mount())
}

fn find(node: &dyn Node, name: &[u8]) -> Option<NodeRef> {
    TABLE.lock().get(&seen(node))?.get(name).cloned()
}

/// Returns the root of the mount on the file `name` of `directory`, or `None` if nothing is mounted
/// there.
pub(super) fn on_name(directory: &dyn Node, name: &[u8]) -> Option<NodeRef> {
    find(directory, name)
}

/// Returns the root of the mount on `node`, which is seen through a bind mount. Returns `None` if
/// nothing is mounted on `node`.
pub(super) fn on(node: &dyn Node) -> Option<NodeRef> {
    // Relaxed: see `any_named`.
    if ALL.load(Ordering::Relaxed) == 0 {
        return None;
    }
    find(node, b"")
}

/// Returns whether anything is mounted on the directory `id`, seen through any bind mount.
pub(super) fn anywhere_on(id: NodeId) -> bool {
    if ALL.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let table = TABLE.lock();
    let mut seen = table.range((id, 0)..=(id, u64::MAX));
    seen.any(|(_, tops)| tops.contains_key(&b""[..]))
}

/// Mounts `top` on the file `name` of the directory `node`, or on `node` itself if `name` is empty.
/// If `top` is `None`, removes that mount.
pub(super) fn set(node: &dyn Node, name: &[u8], top: Option<NodeRef>) {
    let key = seen(node);
    let named = usize::from(!name.is_empty());
    let mut table = TABLE.lock();
    let old = match top {
        Some(top) => {
            let old = table.entry(key).or_default().insert(name.into(), top);
            if old.is_none() {
                ALL.fetch_add(1, Ordering::Relaxed);
                NAMED.fetch_add(named, Ordering::Relaxed);
            }
            old
        }
        None => {
            let tops = table.get_mut(&key);
            let old = tops.and_then(|tops| tops.remove(name));
            if table.get(&key).is_some_and(Tops::is_empty) {
                table.remove(&key);
            }
            if old.is_some() {
                ALL.fetch_sub(1, Ordering::Relaxed);
                NAMED.fetch_sub(named, Ordering::Relaxed);
            }
            old
        }
    };
    // The lock is released before the node is dropped.
    drop(table);
    drop(old);
}

/// Checks that the entry `name` of `parent`, which is `node`, may be removed, moved or replaced.
///
/// # Errors
/// Fails with `EBUSY` if something is mounted on the entry, seen through any mount.
#[inline]
pub fn check_free(parent: &NodeRef, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
    // Relaxed: see `any_named`.
    if ALL.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    look(parent, name, node)
}

#[cold]
fn look(parent: &NodeRef, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
    if !same_mount(parent, node) {
        return Err(Errno::EBUSY);
    }
    let (id, name) = match node.kind() {
        FileKind::Directory => (node.id(), &b""[..]),
        _ => (parent.id(), name),
    };
    let table = TABLE.lock();
    let mut mounts = table.range((id, 0)..=(id, u64::MAX));
    if mounts.any(|(_, tops)| tops.contains_key(name)) {
        return Err(Errno::EBUSY);
    }
    Ok(())
}
