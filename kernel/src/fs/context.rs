//! Where a process stands in the tree.

use super::node::{Hold, NodeRef};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use machine::sync::SpinLock;

/// A directory that a process stands in, in a file system that stays mounted meanwhile.
#[derive(Clone, Debug)]
struct Standing {
    node: NodeRef,
    _hold: Option<Hold>,
}

impl Standing {
    fn on(node: NodeRef) -> Self {
        let _hold = node.hold();
        Self { node, _hold }
    }
}

#[derive(Clone, Debug)]
struct Places {
    root: Standing,
    cwd: Standing,
}

/// Root, working directory and umask. `CLONE_FS` shares it, `fork` copies it.
#[derive(Debug)]
pub struct Context {
    places: SpinLock<Places>,
    umask: AtomicU32,
}

impl Context {
    /// At `root`, the root of the tree, with Linux's umask of 022.
    pub fn new(root: NodeRef) -> Arc<Self> {
        Arc::new(Self {
            places: SpinLock::new(Places {
                root: Standing::on(root.clone()),
                cwd: Standing::on(root),
            }),
            umask: AtomicU32::new(0o022),
        })
    }

    /// A copy for a forked process.
    pub fn fork_copy(&self) -> Arc<Self> {
        let places = self.places.lock().clone();
        Arc::new(Self {
            places: SpinLock::new(places),
            umask: AtomicU32::new(self.umask()),
        })
    }

    /// Root directory.
    pub fn root(&self) -> NodeRef {
        self.places.lock().root.node.clone()
    }

    /// Working directory.
    pub fn cwd(&self) -> NodeRef {
        self.places.lock().cwd.node.clone()
    }

    /// Moves the working directory to the directory `node`.
    pub fn set_cwd(&self, node: NodeRef) {
        let new = Standing::on(node);
        // The guard is a temporary of the statement, the old place outlives it.
        let old = core::mem::replace(&mut self.places.lock().cwd, new);
        drop(old);
    }

    /// Moves the root to the directory `node` (`chroot`).
    pub fn set_root(&self, node: NodeRef) {
        let new = Standing::on(node);
        let old = core::mem::replace(&mut self.places.lock().root, new);
        drop(old);
    }

    /// Permission bits that new files do not get.
    pub fn umask(&self) -> u32 {
        // Relaxed: it orders nothing else.
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets the umask and gives the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }
}
