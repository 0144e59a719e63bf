//! What is mounted where no directory keeps it: on files, and on what is seen through a bind mount.
//!
//! A directory that is seen in its own file system keeps what is mounted on it (`Node::cover`). A
//! file has several names, of which one is covered, and a directory is covered in one bind mount
//! and not in another. These stand in a table here.

use super::flags::FileKind;
use super::node::{Node, NodeId, NodeRef, same_mount};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicUsize, Ordering};
use logic::errno::Errno;
use machine::sync::SpinLock;

/// A node, and the number of the mount through which it is seen.
type Seen = (NodeId, u64);
/// The roots of what is mounted on a node itself (the empty name), and on entries of it that are
/// files.
type Tops = BTreeMap<Box<[u8]>, NodeRef>;

static TABLE: SpinLock<BTreeMap<Seen, Tops>> = SpinLock::new(BTreeMap::new());
/// How many there are, and how many of them are on names of files. Changed with the table locked.
static ALL: AtomicUsize = AtomicUsize::new(0);
static NAMED: AtomicUsize = AtomicUsize::new(0);

/// Whether anything is mounted on a name of a file.
#[inline]
pub(super) fn any_named() -> bool {
    // Relaxed: who walks through while something is mounted may come before it or after.
    NAMED.load(Ordering::Relaxed) != 0
}

fn seen(node: &dyn Node) -> Seen {
    (node.id(), node.mount())
}

fn find(node: &dyn Node, name: &[u8]) -> Option<NodeRef> {
    TABLE.lock().get(&seen(node))?.get(name).cloned()
}

/// Returns the root of what is mounted on the file `name` of a directory.
pub(super) fn on_name(directory: &dyn Node, name: &[u8]) -> Option<NodeRef> {
    find(directory, name)
}

/// Returns the root of what is mounted on a node that is seen through a bind mount.
pub(super) fn on(node: &dyn Node) -> Option<NodeRef> {
    // Relaxed: as above.
    if ALL.load(Ordering::Relaxed) == 0 {
        return None;
    }
    find(node, b"")
}

/// Returns whether anything is mounted on the directory `id`, through whatever bind mount it is seen.
pub(super) fn anywhere_on(id: NodeId) -> bool {
    if ALL.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let table = TABLE.lock();
    let mut seen = table.range((id, 0)..=(id, u64::MAX));
    seen.any(|(_, tops)| tops.contains_key(&b""[..]))
}

/// Mounts `top` on the file `name` of the directory `node`, or with an empty name on `node` itself;
/// with `None` nothing.
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
    // The lock goes before the node does.
    drop(table);
    drop(old);
}

/// Whether the entry `name` of `parent`, which is `node`, may be removed, moved or replaced.
///
/// # Errors
/// Fails with `EBUSY` if something is mounted on it, through whichever mount that is seen.
#[inline]
pub fn check_free(parent: &NodeRef, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
    // Relaxed: as above.
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
