//! Files of the host that others change while the guest runs.
//!
//! A lookup of such a file asks the host, unless it was asked a moment before. If the host has
//! another file there, or the same one with other bytes, the name leads to a new node. A program
//! that has the old node open keeps it with the pages that were read. Reading other pages of it
//! fails with `ESTALE`.

use super::below::{FileBelow, is_nothing, join};
use super::{Body, TmpNode};
use crate::drivers::root;
use crate::fs::FileKind;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};

/// How long an answer of the host is trusted.
const TRUSTED: Nanos = Nanos::from_millis(50);

/// The time at which the host was last asked about a file. 0 if it must be asked again.
#[derive(Debug)]
pub(super) struct Asked(AtomicU64);

impl Asked {
    /// Returns the state of a file about which the host was just asked.
    pub(super) fn now() -> Self {
        Self(AtomicU64::new(clock::now().0))
    }

    // Relaxed (all): a hint that orders nothing.

    fn again(&self) {
        self.0.store(clock::now().0, Ordering::Relaxed);
    }

    /// Marks the file as not asked about, so the next lookup of its name asks the host.
    pub(super) fn doubt(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn is_old(&self) -> bool {
        let asked = Nanos(self.0.load(Ordering::Relaxed));
        clock::now() >= asked.saturating_add(TRUSTED)
    }
}

/// The host's answer about the path of a file.
enum News {
    /// The host has the same version of the file there.
    Same,
    /// The host has another file or other bytes there. The new node shows them.
    Other(Arc<TmpNode>),
    /// The host has no regular file there any more.
    Gone,
}

impl TmpNode {
    /// Returns the host's file that this node shows, if the host must be asked about it. Returns
    /// `None` otherwise.
    fn to_renew(&self) -> Option<&FileBelow> {
        let Body::Regular(regular) = &self.body else {
            return None;
        };
        let below = regular.below.as_ref()?;
        // If a program may have changed the bytes, they are the guest's own.
        (below.asked.is_old() && !regular.content.lock().changes).then_some(below)
    }

    /// Returns the node to which the entry `name` of this directory leads, after it led to `node` a
    /// moment ago. If `node` is a copy of a host file and the host was not asked lately, asks the
    /// host. If the file has changed there, the entry gets a new node.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the host has removed the file, and with `ENOMEM`.
    pub(super) fn renewed(&self, name: &[u8], node: Arc<Self>) -> Result<Arc<Self>, Errno> {
        let Some(below) = node.to_renew() else {
            return Ok(node);
        };
        // Set before the host is asked: other lookups do not ask again, and a later change is found
        // later.
        below.asked.again();
        let path = join(&below.folder, &below.name)?;
        let news = root::look(&path, false, |entry| {
            let given = &entry.attributes;
            let is_regular = FileKind::from_mode(given.mode) == Some(FileKind::Regular);
            if is_regular && given.version == below.version {
                node.take_over(given.mode, [given.uid, given.gid]);
                return Ok(News::Same);
            }
            if !is_regular && !node.is_as_below() {
                return Ok(News::Gone);
            }
            let new = self.node_of(&below.folder, &below.name, entry)?;
            Ok(News::Other(new))
        });
        match news {
            Ok(News::Same) => Ok(node),
            Ok(News::Other(new)) => {
                let now = self.directory()?.replace(name, &node, &new)?;
                now.ok_or(Errno::ENOENT)
            }
            Ok(News::Gone) => self.without(name, node),
            Err(error) if is_nothing(error) => self.without(name, node),
            Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
            // The node stays as it is until the host answers.
            Err(_) => Ok(node),
        }
    }

    /// Removes the entry `name`, which is `node`, and fails with `ENOENT`. If a program has changed
    /// or moved `node`, removes nothing and returns `node`. If another node has the name by now,
    /// returns that node.
    fn without(&self, name: &[u8], node: Arc<Self>) -> Result<Arc<Self>, Errno> {
        if !node.is_as_below() {
            return Ok(node);
        }
        let now = self.directory()?.forget_entry(name, &node);
        now.ok_or(Errno::ENOENT)
    }

    /// Takes over the mode and the owner that the host's file has now.
    fn take_over(&self, mode: u32, [uid, gid]: [u32; 2]) {
        let mut attributes = self.attributes.lock();
        // A task that changes attributes calls `keep` first, and then takes the lock.
        if self.is_as_below() {
            attributes.permissions = mode & 0o7777;
            (attributes.uid, attributes.gid) = (uid, gid);
        }
    }

    /// Copies the mode, the owner and the extended attributes that a program has given to `old`.
    /// That node keeps its own for programs that have it open. This node is not entered yet.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn copy_attributes_of(&self, old: &Self) -> Result<(), Errno> {
        let theirs = old.attributes.lock();
        // A task that changes attributes calls `keep` first, and then takes the lock.
        if old.is_as_below() {
            return Ok(());
        }
        let extended = match &theirs.extended {
            Some(extended) => Some(Box::new(extended.copy()?)),
            None => None,
        };
        self.keep();
        let mut attributes = self.attributes.lock();
        attributes.permissions = theirs.permissions;
        (attributes.uid, attributes.gid) = (theirs.uid, theirs.gid);
        attributes.extended = extended;
        // Relaxed: only a hint. The attributes are checked with the lock held.
        let has = old.has_capabilities.load(Ordering::Relaxed);
        self.has_capabilities.store(has, Ordering::Relaxed);
        self.lists.copy_from(&old.lists);
        Ok(())
    }

    /// Subtracts 1 from the link count of the node, because a name of it was removed.
    pub(super) fn subtract_link(&self) {
        let mut attributes = self.attributes.lock();
        attributes.links = attributes.links.saturating_sub(1);
    }
}
