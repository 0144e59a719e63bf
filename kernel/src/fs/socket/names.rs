//! The names of `AF_UNIX` sockets: nodes in the file tree, and abstract names.

use super::address::SocketKind;
use super::state::Socket;
use crate::fs::NodeRef;
use crate::fs::node::{Hold, NodeId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU32, Ordering};
use logic::errno::Errno;
use machine::sync::SpinLock;

/// An abstract name. As on Linux, each type of socket has its own set of names.
type AbstractKey = (SocketKind, Arc<[u8]>);

struct Names {
    abstracts: BTreeMap<AbstractKey, Weak<Socket>>,
    nodes: BTreeMap<NodeId, Weak<Socket>>,
}

/// Locked while no lock is held that dropping a socket takes. Values found are dropped after it is
/// unlocked.
static NAMES: SpinLock<Names> = SpinLock::new(Names {
    abstracts: BTreeMap::new(),
    nodes: BTreeMap::new(),
});

/// The ownership of an abstract name, which is free again when this is dropped.
struct AbstractName(AbstractKey);

impl Drop for AbstractName {
    fn drop(&mut self) {
        let gone = NAMES.lock().abstracts.remove(&self.0);
        drop(gone);
    }
}

/// The ownership of the entry that leads from a node to a socket. The drop removes the entry. The
/// reference keeps the node, so that no other node gets its number.
struct NodeName {
    node: NodeRef,
    /// A use of the node's mount, which keeps the file system mounted.
    _hold: Option<Hold>,
}

impl Drop for NodeName {
    fn drop(&mut self) {
        let gone = NAMES.lock().nodes.remove(&self.node.id());
        drop(gone);
    }
}

/// Gives `socket` an abstract name until the result is dropped.
///
/// # Errors
/// Fails with `EADDRINUSE` if another socket has the name.
pub(super) fn take_abstract(socket: &Socket, name: &Arc<[u8]>) -> Result<Hold, Errno> {
    let key = (socket.kind(), name.clone());
    let mut names = NAMES.lock();
    if names.abstracts.contains_key(&key) {
        return Err(Errno::EADDRINUSE);
    }
    names.abstracts.insert(key.clone(), socket.weak());
    drop(names);
    Ok(Arc::new(AbstractName(key)))
}

/// Gives `socket` a free abstract name of five hexadecimal digits, as Linux does for a `bind`
/// without a name. Returns the name and its hold, whose drop frees the name.
///
/// # Errors
/// Fails with `ENOSPC` if all such names are in use.
pub(super) fn take_any(socket: &Socket) -> Result<(Arc<[u8]>, Hold), Errno> {
    const NAMES_OF_FIVE: u32 = 1 << 20;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..NAMES_OF_FIVE {
        // Relaxed: only the number matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % NAMES_OF_FIVE;
        let name: Arc<[u8]> = format!("{number:05x}").into_bytes().into();
        if let Ok(hold) = take_abstract(socket, &name) {
            return Ok((name, hold));
        }
    }
    Err(Errno::ENOSPC)
}

/// Makes the new node `node` lead to `socket` until the result is dropped.
pub(super) fn take_node(socket: &Socket, node: NodeRef) -> Hold {
    let old = NAMES.lock().nodes.insert(node.id(), socket.weak());
    debug_assert!(old.is_none(), "a new node leads nowhere");
    let _hold = node.hold();
    Arc::new(NodeName { node, _hold })
}

/// Returns the socket of the type `kind` with the abstract name `name`, or `None` if there is none.
pub(super) fn find_abstract(kind: SocketKind, name: &Arc<[u8]>) -> Option<Arc<Socket>> {
    let found = NAMES.lock().abstracts.get(&(kind, name.clone())).cloned();
    found?.upgrade()
}

/// Returns the socket that `node` leads to, or `None` if there is none.
pub(super) fn find_node(node: &NodeRef) -> Option<Arc<Socket>> {
    let found = NAMES.lock().nodes.get(&node.id()).cloned();
    found?.upgrade()
}
