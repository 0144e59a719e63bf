//! Which files of the host's are known, and what it said of them last.

use super::Hostfs;
use super::node::{HostNode, Place};
use crate::drivers::volume::{self, Attributes, Opcode, Request};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::sync::{SpinLock, spin_locks_held};

/// How long what the host said is taken for true where nobody looks at the name anew.
const TRUSTED: Nanos = Nanos::from_millis(50);
/// Handles that are given back at most before a request.
const GIVEN_BACK: usize = 64;

/// Handles to be given back, and how often they were given.
static LEFT: SpinLock<Vec<(u64, u64)>> = SpinLock::new(Vec::new());

/// What the host said of a file.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) attributes: Attributes,
    /// When.
    at: Option<Nanos>,
}

impl Known {
    pub(super) fn new(attributes: &Attributes) -> Self {
        Self {
            attributes: *attributes,
            at: Some(clock::now()),
        }
    }
}

/// How often a handle was given to us.
#[derive(Debug)]
pub(super) struct Given(AtomicU64);

impl Given {
    pub(super) const fn once() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Hostfs {
    /// The node that an answer told of, which gave its handle once more. A directory has this place.
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
            // Relaxed: the sum is read when nobody else has the node.
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

    /// The first known node with a handle above this one.
    pub(super) fn next_node(&self, after: u64) -> Option<(u64, Option<Arc<HostNode>>)> {
        let nodes = self.nodes.lock();
        let (handle, node) = nodes.range(after + 1..).next()?;
        Some((*handle, node.upgrade()))
    }

    /// A node is going.
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

/// Notes a handle that is to be given back.
fn leave(handle: u64, times: u64) {
    if times > 0 {
        let mut left = LEFT.lock();
        // Without memory the host keeps it.
        if left.try_reserve(1).is_ok() {
            left.push((handle, times));
        }
    }
}

/// Gives handles back that nobody needs.
pub(super) fn give_back() {
    for _ in 0..GIVEN_BACK {
        let Some((handle, times)) = LEFT.lock().pop() else {
            return;
        };
        let mut request = Request::new(Opcode::Forget, handle);
        request.numbers[0] = times;
        // It knows no such handle: then there is nothing to give back.
        let _ = volume::done(&request);
    }
}

impl HostNode {
    /// Takes what the host said just now. Called in the order of its answers; the pages of a file that others have changed go
    /// with [`Self::settle`].
    pub(super) fn learn(&self, attributes: &Attributes) {
        let mut known = self.known.lock();
        let changed = attributes.version_before != known.attributes.version;
        known.attributes = *attributes;
        known.at = Some(clock::now());
        drop(known);
        if changed {
            // Relaxed: whoever learned of it settles it.
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// What was said last is not to be relied on.
    pub(super) fn doubt(&self) {
        self.known.lock().at = None;
    }

    /// What the host said, which is asked again where that was long ago.
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

    /// Asks the host.
    pub(super) fn ask(&self) -> Result<Attributes, Errno> {
        let request = Request::new(Opcode::GetAttributes, self.handle);
        let attributes = volume::attributes(&request, |attributes| {
            self.learn(attributes);
            Ok(*attributes)
        })?;
        self.settle();
        Ok(attributes)
    }

    /// Bytes, as the host said.
    pub(super) fn size(&self) -> u64 {
        self.known.lock().attributes.size
    }
}
