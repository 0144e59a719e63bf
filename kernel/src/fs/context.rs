//! The places of a process in the tree: its root and its working directory.

use super::node::{Hold, NodeRef};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use machine::sync::SpinLock;

/// A directory that a process uses as its root or working directory. Keeps the directory's file
/// system mounted.
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

/// Root, working directory and umask of a process. `CLONE_FS` shares a context, `fork` copies it.
#[derive(Debug)]
pub struct Context {
    places: SpinLock<Places>,
    umask: AtomicU32,
}

impl Context {
    /// Returns a context at `root`, the root of the tree, with Linux's umask of 022.
    pub fn new(root: NodeRef) -> Arc<Self> {
        Arc::new(Self {
            places: SpinLock::new(Places {
                root: Standing::on(root.clone()),
                cwd: Standing::on(root),
            }),
            umask: AtomicU32::new(0o022),
        })
    }

    /// Returns a copy for a forked process.
    pub fn fork_copy(&self) -> Arc<Self> {
        let places = self.places.lock().clone();
        Arc::new(Self {
            places: SpinLock::new(places),
            umask: AtomicU32::new(self.umask()),
        })
    }

    /// Returns the root directory.
    pub fn root(&self) -> NodeRef {
        self.places.lock().root.node.clone()
    }

    /// Returns the working directory.
    pub fn cwd(&self) -> NodeRef {
        self.places.lock().cwd.node.clone()
    }

    /// Moves the working directory to the directory `node`.
    pub fn set_cwd(&self, node: NodeRef) {
        let new = Standing::on(node);
        // The guard is a temporary of the statement; the old place outlives it.
        let old = core::mem::replace(&mut self.places.lock().cwd, new);
        drop(old);
    }

    /// Moves the root to the directory `node` (`chroot`).
    pub fn set_root(&self, node: NodeRef) {
        let new = Standing::on(node);
        let old = core::mem::replace(&mut self.places.lock().root, new);
        drop(old);
    }

    /// Returns the permission bits that new files do not get.
    pub fn umask(&self) -> u32 {
        // Relaxed: the mask orders no other access.
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets the umask and returns the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }
}
