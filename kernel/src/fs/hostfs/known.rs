//! Nodes in use, and their attributes as the host last reported them.

use super::Hostfs;
use super::node::{HostNode, Place};
use crate::drivers::volume::{self, Attributes, Opcode, Request};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::sync::{SpinLock, spin_locks_held};

/// How long attributes are trusted. A lookup of the name asks the host at any time.
const TRUSTED: Nanos = Nanos::from_millis(50);
/// The most handles that are returned to the host before a request.
const GIVEN_BACK: usize = 64;

/// Handles to be returned to the host, and how often it gave each.
static LEFT: SpinLock<Vec<(u64, u64)>> = SpinLock::new(Vec::new());

/// The attributes of a file as the host reported them.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) attributes: Attributes,
    /// When the host reported the attributes. `None` if the host must be asked again.
    at: Option<Nanos>,
}

impl Known {
    /// Returns the record of `attributes`, which the host has just reported.
    pub(super) fn new(attributes: &Attributes) -> Self {
        Self {
            attributes: *attributes,
            at: Some(clock::now()),
        }
    }
}

/// The number of times that the host gave us the handle of one node.
#[derive(Debug)]
pub(super) struct Given(AtomicU64);

impl Given {
    /// Returns the count 1, for a handle that the host gave once.
    pub(super) const fn once() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Hostfs {
    /// Returns the node that the host's answer `attributes` describes, and counts that the answer
    /// gave the node's handle. Creates the node if it is not in use. If the node is a directory and
    /// `place` is given, that becomes its place.
    ///
    /// # Errors
    /// Fails with `EIO` if the file type is unknown.
    pub(super) fn node_of(
        self: &Arc<Self>,
        attributes: &Attributes,
        place: Option<Place>,
    ) -> Result<Arc<HostNode>, Errno> {
        let new = HostNode::new(self, attributes, place.clone());
        let Some(new) = new else {
            leave(attributes.handle, 1);
            return Err(Errno::EIO);
        };
        let mut nodes = self.nodes.lock();
        let there = nodes
            .get(&attributes.handle)
            .and_then(alloc::sync::Weak::upgrade);
        if let Some(node) = there {
            // Relaxed: the sum is read when there is no other reference to the node.
            node.given.0.fetch_add(1, Ordering::Relaxed);
            drop(nodes);
            new.given.0.store(0, Ordering::Relaxed);
            drop(new);
            node.learn(attributes);
            if let Some(place) = place {
                node.move_to(place);
            }
            return Ok(node);
        }
        nodes.insert(attributes.handle, Arc::downgrade(&new));
        Ok(new)
    }

    /// Returns the lowest handle above `after` that a node has, and the node. The node is `None` if
    /// it is being dropped. Returns `None` if no node has such a handle.
    pub(super) fn next_node(&self, after: u64) -> Option<(u64, Option<Arc<HostNode>>)> {
        let nodes = self.nodes.lock();
        let (handle, node) = nodes.range(after + 1..).next()?;
        Some((*handle, node.upgrade()))
    }

    /// Removes `node`, which is being dropped, from the nodes in use. Queues its handle to be
    /// returned to the host.
    pub(super) fn forget(&self, node: &HostNode) {
        {
            let mut nodes = self.nodes.lock();
            let own = nodes
                .get(&node.handle)
                .is_some_and(|there| core::ptr::eq(there.as_ptr(), node));
            if own {
                nodes.remove(&node.handle);
            }
        }
        leave(node.handle, node.given.0.load(Ordering::Relaxed));
    }
}

/// Queues `handle`, which the host gave `times` times, to be returned to the host.
fn leave(handle: u64, times: u64) {
    if times > 0 {
        let mut left = LEFT.lock();
        // Without memory the host keeps the handle.
        if left.try_reserve(1).is_ok() {
            left.push((handle, times));
        }
    }
}

/// Returns up to [`GIVEN_BACK`] unused handles to the host.
pub(super) fn give_back() {
    for _ in 0..GIVEN_BACK {
        let Some((handle, times)) = LEFT.lock().pop() else {
            return;
        };
        let mut request = Request::new(Opcode::Forget, handle);
        request.numbers[0] = times;
        // If the host does not know the handle, there is nothing to return.
        let _ = volume::done(&request);
    }
}

impl HostNode {
    /// Stores `attributes`, which the host has just reported. Call this in the order of the host's
    /// answers. If the answer shows that others have changed the file, marks its pages as old, and
    /// [`Self::settle`] drops them.
    pub(super) fn learn(&self, attributes: &Attributes) {
        let mut known = self.known.lock();
        let changed = attributes.version_before != known.attributes.version;
        known.attributes = *attributes;
        known.at = Some(clock::now());
        drop(known);
        if changed {
            // Relaxed: the thread that sets the flag also calls `settle`.
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Marks the attributes as stale, so the next use of them asks the host.
    pub(super) fn doubt(&self) {
        self.known.lock().at = None;
    }

    /// Returns the attributes. Asks the host if they are older than [`TRUSTED`] and no spin lock is
    /// held. If the host fails, returns the old ones.
    pub(super) fn attributes(&self) -> Attributes {
        let (attributes, at) = {
            let known = self.known.lock();
            (known.attributes, known.at)
        };
        let fresh = at.is_some_and(|at| clock::now() < at.saturating_add(TRUSTED));
        if fresh || spin_locks_held() > 0 {
            return attributes;
        }
        match self.ask() {
            Ok(attributes) => attributes,
            Err(_) => attributes,
        }
    }

    /// Asks the host for the attributes, and stores and returns them. Drops pages of the file if
    /// others have changed it.
    ///
    /// # Errors
    /// Fails with the host's error.
    pub(super) fn ask(&self) -> Result<Attributes, Errno> {
        let request = Request::new(Opcode::GetAttributes, self.handle);
        let attributes = volume::attributes(&request, |attributes| {
            self.learn(attributes);
            Ok(*attributes)
        })?;
        self.settle();
        Ok(attributes)
    }

    /// Returns the size in bytes, as the host last reported it.
    pub(super) fn size(&self) -> u64 {
        self.known.lock().attributes.size
    }
}
